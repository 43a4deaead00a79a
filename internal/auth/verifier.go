package auth

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultLeeway is how far clocks may differ, where Config says nothing.
const DefaultLeeway = 30 * time.Second

// MaxTokenBytes is the longest token that is looked at.
const MaxTokenBytes = 8 << 10

// Config says which tokens are good. Exactly one of HMACSecret, PublicKey and
// JWKSURL is given; all else may be left zero.
type Config struct {
	// HMACSecret verifies HS256. RFC 7518, section 3.2, asks for 32 bytes or
	// more, which is left to the caller.
	HMACSecret []byte
	// PublicKey is a key or certificate in PEM: RSA of 2,048 bits and more
	// verifies RS256, ECDSA on P-256 ES256, Ed25519 EdDSA.
	PublicKey []byte
	// JWKSURL is where a set of such public keys is fetched.
	JWKSURL string

	// Audience, if set, must be among a token's aud; Issuer must be its iss.
	Audience, Issuer string
	// Leeway is added to exp, and taken from nbf and iat. 0: DefaultLeeway;
	// negative: none.
	Leeway time.Duration

	// Logger is told how the fetching goes; nil: nobody is.
	Logger *slog.Logger
	// Client fetches the key set; nil: one of the verifier's own.
	Client *http.Client
	// FetchInterval is the least time between two fetches; 0: 10 s. A set that
	// is there is fetched again every thirty intervals.
	FetchInterval time.Duration
}

// Verifier checks tokens. It may be used concurrently.
type Verifier struct {
	cfg    Config
	parser *jwt.Parser
	static []key
	set    *keySet // nil where the keys are static
}

// New returns a verifier, or what is wrong with cfg. With a JWKSURL it begins to
// fetch and returns at once; Close ends that.
func New(cfg Config) (*Verifier, error) {
	switch {
	case cfg.Leeway == 0:
		cfg.Leeway = DefaultLeeway
	case cfg.Leeway < 0:
		cfg.Leeway = 0
	}
	v := &Verifier{cfg: cfg, parser: jwt.NewParser(jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())}
	given := 0
	if len(cfg.HMACSecret) > 0 {
		given++
		v.static = []key{{alg: jwt.SigningMethodHS256.Alg(), material: slices.Clone(cfg.HMACSecret)}}
	}
	if len(cfg.PublicKey) > 0 {
		given++
		k, err := publicKeyPEM(cfg.PublicKey)
		if err != nil {
			return nil, err
		}
		v.static = []key{k}
	}
	if cfg.JWKSURL != "" {
		given++
		if err := CheckJWKSURL(cfg.JWKSURL); err != nil {
			return nil, err
		}
	}
	if given != 1 {
		return nil, errors.New("give exactly one of a secret, a public key and the URL of a key set")
	}
	if cfg.JWKSURL != "" {
		v.set = startKeySet(cfg)
	}
	return v, nil
}

// Close ends the fetching, if there is any, and returns when that is over. It
// may be called again.
func (v *Verifier) Close() {
	if v.set != nil {
		v.set.close()
	}
}

// Leeway returns how long after its exp a token is still good.
func (v *Verifier) Leeway() time.Duration { return v.cfg.Leeway }

// Ready reports whether there are keys.
func (v *Verifier) Ready() bool {
	_, there := v.keys()
	return there
}

// Refresh asks for the key set to be fetched as soon as may be, because Verify
// returned KeyUnknown or ErrNoKeys. The channel is closed when the fetch that is
// under way or begins now is over; where none can begin now, it is closed.
func (v *Verifier) Refresh() <-chan struct{} {
	if v.set == nil {
		return closed
	}
	return v.set.ask()
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (v *Verifier) keys() (keys []key, there bool) {
	if v.set == nil {
		return v.static, true
	}
	return v.set.current()
}

// Refusal is why a token is no good. Its texts are fixed: nothing of the token
// is in them.
type Refusal string

// Error implements error.
func (r Refusal) Error() string { return string(r) }

// The refusals of Verify.
const (
	Malformed      Refusal = "the token is not a JWT, or longer than 8192 bytes"
	CritHeader     Refusal = "crit: the token needs an extension that is unknown here"
	AlgWrong       Refusal = "alg: the token is not signed with the algorithm of the configured key"
	KeyUnknown     Refusal = "kid: the key that the token is signed with is unknown"
	SignatureWrong Refusal = "the token's signature is not that of the configured key"
	ExpMissing     Refusal = "exp: the token has none"
	ExpPast        Refusal = "exp: the token has expired"
	NbfFuture      Refusal = "nbf: the token is not valid yet"
	IatFuture      Refusal = "iat: the token was issued in the future"
	DateInvalid    Refusal = "exp, nbf or iat: not a time in seconds since 1970"
	AudWrong       Refusal = "aud: the token is for another audience, or for none"
	IssWrong       Refusal = "iss: the token is by another issuer, or by none"
	SubInvalid     Refusal = "sub: the token has none, or one longer than 256 bytes"
	ClaimInvalid   Refusal = "aud, iss or sub: not of the type that RFC 7519 gives it"
	HubdInvalid    Refusal = "hubd: not an object of join and publish, lists of globs, and admin, true or false"
)

// ErrNoKeys is what Verify returns as long as no key set has been fetched: it
// says nothing about the token.
var ErrNoKeys = errors.New("the keys for checking tokens have not been fetched yet")

// Verify returns what the token grants at this time, or a Refusal, or ErrNoKeys.
func (v *Verifier) Verify(token string, now time.Time) (Grant, error) {
	if len(token) > MaxTokenBytes || strings.ContainsFunc(token, notOfTokens) {
		return Grant{}, Malformed
	}
	var c claims
	if _, err := v.parser.ParseWithClaims(token, &c, v.keyOf); err != nil {
		return Grant{}, refusalOf(err)
	}
	if err := v.judge(&c, now); err != nil {
		return Grant{}, err
	}
	return c.grant()
}

// notOfTokens reports a character that no token has. The library's decoder
// passes over line ends.
func notOfTokens(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
		return false
	}
	return true
}

// keyOf returns the key that a token must be signed with.
func (v *Verifier) keyOf(t *jwt.Token) (any, error) {
	// RFC 7515, section 4.1.11; the library leaves it to us.
	if _, critical := t.Header["crit"]; critical {
		return nil, CritHeader
	}
	keys, there := v.keys()
	if !there {
		return nil, ErrNoKeys
	}
	if v.set == nil {
		// The one key is meant, whatever it is called by.
		if t.Method.Alg() != keys[0].alg {
			return nil, AlgWrong
		}
		return keys[0].material, nil
	}
	return find(keys, t)
}

// refusalOf finds the reason in an error of the library's. Its texts may quote
// the token, so none of them goes any further.
func refusalOf(err error) error {
	var r Refusal
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, ErrNoKeys):
		return ErrNoKeys
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return SignatureWrong
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return AlgWrong
	}
	return Malformed
}

// judge looks at the claims that bound a token's use.
func (v *Verifier) judge(c *claims, now time.Time) error {
	switch {
	case c.expires.IsZero():
		return ExpMissing
	case !now.Before(c.expires.Add(v.cfg.Leeway)):
		return ExpPast
	case now.Before(c.notBefore.Add(-v.cfg.Leeway)):
		return NbfFuture
	case now.Before(c.issued.Add(-v.cfg.Leeway)):
		return IatFuture
	case v.cfg.Audience != "" && !slices.Contains(c.audience, v.cfg.Audience):
		return AudWrong
	case v.cfg.Issuer != "" && c.issuer != v.cfg.Issuer:
		return IssWrong
	}
	return nil
}
