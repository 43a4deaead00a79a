package auth

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Minter makes tokens, for testing and for small sites: whoever has its key can
// grant anything.
type Minter struct {
	method jwt.SigningMethod
	key    any
}

// NewMinter returns a minter that signs with a secret (HS256) or with a private
// key in PEM. Exactly one is given.
func NewMinter(secret, privateKey []byte) (*Minter, error) {
	if (len(secret) > 0) == (len(privateKey) > 0) {
		return nil, errors.New("give either a secret or a private key")
	}
	if len(secret) > 0 {
		return &Minter{jwt.SigningMethodHS256, secret}, nil
	}
	private, err := privateKeyPEM(privateKey)
	if err != nil {
		return nil, err
	}
	alg, err := algorithmOf(private.Public())
	if err != nil {
		return nil, err
	}
	return &Minter{jwt.GetSigningMethod(alg), private}, nil
}

func privateKeyPEM(file []byte) (crypto.Signer, error) {
	block, err := onlyBlock(file)
	if err != nil {
		return nil, err
	}
	var private any
	switch block.Type {
	case "PRIVATE KEY":
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		private, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		private, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, errors.New("the PEM block is no private key: it must begin with -----BEGIN PRIVATE KEY-----, without encryption")
	}
	if err != nil {
		return nil, fmt.Errorf("the private key is malformed: %w", err)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, errors.New("the private key is not one that signs")
	}
	return signer, nil
}

// Claims is what a minted token says. Zero values are left out.
type Claims struct {
	Subject, Audience, Issuer string
	KeyID                     string
	Issued, Expires           time.Time
	Join, Publish             []string // globs on names of rooms
	Admin                     bool
}

// Mint returns a token.
func (m *Minter) Mint(c Claims) (string, error) {
	for _, glob := range append(append([]string(nil), c.Join...), c.Publish...) {
		if _, err := path.Match(glob, ""); err != nil {
			return "", fmt.Errorf("%q is no glob: see path.Match for the syntax", glob)
		}
	}
	hubd := map[string]any{"admin": c.Admin}
	for name, globs := range map[string][]string{"join": c.Join, "publish": c.Publish} {
		if len(globs) > 0 {
			hubd[name] = globs
		}
	}
	all := jwt.MapClaims{"hubd": hubd}
	for name, value := range map[string]string{"sub": c.Subject, "aud": c.Audience, "iss": c.Issuer} {
		if value != "" {
			all[name] = value
		}
	}
	for name, value := range map[string]time.Time{"iat": c.Issued, "exp": c.Expires} {
		if !value.IsZero() {
			all[name] = value.Unix()
		}
	}
	t := jwt.NewWithClaims(m.method, all)
	if c.KeyID != "" {
		t.Header["kid"] = c.KeyID
	}
	signed, err := t.SignedString(m.key)
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return signed, nil
}
