package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// orderMessages and orderReaders say how much the order is tried. Enough for
// the race detector; make soak raises it.
const (
	orderMessages = 2000
	orderReaders  = 12
)

// roomy is a hub whose queues hold all that a test publishes.
var roomy = hub.Config{Feeds: []hub.Feed{{
	Name: "default", Match: []string{"*"}, Queue: queue.Limits{Messages: 10 * orderMessages, Bytes: 64 << 20},
}}}

// readNumbers reads messages that are numbered from 1, as text, on each of the
// wires at once; half of them are raw.
func (n *node) readNumbers(readers []*wire, count int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i, w := range readers {
		wg.Go(func() {
			for k := 1; k <= count; k++ {
				want := fmt.Sprint(k)
				if i%2 == 1 {
					want = fmt.Sprintf(`{"type":"message","room":"a","seq":%d,"text":"%d"}`, k, k)
				}
				if got := w.text(); got != want {
					n.t.Errorf("reader %d: got %s, want %s", i, got, want)
					return
				}
			}
		})
	}
	return &wg
}

func (n *node) readers(count int) (all []*wire) {
	n.t.Helper()
	for i := range count {
		if i%2 == 0 {
			all = append(all, n.wire("/rooms/a"))
			continue
		}
		w := n.wireJSON("/rooms/a")
		w.answer()
		all = append(all, w)
	}
	return all
}

// One publisher's messages come to every reader in their order, each once,
// however fast they were sent.
func TestOrder(t *testing.T) {
	for name, publish := range map[string]func(n *node){
		"raw": func(n *node) {
			w := n.wire("/rooms/a")
			n.drainMessages(w, orderMessages)
			for k := 1; k <= orderMessages; k += 100 {
				var frames []sent
				for i := range 100 {
					frames = append(frames, sent{op: opText, payload: fmt.Append(nil, k+i)})
				}
				w.send(frames...)
			}
		},
		"commands": func(n *node) {
			w := n.wireJSON("/ws")
			for k := 1; k <= orderMessages; k++ {
				w.say(fmt.Sprintf(`{"type":"publish","room":"a","text":"%d"}`, k))
			}
		},
		"pipelined HTTP": func(n *node) {
			w := n.connect()
			var wg sync.WaitGroup
			wg.Go(func() {
				for k := 1; k <= orderMessages; k++ {
					resp := w.response()
					if p := decode[published](n.t, resp); resp.StatusCode != http.StatusOK || p.Seq != uint64(k) {
						n.t.Errorf("answer %d: %s %+v", k, resp.Status, p)
						return
					}
				}
			})
			for k := 1; k <= orderMessages; k++ {
				text := fmt.Sprint(k)
				w.write(fmt.Appendf(nil, "POST /rooms/a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
			}
			wg.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, roomy, server.Config{})
			readers := n.readers(orderReaders)
			done := n.readNumbers(readers, orderMessages)
			publish(n)
			done.Wait()
			if got := n.value("hubd_frames_dropped_total"); got != 0 {
				t.Errorf("%v dropped", got)
			}
			n.conserved()
		})
	}
}

// drainMessages keeps a publisher's own copies from filling its socket; it ends
// with the count, or with the connection.
func (n *node) drainMessages(w *wire, count int) {
	var wg sync.WaitGroup
	n.t.Cleanup(wg.Wait)
	wg.Go(func() {
		for range count {
			if _, err := w.next(); err != nil {
				return
			}
		}
	})
}

// Joins and leaves that are sent without waiting are answered one by one. What
// is delivered between two answers belongs to the state that they stand for.
func TestJoinLeaveJoin(t *testing.T) {
	const (
		rounds = 600
		window = 100 // rounds under way: the lane holds 1,024 answers
		each   = 3   // messages a round
	)
	n := start(t, roomy, server.Config{})
	w := n.wireJSON("/ws")
	tokens := make(chan struct{}, each*rounds)
	var publisher sync.WaitGroup
	publisher.Go(func() {
		k := 0
		for range tokens {
			k++
			n.publish("r", fmt.Sprint(k))
		}
	})
	free := make(chan struct{}, window)
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(tokens)
		for i := range rounds {
			free <- struct{}{}
			id := 3 * i
			w.say(fmt.Sprintf(`{"type":"join","id":%d,"room":"r"}`, id+1), fmt.Sprintf(`{"type":"leave","id":%d,"room":"r"}`, id+2),
				fmt.Sprintf(`{"type":"join","id":%d,"room":"r"}`, id+3))
			for range each {
				tokens <- struct{}{}
			}
		}
	})
	joined, last, answers, delivered := false, uint64(0), uint64(0), 0
	for answers < 3*rounds {
		a := w.answer()
		if a.Type == "message" {
			if !joined || a.Seq != last+1 || *a.Text != fmt.Sprint(a.Seq) {
				t.Fatalf("joined %v, last seq %d, got %+v", joined, last, a)
			}
			last = a.Seq
			delivered++
			continue
		}
		answers++
		if a.ID == nil || *a.ID != answers {
			t.Fatalf("answer %d is %+v", answers, a)
		}
		want := map[uint64]string{1: "error", 2: "left", 0: "joined"}[answers%3]
		if answers == 1 {
			want = "joined"
		}
		if a.Type != want || a.Type == "error" && a.Code != string(hub.AlreadyJoined) {
			t.Fatalf("answer %d is %+v, want %s", answers, a, want)
		}
		switch a.Type {
		case "joined":
			if joined || a.Seq < last {
				t.Fatalf("joined while joined %v, at %d after %d", joined, a.Seq, last)
			}
			joined, last = true, a.Seq
		case "left":
			joined = false
		}
		if answers%3 == 0 {
			<-free
		}
	}
	sender.Wait()
	publisher.Wait()
	for last < rounds*each {
		if a := w.answer(); a.Type != "message" || a.Seq != last+1 {
			t.Fatalf("at the end: %+v after %d", a, last)
		}
		last++
	}
	t.Logf("%d of %d were delivered between the answers", delivered, rounds*each)
	if p := n.publish("r", "x"); p.Subscribers != 1 {
		t.Errorf("%d subscribers at the end", p.Subscribers)
	}
	w.answer()
	if a := w.one(`{"type":"leave","id":9,"room":"r"}`); a.Type != "left" {
		t.Errorf("%+v", a)
	}
	if a := w.one(`{"type":"leave","id":9,"room":"r"}`); a.Code != string(hub.NotJoined) {
		t.Errorf("%+v", a)
	}
}

// stuckNode has a JSON subscriber of the rooms given, whose writer is stuck in
// its first message, of the room a, until somebody reads.
func stuckNode(t *testing.T, hc hub.Config, sc server.Config, path string, more ...string) (*node, *wire) {
	t.Helper()
	n := startFake(t, hc, sc, 600)
	w := n.wireJSON(path)
	w.answer()
	for _, command := range more {
		if a := w.one(command); a.Type != "joined" {
			t.Fatalf("%s: %+v", command, a)
		}
	}
	n.publish("a", strings.Repeat("x", 1000))
	synctest.Wait()
	if got := n.value("hubd_frames_in_flight"); got != 1 {
		t.Fatalf("%v frames in flight", got)
	}
	return n, w
}

// The lane holds so many answers for a client that asks and does not read, and
// one more ends it.
func TestLaneOverflow(t *testing.T) {
	const lane = 1024
	for extra, code := range map[int]int{0: 1000, 1: 4008} {
		synctest.Test(t, func(t *testing.T) {
			n, w := stuckNode(t, hub.Config{}, server.Config{}, "/rooms/a")
			for i := range lane + extra {
				w.say(fmt.Sprintf(`{"type":"ping","id":%d}`, i))
			}
			synctest.Wait()
			if code == 1000 {
				w.send(sent{op: opClose, payload: closePayload(1000, "")})
			}
			e := w.closes(code)
			if len(e.messages) != 1+lane {
				t.Fatalf("%d messages", len(e.messages))
			}
			for i, m := range e.messages[1:] {
				if m != fmt.Sprintf(`{"type":"pong","id":%d}`, i) {
					t.Fatalf("answer %d: %s", i, m)
				}
			}
			synctest.Wait() // the client sees the end before it is counted
			reason := map[int]string{1000: "client", 4008: "slow_consumer"}[code]
			if got := n.value("hubd_connections_closed_total", "reason", reason); got != 1 {
				t.Errorf("%v closed as %s", got, reason)
			}
		})
	}
}

// A flood of pings takes no memory: the latest one is answered.
func TestPingFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, w := stuckNode(t, hub.Config{}, server.Config{}, "/rooms/a")
		for i := range 2000 {
			w.send(sent{op: opPing, payload: fmt.Append(nil, i)})
		}
		synctest.Wait()
		w.message()
		if f, err := w.next(); err != nil || f.op != opPong || string(f.payload) != "1999" {
			t.Errorf("%v %q %v", f.op, f.payload, err)
		}
		w.ping()
	})
}

// A client that reads nothing is heard all the same: its commands do not wait
// behind its own full queue.
func TestStuckClientIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := stuckNode(t, hub.Config{}, server.Config{}, "/rooms/a?queue_messages=2")
		n.publishN("a", 10)
		healthy := n.wire("/rooms/y")
		for i := range 200 {
			w.send(sent{op: opPing}, sent{op: opText, payload: fmt.Appendf(nil, `{"type":"ping","id":%d}`, i)})
		}
		w.say(`{"type":"join","id":1001,"room":"z"}`, `{"type":"publish","id":1002,"room":"y","text":"heard"}`)
		healthy.expect("heard")
		synctest.Wait() // the answer follows the message that it is about
		if p := n.publish("z", "x"); p.Subscribers != 1 {
			t.Errorf("%d joined z", p.Subscribers)
		}
		// Once it reads, it gets its answers ahead of what is queued.
		w.message()
		for i := range 200 {
			if a := w.answer(); a.Type != "pong" || *a.ID != uint64(i) {
				t.Fatalf("%+v", a)
			}
		}
		if a := w.answer(); a.Type != "joined" || *a.ID != 1001 {
			t.Errorf("%+v", a)
		}
		if a := w.answer(); a.Type != "published" || *a.ID != 1002 {
			t.Errorf("%+v", a)
		}
	})
}

// The rooms of one connection have a queue and a policy each: one that is full
// costs another nothing.
func TestRoomsDoNotShareQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := stuckNode(t, hub.Config{}, server.Config{}, "/rooms/a?queue_messages=2",
			`{"type":"join","id":1,"room":"b","queue_messages":5}`, `{"type":"join","id":2,"room":"c","policy":"drop-oldest","queue_messages":2}`)
		for range 10 {
			n.publishN("a", 1)
			n.publishN("c", 1)
		}
		if p := n.publish("a", "x"); p.Dropped != 1 {
			t.Errorf("a is not full: %+v", p)
		}
		for i := range 5 {
			if p := n.publish("b", "x"); p.Queued != 1 || p.Dropped != 0 {
				t.Errorf("message %d to b: %+v", i+1, p)
			}
		}
		w.message() // the one in flight
		got := map[string][]string{}
		for range 2 + 1 + 5 + 2 + 1 {
			a := w.answer()
			got[a.Room] = append(got[a.Room], fmt.Sprint(a.Type, a.Seq, "-", a.Lost))
		}
		for room, want := range map[string][]string{
			"a": {"message2-0", "message3-0", "gap0-9"},
			"b": {"message1-0", "message2-0", "message3-0", "message4-0", "message5-0"},
			"c": {"gap0-8", "message9-0", "message10-0"},
		} {
			if fmt.Sprint(got[room]) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", room, got[room], want)
			}
		}
	})
}

// One room's backlog does not keep the others waiting: they take turns.
func TestRoomsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hc := hub.Config{Feeds: []hub.Feed{{Name: "default", Match: []string{"*"}, Queue: queue.Limits{Messages: 100, Bytes: 8 << 20}}}}
		n, w := stuckNode(t, hc, server.Config{}, "/rooms/a", `{"type":"join","id":1,"room":"b"}`, `{"type":"join","id":2,"room":"c"}`)
		big := strings.Repeat("x", 60_000)
		for range 20 {
			n.publish("a", big)
			n.publish("b", big)
		}
		n.publish("c", strings.Repeat("x", 6000)) // too large for what a batch has left
		w.message()
		for i := range 41 {
			if w.answer().Room == "c" && i > 3 {
				t.Errorf("c waited for %d messages of others", i)
			}
		}
	})
}
