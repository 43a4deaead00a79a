package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"hubd/internal/auth"
)

// secret is a flag whose value is never printed.
type secret string

func (s secret) String() string {
	if s == "" {
		return ""
	}
	return "(not shown)"
}

// shortSecret is below what RFC 7518, section 3.2, asks of a secret for HS256.
const shortSecret = 32

// secretFlags name the secret that the server and "hubd token" share.
type secretFlags struct {
	AuthHMACSecret     secret `group:"access" name:"auth-hmac-secret" placeholder:"SECRET" help:"Tokens are signed with this secret (HS256), of 32 random bytes or more. HUBD_AUTH_HMAC_SECRET in place of the flag keeps it out of the process list."`
	AuthHMACSecretFile string `group:"access" name:"auth-hmac-secret-file" placeholder:"FILE" help:"The same, from a file; a line end behind it does not count."`
}

// audienceFlags are what a token is for, and by whom.
type audienceFlags struct {
	AuthAudience string `group:"access" name:"auth-audience" placeholder:"NAME" help:"Take only tokens with this among their aud. Default: any."`
	AuthIssuer   string `group:"access" name:"auth-issuer" placeholder:"NAME" help:"Take only tokens with this iss. Default: any."`
}

// authFlags turn authentication on.
type authFlags struct {
	secretFlags
	AuthPublicKey string `group:"access" name:"auth-public-key" placeholder:"FILE" help:"Ask for tokens signed for this public key or certificate, a PEM file: RS256, ES256 or EdDSA, as the key is."`
	AuthJWKSURL   string `group:"access" name:"auth-jwks-url" placeholder:"URL" help:"Ask for tokens signed with a key of the set at this URL."`
	audienceFlags
	AuthLeeway period `group:"access" name:"auth-leeway" default:"30s" placeholder:"TIME" help:"How far clocks may differ: a token is taken so long after its exp, and before its nbf and iat. Default: 30s."`
}

// secret returns the secret, from wherever it is given; nil without one.
func (f *secretFlags) secret(p *program) []byte {
	if f.AuthHMACSecret == "" && p.sources["auth-hmac-secret"] == sourceFlag {
		p.wrong("auth-hmac-secret", "it is empty; give a secret, as \"openssl rand -base64 48\" prints one")
	}
	if f.AuthHMACSecretFile == "" {
		return []byte(f.AuthHMACSecret)
	}
	if f.AuthHMACSecret != "" {
		p.wrong("auth-hmac-secret-file", "there is --auth-hmac-secret as well; give one of them")
		return nil
	}
	return p.keyFile("auth-hmac-secret-file", f.AuthHMACSecretFile)
}

// keyFile returns what is in the file that a flag names.
func (p *program) keyFile(flag, name string) []byte {
	text, err := os.ReadFile(name)
	if err != nil {
		p.wrong(flag, "%v", err)
		return nil
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 {
		p.wrong(flag, "%s is empty", name)
	}
	return text
}

// auth returns how tokens are checked, nil in open mode.
func (f *authFlags) auth(p *program) *auth.Config {
	before := len(p.problems)
	cfg := auth.Config{
		HMACSecret: f.secret(p), JWKSURL: f.AuthJWKSURL, Audience: f.AuthAudience, Issuer: f.AuthIssuer, Leeway: time.Duration(f.AuthLeeway),
	}
	if f.AuthLeeway == 0 {
		cfg.Leeway = -1 // to the verifier 0 means the default
	}
	if f.AuthPublicKey != "" {
		cfg.PublicKey = p.keyFile("auth-public-key", f.AuthPublicKey)
	}
	if len(p.problems) > before {
		return &cfg
	}
	var given []string
	for flag, is := range map[string]bool{
		"auth-hmac-secret": len(cfg.HMACSecret) > 0, "auth-public-key": len(cfg.PublicKey) > 0, "auth-jwks-url": cfg.JWKSURL != "",
	} {
		if is {
			given = append(given, flag)
		}
	}
	switch {
	case len(given) == 0:
		for _, flag := range []string{"auth-audience", "auth-issuer", "auth-leeway"} {
			if _, ok := p.sources[flag]; ok {
				p.wrong(flag, "it bounds tokens, but none are asked for; give --auth-hmac-secret, --auth-public-key or --auth-jwks-url as well")
			}
		}
		return nil
	case len(given) > 1:
		p.problems.add("tokens are checked with one kind of key: give only one of --auth-hmac-secret, --auth-public-key and --auth-jwks-url")
	case given[0] == "auth-jwks-url": // not to be fetched yet
		if err := auth.CheckJWKSURL(cfg.JWKSURL); err != nil {
			p.wrong(given[0], "%v", err)
		}
	default:
		v, err := auth.New(cfg)
		if err != nil {
			p.wrong(given[0], "%v", err)
			break
		}
		v.Close()
	}
	return &cfg
}

// announceAuth says how tokens are checked, and what is unwise about it.
func announceAuth(log *slog.Logger, cfg *auth.Config) {
	with := "the secret"
	switch {
	case len(cfg.PublicKey) > 0:
		with = "the public key"
	case cfg.JWKSURL != "":
		with = cfg.JWKSURL
	}
	log.Info("tokens are asked for", "checked_with", with, "audience", cfg.Audience, "issuer", cfg.Issuer)
	if n := len(cfg.HMACSecret); n > 0 && n < shortSecret {
		log.Warn("the secret for tokens is short: whoever has a token may find it by trying; make one with \"openssl rand -base64 48\"", "bytes", n, "at_least", shortSecret)
	}
	if u, err := url.Parse(cfg.JWKSURL); err == nil && u.Scheme == "http" && !loopbackHost(u.Hostname()) {
		log.Warn("the key set is fetched without TLS: whoever is on the way can make tokens", "url", cfg.JWKSURL)
	}
}

// tokenCommand mints a token.
type tokenCommand struct {
	Sub     string   `default:"test" placeholder:"NAME" help:"Whom the token is for. Default: test."`
	Join    []string `placeholder:"GLOB" help:"Rooms that may be joined, like chat.*; several with commas, or the flag again."`
	Publish []string `placeholder:"GLOB" help:"Rooms that may be published to."`
	Admin   toggle   `help:"Grant administration: /admin and /debug."`
	TTL     period   `name:"ttl" default:"1h" placeholder:"TIME" help:"How long the token is good. Default: 1h."`

	secretFlags
	AuthPrivateKey string `group:"access" name:"auth-private-key" placeholder:"FILE" help:"Sign with this private key, a PEM file, in place of a secret: RS256, ES256 or EdDSA, as the key is."`
	KeyID          string `group:"access" name:"key-id" placeholder:"ID" help:"The key's name in a key set (kid)."`
	audienceFlags
}

func (c *tokenCommand) Help() string {
	return "Prints a token for testing, signed with the secret that the server has, or with the private key to the server's public one. A token cannot be taken back: keep --ttl short. With HUBD_TOKEN set to it, \"hubd tail\" and \"hubd publish\" show it."
}

func (c *tokenCommand) run(_ context.Context, p *program) error {
	key := c.secret(p)
	var private []byte
	if c.AuthPrivateKey != "" {
		private = p.keyFile("auth-private-key", c.AuthPrivateKey)
	}
	switch {
	case len(p.problems) > 0:
	case (len(key) > 0) == (len(private) > 0):
		p.problems.add("a token is signed with one key: give --auth-hmac-secret, --auth-hmac-secret-file or --auth-private-key")
	case c.TTL < period(time.Second):
		p.wrong("ttl", "it must be 1s or more")
	}
	if err := p.problems.err("token"); err != nil {
		return err
	}
	m, err := auth.NewMinter(key, private)
	if err != nil {
		return p.usage("token", fmt.Errorf("--auth-private-key: %w", err))
	}
	now := time.Now()
	token, err := m.Mint(auth.Claims{
		Subject: c.Sub, Audience: c.AuthAudience, Issuer: c.AuthIssuer, KeyID: c.KeyID,
		Issued: now, Expires: now.Add(time.Duration(c.TTL)),
		Join: trimmed(c.Join), Publish: trimmed(c.Publish), Admin: bool(c.Admin),
	})
	if err != nil {
		return p.usage("token", err)
	}
	if len(c.Join)+len(c.Publish) == 0 && !bool(c.Admin) {
		fmt.Fprintln(p.stderr, "hubd: the token grants nothing; --join, --publish and --admin do")
	}
	if _, err := fmt.Fprintln(p.stdout, token); err != nil {
		return errors.New("print the token: " + err.Error())
	}
	return nil
}

func trimmed(words []string) []string {
	var all []string
	for _, word := range words {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}
