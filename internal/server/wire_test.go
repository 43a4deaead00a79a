package server_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hubd/internal/server"
)

// The opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// sent is one frame of a client's, right or wrong.
type sent struct {
	op       byte
	payload  []byte
	more     bool // not the last fragment
	rsv      byte
	unmasked bool
}

func (f sent) bytes() []byte {
	b0, b1 := f.op|f.rsv, byte(0x80)
	if !f.more {
		b0 |= 0x80
	}
	if f.unmasked {
		b1 = 0
	}
	b := []byte{b0}
	switch n := len(f.payload); {
	case n < 126:
		b = append(b, b1|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, b1|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, b1|127), uint64(n))
	}
	if f.unmasked {
		return append(b, f.payload...)
	}
	mask := [4]byte{0x12, 0x34, 0x56, 0x78}
	b = append(b, mask[:]...)
	for i, c := range f.payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

// received is one frame of the server's.
type received struct {
	op      byte
	rsv1    bool
	payload []byte
}

// wire is a client written by hand. It fails its test over anything that a
// strict client would fail the connection over, and answers pings when it
// happens to read them.
type wire struct {
	t      testing.TB
	conn   net.Conn
	br     *bufio.Reader
	header http.Header // of the 101
	node   *node
	// noPong: pings are left without an answer.
	noPong bool
	pings  []time.Time
	closed bool // a close frame has come
	ended  bool // one has been sent
}

// handshake is the request line and the headers of an opening handshake,
// without the empty line.
func (n *node) handshake(path string, lines ...string) string {
	return strings.Join(append([]string{"GET " + path + " HTTP/1.1", "Host: " + strings.TrimPrefix(n.url, "http://"),
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, lines...), "\r\n")
}

// connect opens a connection that has sent nothing yet.
func (n *node) connect() *wire {
	n.t.Helper()
	conn, err := n.dialer(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	if n.patience > 0 {
		if err := conn.SetDeadline(time.Now().Add(n.patience)); err != nil {
			n.t.Fatal(err)
		}
	}
	return &wire{t: n.t, conn: conn, br: bufio.NewReader(conn), node: n}
}

// wire opens path as raw, and is in the room when it returns; lines are further
// headers.
func (n *node) wire(path string, lines ...string) *wire {
	n.t.Helper()
	w := n.connect()
	w.write([]byte(n.handshake(path, lines...) + "\r\n\r\n"))
	resp := w.response()
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		b, _ := io.ReadAll(resp.Body)
		n.t.Fatalf("%s: %s %v %s", path, resp.Status, resp.Header, b)
	}
	w.header = resp.Header
	if resp.Header.Get("Sec-WebSocket-Protocol") == "" {
		w.ping() // the 101 comes before the join; the server reads after it
	}
	return w
}

// ping sends a ping and waits for its pong, which must come next.
func (w *wire) ping() {
	w.t.Helper()
	w.send(sent{op: opPing, payload: []byte("there?")})
	if f, err := w.next(); err != nil || f.op != opPong || string(f.payload) != "there?" {
		w.t.Fatalf("ping: %v %q %v", f.op, f.payload, err)
	}
}

// wireJSON opens path in hubd.v1.json.
func (n *node) wireJSON(path string, lines ...string) *wire {
	n.t.Helper()
	return n.wire(path, append(lines, "Sec-WebSocket-Protocol: "+server.Protocol)...)
}

// write sends bytes as they are.
func (w *wire) write(b []byte) {
	w.t.Helper()
	if err := w.tryWrite(b); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

func (w *wire) tryWrite(b []byte) error {
	_, err := w.conn.Write(b)
	return err
}

// send sends frames in one write.
func (w *wire) send(frames ...sent) {
	w.t.Helper()
	var b []byte
	for _, f := range frames {
		b = append(b, f.bytes()...)
		w.ended = w.ended || f.op == opClose
	}
	w.write(b)
}

// say sends texts, a message each, in one write.
func (w *wire) say(texts ...string) {
	w.t.Helper()
	var frames []sent
	for _, text := range texts {
		frames = append(frames, sent{op: opText, payload: []byte(text)})
	}
	w.send(frames...)
}

// response reads an HTTP response.
func (w *wire) response() *http.Response {
	w.t.Helper()
	resp, err := http.ReadResponse(w.br, nil)
	if err != nil {
		w.t.Fatalf("response: %v", err)
	}
	return resp
}

// frame reads one frame of the server's. A violation of RFC 6455 is fatal; an
// error is the connection's.
func (w *wire) frame() (received, error) {
	w.t.Helper()
	var h [8]byte
	if _, err := io.ReadFull(w.br, h[:2]); err != nil {
		return received{}, err
	}
	f := received{op: h[0] & 0x0f, rsv1: h[0]&0x40 != 0}
	n := uint64(h[1])
	switch {
	case w.closed:
		w.t.Fatalf("a frame (% x) after the close frame", h[:2])
	case h[0]&0x80 == 0, h[0]&0x30 != 0, h[1]&0x80 != 0, f.rsv1 && w.header.Get("Sec-WebSocket-Extensions") == "":
		w.t.Fatalf("frame header % x", h[:2])
	case f.op >= opClose && (n > 125 || f.rsv1):
		w.t.Fatalf("control frame header % x", h[:2])
	}
	short, size := 0, 0
	switch n {
	case 126:
		short, size = 126, 2
	case 127:
		short, size = 1<<16, 8
	}
	if size > 0 {
		if _, err := io.ReadFull(w.br, h[8-size:]); err != nil {
			return f, err
		}
		if size == 2 {
			h[0], h[1], h[2], h[3], h[4], h[5] = 0, 0, 0, 0, 0, 0
		}
		if n = binary.BigEndian.Uint64(h[:]); n < uint64(short) || n > 1<<30 {
			w.t.Fatalf("a payload of %d bytes with a header for others", n)
		}
	}
	f.payload = make([]byte, n)
	if _, err := io.ReadFull(w.br, f.payload); err != nil {
		return f, fmt.Errorf("in a frame: %w", err)
	}
	w.judge(f)
	return f, nil
}

func (w *wire) judge(f received) {
	w.t.Helper()
	switch f.op {
	case opText:
		if !f.rsv1 && !utf8.Valid(f.payload) {
			w.t.Fatalf("text that is not UTF-8: %q", f.payload)
		}
	case opBinary, opPing, opPong:
	case opClose:
		w.closed = true
		if len(f.payload) == 0 {
			return
		}
		if len(f.payload) == 1 || !utf8.Valid(f.payload[2:]) {
			w.t.Fatalf("close payload %q", f.payload)
		}
		if c := binary.BigEndian.Uint16(f.payload); c < 1000 || c == 1004 || c == 1005 || c == 1006 || 1015 <= c && c < 3000 || c > 4999 {
			w.t.Fatalf("close code %d on the wire", c)
		}
	default:
		w.t.Fatalf("opcode %d", f.op)
	}
}

// next is the next frame that is not a ping, which it answers.
func (w *wire) next() (received, error) {
	w.t.Helper()
	for pings := 0; ; pings++ {
		if pings > 20 {
			return received{}, errors.New("nothing but pings comes")
		}
		f, err := w.frame()
		if err != nil || f.op != opPing {
			return f, err
		}
		w.pings = append(w.pings, time.Now())
		if !w.noPong {
			if err := w.tryWrite(sent{op: opPong, payload: f.payload}.bytes()); err != nil {
				return f, err
			}
		}
	}
}

// message is the next message, inflated if need be.
func (w *wire) message() received {
	w.t.Helper()
	f, err := w.next()
	for err == nil && f.op == opPong { // a pong may come at any time
		f, err = w.next()
	}
	if err != nil {
		w.t.Fatalf("waiting for a message: %v", err)
	}
	if f.op != opText && f.op != opBinary {
		w.t.Fatalf("waiting for a message: opcode %d, %q", f.op, f.payload)
	}
	if f.rsv1 {
		r := flate.NewReader(io.MultiReader(bytes.NewReader(f.payload), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
		if f.payload, err = io.ReadAll(r); err != nil {
			w.t.Fatalf("inflating: %v", err)
		}
	}
	return f
}

// text is the next message, as a string.
func (w *wire) text() string {
	w.t.Helper()
	return string(w.message().payload)
}

// answer is the next message, which must be JSON of a known form.
func (w *wire) answer() answer {
	w.t.Helper()
	text := w.text()
	a, err := parseAnswer(text)
	if err != nil {
		w.t.Fatalf("frame %q: %v", text, err)
	}
	return a
}

func parseAnswer(text string) (a answer, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	err = dec.Decode(&a)
	return a, err
}

// expect reads the next message and compares it.
func (w *wire) expect(want string) {
	w.t.Helper()
	if got := w.text(); got != want {
		w.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// ending is how a connection ended, as the client sees it.
type ending struct {
	messages []string
	code     int // 1005 for a close frame without one, 1006 for none at all
	reason   string
	err      error // what came after the close frame; io.EOF is right
}

// end reads to the end, answering the close frame.
func (w *wire) end() (e ending) {
	w.t.Helper()
	for {
		f, err := w.next()
		if err != nil {
			return ending{e.messages, 1006, "", err}
		}
		if f.op != opClose {
			e.messages = append(e.messages, string(f.payload))
			continue
		}
		e.code = 1005
		if len(f.payload) > 0 {
			e.code, e.reason = int(binary.BigEndian.Uint16(f.payload)), string(f.payload[2:])
		}
		if !w.ended {
			w.ended = true
			if err := w.tryWrite(sent{op: opClose, payload: f.payload}.bytes()); err != nil {
				e.err = fmt.Errorf("answering the close frame: %w", err)
				return e
			}
		}
		_, e.err = w.br.ReadByte()
		w.conn.Close() // the server waits for it
		return e
	}
}

// closes is end, and the code and the end of the stream that are wanted.
func (w *wire) closes(code int) ending {
	w.t.Helper()
	e := w.end()
	if e.code != code || !errors.Is(e.err, io.EOF) {
		w.t.Errorf("closed with %d %q and then %v, want %d and then %v", e.code, e.reason, e.err, code, io.EOF)
	}
	return e
}

// closePayload is what a close frame carries.
func closePayload(code int, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)
}

// reset breaks the connection.
func (w *wire) reset() {
	w.t.Helper()
	if err := w.conn.(*net.TCPConn).SetLinger(0); err != nil {
		w.t.Fatal(err)
	}
	w.conn.Close()
}
