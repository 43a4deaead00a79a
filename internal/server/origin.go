package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"hubd/internal/hub"
)

// origins decides which browser pages may do what. An origin is a scheme, a
// host and a port, compared whole (RFC 6454, section 5).
type origins struct {
	allowed map[string]bool
	// public is the origin of the public URL, "" without one.
	public     string
	publicHost string
	open       bool
}

func newOrigins(cfg Config) (origins, error) {
	o := origins{allowed: map[string]bool{}, open: cfg.Open}
	var errs []error
	for _, text := range cfg.AllowedOrigins {
		u, err := url.Parse(text)
		origin := ""
		if err == nil {
			origin = originOf(u)
		}
		if origin == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
			errs = append(errs, fmt.Errorf("allowed origin %q: give scheme, host and port only, such as https://example.com", text))
			continue
		}
		o.allowed[origin] = true
	}
	if cfg.PublicURL != nil {
		o.public, o.publicHost = originOf(cfg.PublicURL), hostName(cfg.PublicURL.Host)
		if o.public == "" {
			errs = append(errs, fmt.Errorf("public URL %q: give an http or https URL with a host", cfg.PublicURL))
		}
	}
	return o, errors.Join(errs...)
}

// originOf returns u's origin in one spelling, "" where it has none.
func originOf(u *url.URL) string {
	scheme := strings.ToLower(u.Scheme)
	port := u.Port()
	switch {
	case scheme != "http" && scheme != "https", u.Hostname() == "":
		return ""
	case port == "" && scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// hostName returns the host of a Host header or a URL's authority, in lower
// case, without port and brackets.
func hostName(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// hostOK reports whether the request may name this host at all.
func (o *origins) hostOK(r *http.Request) bool {
	host := hostName(r.Host)
	return !o.open || isLoopback(host) || o.publicHost != "" && host == o.publicHost
}

// verdict is what a request's Origin amounts to.
type verdict uint8

const (
	sameOrigin    verdict = iota // or no browser
	allowedOrigin                // cross-origin, and listed
	foreignOrigin
)

// judge compares the Origin header with the host that was asked.
func (o *origins) judge(r *http.Request) (origin string, v verdict) {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return "", sameOrigin
	}
	if len(values) > 1 {
		return "", foreignOrigin
	}
	u, err := url.Parse(values[0])
	if err != nil || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return "", foreignOrigin // browsers send a scheme, a host and a port, no more
	}
	switch origin = originOf(u); {
	case origin == "": // "null", or of another scheme
		return "", foreignOrigin
	case o.allowed[origin]:
		return values[0], allowedOrigin
	case o.public != "" && origin == o.public, o.public == "" && sameHost(u, r.Host):
		return values[0], sameOrigin
	}
	return "", foreignOrigin
}

// sameHost compares host and port; a Host without a port has the default one
// of the origin's scheme, since the browser left it out.
func sameHost(origin *url.URL, host string) bool {
	return originOf(origin) == originOf(&url.URL{Scheme: origin.Scheme, Host: host})
}

const corsMaxAge = 10 * time.Minute

// guard turns away requests that name a foreign host, and pages of foreign
// origins that would change something or open a stream. It answers preflights.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrade := isUpgrade(r)
		if !s.origins.hostOK(r) {
			if upgrade {
				s.rejectHandshake(handshakeHost)
			}
			s.fail(w, r, &hub.Error{Code: hub.HostForbidden, Detail: "this hub is open on loopback only and answers to loopback names; --public-url adds another"})
			return
		}
		origin, v := s.origins.judge(r)
		h := w.Header()
		if len(s.origins.allowed) > 0 {
			h.Add("Vary", "Origin")
		}
		if v == allowedOrigin {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "Retry-After")
		}
		switch {
		case v == allowedOrigin && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "":
			h.Set("Access-Control-Allow-Methods", "GET, POST")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Hubd-Key, Idempotency-Key, Last-Event-ID")
			h.Set("Access-Control-Max-Age", fmt.Sprint(int(corsMaxAge.Seconds())))
			w.WriteHeader(http.StatusNoContent)
			return
		case v == foreignOrigin && (upgrade || wantsEvents(r) || r.Method != http.MethodGet && r.Method != http.MethodHead):
			switch {
			case upgrade:
				s.rejectHandshake(handshakeOrigin)
			case r.Method == http.MethodPost:
				s.cfg.Metrics.PublishRejected(int(rejectedOrigin))
			}
			s.fail(w, r, &hub.Error{Code: hub.OriginForbidden, Detail: "pages of this origin may not do that here; --allowed-origins lists those that may"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func wantsEvents(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Accept")), "text/event-stream")
}
