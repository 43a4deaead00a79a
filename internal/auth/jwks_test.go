package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hubd/internal/auth"
)

// issuer publishes a key set, and counts how often it is asked.
type issuer struct {
	mu      sync.Mutex
	keys    []any
	status  int
	fetches []time.Time
}

func newIssuer(keys ...any) *issuer { return &issuer{keys: keys, status: http.StatusOK} }

func (i *issuer) set(status int, keys ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.keys = status, keys
}

func (i *issuer) asked() []time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fetches = append(i.fetches, time.Now())
	w.WriteHeader(i.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": i.keys})
}

// RoundTrip makes an issuer a transport, for bubbles, where no socket is.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

func (i *issuer) client() *http.Client { return &http.Client{Transport: i} }

// fetched waits, in a bubble, until a fetch is over that began after the call.
func fetched(v *auth.Verifier) {
	time.Sleep(11 * time.Second) //nolint:forbidigo // the bubble's time: an interval
	synctest.Wait()
	<-v.Refresh()
}

// TestKeySet: a set over HTTP, with keys of each kind and keys that are of no
// use, and tokens with and without names of keys.
func TestKeySet(t *testing.T) {
	i := newIssuer(
		jwk("rsa", keys.rsa, map[string]any{"alg": "RS256", "use": "sig"}),
		jwk("rsa-any", keys.otherRSA, nil),
		jwk("ec", keys.ec, map[string]any{"key_ops": []string{"verify"}}),
		jwk("ed", keys.ed, map[string]any{"alg": "EdDSA"}),
		jwk("same", keys.otherEC, nil), jwk("same", keys.otherEd, nil), // RFC 7517, section 4.5
		jwk("enc", keys.otherEd, map[string]any{"use": "enc"}),
		jwk("ops", keys.otherEd, map[string]any{"key_ops": []string{"sign"}}),
		jwk("rs512", keys.rsa, map[string]any{"alg": "RS512"}),
		jwk("weak", keys.weakRSA, nil),
		jwk("p384", keys.p384, nil),
		map[string]any{"kty": "oct", "kid": "oct", "k": b64([]byte(secret))},
		map[string]any{"kty": "EC", "kid": "no point", "crv": "P-256", "x": b64(make([]byte, 32)), "y": b64(make([]byte, 32))},
		map[string]any{"kty": "new", "kid": "new"},
		map[string]any{"kty": "RSA", "kid": "broken", "n": 5},
		"no key",
	)
	server := httptest.NewServer(i)
	defer server.Close()
	v := verifier(t, auth.Config{JWKSURL: server.URL})
	<-v.Refresh()
	if !v.Ready() {
		t.Fatal("not ready after the fetch")
	}
	c := good(nil)
	tried, taken := 0, 0
	for _, test := range []struct {
		name  string
		token string
		want  error
	}{
		{"RS256", sign(jwt.SigningMethodRS256, keys.rsa, c, "kid", "rsa"), nil},
		{"RS256, key for any", sign(jwt.SigningMethodRS256, keys.otherRSA, c, "kid", "rsa-any"), nil},
		{"ES256", sign(jwt.SigningMethodES256, keys.ec, c, "kid", "ec"), nil},
		{"EdDSA", sign(jwt.SigningMethodEdDSA, keys.ed, c, "kid", "ed"), nil},
		{"a name for two kinds, EC", sign(jwt.SigningMethodES256, keys.otherEC, c, "kid", "same"), nil},
		{"a name for two kinds, Ed", sign(jwt.SigningMethodEdDSA, keys.otherEd, c, "kid", "same"), nil},
		{"no name, several keys", sign(jwt.SigningMethodRS256, keys.rsa, c), auth.KeyUnknown},
		{"unknown name", sign(jwt.SigningMethodRS256, keys.rsa, c, "kid", "rsa2"), auth.KeyUnknown},
		{"empty name", sign(jwt.SigningMethodRS256, keys.rsa, c, "kid", ""), auth.KeyUnknown},
		{"name of another key", sign(jwt.SigningMethodRS256, keys.rsa, c, "kid", "rsa-any"), auth.SignatureWrong},
		{"RS256 for an EC key", sign(jwt.SigningMethodRS256, keys.rsa, c, "kid", "ec"), auth.AlgWrong},
		{"ES256 for an RSA key", sign(jwt.SigningMethodES256, keys.ec, c, "kid", "rsa"), auth.AlgWrong},
		{"PS256", sign(jwt.SigningMethodPS256, keys.rsa, c, "kid", "rsa"), auth.AlgWrong},
		{"HS256 with the public key", sign(jwt.SigningMethodHS256, publicPEM(keys.rsa), c, "kid", "rsa"), auth.AlgWrong},
		{"HS256 with a published secret", sign(jwt.SigningMethodHS256, []byte(secret), c, "kid", "oct"), auth.KeyUnknown},
		{"none", must(jwt.NewWithClaims(jwt.SigningMethodNone, c).SignedString(jwt.UnsafeAllowNoneSignatureType)), auth.AlgWrong},
		{"key for encryption", sign(jwt.SigningMethodEdDSA, keys.otherEd, c, "kid", "enc"), auth.KeyUnknown},
		{"key for signing only", sign(jwt.SigningMethodEdDSA, keys.otherEd, c, "kid", "ops"), auth.KeyUnknown},
		{"key for RS512", sign(jwt.SigningMethodRS512, keys.rsa, c, "kid", "rs512"), auth.KeyUnknown},
		{"weak key", sign(jwt.SigningMethodRS256, keys.weakRSA, c, "kid", "weak"), auth.KeyUnknown},
		{"P-384", sign(jwt.SigningMethodES384, keys.p384, c, "kid", "p384"), auth.KeyUnknown},
		{"no point", sign(jwt.SigningMethodES256, keys.ec, c, "kid", "no point"), auth.KeyUnknown},
	} {
		tried++
		_, err := v.Verify(test.token, now)
		if err == nil && test.want != nil {
			taken++
		}
		if test.name == "none" && errors.Is(err, auth.KeyUnknown) {
			err = auth.AlgWrong // it has no kid either
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		checkRefusal(t, test.token, err)
	}
	t.Logf("bypasses %d of %d", taken, tried)
}

// TestOnlyKey: where a set has one key of an algorithm, tokens need not name it.
func TestOnlyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := verifier(t, auth.Config{JWKSURL: "https://idp.example/", Client: newIssuer(jwk("", keys.ec, nil)).client()})
		<-v.Refresh()
		if _, err := v.Verify(sign(jwt.SigningMethodES256, keys.ec, good(nil)), now); err != nil {
			t.Error(err)
		}
		if _, err := v.Verify(sign(jwt.SigningMethodES256, keys.otherEC, good(nil)), now); !errors.Is(err, auth.SignatureWrong) {
			t.Error(err)
		}
		v.Close()
	})
}

// TestRotation: a new key is fetched for the first token that names it, and the
// old one goes with the set that has it no longer.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(jwk("1", keys.ec, nil))
		v := verifier(t, auth.Config{JWKSURL: "https://idp.example/", Client: i.client()})
		first := sign(jwt.SigningMethodES256, keys.ec, good(nil), "kid", "1")
		second := sign(jwt.SigningMethodES256, keys.otherEC, good(nil), "kid", "2")
		<-v.Refresh()
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		i.set(http.StatusOK, jwk("1", keys.ec, nil), jwk("2", keys.otherEC, nil))
		if _, err := v.Verify(second, now); !errors.Is(err, auth.KeyUnknown) {
			t.Fatalf("before the fetch: %v", err)
		}
		<-v.Refresh()
		for name, token := range map[string]string{"old": first, "new": second} {
			if _, err := v.Verify(token, now); err != nil {
				t.Errorf("%s key: %v", name, err)
			}
		}
		// Nobody asks; the set's age makes the fetch.
		i.set(http.StatusOK, jwk("2", keys.otherEC, nil))
		time.Sleep(5 * time.Minute) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		if _, err := v.Verify(first, now); !errors.Is(err, auth.KeyUnknown) {
			t.Errorf("withdrawn key: %v", err)
		}
		v.Close()
	})
}

// TestOutage: keys outlive an outage, whatever the issuer says in it; without
// any, tokens are neither good nor bad.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		i := newIssuer()
		i.set(http.StatusBadGateway)
		v := verifier(t, auth.Config{
			JWKSURL: "https://idp.example/", Client: i.client(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		token := sign(jwt.SigningMethodES256, keys.ec, good(nil), "kid", "1")
		<-v.Refresh()
		if _, err := v.Verify(token, now); !errors.Is(err, auth.ErrNoKeys) || v.Ready() {
			t.Errorf("without keys: %v, ready %v", err, v.Ready())
		}
		if _, err := v.Verify("no token", now); !errors.Is(err, auth.Malformed) {
			t.Errorf("without keys, no token: %v", err)
		}
		i.set(http.StatusOK, jwk("1", keys.ec, nil))
		fetched(v)
		if _, err := v.Verify(token, now); err != nil || !v.Ready() {
			t.Errorf("with keys: %v, ready %v", err, v.Ready())
		}
		for _, status := range []int{http.StatusInternalServerError, http.StatusOK, http.StatusNoContent} {
			i.set(status) // an empty set is no set
			fetched(v)
			if _, err := v.Verify(token, now); err != nil {
				t.Errorf("in an outage, status %d: %v", status, err)
			}
		}
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time
		i.set(http.StatusOK, jwk("1", keys.ec, nil))
		fetched(v)
		v.Close()
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 4 ||
			!strings.Contains(lines[0], "502 Bad Gateway") || !strings.Contains(lines[1], "keys=1") {
			t.Errorf("the log of two outages has %d lines, want 4:\n%s", len(lines), log.String())
		}
	})
}

// TestFetchesAreRare: at most one an interval, whatever comes.
func TestFetchesAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(jwk("1", keys.ec, nil))
		const interval = 10 * time.Second
		v := verifier(t, auth.Config{JWKSURL: "https://idp.example/", Client: i.client(), FetchInterval: interval})
		<-v.Refresh()
		begin := time.Now()
		asked := 0
		// The token need not be signed for its kid to be looked up.
		body := strings.SplitN(sign(jwt.SigningMethodES256, keys.ec, good(nil)), ".", 3)
		for time.Since(begin) < 10*interval {
			for n := range 100 {
				kid := fmt.Sprintf(`{"alg":"ES256","kid":"%d-%d"}`, asked, n)
				_, err := v.Verify(b64([]byte(kid))+"."+body[1]+"."+body[2], now)
				if !errors.Is(err, auth.KeyUnknown) {
					t.Fatal(err)
				}
				over := v.Refresh()
				if asked++; n == 0 {
					continue // this one may have begun a fetch
				}
				synctest.Wait()
				select {
				case <-over:
				default:
					t.Fatal("somebody waits for a fetch that is not due")
				}
			}
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		}
		v.Close()
		fetches := i.asked()
		if len(fetches) < 10 || len(fetches) > 11 {
			t.Errorf("%d fetches in ten intervals", len(fetches))
		}
		for n := 1; n < len(fetches); n++ {
			if gap := fetches[n].Sub(fetches[n-1]); gap < interval {
				t.Errorf("fetch %d came %v after the one before", n, gap)
			}
		}
		t.Logf("%d unknown keys, %d fetches in %v", asked, len(fetches), 10*interval)
	})
}

// TestAskedOnce: whoever asked before a fetch began is served by it.
func TestAskedOnce(t *testing.T) {
	for range 20 { // there are two reasons for the second fetch: either may be seen first
		synctest.Test(t, func(t *testing.T) {
			i := newIssuer()
			v := verifier(t, auth.Config{JWKSURL: "https://idp.example/", Client: i.client()})
			<-v.Refresh() // it has failed
			i.set(http.StatusOK, jwk("1", keys.ec, nil))
			v.Refresh()
			time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
			v.Close()
			if n := len(i.asked()); n != 2 {
				t.Errorf("%d fetches, want 2", n)
			}
		})
	}
}

// hanging is an issuer that does not answer.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestIssuerHangs: neither the start nor the end waits for it, nor does Verify.
func TestIssuerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		v := verifier(t, auth.Config{JWKSURL: "https://idp.example/", Client: &http.Client{Transport: hanging{}}})
		over := v.Refresh()
		synctest.Wait()
		if _, err := v.Verify(sign(jwt.SigningMethodES256, keys.ec, good(nil)), now); !errors.Is(err, auth.ErrNoKeys) {
			t.Error(err)
		}
		v.Close()
		<-over
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// TestFetchIsBounded: in time, in size and in where it is led.
func TestFetchIsBounded(t *testing.T) {
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := verifier(t, auth.Config{JWKSURL: "https://idp.example/", Client: &http.Client{Transport: hanging{}}})
			begin := time.Now()
			<-v.Refresh()
			if took := time.Since(begin); took != 10*time.Second {
				t.Errorf("given up after %v", took)
			}
			v.Close()
		})
	})
	t.Run("size", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			set, _ := json.Marshal(map[string]any{"keys": []any{jwk("1", keys.ec, nil)}})
			_, _ = w.Write(set)
			_, _ = io.WriteString(w, strings.Repeat(" ", 1<<20))
		}))
		defer server.Close()
		v := verifier(t, auth.Config{JWKSURL: server.URL})
		<-v.Refresh()
		if v.Ready() {
			t.Error("a set of more than 1 MiB is taken")
		}
	})
	t.Run("redirect out of TLS", func(t *testing.T) {
		plain := httptest.NewServer(newIssuer(jwk("1", keys.ec, nil)))
		defer plain.Close()
		tls := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
		defer tls.Close()
		client := tls.Client()
		client.CheckRedirect = auth.StayEncrypted
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, tls.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := client.Do(request); err == nil {
			response.Body.Close()
			t.Error("followed")
		}
	})
}
