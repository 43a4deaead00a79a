package server_test

import (
	"net/url"
	"strings"
	"testing"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// as sends a request that names a host, from a page of these origins.
func (n *node) as(method, path, host string, origins []string, lines ...string) reply {
	n.t.Helper()
	text := method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, o := range origins {
		text += "Origin: " + o + "\r\n"
	}
	for _, line := range lines {
		text += line + "\r\n"
	}
	if method == "POST" {
		text += "Content-Length: 1\r\n\r\nx"
	} else {
		text += "\r\n"
	}
	return n.ask(text)
}

var handshakeLines = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}

// In open mode the hub answers to loopback names only, so that a name that was
// rebound to 127.0.0.1 opens nothing, whatever is asked for.
func TestHostInOpenMode(t *testing.T) {
	public, err := url.Parse("https://hub.example:8443/")
	if err != nil {
		t.Fatal(err)
	}
	plain, withURL := start(t, hub.Config{}, server.Config{Open: true}), start(t, hub.Config{}, server.Config{Open: true, PublicURL: public})
	closed := start(t, hub.Config{}, server.Config{})
	for host, loopback := range map[string]bool{
		"localhost": true, "LocalHost": true, "localhost:1": true, "localhost:8080": true, "a.localhost": true, "127.0.0.1": true, "127.0.0.1:9": true,
		"127.1.2.3": true, "[::1]": true, "[::1]:8080": true, "[0:0:0:0:0:0:0:1]": true, "[::ffff:127.0.0.1]": true,
		"": false, "evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "evillocalhost": false,
		"127.0.0.1.": false, "0.0.0.0": false, "[::]": false, "10.0.0.1": false, "[fe80::1]": false, "127.0.0.1@evil.example": false, "2130706433": false, "0x7f000001": false,
		"localhost:1:2": false, "hub.example": false, "hub.example:8443": false, "HUB.example": false,
	} {
		for _, c := range []struct {
			n  *node
			ok bool
		}{{plain, loopback}, {withURL, loopback || strings.HasPrefix(strings.ToLower(host), "hub.example")}, {closed, true}} {
			for _, r := range []struct {
				method, path string
				lines        []string
				good         int
			}{
				{"GET", "/rooms/a", nil, 200}, {"POST", "/rooms/a", nil, 200}, {"GET", "/rooms/a", handshakeLines, 101}, {"GET", "/rooms/a/history", nil, 200},
				{"GET", "/rooms/a", []string{"Accept: text/event-stream"}, 200},
				{"GET", "/ws", nil, 426}, {"GET", "/admin/stats", nil, 200}, {"GET", "/debug/pprof/cmdline", nil, 200}, {"GET", "/", nil, 200}, {"GET", "/nothing", nil, 404},
			} {
				got := c.n.as(r.method, r.path, host, nil, r.lines...)
				switch {
				case got.status == 400 && !c.ok, got.status == 400 && c.n == closed: // net/http takes no such Host
				case c.ok && got.status != r.good:
					t.Errorf("host %q, %s %s: %d %s, want %d", host, r.method, r.path, got.status, got.body, r.good)
				case !c.ok:
					got.isProblem(t, 403, hub.HostForbidden)
				}
			}
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				if got := c.n.as("GET", path, host, nil); got.status != 200 && got.status != 400 {
					t.Errorf("host %q, %s: %d", host, path, got.status)
				}
			}
		}
	}
	if got := plain.value("hubd_handshakes_rejected_total", "reason", "host"); got == 0 || got != plain.value("hubd_handshakes_rejected_total") {
		t.Errorf("%v handshakes refused for their host, %v in all", got, plain.value("hubd_handshakes_rejected_total"))
	}
}

// A page of another origin may neither publish nor join, unless its origin is
// listed; who names no origin is no browser.
func TestOrigins(t *testing.T) {
	public, err := url.Parse("https://hub.example")
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"https://app.example", "http://dev.example:3000/", "HTTPS://Upper.Example:443"}
	n := start(t, hub.Config{}, server.Config{AllowedOrigins: allowed})
	behind := start(t, hub.Config{}, server.Config{AllowedOrigins: allowed, PublicURL: public})
	const same, listed, foreign = "same", "listed", "foreign"
	for _, c := range []struct {
		node    *node
		host    string
		origins []string
		want    string
	}{
		{n, "hub.local:8080", nil, same},
		{n, "hub.local:8080", []string{"http://hub.local:8080"}, same},
		{n, "hub.local:8080", []string{"https://hub.local:8080"}, same}, // TLS ends before us
		{n, "Hub.Local:8080", []string{"http://hub.local:8080"}, same},
		{n, "hub.local", []string{"http://hub.local"}, same},
		{n, "hub.local", []string{"https://hub.local"}, same},
		{n, "hub.local:80", []string{"http://hub.local"}, same},
		{n, "hub.local:443", []string{"https://hub.local"}, same},
		{n, "[::1]:8080", []string{"http://[::1]:8080"}, same},
		{n, "hub.local:8080", []string{"http://hub.local"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8081"}, foreign},
		{n, "hub.local", []string{"http://hub.local:443"}, foreign},
		{n, "hub.local:8080", []string{"http://evil.example"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8080.evil.example"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local.evil.example:8080"}, foreign},
		{n, "hub.local:8080", []string{"http://evilhub.local:8080"}, foreign},
		{n, "hub.local:8080", []string{"null"}, foreign},
		{n, "hub.local:8080", []string{""}, foreign},
		{n, "hub.local:8080", []string{"hub.local:8080"}, foreign},
		{n, "hub.local:8080", []string{"file://"}, foreign},
		{n, "hub.local:8080", []string{"ftp://hub.local:8080"}, foreign},
		{n, "hub.local:8080", []string{"chrome-extension://hub.local:8080"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8080", "http://hub.local:8080"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8080", "http://evil.example"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8080, http://evil.example"}, foreign},
		{n, "hub.local:8080", []string{"http://evil.example@hub.local:8080"}, foreign},
		{n, "hub.local:8080", []string{"http://[::1"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8080/"}, foreign},
		{n, "hub.local:8080", []string{"http://hub.local:8080?x"}, foreign},
		{n, "hub.local:8080", []string{"https://app.example"}, listed},
		{n, "hub.local:8080", []string{"https://app.example:443"}, listed},
		{n, "hub.local:8080", []string{"http://dev.example:3000"}, listed},
		{n, "hub.local:8080", []string{"https://upper.example"}, listed},
		{n, "hub.local:8080", []string{"http://app.example"}, foreign},
		{n, "hub.local:8080", []string{"https://app.example:8443"}, foreign},
		{n, "hub.local:8080", []string{"https://sub.app.example"}, foreign},
		{n, "hub.local:8080", []string{"http://dev.example"}, foreign},
		// With a public URL that is what counts, whatever the proxy calls us.
		{behind, "10.0.0.5:8080", nil, same},
		{behind, "10.0.0.5:8080", []string{"https://hub.example"}, same},
		{behind, "hub.example", []string{"https://hub.example"}, same},
		{behind, "hub.example", []string{"http://hub.example"}, foreign},
		{behind, "10.0.0.5:8080", []string{"http://10.0.0.5:8080"}, foreign},
		{behind, "evil.example", []string{"https://evil.example"}, foreign},
		{behind, "10.0.0.5:8080", []string{"https://app.example"}, listed},
	} {
		for _, r := range []struct {
			method, path string
			lines        []string
			good, bad    int
		}{
			{"POST", "/rooms/a", nil, 200, 403},
			{"GET", "/rooms/a", handshakeLines, 101, 403},
			{"GET", "/ws", append(handshakeLines, "Sec-WebSocket-Protocol: hubd.v1.json"), 101, 403},
			{"GET", "/rooms/a", []string{"Accept: text/event-stream"}, 200, 403},
			{"GET", "/rooms/a", nil, 200, 200}, // the browser keeps it from the page
			{"DELETE", "/admin/subscribers/x", nil, 404, 403},
			{"OPTIONS", "/rooms/a", []string{"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"}, 405, 403},
		} {
			want := map[string]int{same: r.good, listed: r.good, foreign: r.bad}[c.want]
			if c.want == listed && r.method == "OPTIONS" {
				want = 204
			}
			got := c.node.as(r.method, r.path, c.host, c.origins, r.lines...)
			if got.status != want {
				t.Errorf("%s %s at %q from %q: %d %s, want %d", r.method, r.path, c.host, c.origins, got.status, got.body, want)
				continue
			}
			if want == 403 {
				got.isProblem(t, 403, hub.OriginForbidden)
			}
			cors := got.header.Get("Access-Control-Allow-Origin")
			if c.want == listed && cors != c.origins[0] || c.want != listed && cors != "" {
				t.Errorf("%s %s from %q: Access-Control-Allow-Origin %q", r.method, r.path, c.origins, cors)
			}
			if got.header.Get("Access-Control-Allow-Credentials") != "" || !strings.Contains(got.header.Get("Vary"), "Origin") {
				t.Errorf("%s %s: %v", r.method, r.path, got.header)
			}
			if want == 204 && (!strings.Contains(got.header.Get("Access-Control-Allow-Methods"), "POST") ||
				!strings.Contains(got.header.Get("Access-Control-Allow-Headers"), "Content-Type") || got.header.Get("Access-Control-Max-Age") == "") {
				t.Errorf("preflight: %v", got.header)
			}
		}
	}
	for _, n := range []*node{n, behind} {
		if got, all := n.value("hubd_handshakes_rejected_total", "reason", "origin"), n.value("hubd_handshakes_rejected_total"); got == 0 || got != all {
			t.Errorf("%v handshakes refused for their origin, %v in all", got, all)
		}
		if got, all := n.value("hubd_publish_rejected_total", "reason", "origin"), n.value("hubd_publish_rejected_total"); got == 0 || got != all {
			t.Errorf("%v publishes refused for their origin, %v in all", got, all)
		}
	}
}

// A listed page can read a refusal, Retry-After included; without a list there
// is no word of CORS.
func TestCORS(t *testing.T) {
	n := start(t, hub.Config{MaxMessageBytes: 10}, server.Config{AllowedOrigins: []string{"https://app.example"}})
	r := n.req("POST", "/rooms/a", "more than ten bytes", "Origin: https://app.example")
	r.isProblem(t, 413, hub.MessageTooLarge)
	if r.header.Get("Access-Control-Allow-Origin") != "https://app.example" || r.header.Get("Access-Control-Expose-Headers") != "Retry-After" {
		t.Errorf("%v", r.header)
	}
	n = start(t, hub.Config{}, server.Config{})
	for _, origin := range []string{n.url, "https://app.example"} {
		r := n.req("POST", "/rooms/a", "x", "Origin: "+origin)
		for name := range r.header {
			if strings.HasPrefix(name, "Access-Control") || name == "Vary" {
				t.Errorf("%s: %s", name, r.header.Get(name))
			}
		}
	}
}

// What is no origin is refused at the start, and said so.
func TestOriginsMisconfigured(t *testing.T) {
	h, err := hub.New(hub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"", "*", "app.example", "https://", "https://app.example/path", "https://app.example?x", "https://u@app.example", "ftp://app.example", "https://app.example:x", "null"} {
		if _, err := server.New(server.Config{Hub: h, AllowedOrigins: []string{origin}}); err == nil || !strings.Contains(err.Error(), "such as https://example.com") {
			t.Errorf("%q: %v", origin, err)
		}
	}
	for _, public := range []string{"hub.example", "ftp://hub.example", "/path"} {
		u, err := url.Parse(public)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.New(server.Config{Hub: h, PublicURL: u, AllowedOrigins: []string{"*"}}); err == nil || !strings.Contains(err.Error(), "public URL") || !strings.Contains(err.Error(), "allowed origin") {
			t.Errorf("%q: %v", public, err)
		}
	}
}
