package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// payloads are some below the size from which compressing pays, and some above.
func payloads() (all []string) {
	for _, n := range []int{0, 1, 100, 255, 256, 300, 5000, 60_000} {
		all = append(all, strings.Repeat("compressible ", n/13+1)[:n])
	}
	return all
}

// gorilla opens path with a client that nobody here wrote.
func (n *node) gorilla(path string, deflate bool, protocols ...string) *gorilla.Conn {
	n.t.Helper()
	d := gorilla.Dialer{NetDialContext: n.dialContext, EnableCompression: deflate, Subprotocols: protocols}
	ws, resp, err := d.DialContext(ctxFor(n.t), strings.Replace(n.url, "http", "ws", 1)+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	resp.Body.Close()
	n.t.Cleanup(func() { ws.Close() })
	if len(protocols) > 0 { // joined
		if _, _, err := ws.ReadMessage(); err != nil {
			n.t.Fatal(err)
		}
	} else {
		n.answersPing(ws)
	}
	return ws
}

// answersPing waits until the server has answered a ping: then the join is made.
func (n *node) answersPing(ws *gorilla.Conn) {
	n.t.Helper()
	ponged := make(chan struct{}, 1)
	ws.SetPongHandler(func(string) error {
		ponged <- struct{}{}
		return ws.WriteMessage(gorilla.TextMessage, []byte("end of ping"))
	})
	if err := ws.WriteMessage(gorilla.PingMessage, nil); err != nil {
		n.t.Fatal(err)
	}
	if _, b, err := ws.ReadMessage(); err != nil || string(b) != "end of ping" {
		n.t.Fatalf("%q %v", b, err)
	}
	<-ponged
}

// Clients of all kinds read the same shared bytes, compressed or not, and
// each form of a message is made once.
func TestCompression(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{Compression: true})
	type reader func() ([]byte, error)
	var raw, js []reader
	for _, deflate := range []bool{true, false} {
		for range 3 {
			// Each by itself in its room's first message: see answersPing.
			g := n.gorilla("/rooms/other", deflate)
			g.Close()
			gj := n.gorilla("/rooms/a", deflate, server.Protocol)
			js = append(js, func() ([]byte, error) { _, b, err := gj.ReadMessage(); return b, err })
		}
	}
	for _, mode := range []websocket.CompressionMode{websocket.CompressionDisabled, websocket.CompressionNoContextTakeover, websocket.CompressionContextTakeover} {
		for _, protocols := range [][]string{nil, {server.Protocol}} {
			ws, resp, err := websocket.Dial(ctxFor(t), n.url+"/rooms/a", &websocket.DialOptions{Subprotocols: protocols, CompressionMode: mode, HTTPClient: n.http})
			if err != nil {
				t.Fatal(err)
			}
			if ext := resp.Header.Get("Sec-WebSocket-Extensions"); (mode != websocket.CompressionDisabled) != strings.Contains(ext, "server_no_context_takeover") {
				t.Errorf("mode %v: %q", mode, ext)
			}
			ws.SetReadLimit(-1)
			defer ws.CloseNow()
			read := func() ([]byte, error) { _, b, err := ws.Read(ctxFor(t)); return b, err }
			if protocols == nil {
				raw = append(raw, read)
				continue
			}
			if _, err := read(); err != nil {
				t.Fatal(err)
			}
			js = append(js, read)
		}
	}
	var wires []*wire
	for range 4 {
		w := n.wire("/rooms/a", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
		if ext := w.header.Get("Sec-WebSocket-Extensions"); !strings.Contains(ext, "server_no_context_takeover") {
			t.Fatalf("negotiated %q", ext)
		}
		wires = append(wires, w)
	}
	n.eventually("all to be in", func() bool { return n.value("hubd_subscriptions") == float64(len(raw)+len(js)+len(wires)) })
	large := 0.0
	for i, p := range payloads() {
		n.publish("a", p)
		if len(p) > 252 {
			large++
		}
		for k, read := range raw {
			if b, err := read(); err != nil || string(b) != p {
				t.Fatalf("raw reader %d, payload %d: %d bytes, %v", k, i, len(b), err)
			}
		}
		want := fmt.Sprintf(`{"type":"message","room":"a","seq":%d,"text":"%s"}`, i+1, p)
		for k, read := range js {
			if b, err := read(); err != nil || string(b) != want {
				t.Fatalf("JSON reader %d, payload %d: %.80q, %v", k, i, b, err)
			}
		}
		var first received
		for k, w := range wires {
			f, err := w.next()
			if err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				first = f
			}
			if f.rsv1 != (len(p) > 252) || !bytes.Equal(f.payload, first.payload) {
				t.Errorf("payload %d on wire %d: compressed %v, %d bytes", i, k, f.rsv1, len(f.payload))
			}
			if f.rsv1 && len(f.payload) > len(p)/2 {
				t.Errorf("payload %d: %d bytes became %d", i, len(p), len(f.payload))
			}
		}
	}
	for encoding, want := range map[string]float64{"raw": float64(len(payloads())), "json": float64(len(payloads())), "raw_deflate": large} {
		if got := n.value("hubd_frames_encoded_total", "encoding", encoding); got < want || got > want+6 { // and those of the room other
			t.Errorf("%v frames encoded as %s, want %v", got, encoding, want)
		}
	}
	if got := n.value("hubd_frames_encoded_total", "encoding", "json_deflate"); got < large || got > large+2 { // the envelope counts
		t.Errorf("%v frames encoded as json_deflate", got)
	}
}

// Off is off, whatever a client offers.
func TestCompressionOff(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w := n.wire("/rooms/a", "Sec-WebSocket-Extensions: permessage-deflate")
	if ext := w.header.Values("Sec-WebSocket-Extensions"); len(ext) != 0 {
		t.Errorf("negotiated %q", ext)
	}
	w.send(sent{op: opText, payload: bytes.Repeat([]byte("x"), 1000)})
	w.expect(strings.Repeat("x", 1000))
}

// What clients send compressed is published as it was before.
func TestCompressedPublish(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{Compression: true})
	w := n.wire("/rooms/a")
	g := n.gorilla("/rooms/a", true, server.Protocol)
	c, _, err := websocket.Dial(ctxFor(t), n.url+"/rooms/a", &websocket.DialOptions{CompressionMode: websocket.CompressionContextTakeover, CompressionThreshold: 1, HTTPClient: n.http})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, p := range payloads() {
		if err := g.WriteMessage(gorilla.TextMessage, fmt.Appendf(nil, `{"type":"publish","room":"a","text":"%s"}`, p)); err != nil {
			t.Fatal(err)
		}
		w.expect(p)
		for _, typ := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			if err := c.Write(ctxFor(t), typ, []byte(p)); err != nil {
				t.Fatal(err)
			}
			if f := w.message(); string(f.payload) != p || int(f.op) != int(typ) {
				t.Errorf("%d bytes as %v: opcode %d, %d bytes", len(p), typ, f.op, len(f.payload))
			}
		}
	}
}

// The limit is of what a message inflates to.
func TestCompressionBomb(t *testing.T) {
	n := start(t, hub.Config{MaxMessageBytes: 10_000}, server.Config{Compression: true})
	ws, _, err := websocket.Dial(ctxFor(t), n.url+"/rooms/a", &websocket.DialOptions{CompressionMode: websocket.CompressionNoContextTakeover, HTTPClient: n.http})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	c := &client{t, ws}
	if err := ws.Write(ctxFor(t), websocket.MessageText, bytes.Repeat([]byte("x"), 10_000)); err != nil {
		t.Fatal(err)
	}
	if got := c.read(); len(got) != 10_000 {
		t.Fatalf("%d bytes", len(got))
	}
	if err := ws.Write(ctxFor(t), websocket.MessageText, bytes.Repeat([]byte("x"), 10_001)); err != nil {
		t.Fatal(err)
	}
	if code, reason := c.closed(); code != websocket.StatusMessageTooBig {
		t.Errorf("closed with %d %q", code, reason)
	}
	resp := n.get("/rooms/a")
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || n.value("hubd_messages_published_total") != 1 {
		t.Errorf("%v published", n.value("hubd_messages_published_total"))
	}
}
