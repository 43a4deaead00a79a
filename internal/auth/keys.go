package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// minRSABits is what RFC 7518, section 3.3, asks for.
const minRSABits = 2048

// key is one key that tokens may be signed with, and the one algorithm that it
// is for.
type key struct {
	id       string // "" for none
	alg      string
	material any // as the library takes it
}

// algorithmOf returns the algorithm that a public key is for.
func algorithmOf(public any) (string, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return "", fmt.Errorf("an RSA key of %d bits is too short: use %d or more", k.N.BitLen(), minRSABits)
		}
		return jwt.SigningMethodRS256.Alg(), nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return "", errors.New("an ECDSA key must be on the curve P-256")
		}
		if _, err := k.ECDH(); err != nil {
			return "", errors.New("the ECDSA key is no point of its curve")
		}
		return jwt.SigningMethodES256.Alg(), nil
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA.Alg(), nil
	}
	return "", errors.New("the key must be RSA, ECDSA on P-256, or Ed25519")
}

// onlyBlock returns the one block of a PEM file.
func onlyBlock(file []byte) (*pem.Block, error) {
	block, rest := pem.Decode(file)
	if block == nil {
		return nil, errors.New("this is not PEM: it must have a line like -----BEGIN PUBLIC KEY-----")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("there is more than one PEM block: leave the one key")
	}
	return block, nil
}

// publicKeyPEM reads a public key or a certificate.
func publicKeyPEM(file []byte) (key, error) {
	block, err := onlyBlock(file)
	if err != nil {
		return key{}, err
	}
	var public any
	switch {
	case block.Type == "PUBLIC KEY":
		public, err = x509.ParsePKIXPublicKey(block.Bytes)
	case block.Type == "RSA PUBLIC KEY":
		public, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case block.Type == "CERTIFICATE":
		var certificate *x509.Certificate
		if certificate, err = x509.ParseCertificate(block.Bytes); err == nil {
			public = certificate.PublicKey
		}
	case strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return key{}, errors.New("this is a private key, which belongs to the issuer alone: " +
			"give the public one, as \"openssl pkey -pubout\" writes it")
	default:
		return key{}, errors.New("the PEM block is no public key: it must begin with -----BEGIN PUBLIC KEY-----")
	}
	if err != nil {
		return key{}, fmt.Errorf("the public key is malformed: %w", err)
	}
	alg, err := algorithmOf(public)
	return key{alg: alg, material: public}, err
}

// find returns the material of the key that a token names. A token that names
// none is taken to mean the only key of its algorithm, if that is the only one.
func find(keys []key, t *jwt.Token) (any, error) {
	id, named := t.Header["kid"]
	known, candidates := false, 0
	var found key
	for _, k := range keys {
		if named && k.id != id {
			continue
		}
		known = true
		if k.alg != t.Method.Alg() {
			continue
		}
		if candidates++; candidates == 1 {
			found = k
		}
	}
	switch {
	case !known:
		return nil, KeyUnknown
	case candidates == 0:
		return nil, AlgWrong
	case candidates > 1 && !named:
		return nil, KeyUnknown
	}
	return found.material, nil
}
