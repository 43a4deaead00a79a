package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// reply is an HTTP response, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// request sends a request as it is written and reads the one response.
func (n *node) request(text string) reply {
	n.t.Helper()
	w := n.connect()
	w.write([]byte(text))
	return w.reply()
}

func (w *wire) reply() reply {
	w.t.Helper()
	resp := w.response()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("body of %s: %v", resp.Status, err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// isProblem fails the test unless r is a problem document (RFC 9457) of that
// status and code.
func (r reply) isProblem(t *testing.T, status int, code hub.Code) {
	t.Helper()
	switch {
	case r.status != status,
		r.header.Get("Content-Type") != "application/problem+json",
		code != "" && !strings.Contains(r.body, `"code":"`+string(code)+`"`),
		code == "" && strings.Contains(r.body, `"code"`),
		len(r.body) >= 600:
		t.Errorf("%d %v %q, want a problem of status %d and code %q", r.status, r.header, r.body, status, code)
	}
}

// The headers of a handshake are lists, and their names and most of their
// values of any case.
func TestHandshakeAccepts(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	host := "Host: " + strings.TrimPrefix(n.url, "http://")
	for name, lines := range map[string][]string{
		"a list, as Firefox sends": {"GET /rooms/a HTTP/1.1", host, "Connection: keep-alive, Upgrade", "Upgrade: websocket"},
		"two lines":                {"GET /rooms/a HTTP/1.1", host, "Connection: keep-alive", "Connection: Upgrade", "Upgrade: websocket"},
		"upper and lower":          {"GET /rooms/a HTTP/1.1", host, "Connection: UPGRADE", "upgrade: WebSocket"},
		"all lower":                {"GET /rooms/a HTTP/1.1", strings.ToLower(host), "connection: upgrade", "upgrade: websocket"},
		"several protocols":        {"GET /rooms/a HTTP/1.1", host, "Connection: upgrade", "Upgrade: h2c, websocket"},
		"the query of a proxy":     {"GET /rooms/a?utm=1 HTTP/1.1", host, "Connection: upgrade", "Upgrade: websocket"},
		"absolute":                 {"GET " + n.url + "/rooms/a HTTP/1.1", host, "Connection: upgrade", "Upgrade: websocket"},
		"white space":              {"GET /rooms/a HTTP/1.1", host, "Connection: \t upgrade ,", "Upgrade:  websocket\t"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, lower := range []bool{false, true} {
				rest := "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
				if lower {
					rest = strings.Replace(strings.Replace(rest, "Sec-WebSocket-V", "sec-websocket-v", 1), "Sec-WebSocket-K", "sec-websocket-k", 1)
				}
				w := n.connect()
				w.write([]byte(strings.Join(lines, "\r\n") + "\r\n" + rest))
				resp := w.response()
				if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
					resp.Header.Get("Sec-WebSocket-Protocol") != "" || resp.Header.Get("Sec-WebSocket-Extensions") != "" {
					t.Fatalf("%s %v", resp.Status, resp.Header)
				}
				w.send(sent{op: opText, payload: []byte("hi")})
				w.expect("hi")
				w.send(sent{op: opClose})
				w.closes(1005)
			}
		})
	}
}

func TestHandshakeRefuses(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	const (
		version = "Sec-WebSocket-Version: 13"
		key     = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
		conn    = "Connection: Upgrade"
		up      = "Upgrade: websocket"
	)
	refused := 0.0
	for _, c := range []struct {
		name    string
		lines   []string
		status  int
		header  string // that must be there
		upgrade bool   // it counts as a handshake
	}{
		{"plain GET", []string{"GET /ws HTTP/1.1"}, 426, "Upgrade: websocket", false},
		{"plain HEAD", []string{"HEAD /ws HTTP/1.1"}, 426, "Upgrade: websocket", false},
		{"plain POST", []string{"POST /ws HTTP/1.1", "Content-Length: 0"}, 426, "Upgrade: websocket", false},
		{"other upgrade", []string{"GET /ws HTTP/1.1", conn, "Upgrade: h2c"}, 426, "Upgrade: websocket", false},
		{"POST", []string{"POST /rooms/a HTTP/1.1", conn, up, version, key, "Content-Length: 0"}, 405, "Allow: GET", true},
		{"PUT", []string{"PUT /rooms/a HTTP/1.1", conn, up, version, key}, 405, "Allow: GET", true},
		{"version 12", []string{"GET /rooms/a HTTP/1.1", conn, up, "Sec-WebSocket-Version: 12", key}, 400, "Sec-Websocket-Version: 13", true},
		{"no version", []string{"GET /rooms/a HTTP/1.1", conn, up, key}, 400, "Sec-Websocket-Version: 13", true},
		{"bad key", []string{"GET /rooms/a HTTP/1.1", conn, up, version, "Sec-WebSocket-Key: x"}, 400, "", true},
		{"long bad key", []string{"GET /rooms/a HTTP/1.1", conn, up, version, "Sec-WebSocket-Key: " + strings.Repeat("\"<\u00e9", 500)}, 400, "", true},
		{"short key", []string{"GET /rooms/a HTTP/1.1", conn, up, version, "Sec-WebSocket-Key: c2hvcnQ="}, 400, "", true},
		{"no key", []string{"GET /rooms/a HTTP/1.1", conn, up, version}, 400, "", true},
		{"two keys", []string{"GET /rooms/a HTTP/1.1", conn, up, version, key, key}, 400, "", true},
		{"no Connection", []string{"GET /rooms/a HTTP/1.1", up, version, key}, 426, "Upgrade: websocket", true},
		{"other Connection", []string{"GET /rooms/a HTTP/1.1", "Connection: close", up, version, key}, 426, "Upgrade: websocket", true},
		{"HTTP/1.0", []string{"GET /rooms/a HTTP/1.0", conn, up, version, key}, 426, "", true},
		{"no subprotocol on /ws", []string{"GET /ws HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"another on /ws", []string{"GET /ws HTTP/1.1", conn, up, version, key, "Sec-WebSocket-Protocol: hubd.v2.json"}, 400, "", true},
		{"no room", []string{"GET /rooms/ HTTP/1.1", conn, up, version, key}, 404, "", false},
		{"bad room", []string{"GET /rooms/a%20b HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"not here", []string{"GET /healthz HTTP/1.1", conn, up, version, key}, 200, "", false},
		{"bad policy", []string{"GET /rooms/a?policy=drop HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"policy not allowed", []string{"GET /rooms/a?policy=reject-publish HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"queue of 0", []string{"GET /rooms/a?queue_messages=0 HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"queue of -1", []string{"GET /rooms/a?queue_bytes=-1 HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"queue of 1e3", []string{"GET /rooms/a?queue_bytes=1e3 HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"queue of nothing", []string{"GET /rooms/a?queue_messages= HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"gaps", []string{"GET /rooms/a?gaps=maybe HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"malformed position", []string{"GET /rooms/a?after=41 HTTP/1.1", conn, up, version, key}, 400, "", true},
		{"malformed query", []string{"GET /rooms/a?policy=%zz HTTP/1.1", conn, up, version, key}, 400, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := "Host: " + strings.TrimPrefix(n.url, "http://")
			w := n.connect()
			w.write([]byte(strings.Join(append(c.lines, host), "\r\n") + "\r\n\r\n"))
			resp := w.response()
			body := ""
			if !strings.HasPrefix(c.lines[0], "HEAD") {
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				body = string(b)
			}
			if resp.StatusCode != c.status || len(body) >= 200 {
				t.Errorf("%d and %d bytes %q, want %d and under 200", resp.StatusCode, len(body), body, c.status)
			}
			if name, want, ok := strings.Cut(c.header, ": "); ok && !strings.Contains(resp.Header.Get(name), want) {
				t.Errorf("%s is %q, want %q", name, resp.Header.Get(name), want)
			}
			if resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("Content-Type %q", resp.Header.Get("Content-Type"))
			}
			if c.upgrade {
				refused++
			}
			if got := n.value("hubd_handshakes_rejected_total", "reason", "invalid"); got != refused {
				t.Errorf("%v handshakes counted as invalid, want %v", got, refused)
			}
		})
	}
	if got := n.value("hubd_connections"); got != 0 {
		t.Errorf("%v connections after refusals only", got)
	}
}

// A handshake that announces a body is refused at once, whether or not the body
// ever comes: nothing waits for it.
func TestHandshakeWithBody(t *testing.T) {
	for name, lines := range map[string]string{
		"length":        "Content-Length: 5",
		"one byte":      "Content-Length: 1",
		"huge":          "Content-Length: 9000000000",
		"chunked":       "Transfer-Encoding: chunked",
		"with continue": "Content-Length: 5\r\nExpect: 100-continue",
	} {
		for _, path := range []string{"/rooms/a", "/ws"} {
			t.Run(name+" on "+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := startFake(t, hub.Config{}, server.Config{}, 1<<20)
					begin := time.Now()
					w := n.connect()
					w.write([]byte(n.handshake(path, "Sec-WebSocket-Protocol: "+server.Protocol, lines) + "\r\n\r\n"))
					r := w.reply()
					r.isProblem(t, 400, hub.InvalidOption)
					if waited := time.Since(begin); waited != 0 {
						t.Errorf("answered after %v", waited)
					}
				})
			})
		}
	}
}

// startFake is for a synctest bubble: time is fake, so nothing need be bounded.
func startFake(t *testing.T, hc hub.Config, sc server.Config, buffer int) *node {
	t.Helper()
	// net/http waits half a second after some answers before it closes, joined
	// by nobody. This runs after all else.
	t.Cleanup(func() { time.Sleep(time.Second) })
	n := startMem(t, hc, sc, buffer)
	n.patience = 0
	return n
}

func TestSubprotocol(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	for offered, answered := range map[string]string{
		"":                                "",
		"chat":                            "",
		"hubd.v1.json":                    "hubd.v1.json",
		"chat, hubd.v1.json":              "hubd.v1.json",
		"hubd.v1.json, chat":              "hubd.v1.json",
		"hubd.v1.json,hubd.v1.json":       "hubd.v1.json",
		"hubd.v1.json, hubd.token.secret": "hubd.v1.json",
		"hubd.v1.jsonx":                   "",
	} {
		var lines []string
		if offered != "" {
			lines = append(lines, "Sec-WebSocket-Protocol: "+offered)
		}
		w := n.wire("/rooms/a", lines...)
		if got := w.header.Values("Sec-WebSocket-Protocol"); len(got) > 1 || w.header.Get("Sec-WebSocket-Protocol") != answered {
			t.Errorf("offered %q, answered %q", offered, got)
		}
		if answered != "" {
			if a := w.answer(); a.Type != "joined" {
				t.Errorf("first frame %+v", a)
			}
		}
		w.conn.Close()
	}
	// One offer a line is the same list.
	w := n.wire("/ws", "Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Protocol: hubd.v1.json")
	if got := w.header.Get("Sec-WebSocket-Protocol"); got != server.Protocol {
		t.Errorf("answered %q", got)
	}
}

// What a client sends right behind its handshake, without waiting for the
// answer, is not lost.
func TestFramesBehindHandshake(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w := n.connect()
	b := []byte(n.handshake("/ws", "Sec-WebSocket-Protocol: "+server.Protocol) + "\r\n\r\n")
	for range 3 {
		b = append(b, sent{op: opText, payload: []byte(`{"type":"ping","id":1}`)}.bytes()...)
	}
	w.write(append(b, sent{op: opClose, payload: closePayload(1000, "")}.bytes()...))
	if resp := w.response(); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	if e := w.closes(1000); len(e.messages) != 3 || e.messages[2] != `{"type":"pong","id":1}` {
		t.Errorf("%q", e.messages)
	}
}

// A node takes so many connections and no more, counts those it refuses, and
// takes others once one is gone.
func TestOverCapacity(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{MaxConnections: 2})
	a, b := n.wireJSON("/rooms/a"), n.wire("/rooms/a")
	r := n.request(n.handshake("/rooms/a") + "\r\n\r\n")
	r.isProblem(t, 503, hub.OverCapacity)
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if got := n.value("hubd_handshakes_rejected_total", "reason", "over_capacity"); got != 1 {
		t.Errorf("counted %v", got)
	}
	// The answer to a handshake is sent before the connection is there.
	n.eventually("two connections", func() bool { return n.value("hubd_connections", "transport", "websocket") == 2 })
	a.send(sent{op: opClose})
	a.closes(1005)
	n.eventually("one connection", func() bool { return n.value("hubd_connections") == 1 })
	n.wire("/rooms/a")
	b.send(sent{op: opText, payload: []byte("still here")})
	b.expect("still here")
}
