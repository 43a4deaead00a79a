package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// repeats is how often a race between a cause and what is queued is run. A
// hundred and more want no race detector: make soak raises it.
const repeats = 20

// publish is a publish past HTTP.
func (n *node) publish(room, text string) hub.Published {
	n.t.Helper()
	r, err := frame.ParseRoom(room)
	if err != nil {
		n.t.Fatal(err)
	}
	p, err := n.hub.Publish(context.Background(), hub.PublishRequest{Message: frame.Message{Room: r, Kind: frame.Text, Data: []byte(text)}})
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// publishN publishes the numbers from 1 to count.
func (n *node) publishN(room string, count int) {
	n.t.Helper()
	for i := range count {
		n.publish(room, fmt.Sprint(i+1))
	}
}

// numbers returns how many texts there are, if they are the numbers from 1 on.
func numbers(t *testing.T, texts []string) int {
	t.Helper()
	for i, text := range texts {
		if text != fmt.Sprint(i+1) {
			t.Fatalf("message %d is %.40q", i+1, text)
		}
	}
	return len(texts)
}

// Whatever a client sends, the close frame that it gets back is one that a
// strict client takes (the wire sees to that), tells what was wrong, and is
// followed by the end of the stream, never by a reset.
func TestCloseAnswers(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	type case_ struct {
		name   string
		frames []sent
		code   int
	}
	cases := []case_{
		{"close without a status", []sent{{op: opClose}}, 1005},
		{"close of one byte", []sent{{op: opClose, payload: []byte{3}}}, 1002},
		{"close of 126 bytes", []sent{{op: opClose, payload: make([]byte, 126)}}, 1002},
		{"close in fragments", []sent{{op: opClose, more: true, payload: closePayload(1000, "")}}, 1002},
		{"close with a reason that is not UTF-8", []sent{{op: opClose, payload: closePayload(1000, "\xc3\x28")}}, 1007},
		{"unmasked", []sent{{op: opText, payload: []byte("hi"), unmasked: true}}, 1002},
		{"unmasked, with more behind", []sent{{op: opText, payload: make([]byte, 40_000), unmasked: true}}, 1002},
		{"unmasked close", []sent{{op: opClose, unmasked: true}}, 1002},
		{"ping in fragments", []sent{{op: opPing, more: true}}, 1002},
		{"ping of 126 bytes", []sent{{op: opPing, payload: make([]byte, 126)}}, 1002},
		{"continuation of nothing", []sent{{op: opContinuation, payload: []byte("x")}}, 1002},
		{"message within a message", []sent{{op: opText, more: true}, {op: opText}}, 1002},
		{"not UTF-8", []sent{{op: opText, payload: []byte("\xc3\x28")}}, 1007},
		{"not UTF-8, in fragments", []sent{{op: opText, more: true, payload: []byte("\xed\xa0")}, {op: opContinuation, payload: []byte("\x80")}}, 1007},
		{"a rune cut in half", []sent{{op: opText, payload: []byte("\xf0\x9f\x98")}}, 1007},
		{"a length of 2^63", []sent{{op: opText, payload: []byte("")}}, 1002}, // see below
	}
	for op := byte(3); op < 16; op++ {
		if op < opClose || op > opPong {
			cases = append(cases, case_{fmt.Sprintf("opcode %d", op), []sent{{op: op, payload: []byte("x")}}, 1002})
		}
	}
	for _, rsv := range []byte{0x10, 0x20, 0x40} {
		cases = append(cases, case_{fmt.Sprintf("reserved bit %x", rsv), []sent{{op: opText, rsv: rsv, payload: []byte("x")}}, 1002})
	}
	for _, code := range []int{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535} {
		cases = append(cases, case_{fmt.Sprintf("close with %d", code), []sent{{op: opClose, payload: closePayload(code, "")}}, 1002})
	}
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4001, 4999} {
		cases = append(cases, case_{fmt.Sprintf("close with %d", code), []sent{{op: opClose, payload: closePayload(code, "bye")}}, code})
	}
	closed := map[string]float64{}
	for _, c := range cases {
		// A close that is answered comes back with its code.
		first := c.frames[0]
		answered := first.op == opClose && (len(first.payload) == 0 || bytes.Equal(first.payload, closePayload(c.code, "bye"))) && !first.unmasked
		for _, open := range []func(string, ...string) *wire{n.wire, n.wireJSON} {
			w := open("/rooms/a")
			b := []byte(nil)
			for _, f := range c.frames {
				b = append(b, f.bytes()...)
			}
			if strings.Contains(c.name, "2^63") {
				b = []byte{0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}
			}
			w.write(b)
			w.ended = answered
			e := w.end()
			if e.code != c.code || !errors.Is(e.err, io.EOF) {
				t.Errorf("%s: closed with %d %q, then %v; want %d", c.name, e.code, e.reason, e.err, c.code)
			}
			if strings.Contains(e.reason, "bye") {
				t.Errorf("%s: reason %q repeats the client's", c.name, e.reason)
			}
			if answered {
				closed["client"]++
			} else {
				closed["protocol_error"]++
			}
		}
	}
	n.eventually("no connections", func() bool { return n.value("hubd_connections") == 0 })
	for reason, want := range closed {
		if got := n.value("hubd_connections_closed_total", "reason", reason); got != want {
			t.Errorf("%v closed for %s, want %v", got, reason, want)
		}
	}
	if got, want := n.value("hubd_close_outcome_total", "outcome", "clean"), closed["client"]+closed["protocol_error"]; got != want {
		t.Errorf("%v clean, want %v", got, want)
	}
}

// A client that is reading always learns why it is closed: from the code and a
// text of the fixed list. What was queued before is delivered in order or
// counted; where the close is not the client's own fault, all of it is.
func TestCauseIsSeen(t *testing.T) {
	const queued = 10
	kick := func(n *node, _ *wire) { n.kickAll("a") }
	misbehave := func(frames ...sent) func(*node, *wire) {
		return func(_ *node, w *wire) { w.send(frames...) }
	}
	overflow := func(n *node, _ *wire) {
		filler := strings.Repeat("x", 20_000)
		for n.publish("a", filler).Disconnected == 0 {
		}
	}
	for _, c := range []struct {
		name    string
		query   string
		cause   func(*node, *wire)
		code    int
		label   string
		flushed bool // all that was queued before comes first
	}{
		{"kick", "", kick, 4009, "kicked", true},
		{"shutdown", "", func(n *node, _ *wire) { go n.drain() }, 1001, "drain", true},
		{"slow consumer", "?policy=disconnect&queue_messages=10", overflow, 4008, "slow_consumer", false},
		{"oversize", "", misbehave(sent{op: opText, payload: make([]byte, 80_000)}), 1009, "protocol_error", false},
		{"oversize in fragments", "", misbehave(sent{op: opText, more: true, payload: make([]byte, 900)}, sent{op: opContinuation, payload: make([]byte, 200)}), 1009, "protocol_error", false},
		{"protocol error", "", misbehave(sent{op: 5}), 1002, "protocol_error", false},
		{"UTF-8", "", misbehave(sent{op: opText, payload: []byte("\xff")}), 1007, "protocol_error", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			hc := hub.Config{MaxMessageBytes: 1000}
			if c.name == "slow consumer" {
				hc.MaxMessageBytes = 20_000
			}
			n := start(t, hc, server.Config{})
			for i := range repeats {
				if i > 0 && c.name == "shutdown" {
					n = start(t, hc, server.Config{})
				}
				w := n.wire("/rooms/a" + c.query)
				n.publishN("a", queued)
				c.cause(n, w)
				e := w.closes(c.code)
				if c.name == "slow consumer" { // what overflowed the queue
					e.messages = slices.DeleteFunc(e.messages, func(m string) bool { return len(m) == 20_000 })
				}
				if got := numbers(t, e.messages); got != queued && (c.flushed || got > queued) {
					t.Fatalf("%d messages before the close, want %d", got, queued)
				}
				if e.reason == "" || !slices.Contains(server.CloseTexts(), e.reason) {
					t.Fatalf("reason %q is not of the list", e.reason)
				}
				n.eventually("the connection's end", func() bool { return n.value("hubd_connections") == 0 })
				n.conserved()
			}
			want := 1.0
			if c.name != "shutdown" {
				want = repeats
			}
			if got := n.value("hubd_connections_closed_total", "reason", c.label); got != want {
				t.Errorf("%v closed as %s, want %v", got, c.label, want)
			}
			if got := n.value("hubd_close_outcome_total", "outcome", "clean"); got != want {
				t.Errorf("%v clean, want %v", got, want)
			}
		})
	}
}

// Drain keeps to its window; its error is the test's.
func (n *node) drain() {
	if err := n.srv.Drain(context.Background()); err != nil {
		n.t.Errorf("drain: %v", err)
	}
}

// kickAll closes every connection that is in the room.
func (n *node) kickAll(room string) {
	n.t.Helper()
	type detail struct {
		Subscriptions []struct{ ID string }
	}
	for _, s := range decode[detail](n.t, n.get("/admin/rooms/"+room)).Subscriptions {
		n.kick(s.ID, 204)
	}
}

func (n *node) kick(id string, status int) {
	n.t.Helper()
	r := n.request("DELETE /admin/subscribers/" + id + " HTTP/1.1\r\nHost: " + strings.TrimPrefix(n.url, "http://") + "\r\n\r\n")
	if r.status != status {
		n.t.Errorf("kick: %d %s, want %d", r.status, r.body, status)
	}
}

// conserved must hold at rest.
func (n *node) conserved() {
	n.t.Helper()
	n.eventually("conservation", func() bool {
		b, err := conservation(n)
		return err == nil && b
	})
}

// All members get what was published before they are kicked, and then the
// kick.
func TestPublishThenKickAll(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	const members = 30
	var all []*wire
	for i := range members {
		if i%2 == 0 {
			all = append(all, n.wire("/rooms/a"))
			continue
		}
		w := n.wireJSON("/rooms/a")
		w.answer()
		all = append(all, w)
	}
	n.publish("a", strings.Repeat("last words ", 1000))
	n.kickAll("a")
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() {
			if e := w.closes(4009); len(e.messages) != 1 || !strings.Contains(e.messages[0], "last words last") {
				t.Errorf("%d messages before the kick", len(e.messages))
			}
		})
	}
	wg.Wait()
	n.kick("nobody", 404)
}

// A client that does not read is destroyed when the close timeout is over,
// whatever the cause, neither sooner nor later; its frames are counted.
func TestStuckClientIsDestroyed(t *testing.T) {
	for name, cause := range map[string]func(n *node){
		"kick": func(n *node) { n.kickAll("a") },
		"slow": func(n *node) {
			for n.publish("a", "more").Disconnected == 0 {
			}
		},
		"drain": func(n *node) { go n.drain() },
		"close": func(n *node) { go n.srv.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startFake(t, hub.Config{}, server.Config{CloseTimeout: 3 * time.Second}, 500)
				w := n.wire("/rooms/a?policy=disconnect")
				n.publish("a", strings.Repeat("x", 1000))
				n.publishN("a", 5)
				synctest.Wait()
				begin := time.Now()
				cause(n)
				time.Sleep(3*time.Second - time.Nanosecond)
				synctest.Wait()
				if got := n.value("hubd_connections"); got != 1 {
					t.Errorf("%v connections after %v", got, time.Since(begin))
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if got := n.value("hubd_connections"); got != 0 {
					t.Errorf("%v connections after %v", got, time.Since(begin))
				}
				if got := n.value("hubd_close_outcome_total", "outcome", "deadline"); got != 1 {
					t.Errorf("%v at the deadline", got)
				}
				if sent, closed := n.value("hubd_frames_sent_total"), n.value("hubd_frames_dropped_total", "reason", "closed"); sent != 0 || closed < 6 {
					t.Errorf("%v sent, %v closed", sent, closed)
				}
				// What was written before can be read, and there the stream breaks off.
				f, err := w.frame()
				if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
					t.Errorf("%v %v", f, err)
				}
			})
		})
	}
}

// A client that completes the closing handshake but keeps its end of the
// connection does not keep the server's.
func TestClientKeepsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{}, 1000)
		w := n.wire("/rooms/a")
		w.send(sent{op: opClose, payload: closePayload(1000, "")})
		f, err := w.frame()
		if err != nil || f.op != opClose || !bytes.Equal(f.payload, closePayload(1000, "")) {
			t.Fatalf("%v %v", f, err)
		}
		if _, err := w.frame(); err != io.EOF {
			t.Fatalf("after the close frame: %v", err)
		}
		time.Sleep(server.DefaultCloseTimeout)
		synctest.Wait()
		if got := n.value("hubd_connections"); got != 0 {
			t.Errorf("%v connections", got)
		}
		if got := n.value("hubd_close_outcome_total", "outcome", "clean"); got != 1 {
			t.Errorf("%v clean", got)
		}
	})
}

// A socket that breaks is noticed at once and is nobody's fault.
func TestClientVanishes(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	for i, leave := range []func(w *wire){
		func(w *wire) { w.conn.Close() },
		func(w *wire) { w.reset() },
		func(w *wire) { w.write([]byte{0x81}); w.conn.Close() },
		func(w *wire) { w.write([]byte{0x81, 0x85, 1, 2, 3, 4, 5}); w.reset() },
	} {
		w := n.wireJSON("/rooms/a")
		n.publishN("a", 5)
		leave(w)
		n.eventually("no connections", func() bool { return n.value("hubd_connections") == 0 })
		if got := n.value("hubd_close_outcome_total", "outcome", "reset"); got != float64(i+1) {
			t.Errorf("%v resets, want %d", got, i+1)
		}
		if got := n.value("hubd_connections_closed_total", "reason", "client"); got != float64(i+1) {
			t.Errorf("%v closed by the client, want %d", got, i+1)
		}
		n.conserved()
	}
}

// A raw client cannot be told that its publish was refused; it is closed, as
// one that may come back.
func TestRawPublishRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, rejecting, server.Config{}, 500)
		stuck := n.wire("/rooms/a")
		n.publish("a", strings.Repeat("x", 1000)) // in flight, and stays there
		synctest.Wait()
		n.publish("a", "queued")
		w := n.wire("/rooms/a")
		w.send(sent{op: opText, payload: []byte("one too many")})
		if e := w.closes(1013); len(e.messages) != 0 {
			t.Errorf("%q was delivered", e.messages)
		}
		if got := n.value("hubd_publish_rejected_total", "reason", "overflow"); got != 1 {
			t.Errorf("%v refusals counted", got)
		}
		for _, want := range []string{strings.Repeat("x", 1000), "queued"} {
			stuck.expect(want)
		}
		synctest.Wait()
		if p := n.publish("a", "next"); p.Position.Seq != 3 {
			t.Errorf("the refused message took a number: the next has %d", p.Position.Seq)
		}
	})
}

// rejecting is a hub whose rooms refuse a publish once a subscriber has one
// message queued.
var rejecting = hub.Config{Feeds: []hub.Feed{{
	Name: "default", Match: []string{"*"}, Policy: queue.RejectPublish, Queue: queue.Limits{Messages: 1, Bytes: hub.DefaultQueueBytes},
}}}
