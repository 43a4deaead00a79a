package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// scraps are tokens, and where no piece of them may be found.
type scraps struct {
	t       *testing.T
	windows map[string]string // of 20 characters, to the name of the token
	looked  int
}

func newScraps(t *testing.T, tokens map[string]string) *scraps {
	p := &scraps{t: t, windows: map[string]string{}}
	const size = 20
	for name, token := range tokens {
		for i := 0; i+size <= len(token); i++ {
			p.windows[token[i:i+size]] = name
		}
	}
	return p
}

// absent fails the test over a piece in text.
func (p *scraps) absent(where, text string) {
	p.t.Helper()
	p.looked += len(text)
	const size = 20
	for i := 0; i+size <= len(text); i++ {
		if name, ok := p.windows[text[i:i+size]]; ok {
			p.t.Errorf("%s has a piece of the token %s: %q", where, name, text[max(0, i-60):min(len(text), i+60)])
			return
		}
	}
}

func (p *scraps) reply(where string, r reply) {
	p.t.Helper()
	p.absent("the body of "+where, r.body)
	for name, values := range r.header {
		p.absent("header "+name+" of "+where, strings.Join(values, " "))
	}
}

// TestTokensLeaveNoTrace: tokens, good and bad, in every place in which a client
// may put them, right and wrong; then in nothing that others see or that is kept
// is a piece of them.
func TestTokensLeaveNoTrace(t *testing.T) {
	n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
	tokens := map[string]string{
		"good": everything.token(t), "refreshed": grant{join: []string{"*", "a"}}.token(t), "expired": grant{exp: -time.Hour}.token(t),
		"forged": grant{key: "x"}.token(t), "nobody's": grant{sub: "nobody"}.token(t), "of another": grant{sub: "bob", join: []string{"*"}}.token(t),
	}
	p := newScraps(t, tokens)
	host := "Host: " + strings.TrimPrefix(n.url, "http://") + "\r\n"
	for name, token := range tokens {
		for _, w := range ways {
			for i := range channels {
				r := n.ask(w.request(n, &channels[i], token))
				if !strings.HasPrefix(w.path, "/debug/pprof/g") { // the stacks of this test
					p.reply(w.name+", "+name, r)
				}
			}
		}
		for _, request := range []string{
			"GET /nothing/" + token, "GET /" + token, "GET /" + token + "/", "GET /rooms/" + token, "GET /rooms/" + token + "/x", "POST /rooms/" + token,
			"GET /rooms/?access_token=" + token, "GET /client?access_token=" + token, "GET /index.html?access_token=" + token,
			"GET //x/..?access_token=" + token, "GET /healthz/" + token, "PUT /rooms/a?access_token=" + token, token + " /rooms/a",
			"GET /admin/" + token, "GET /admin/rooms/" + token, "GET /debug/pprof/" + token, "DELETE /admin/subscribers/" + token,
			"GET /admin/subscribers?sort=" + token + "&access_token=" + token, "GET /rooms/a?%zz&access_token=" + token,
			"GET /rooms/a/history?after=" + token + "&access_token=" + token, "GET /rooms/a/history?limit=" + token + "&access_token=" + token,
		} {
			r := n.ask(request + " HTTP/1.1\r\n" + host + bearer(token) + "\r\nConnection: close\r\n\r\n")
			p.reply("a wrong request", r)
		}
		for _, line := range []string{
			"Authorization: Bearer\x00" + token, "Authorization Bearer " + token, token, "X-" + token + ": x", "Origin: https://" + token,
			"Content-Length: " + token, "Transfer-Encoding: " + token, "Expect: " + token, "Host: " + token, "Range: " + token,
			"Cookie: t=" + token, "Referer: https://example.com/?access_token=" + token, "Content-Type: " + token + "/" + token,
			"Idempotency-Key: " + token, "Hubd-Key: " + token, "Last-Event-ID: " + token + "\r\nAccept: text/event-stream",
			"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: " + token, "Padding: " + strings.Repeat(token, 100),
		} {
			for _, method := range []string{"GET", "POST"} {
				r := n.ask(method + " /rooms/a?policy=" + token + " HTTP/1.1\r\n" + host + bearer(tokens["good"]) + "\r\nConnection: close\r\n" + line + "\r\n\r\n")
				p.reply("a wrong header", r)
			}
		}
		for _, path := range []string{"/rooms/a?after=" + token, "/rooms/a?policy=" + token, "/rooms/a?gaps=" + token, "/rooms/a?queue_bytes=" + token, "/ws?" + token} {
			r := n.ask(n.handshake(path, "Sec-WebSocket-Protocol: hubd.token."+tokens["good"], "Sec-WebSocket-Extensions: "+token) + "\r\n\r\n")
			p.reply("a wrong handshake", r)
		}
		for _, command := range []string{
			`{"type":"auth","id":1,"token":"` + token + `"}`,
			`{"type":"auth","id":1,"token":"` + token, `{"type":"auth","id":1,"token":["` + token + `"]}`, `{"type":"auth","id":1,"tokn":"` + token + `"}`,
			`{"type":"` + token + `","id":1}`, `{"type":"join","id":"` + token + `"}`, `{"` + token + `":1}`, token, `["` + token + `"]`,
			`{"type":"join","id":1,"room":"` + token + `"}`, `{"type":"join","id":1,"room":"b","policy":"` + token + `"}`,
			`{"type":"join","id":1,"room":"b","after":"` + token + `"}`, `{"type":"publish","id":1,"room":"a","base64":"` + token + `"}`,
		} {
			for _, before := range []string{"", `{"type":"auth","id":2,"token":"` + tokens["good"] + `"}`} {
				w := n.wireJSON("/ws")
				if before != "" {
					w.say(before)
				}
				// Twice, as some do.
				w.send(sent{op: opText, payload: []byte(command)}, sent{op: opText, payload: []byte(command)},
					sent{op: opClose, payload: closePayload(4000, token[:100])})
				e := w.end()
				p.absent("the close reason", e.reason)
				for _, text := range e.messages {
					p.absent("an answer to a command", text)
				}
			}
		}
		raw := n.wire("/rooms/a", bearer(tokens["refreshed"]))
		raw.say(`{"type":"auth","token":"` + token + `"}`) // it may not publish, and means otherwise
		if e := raw.end(); e.code != 4003 || len(e.messages) > 0 {
			t.Errorf("closed with %d after %q", e.code, e.messages)
		}
	}
	n.gauge(0, "hubd_connections")
	p.absent("the log", n.log.String())
	for _, path := range []string{"/metrics", "/admin/stats", "/admin/rooms", "/admin/subscribers", "/admin/rooms/a"} {
		r := n.ask("GET " + path + " HTTP/1.1\r\n" + host + bearer(tokens["good"]) + "\r\nConnection: close\r\n\r\n")
		if r.status != 200 {
			t.Errorf("%s: %d", path, r.status)
		}
		p.absent(path, r.body)
	}
	if !strings.Contains(n.log.String(), "token refused") {
		t.Error("the log is not that of level debug")
	}
	t.Logf("%d pieces of tokens looked for in %d bytes", len(p.windows), p.looked)
}

// TestPanicLeavesNoTrace: a fault of ours is logged with its stack, and that has
// no token either.
func TestPanicLeavesNoTrace(t *testing.T) {
	sc := guarded(t, server.Config{Now: func() time.Time { panic("out of order") }}, 0)
	n := start(t, hub.Config{}, sc)
	token := everything.token(t)
	p := newScraps(t, map[string]string{"good": token})
	for i := range channels {
		w := n.connect()
		w.write([]byte(ways[4].request(n, &channels[i], token)))
		if b, err := io.ReadAll(w.conn); err != nil || len(b) > 0 {
			t.Errorf("answered %q, %v", b, err)
		}
	}
	n.await("three panics in the log", func() bool { return strings.Count(n.log.String(), "out of order") == 3 })
	p.absent("the log", n.log.String())
	if resp := n.get("/healthz"); resp.StatusCode != http.StatusOK {
		t.Errorf("the node is %s", resp.Status)
	} else {
		resp.Body.Close()
	}
}
