package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hubd/internal/auth"
)

const testSecret = "Zk3q-thirty-two-bytes-and-more-for-tests"

// keyPair writes the two halves of a key and returns their files.
func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	private, public = filepath.Join(dir, "private.pem"), filepath.Join(dir, "public.pem")
	for name, block := range map[string]*pem.Block{private: {Type: "PRIVATE KEY", Bytes: der}, public: {Type: "PUBLIC KEY", Bytes: pub}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return private, public
}

func TestAuthProblems(t *testing.T) {
	private, public := keyPair(t)
	empty := file(t, "\n")
	for _, test := range []struct {
		name string
		args []string
		env  []string
		want string // the one problem, "" for none
	}{
		{name: "secret", args: []string{"--auth-hmac-secret", testSecret}},
		{name: "secret by variable", env: []string{"HUBD_AUTH_HMAC_SECRET=" + testSecret}},
		{name: "secret of a file", args: []string{"--auth-hmac-secret-file", file(t, testSecret+"\n")}},
		{name: "public key", args: []string{"--auth-public-key", public, "--auth-audience", "hub", "--auth-issuer", "idp", "--auth-leeway", "0"}},
		{name: "key set", args: []string{"--auth-jwks-url", "https://issuer.example.com/jwks"}},
		{name: "elsewhere than on loopback", args: []string{"--auth-jwks-url", "https://issuer.example.com/jwks", "--addr", ":8080", "--admin-addr", ":9090"}},
		{name: "variable of the command token", env: []string{"HUBD_AUTH_PRIVATE_KEY=x"}},
		{name: "empty secret", args: []string{"--auth-hmac-secret="}, want: "--auth-hmac-secret: it is empty"},
		{name: "empty secret of a file", args: []string{"--auth-hmac-secret-file", empty}, want: "--auth-hmac-secret-file: " + empty + " is empty"},
		{name: "no such file", args: []string{"--auth-hmac-secret-file", "/nonexistent/s"}, want: "--auth-hmac-secret-file: open /nonexistent/s: no such file"},
		{name: "secret twice", args: []string{"--auth-hmac-secret-file", public, "--auth-hmac-secret", testSecret}, want: "give one of them"},
		{name: "no such key", env: []string{"HUBD_AUTH_PUBLIC_KEY=/nonexistent/k"}, want: "HUBD_AUTH_PUBLIC_KEY: open /nonexistent/k: no such file"},
		{name: "private key", args: []string{"--auth-public-key", private}, want: "--auth-public-key: this is a private key"},
		{name: "no key", args: []string{"--auth-public-key", file(t, "x")}, want: "--auth-public-key: this is not PEM"},
		{name: "no URL", args: []string{"--auth-jwks-url", "issuer"}, want: "--auth-jwks-url: the URL of a key set is like"},
		{name: "two kinds", args: []string{"--auth-jwks-url", "https://issuer.example.com/jwks", "--auth-public-key", public}, want: "give only one of --auth-hmac-secret, --auth-public-key and --auth-jwks-url"},
		{name: "bounds of no token", args: []string{"--auth-audience", "hub"}, want: "--auth-audience: it bounds tokens, but none are asked for"},
		{name: "issuer of no token", env: []string{"HUBD_AUTH_ISSUER=idp"}, want: "HUBD_AUTH_ISSUER: it bounds tokens, but none are asked for"},
		{name: "leeway", args: []string{"--auth-hmac-secret", testSecret, "--auth-leeway", "x"}, want: `--auth-leeway "x": write a duration`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := invocation{args: append([]string{"config"}, test.args...), env: test.env}.run(t.Context())
			if test.want == "" {
				got.want(t, 0, "feeds:\n", "")
			} else {
				got.want(t, 2, "", test.want)
			}
			if strings.Contains(got.stderr, "problems:") {
				t.Errorf("more than one problem:\n%s", got.stderr)
			}
			if strings.Contains(got.stdout+got.stderr, testSecret[:8]) {
				t.Errorf("the secret is shown:\n%s%s", got.stdout, got.stderr)
			}
			if strings.Contains(strings.Join(test.args, " "), "--auth-hmac-secret "+testSecret) && test.want == "" && !strings.Contains(got.stdout, "HUBD_AUTH_HMAC_SECRET=(not shown)") {
				t.Errorf("it is not shown that there is a secret:\n%s", got.stdout)
			}
		})
	}
}

func TestToken(t *testing.T) {
	private, public := keyPair(t)
	pub, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		key []string
		cfg auth.Config
	}{
		"secret":         {[]string{"--auth-hmac-secret", testSecret}, auth.Config{HMACSecret: []byte(testSecret)}},
		"secret of file": {[]string{"--auth-hmac-secret-file", file(t, testSecret+"\r\n")}, auth.Config{HMACSecret: []byte(testSecret)}},
		"private key":    {[]string{"--auth-private-key", private}, auth.Config{PublicKey: pub}},
	} {
		t.Run(name, func(t *testing.T) {
			test.cfg.Audience, test.cfg.Issuer, test.cfg.Leeway = "hub", "me", -1
			v, err := auth.New(test.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			before := time.Now().Truncate(time.Second)
			got := hubd(t, append([]string{"token", "--sub", "alice", "--join", "chat.*, news", "--join", "x", "--publish", "chat.lobby",
				"--admin", "--ttl", "90s", "--auth-audience", "hub", "--auth-issuer", "me"}, test.key...)...)
			got.want(t, 0, ".", "")
			g, err := v.Verify(strings.TrimSuffix(got.stdout, "\n"), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if g.Subject != "alice" || !g.Admin || !g.MayJoin("chat.x") || !g.MayJoin("news") || !g.MayJoin("x") || g.MayJoin("y") ||
				!g.MayPublish("chat.lobby") || g.MayPublish("x") {
				t.Errorf("%+v", g)
			}
			if ttl := g.Expires.Sub(before); ttl < 90*time.Second || ttl > 150*time.Second {
				t.Errorf("it is good for %v, want 90s", ttl)
			}
		})
	}
}

func TestTokenProblems(t *testing.T) {
	private, public := keyPair(t)
	key := []string{"--auth-hmac-secret", testSecret}
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "a token is signed with one key"},
		{append(key, "--auth-private-key", private), "a token is signed with one key"},
		{[]string{"--auth-private-key", public}, "--auth-private-key: the PEM block is no private key"},
		{[]string{"--auth-private-key", "/nonexistent/k"}, "--auth-private-key: open /nonexistent/k"},
		{append(key, "--join", "["), `"[" is no glob`},
		{append(key, "--ttl", "0"), "--ttl: it must be 1s or more"},
		{append(key, "--ttl", "forever"), `--ttl "forever": write a duration`},
	} {
		got := hubd(t, append([]string{"token"}, test.args...)...)
		got.want(t, 2, "", test.want)
		if strings.Contains(got.stderr, testSecret[:8]) {
			t.Errorf("the secret is shown: %s", got.stderr)
		}
	}
	hubd(t, append([]string{"token"}, key...)...).want(t, 0, ".", "the token grants nothing")
}

// TestTokensEndToEnd: a server that asks for tokens, and the commands that show
// them. Nothing of the tokens or the secret is in the server's log.
func TestTokensEndToEnd(t *testing.T) {
	secretFile := file(t, testSecret+"\n")
	var log bytes.Buffer
	s := serveInto(t, &log, "--auth-hmac-secret-file", secretFile, "--log-level", "debug", "--addr", "0.0.0.0:0")
	mint := func(args ...string) string {
		t.Helper()
		got := hubd(t, append([]string{"token", "--auth-hmac-secret-file", secretFile}, args...)...)
		got.want(t, 0, ".", "")
		return strings.TrimSpace(got.stdout)
	}
	writer, reader := mint("--publish", "lobby"), mint("--join", "lobby")
	as := func(token string, args ...string) outcome {
		return invocation{args: append(args, "--url", s.url), env: []string{"HUBD_TOKEN=" + token}}.run(t.Context())
	}
	as("", "publish", "lobby", "x").want(t, 1, "", "401 Unauthorized (unauthorized)")
	as(writer+"x", "publish", "lobby", "x").want(t, 1, "", "401 Unauthorized (unauthorized): the token's signature")
	as(writer, "publish", "other", "x").want(t, 1, "", "403 Forbidden (forbidden)")
	as(reader, "publish", "lobby", "x").want(t, 1, "", "403 Forbidden (forbidden)")
	as(writer, "tail", "lobby").want(t, 1, "", "refused (forbidden)")
	as("nonsense", "tail", "lobby").want(t, 1, "", "401 Unauthorized (unauthorized)")
	as("", "tail", "lobby").want(t, 1, "", "refused (unauthorized)")

	joined := make(chan struct{})
	var stdout bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(t.Context(), []string{"tail", "lobby", "-n", "1", "--url", s.url, "--token", reader}, nil, nil, &stdout,
			&trigger{text: "joined lobby", hit: func() { close(joined) }})
	}()
	<-joined
	as(writer, "publish", "lobby", "hello").want(t, 0, "lobby 1 subscribers=1", "")
	if got := <-status; got != 0 || stdout.String() != "lobby 1 hello\n" {
		t.Errorf("status %d, %q", got, stdout.String())
	}
	for path, want := range map[string]int{"/admin/stats": 401, "/debug/pprof/": 401, "/metrics": 200, "/": 200, "/readyz": 200} {
		if got, body := get(t, s.url+path); got != want {
			t.Errorf("%s: %d, want %d: %s", path, got, want, body)
		}
	}
	if got, _ := get(t, s.url+"/admin/stats?access_token="+mint("--admin")); got != http.StatusOK {
		t.Errorf("an operator gets %d", got)
	}
	s.stop(t)
	for _, word := range append(strings.Split(writer+"."+reader, "."), testSecret) {
		if i := strings.Index(log.String(), word[max(0, len(word)-20):]); i >= 0 && len(word) >= 20 {
			t.Errorf("the log has a piece of a token:\n%s", log.String()[max(0, i-200):])
		}
	}
	if !strings.Contains(log.String(), `"tokens are asked for"`) || strings.Contains(log.String(), "open mode") {
		t.Errorf("the log does not say how tokens are checked:\n%s", log.String())
	}
}

// TestServeWarns: of keys that are not as safe as they should be.
func TestServeWarns(t *testing.T) {
	var log bytes.Buffer
	s := serveInto(t, &log, "--auth-hmac-secret", "short")
	s.stop(t)
	if !strings.Contains(log.String(), "the secret for tokens is short") {
		t.Errorf("no warning of a short secret:\n%s", log.String())
	}
}

// TestServeWithoutKeys: a server whose issuer is away starts, says that it is not
// ready, and ends.
func TestServeWithoutKeys(t *testing.T) {
	issuer := httptest.NewServer(http.NotFoundHandler())
	defer issuer.Close()
	s := serve(t, "--auth-jwks-url", issuer.URL)
	if status, body := get(t, s.url+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "have not been fetched yet") {
		t.Errorf("readiness: %d %s", status, body)
	}
	if status, body := get(t, s.url+"/healthz"); status != http.StatusOK {
		t.Errorf("liveness: %d %s", status, body)
	}
	s.stop(t)
}
