package auth

import (
	"encoding/json"
	"math"
	"path"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// maxSubjectBytes is the longest sub: the server keeps them.
const maxSubjectBytes = 256

// claims is what a token says. Names of claims are compared as they are, where
// encoding/json would take Exp for exp.
type claims struct {
	subject, issuer            string
	audience                   []string
	expires, notBefore, issued time.Time // zero: not there
	hubd                       hubdClaim
}

// hubdClaim is the claim of our own.
type hubdClaim struct {
	join, publish []string
	admin         bool
}

// UnmarshalJSON implements json.Unmarshaler. Its errors are Refusals.
func (c *claims) UnmarshalJSON(b []byte) error {
	*c = claims{}
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil || all == nil {
		return Malformed
	}
	for name, to := range map[string]*time.Time{"exp": &c.expires, "nbf": &c.notBefore, "iat": &c.issued} {
		if raw, ok := all[name]; ok {
			t, err := date(raw)
			if err != nil {
				return err
			}
			*to = t
		}
	}
	for name, to := range map[string]*string{"sub": &c.subject, "iss": &c.issuer} {
		if raw, ok := all[name]; ok && json.Unmarshal(raw, to) != nil {
			return ClaimInvalid
		}
	}
	if raw, ok := all["aud"]; ok {
		var one string
		if json.Unmarshal(raw, &one) == nil {
			c.audience = []string{one}
		} else if json.Unmarshal(raw, &c.audience) != nil {
			return ClaimInvalid
		}
	}
	if raw, ok := all["hubd"]; ok {
		return c.hubd.parse(raw)
	}
	return nil
}

func (h *hubdClaim) parse(raw json.RawMessage) error {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all == nil {
		return HubdInvalid
	}
	for name, to := range map[string]*[]string{"join": &h.join, "publish": &h.publish} {
		if raw, ok := all[name]; ok && json.Unmarshal(raw, to) != nil {
			return HubdInvalid
		}
		for _, glob := range *to {
			if _, err := path.Match(glob, ""); err != nil {
				return HubdInvalid
			}
		}
	}
	if raw, ok := all["admin"]; ok && json.Unmarshal(raw, &h.admin) != nil {
		return HubdInvalid
	}
	return nil
}

// lastDate is the end of the year 9999: beyond it, times overflow.
const lastDate = 253402300799

// date reads a NumericDate, which may have a fraction.
func date(raw json.RawMessage) (time.Time, error) {
	var seconds *float64
	if json.Unmarshal(raw, &seconds) != nil || seconds == nil || !(*seconds >= 0 && *seconds <= lastDate) {
		return time.Time{}, DateInvalid
	}
	whole, fraction := math.Modf(*seconds)
	return time.Unix(int64(whole), int64(fraction*1e9)), nil
}

// grant returns what the claims permit.
func (c *claims) grant() (Grant, error) {
	if c.subject == "" || len(c.subject) > maxSubjectBytes {
		return Grant{}, SubInvalid
	}
	return Grant{Subject: c.subject, Expires: c.expires, Admin: c.hubd.admin, join: c.hubd.join, publish: c.hubd.publish}, nil
}

// The library asks for these to validate claims, which we do.

func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil } //nolint:nilnil // not used
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil } //nolint:nilnil // not used
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil } //nolint:nilnil // not used
func (c *claims) GetIssuer() (string, error)                   { return c.issuer, nil }
func (c *claims) GetSubject() (string, error)                  { return c.subject, nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return c.audience, nil }
