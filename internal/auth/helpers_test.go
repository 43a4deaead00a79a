package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"hubd/internal/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of more than thirty-two bytes"

var now = time.Unix(1_800_000_000, 0)

// keys are one of each kind, made once: RSA keys take their time.
var keys = struct {
	rsa, otherRSA *rsa.PrivateKey
	weakRSA       *rsa.PrivateKey
	ec, otherEC   *ecdsa.PrivateKey
	p384          *ecdsa.PrivateKey
	ed, otherEd   ed25519.PrivateKey
}{
	rsa: must(rsa.GenerateKey(rand.Reader, 2048)), otherRSA: must(rsa.GenerateKey(rand.Reader, 2048)),
	weakRSA: must(rsa.GenerateKey(rand.Reader, 1024)),
	ec:      must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), otherEC: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
	p384: must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
	ed:   newEd(), otherEd: newEd(),
}

func newEd() ed25519.PrivateKey {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return private
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func publicPEM(k crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(k.Public()))})
}

func privatePEM(k crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(k))})
}

// verifier returns one that is closed with the test.
func verifier(t testing.TB, cfg auth.Config) *auth.Verifier {
	t.Helper()
	v, err := auth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

type claims = jwt.MapClaims

// good are claims that nothing is wrong with.
func good(more claims) claims {
	c := claims{"sub": "alice", "exp": now.Unix() + 60, "hubd": claims{"join": []string{"chat.*"}, "publish": []string{"chat.lobby"}}}
	for name, value := range more {
		c[name] = value
		if value == nil {
			delete(c, name)
		}
	}
	return c
}

// sign makes a token with the library alone.
func sign(method jwt.SigningMethod, key any, c claims, header ...string) string {
	t := jwt.NewWithClaims(method, c)
	for i := 0; i+1 < len(header); i += 2 {
		t.Header[header[i]] = header[i+1]
	}
	return must(t.SignedString(key))
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwk is a public key as a set has it.
func jwk(id string, k crypto.Signer, more map[string]any) map[string]any {
	var j map[string]any
	switch k := k.Public().(type) {
	case *rsa.PublicKey:
		j = map[string]any{"kty": "RSA", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point := must(k.ECDH()).Bytes()[1:]
		j = map[string]any{"kty": "EC", "crv": k.Params().Name, "x": b64(point[:len(point)/2]), "y": b64(point[len(point)/2:])}
	case ed25519.PublicKey:
		j = map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(k)}
	}
	if id != "" {
		j["kid"] = id
	}
	for name, value := range more {
		j[name] = value
	}
	return j
}
