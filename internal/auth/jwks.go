package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
)

const (
	defaultFetchInterval = 10 * time.Second
	// refreshIntervals is how many intervals a set is used before it is fetched
	// again.
	refreshIntervals = 30
	fetchTimeout     = 10 * time.Second
	maxSetBytes      = 1 << 20
)

// CheckJWKSURL returns what is wrong with the URL of a key set.
func CheckJWKSURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("the URL of a key set is like https://issuer.example.com/.well-known/jwks.json")
	}
	if u.User != nil {
		return errors.New("the URL of a key set has no user and no password: the keys are public")
	}
	return nil
}

// keySet is the keys that are to be had at a URL. It owns a goroutine, which
// fetches.
type keySet struct {
	// immutable
	url      string
	client   *http.Client
	idle     func() // lets go of the client's connections
	interval time.Duration
	log      *slog.Logger
	cancel   context.CancelFunc
	done     chan struct{} // closed when the goroutine has returned
	// wanted has room for one: somebody asks for keys that are not there.
	wanted chan struct{}

	// owned by the goroutine
	failing bool

	// mu guards the rest; nothing is fetched under it.
	mu   sync.Mutex
	keys []key // replaced, never changed; nil until a set has come
	// over is closed at the end of the fetch that is under way, or begins as
	// soon as the goroutine looks; nil where there is none.
	over chan struct{}
	// resting: the interval since the last fetch has not passed.
	resting bool
}

func startKeySet(cfg Config) *keySet {
	ctx, cancel := context.WithCancel(context.Background())
	s := &keySet{
		url: cfg.JWKSURL, client: cfg.Client, idle: func() {}, interval: cfg.FetchInterval, log: cfg.Logger,
		cancel: cancel, done: make(chan struct{}), wanted: make(chan struct{}, 1), over: make(chan struct{}),
	}
	if s.interval <= 0 {
		s.interval = defaultFetchInterval
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.client == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: fetchTimeout, ForceAttemptHTTP2: true}
		s.client = &http.Client{Transport: transport, CheckRedirect: stayEncrypted}
		s.idle = transport.CloseIdleConnections
	}
	go s.run(ctx) // joined by close
	return s
}

// stayEncrypted refuses redirects that leave TLS: who can write on the way could
// then sign tokens.
func stayEncrypted(r *http.Request, via []*http.Request) error {
	if len(via) >= 3 {
		return errors.New("too many redirects")
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errors.New("redirected from https to http")
	}
	return nil
}

func (s *keySet) close() {
	s.cancel()
	<-s.done
	s.idle()
}

// current returns the keys, and whether there are any yet.
func (s *keySet) current() ([]key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys, s.keys != nil
}

// ask is Verifier.Refresh.
func (s *keySet) ask() <-chan struct{} {
	select {
	case s.wanted <- struct{}{}:
	default: // it is known already
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil && s.resting {
		return closed
	}
	if s.over == nil {
		s.over = make(chan struct{})
	}
	return s.over
}

// run fetches: now, when somebody asks, when the set is old, and as long as it
// fails; at most once an interval.
func (s *keySet) run(ctx context.Context) {
	defer close(s.done)
	old := time.NewTimer(0)
	defer old.Stop()
	for {
		select {
		case <-ctx.Done():
			s.settle(nil, false)
			return
		case <-s.wanted:
		case <-old.C:
		}
		select {
		case <-s.wanted: // this fetch is for all who have asked until now
		default:
		}
		keys, err := s.fetch(ctx)
		if ctx.Err() == nil {
			s.report(err, len(keys))
		}
		s.settle(keys, true)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.interval):
		}
		s.mu.Lock()
		s.resting = false
		s.mu.Unlock()
		if err != nil {
			old.Reset(0)
		} else {
			old.Reset((refreshIntervals - 1) * s.interval)
		}
	}
}

// settle ends a fetch; nil keys leave the ones that are there.
func (s *keySet) settle(keys []key, resting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keys != nil {
		s.keys = keys
	}
	s.resting = resting
	if s.over != nil {
		close(s.over)
		s.over = nil
	}
}

// report logs the first failure, and what ends a series of them: an outage is
// told once.
func (s *keySet) report(err error, keys int) {
	level := slog.LevelDebug
	if failing := err != nil; failing != s.failing {
		s.failing = failing
		level = slog.LevelInfo
		if failing {
			level = slog.LevelWarn
		}
	}
	if err != nil {
		s.log.Log(context.Background(), level, "the key set could not be fetched; it is tried again, and keys that are there stay good", "error", err, "interval", s.interval)
		return
	}
	s.log.Log(context.Background(), level, "key set fetched", "keys", keys)
}

func (s *keySet) fetch(ctx context.Context) ([]key, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxSetBytes+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxSetBytes {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxSetBytes)
	}
	return parseKeySet(body)
}

// parseKeySet returns the keys that tokens can be verified with. Others in the
// set are for others.
func parseKeySet(body []byte) ([]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(body, &set) != nil {
		return nil, errors.New("the answer is not a JSON Web Key Set")
	}
	var keys []key
	for _, raw := range set.Keys {
		if k, ok := parseJWK(raw); ok {
			keys = append(keys, k)
		}
	}
	if keys == nil {
		return nil, errors.New("no key of the set is for verifying RS256, ES256 or EdDSA")
	}
	return keys, nil
}

func parseJWK(raw json.RawMessage) (key, bool) {
	var m jwkset.JWKMarshal
	if json.Unmarshal(raw, &m) != nil {
		return key{}, false
	}
	if m.USE != "" && m.USE != jwkset.UseSig || m.KEYOPS != nil && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return key{}, false
	}
	// The key alone counts; the library would follow and compare these.
	m.X5U, m.X5C, m.X5T, m.X5TS256 = "", nil, "", ""
	// Without private keys, which symmetric ones count among.
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{SkipKeyOps: true, SkipUse: true})
	if err != nil {
		return key{}, false
	}
	alg, err := algorithmOf(jwk.Key())
	if err != nil || m.ALG != "" && m.ALG.String() != alg {
		return key{}, false
	}
	return key{id: m.KID, alg: alg, material: jwk.Key()}, true
}
