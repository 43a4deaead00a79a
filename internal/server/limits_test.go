package server_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// bad are the ways in which bytes are not UTF-8.
var bad = map[string]string{
	"a lone lead byte": "\xc3\x28", "a surrogate": "\xed\xa0\x80", "overlong": "\xc0\xaf", "a rune cut in half": "ab\xf0\x9f\x98", "too high": "\xf4\x90\x80\x80",
	"a continuation alone": "\x80", "no byte of UTF-8": "\xff",
}

// One bad byte is the sender's problem alone: nobody else hears of it, and
// nobody else is disconnected.
func TestUTF8(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	readers := n.readers(50)
	refused := 0.0
	for name, text := range bad {
		for _, contentType := range []string{"", "text/plain", "text/plain; charset=utf-8", "application/json", "application/x-www-form-urlencoded", "text/html"} {
			body := text
			if contentType == "application/json" {
				body = `"` + text + `"`
			}
			p := n.post("a", contentType, body)
			if refused++; p.Status != 400 || p.Code != string(hub.InvalidMessage) {
				t.Errorf("%s as %q: %+v", name, contentType, p)
			}
		}
		for _, open := range []func(string, ...string) *wire{n.wire, n.wireJSON} {
			for _, frames := range [][]sent{
				{{op: opText, payload: []byte(text)}},
				{{op: opText, payload: []byte(`{"type":"publish","room":"a","text":"` + text + `"}`)}},
				{{op: opText, payload: []byte(text[:1]), more: true}, {op: opContinuation, payload: []byte(text[1:])}},
			} {
				w := open("/rooms/b")
				w.send(frames...)
				w.closes(1007)
				refused++
			}
		}
	}
	if got := n.value("hubd_publish_rejected_total", "reason", "invalid"); got != refused {
		t.Errorf("%v refusals counted, want %v", got, refused)
	}
	// What is right in the end is right: a rune in two fragments, and any bytes
	// as binary.
	text := "caf\u00e9 \u20ac \U0001f600"
	half := strings.Index(text, "\u20ac") + 1
	w := n.wire("/rooms/a")
	w.send(sent{op: opText, payload: []byte(text[:half]), more: true}, sent{op: opPong}, sent{op: opContinuation, payload: []byte(text[half:])})
	w.expect(text)
	for _, b := range bad {
		w.send(sent{op: opBinary, payload: []byte(b)})
		n.post("a", "application/octet-stream", b)
	}
	for i, r := range readers {
		if i%2 == 0 {
			if f := r.message(); f.op != opText || string(f.payload) != text {
				t.Errorf("reader %d: first %d %q", i, f.op, f.payload)
			}
		} else if a := r.answer(); a.Text == nil || *a.Text != text {
			t.Errorf("reader %d: first %+v", i, a)
		}
		for k := range 2 * len(bad) {
			if i%2 == 0 {
				if f := r.message(); f.op != opBinary || utf8.Valid(f.payload) {
					t.Errorf("reader %d: %d %q", i, f.op, f.payload)
				}
				continue
			}
			a := r.answer()
			if a.Base64 == nil {
				t.Fatalf("reader %d: %+v", i, a)
			}
			if b, err := base64.StdEncoding.DecodeString(*a.Base64); err != nil || utf8.Valid(b) || a.Seq != uint64(k+2) {
				t.Errorf("reader %d: %q %v", i, b, err)
			}
		}
		r.ping()
	}
	if got := n.value("hubd_connections_closed_total"); got != n.value("hubd_connections_closed_total", "reason", "protocol_error") {
		t.Errorf("%v closed", got)
	}
}

// chunks is a chunked body.
func chunks(body string, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		k := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", k, body[:k])
		body = body[k:]
	}
	return b.String() + "0\r\n\r\n"
}

// postRaw sends a POST, its body while the answer may already be coming, and
// returns the answer.
func (n *node) postRaw(header, body string) reply {
	n.t.Helper()
	w := n.connect()
	w.write([]byte("POST /rooms/a HTTP/1.1\r\nHost: h\r\n" + header + "\r\n\r\n"))
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.tryWrite([]byte(body)) }) // the server need not take it all
	r := w.reply()
	w.conn.Close()
	wg.Wait()
	return r
}

// The limit is one number of payload bytes on every path: a message of that
// size is delivered whole, one byte more is refused as the path refuses, and
// nothing of it is delivered.
func TestMessageLimit(t *testing.T) {
	const limit = 100_000
	n := start(t, hub.Config{MaxMessageBytes: limit}, server.Config{CloseTimeout: patience})
	reader := n.wire("/rooms/a")
	// doors publish a payload and report whether it was refused for its size.
	doors := map[string]func(payload string) bool{
		"POST": func(p string) bool {
			return tooLarge(t, n.postRaw(fmt.Sprintf("Content-Length: %d", len(p)), p))
		},
		"POST binary": func(p string) bool {
			return tooLarge(t, n.postRaw(fmt.Sprintf("Content-Type: application/octet-stream\r\nContent-Length: %d", len(p)), p))
		},
		"POST chunked":            func(p string) bool { return tooLarge(t, n.postRaw("Transfer-Encoding: chunked", chunks(p, 30_000))) },
		"POST in many chunks":     func(p string) bool { return tooLarge(t, n.postRaw("Transfer-Encoding: chunked", chunks(p, 1000))) },
		"POST by net/http":        func(p string) bool { return n.post("a", "text/plain", p).Status == 413 },
		"POST expecting":          func(p string) bool { return n.postExpecting(fmt.Sprintf("Content-Length: %d", len(p)), p) },
		"POST chunked, expecting": func(p string) bool { return n.postExpecting("Transfer-Encoding: chunked", chunks(p, 50_000)) },
		"raw":                     func(p string) bool { return n.rawTooBig(sent{op: opText, payload: []byte(p)}) },
		"raw binary":              func(p string) bool { return n.rawTooBig(sent{op: opBinary, payload: []byte(p)}) },
		"raw in fragments":        func(p string) bool { return n.rawTooBig(fragments(p, 3)...) },
		"raw in a great many":     func(p string) bool { return n.rawTooBig(fragments(p, 1000)...) },
		"text":                    func(p string) bool { return n.commandTooLarge(`"text":"` + p + `"`) },
		"text, escaped":           func(p string) bool { return n.commandTooLarge(`"text":"` + strings.Repeat(`\u0078`, len(p)) + `"`) },
		"data":                    func(p string) bool { return n.commandTooLarge(`"data":"` + p[2:] + `"`) },
		"base64": func(p string) bool {
			return n.commandTooLarge(`"base64":"` + base64.StdEncoding.EncodeToString([]byte(p)) + `"`)
		},
	}
	for name, door := range doors {
		if door(strings.Repeat("x", limit)) {
			t.Errorf("%s: %d bytes were refused", name, limit)
		}
		want := strings.Repeat("x", limit)
		if name == "data" {
			want = `"` + want[2:] + `"`
		}
		if got := reader.text(); got != want {
			t.Errorf("%s: %d bytes were delivered, %d published", name, len(got), limit)
		}
		if !door(strings.Repeat("x", limit+1)) {
			t.Errorf("%s: %d bytes were taken", name, limit+1)
		}
	}
	reader.ping() // nothing else was delivered
	if got, want := n.value("hubd_messages_published_total"), float64(len(doors)); got != want {
		t.Errorf("%v published, want %v", got, want)
	}
	if got, want := n.value("hubd_publish_rejected_total", "reason", "too_large"), float64(len(doors)); got != want {
		t.Errorf("%v refused, want %v", got, want)
	}
	huge := strings.Repeat("x", 80*limit)
	for _, name := range []string{"POST", "POST chunked", "POST expecting", "raw"} {
		if !doors[name](huge) {
			t.Errorf("%s: %d bytes were taken", name, len(huge))
		}
	}
	w := n.wireJSON("/ws")
	w.say(`{"type":"publish","id":1,"room":"a","text":"` + huge + `"}`)
	w.closes(1009)
	reader.ping()
}

func tooLarge(t *testing.T, r reply) bool {
	t.Helper()
	if r.status == http.StatusOK {
		return false
	}
	r.isProblem(t, 413, hub.MessageTooLarge)
	if !strings.Contains(r.body, "100000") {
		t.Errorf("the limit is not told: %s", r.body)
	}
	return true
}

// postExpecting waits for 100 Continue before it sends the body. Where the
// length says that it is too large, it must not be asked for.
func (n *node) postExpecting(header, body string) (refused bool) {
	n.t.Helper()
	w := n.connect()
	w.write([]byte("POST /rooms/a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n" + header + "\r\n\r\n"))
	r := w.reply()
	if r.status == http.StatusContinue {
		if strings.HasPrefix(header, "Content-Length") && len(body) > 100_000 {
			n.t.Errorf("%d bytes were asked for", len(body))
		}
		w.write([]byte(body))
		r = w.reply()
	}
	return tooLarge(n.t, r)
}

func fragments(payload string, count int) (frames []sent) {
	size := (len(payload) + count - 1) / count
	op := byte(opText)
	for len(payload) > size {
		frames = append(frames, sent{op: op, payload: []byte(payload[:size]), more: true})
		payload, op = payload[size:], opContinuation
	}
	return append(frames, sent{op: op, payload: []byte(payload)})
}

// rawTooBig publishes on a connection of its own and reports whether that was
// closed for it.
func (n *node) rawTooBig(frames ...sent) bool {
	n.t.Helper()
	w := n.wire("/rooms/a")
	var b []byte
	for _, f := range frames {
		b = append(b, f.bytes()...)
	}
	if w.tryWrite(b) != nil {
		return true
	}
	f, err := w.next()
	if err == nil && f.op == opClose && bytes.Equal(f.payload[:2], closePayload(1009, "")) {
		_ = w.tryWrite(sent{op: opClose, payload: f.payload}.bytes())
		w.conn.Close()
		return true
	}
	if err != nil || f.op == opClose {
		n.t.Errorf("raw: %d %q, %v", f.op, f.payload, err)
	}
	w.conn.Close()
	return false
}

// commandTooLarge publishes by command and reports whether that was refused for
// its size; the connection must stay.
func (n *node) commandTooLarge(field string) bool {
	n.t.Helper()
	w := n.wireJSON("/ws")
	defer w.conn.Close()
	a := w.one(`{"type":"publish","id":1,"room":"a",` + field + `}`)
	if a.Type != "published" && a.Code != string(hub.MessageTooLarge) {
		n.t.Errorf("%+v", a)
	}
	return a.Code == string(hub.MessageTooLarge)
}

// A message has at most so many fragments, counted anew for each message, and
// whatever stands between them.
func TestFragments(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	most := fragments(strings.Repeat("x", 1024), 1024)
	if len(most) != 1024 {
		t.Fatal(len(most))
	}
	w := n.wire("/rooms/a")
	for range 3 {
		w.send(most...)
		w.expect(strings.Repeat("x", 1024))
	}
	var mixed []sent
	for _, f := range most {
		mixed = append(mixed, f, sent{op: opPong, payload: []byte("unasked")})
	}
	w.send(mixed...)
	w.expect(strings.Repeat("x", 1024))
	// Empty ones are fragments, too, and are put together.
	w.send(sent{op: opText, more: true}, sent{op: opContinuation, more: true}, sent{op: opContinuation, payload: []byte("all")})
	w.expect("all")
}

// The fragment that is one too many ends the connection at once.
func TestTooManyFragments(t *testing.T) {
	for _, size := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			n := startFake(t, hub.Config{}, server.Config{}, 1<<20)
			w := n.wire("/rooms/a")
			tooMany := []sent{{op: opText, more: true}}
			for range 1024 {
				tooMany = append(tooMany, sent{op: opPong}, sent{op: opContinuation, more: true, payload: make([]byte, size)})
			}
			begin := time.Now()
			w.send(tooMany[:len(tooMany)-1]...)
			synctest.Wait()
			if got := n.value("hubd_subscriptions"); got != 1 {
				t.Fatalf("closed before the last")
			}
			w.send(tooMany[len(tooMany)-1])
			// This network has no half-close: the client's answer to the close
			// frame may find it gone.
			if e := w.end(); e.code != 1002 || len(e.messages) != 0 {
				t.Errorf("closed with %d after %d messages", e.code, len(e.messages))
			}
			if waited := time.Since(begin); waited != 0 {
				t.Errorf("closed after %v", waited)
			}
		})
	}
}

// What comes behind the refused fragment is nobody's business any more, however
// long its header was.
func TestBehindTooManyFragments(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w := n.wire("/rooms/a")
	tooMany := []sent{{op: opText, more: true}}
	for range 1023 {
		tooMany = append(tooMany, sent{op: opContinuation, more: true})
	}
	w.send(append(tooMany, sent{op: opContinuation, more: true, payload: make([]byte, 70_000)})...)
	w.send(sent{op: opContinuation, payload: make([]byte, 70_000)})
	w.closes(1002)
}
