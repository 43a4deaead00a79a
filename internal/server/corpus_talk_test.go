package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/metrics/metricstest"
	"hubd/internal/server"
)

// outcome is how a conversation went, and how it should have gone.
type outcome struct {
	published []string
	pongs     []string
	refusals  []string
	code      int
	failed    bool // by the server
	hangUp    bool
	wait      time.Duration
}

func (c protoCase) expected(g tongue) (o outcome) {
	o.code = 1000
	for _, w := range c.want {
		switch w := w.(type) {
		case string:
			o.published = append(o.published, fmt.Sprintf("%q", w))
		case ofSize:
			o.published = append(o.published, fmt.Sprintf("%q", textOf(int(w), g)))
		case []byte:
			if g.json { // only text messages there
				o.code, o.failed = 1003, true
				return o
			}
			o.published = append(o.published, fmt.Sprintf("binary %q", w))
		case pong:
			o.pongs = append(o.pongs, string(w))
		case refusal:
			if g.json {
				o.refusals = append(o.refusals, string(w))
			}
		case echo:
			o.code = int(w)
		case fails:
			o.code, o.failed = int(w), true
		case after:
			o.code, o.failed, o.wait = w.code, true, w.wait
		case hangUp:
			o.hangUp = true
		default:
			panic(fmt.Sprintf("%T cannot be wanted", w))
		}
	}
	return o
}

// talker is a node that is talked to, by one client after the other.
type talker struct {
	*node
	told tallies // what must have been counted
}

// converse has the conversation and compares.
func (n *talker) converse(t *testing.T, c protoCase, g tongue, d delivery, lines []string) {
	t.Helper()
	exp := c.expected(g)
	d.name = fmt.Sprint(g, " ", d.name)
	path := "/rooms/" + g.room
	if g.json {
		path, lines = "/ws", append(slices.Clone(lines), "Sec-WebSocket-Protocol: "+server.Protocol)
	}
	var b []byte
	for _, part := range c.send {
		b = append(b, part(g)...)
	}
	switch ended := slices.ContainsFunc(c.want, func(w any) bool { _, is := w.(echo); return is }); {
	case exp.failed && exp.wait == 0:
		// Nothing of what follows may be processed (section 7.1.7).
		b = append(append(b, txt("late")(g)...), closing(1000, "")(g)...)
	case !exp.failed && !ended && !exp.hangUp:
		b = append(b, closing(1000, "")(g)...)
	}
	begin := time.Now()
	w := n.connect()
	w.t = t
	hello := []byte(n.handshake(path, lines...) + "\r\n\r\n")
	if d.glued {
		hello = append(hello, b...)
	}
	w.write(hello)
	resp := w.response()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %s", d.name, resp.Status)
	}
	w.header = resp.Header
	if !d.glued {
		w.write(b)
	}
	w.ended = exp.wait == 0 // what was sent ends with a close frame
	if exp.hangUp {
		w.conn.Close()
	} else {
		n.compareEnd(t, c, d, w, exp)
	}
	if waited := time.Since(begin); n.patience == 0 && waited != exp.wait {
		t.Errorf("%s %s: it took %v, want %v", c.name, d.name, waited, exp.wait)
	}
	n.told.add(exp)
	switch {
	case n.patience == 0:
		synctest.Wait()
	case exp.hangUp:
		n.eventually("the connection to be gone", func() bool { return n.value("hubd_connections") == 0 })
	}
	if got := n.publishedIn(g.room); !slices.Equal(got, exp.published) {
		t.Errorf("%s %s: published %.300q, want %.300q", c.name, d.name, got, exp.published)
	}
}

// compareEnd reads what the client is sent, to the end.
func (n *talker) compareEnd(t *testing.T, c protoCase, d delivery, w *wire, exp outcome) {
	t.Helper()
	var got outcome
	for {
		f, err := w.next()
		if err != nil {
			t.Errorf("%s %s: no close frame, but %v", c.name, d.name, err)
			return
		}
		switch {
		case f.op == opClose:
			n.compareClose(t, c, d, w, f, exp)
		case f.op == opPong:
			got.pongs = append(got.pongs, string(f.payload))
			continue
		default:
			if code := refused(f); code != "" {
				got.refusals = append(got.refusals, code)
			}
			continue
		}
		break
	}
	if !slices.Equal(got.refusals, exp.refusals) {
		t.Errorf("%s %s: refused with %q, want %q", c.name, d.name, got.refusals, exp.refusals)
	}
	// The latest ping is answered, earlier ones may be (section 5.5.3).
	left := exp.pongs
	for _, p := range got.pongs {
		i := slices.Index(left, p)
		if i < 0 {
			t.Errorf("%s %s: pong %q, want of %q", c.name, d.name, p, exp.pongs)
			return
		}
		left = left[i+1:]
	}
	if len(left) > 0 && (len(got.pongs) == 0 || got.pongs[len(got.pongs)-1] != exp.pongs[len(exp.pongs)-1]) {
		t.Errorf("%s %s: pongs %q, want the last of %q", c.name, d.name, got.pongs, exp.pongs)
	}
}

// compareClose judges the server's close frame, and what follows it: the answer
// of the client if it has sent none, and the end.
func (n *talker) compareClose(t *testing.T, c protoCase, d delivery, w *wire, f received, exp outcome) {
	t.Helper()
	code, reason := 1005, ""
	if len(f.payload) > 0 {
		code, reason = int(f.payload[0])<<8|int(f.payload[1]), string(f.payload[2:])
	}
	if code != exp.code || !slices.Contains(server.CloseTexts(), reason) || !exp.failed && reason != "" {
		t.Errorf("%s %s: closed with %d %q, want %d", c.name, d.name, code, reason, exp.code)
	}
	if !w.ended && w.tryWrite(sent{op: opClose, payload: f.payload}.bytes()) != nil {
		t.Errorf("%s %s: the close frame could not be answered", c.name, d.name)
	}
	if _, err := w.br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%s %s: after the close %v, want %v", c.name, d.name, err, io.EOF)
	}
	w.conn.Close()
}

// refused is the code of an error frame, or "".
func refused(f received) string {
	var e struct{ Type, Code string }
	if f.op == opText && !f.rsv1 && json.Unmarshal(f.payload, &e) == nil && e.Type == "error" {
		return e.Code
	}
	return ""
}

// publishedIn is what a room has retained. The history is exact where echoes
// are not: a client that closes is not waited for.
func (n *node) publishedIn(room string) (all []string) {
	n.t.Helper()
	name, err := frame.ParseRoom(room)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range n.hub.History(name, nil, 1000).Messages {
		if e.Kind == frame.Binary {
			all = append(all, fmt.Sprintf("binary %q", e.Data))
		} else {
			all = append(all, fmt.Sprintf("%q", e.Data))
		}
	}
	return all
}

// tallies are the counters that a closed connection moves.
type tallies struct{ open, closed, client, protocol, clean float64 }

// tallies reads them in one scrape.
func (n *talker) tallies(t *testing.T) (v tallies) {
	t.Helper()
	samples, err := metricstest.Samples(n.reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		switch s.Name {
		case "hubd_connections":
			v.open += s.Value
		case "hubd_connections_closed_total":
			v.closed += s.Value
			switch s.Labels["reason"] {
			case "client":
				v.client += s.Value
			case "protocol_error":
				v.protocol += s.Value
			}
		case "hubd_close_outcome_total":
			if s.Labels["outcome"] == "clean" {
				v.clean += s.Value
			}
		}
	}
	return v
}

// add counts one connection more: who ended it, and whether in order.
func (v *tallies) add(o outcome) {
	v.closed++
	if o.failed {
		v.protocol++
	} else {
		v.client++
	}
	if !o.hangUp {
		v.clean++
	}
}

func (n *talker) compareTallies(t *testing.T) {
	t.Helper()
	got := n.tallies(t)
	if n.patience > 0 {
		n.eventually("the end to be counted", func() bool {
			got = n.tallies(t)
			return got.closed >= n.told.closed && got.open == 0
		})
	}
	if got != n.told {
		t.Errorf("counted %+v, want %+v", got, n.told)
	}
}

// publishCommand is the command of a text, whose bytes go in as they are.
func publishCommand(room, text string) string {
	return `{"type":"publish","room":"` + room + `","text":"` + text + `"}`
}

// payload is a message that publishes s, in the dialect.
func (g tongue) payload(s string) []byte {
	if g.json {
		return []byte(publishCommand(g.room, s))
	}
	return []byte(s)
}

// offset is where s begins in its payload.
func (g tongue) offset() int {
	if g.json {
		return len(publishCommand(g.room, "")) - 2
	}
	return 0
}

// textOf is the text of a message of n bytes.
func textOf(n int, g tongue) string {
	if g.json {
		return "s"
	}
	return strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", n/36+1)[:n]
}

// sizedPayload is a message of n bytes: in JSON, a short one and white space.
func sizedPayload(n int, g tongue) []byte {
	b := g.payload(textOf(n, g))
	return append(b, bytes.Repeat([]byte(" "), max(0, n-len(b)))...)
}
