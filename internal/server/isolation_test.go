package server_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// One client stops reading. All others get everything, in order; what was
// offered to the stalled one is accounted for to the last frame.
func TestAStalledSubscriberCostsNobodyElse(t *testing.T) {
	control := isolationRun(t, false)
	stalled := isolationRun(t, true)
	// Logged and not judged: on a busy machine either may be the slower one.
	for _, q := range []int{500, 990} {
		a, b := quantile(control.delivery, q), quantile(stalled.delivery, q)
		c, d := quantile(control.publish, q), quantile(stalled.publish, q)
		t.Logf("p%g: publish to receive %v, beside a stalled one %v (ratio %.2f); publish %v and %v (ratio %.2f)",
			float64(q)/10, a, b, float64(b)/float64(a), c, d, float64(d)/float64(c))
	}
}

type isolation struct{ delivery, publish []time.Duration }

func isolationRun(t *testing.T, stalled bool) isolation {
	// Never more than a window is under way, so that no reader that reads can
	// fall behind by a queue, however slow the machine.
	const readers, window = 100, 64
	queued, messages := size(window, 256), size(192, 10_000)/window*window
	n := start(t, bare(everywhere(queue.DropNewest, queue.Limits{Messages: queued})), lenient(server.Config{}))
	subscribers := readers
	if stalled {
		n.narrow("/rooms/lobby")
		subscribers++
	}
	began := make([]atomic.Int64, messages)
	epoch := time.Now()
	var mu sync.Mutex
	var result isolation
	var all sync.WaitGroup
	steps := make([]chan struct{}, readers)
	for r := range readers {
		steps[r] = make(chan struct{}, messages/window)
		w := n.wire("/rooms/lobby")
		all.Go(func() {
			defer close(steps[r])
			var took []time.Duration
			for i := range messages {
				payload, err := w.tryMessage()
				if err != nil {
					t.Errorf("reader %d, waiting for %d: %v", r, i, err)
					return
				}
				if got, err := numberOf(payload); err != nil || got != i {
					t.Errorf("reader %d got %d (%v), want %d", r, got, err, i)
					return
				}
				took = append(took, time.Since(epoch)-time.Duration(began[i].Load()))
				if (i+1)%window == 0 {
					steps[r] <- struct{}{}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			result.delivery = append(result.delivery, took...)
		})
	}
	n.joined("lobby", subscribers)
	for i := range messages {
		began[i].Store(int64(time.Since(epoch)))
		p := n.publishes("lobby", sequel(i, 1024))
		result.publish = append(result.publish, time.Since(epoch)-time.Duration(began[i].Load()))
		if p.Subscribers != subscribers || p.Queued < readers {
			t.Fatalf("message %d: %+v", i, p)
		}
		for r := range readers {
			if (i+1)%window == 0 {
				if _, ok := <-steps[r]; !ok {
					t.FailNow()
				}
			}
		}
	}
	all.Wait()
	if stalled {
		accountForTheStalled(n, messages, queued)
	}
	return result
}

// accountForTheStalled looks at the one subscriber that has something queued.
func accountForTheStalled(n *node, messages, queued int) {
	n.t.Helper()
	// All others have read everything: what is in flight is the stalled one's.
	n.gauge(float64(messages*100+n.stalledSent()), "hubd_frames_sent_total")
	inFlight := int(n.value("hubd_frames_in_flight"))
	s := n.subscribers()[0]
	if got := s.Sent + s.Queued.Messages + inFlight + s.Dropped; got != messages || s.Queued.Messages > queued || s.Queued.Messages == 0 || s.Dropped == 0 {
		n.t.Errorf("the stalled one: %+v and %d in flight: %d of %d messages", s, inFlight, got, messages)
	}
	n.t.Logf("the stalled one: %+v, %d in flight", s, inFlight)
}

// stalledSent is what the subscriber with the largest queue was sent.
func (n *node) stalledSent() int {
	n.t.Helper()
	return n.subscribers()[0].Sent
}

// A stalled client's queue is full, its writer stuck. What it sends is heard
// all the same, at once, whatever it sent before; and when it reads again it
// finds exactly one answer to each request.
func TestAStalledSubscriberIsHeard(t *testing.T) {
	before := map[string]func() []sent{
		"nothing": func() []sent { return nil },
		"200 pings": func() []sent {
			return repeat(200, func(i int) sent { return sent{op: opPing, payload: fmt.Append(nil, i)} })
		},
		"200 JSON pings": func() []sent { return repeat(200, func(i int) sent { return text(`{"type":"ping","id":%d}`, 1000+i) }) },
	}
	for _, p := range []queue.Policy{queue.DropNewest, queue.DropOldest, queue.KeepLatest, queue.RejectPublish} {
		for name, first := range before {
			t.Run(fmt.Sprintf("%v after %s", p, name), func(t *testing.T) {
				n := start(t, bare(hub.Feed{Name: "full", Match: []string{"full"}, Policy: p, Queue: queue.Limits{Messages: 16}}), lenient(server.Config{}))
				stalled := n.narrowJSON("/rooms/full")
				healthy := n.wireJSON("/rooms/y")
				healthy.answer() // joined
				n.clogged("full")

				stalled.send(append(first(), sent{op: opPing, payload: []byte("last")},
					text(`{"type":"join","id":1,"room":"z"}`), text(`{"type":"publish","id":2,"room":"y","text":"heard"}`))...)
				if a := healthy.answer(); a.Type != "message" || a.Text == nil || *a.Text != "heard" {
					t.Fatalf("the healthy one got %+v", a)
				}
				n.joined("z", 1)
				n.wants(2, "hubd_connections")

				answers, pong := map[uint64]int{}, ""
				for answers[2] == 0 || pong != "last" {
					op, payload, err := stalled.tryFrame()
					if err != nil {
						t.Fatal(err)
					}
					if op == opPong {
						pong = string(payload)
						continue
					}
					if a, err := parseAnswer(string(payload)); err == nil && a.ID != nil {
						answers[*a.ID]++
					}
				}
				for _, f := range append(first(), text(`{"id":1}`), text(`{"id":2}`)) {
					a, err := parseAnswer(string(f.payload))
					if err == nil && a.ID != nil && answers[*a.ID] != 1 {
						t.Errorf("request %d has %d answers", *a.ID, answers[*a.ID])
					}
				}
			})
		}
	}
}

func repeat(n int, f func(int) sent) (frames []sent) {
	for i := range n {
		frames = append(frames, f(i))
	}
	return frames
}

// text is a text frame of a client's.
func text(format string, args ...any) sent {
	return sent{op: opText, payload: fmt.Appendf(nil, format, args...)}
}

// A client that asks and asks and never reads is cut off when its lane is full,
// and that is counted. What it asked for before the overflow was done.
func TestTheLaneIsBounded(t *testing.T) {
	n := start(t, bare(everywhere(queue.DropNewest, queue.Limits{Messages: 16})), lenient(server.Config{CloseTimeout: 50 * time.Millisecond}))
	stalled := n.narrowJSON("/rooms/full")
	n.clogged("full")
	heard := n.wire("/rooms/y")
	n.joined("y", 1)
	stalled.say(`{"type":"publish","room":"y","text":"before"}`)
	heard.expect("before")
	var flood []string
	for i := range 3000 {
		flood = append(flood, fmt.Sprintf(`{"type":"ping","id":%d}`, i))
	}
	_ = stalled.tryWrite([]byte(strings.Join(framed(flood), ""))) // it may be cut off in the middle
	n.gauge(1, "hubd_connections")
	n.wants(1, "hubd_connections_closed_total", "reason", "slow_consumer")
	n.wants(0, "hubd_connections_closed_total", "reason", "error")
	n.wants(1, "hubd_close_outcome_total", "outcome", "deadline")
}

func framed(texts []string) (frames []string) {
	for _, s := range texts {
		frames = append(frames, string(sent{op: opText, payload: []byte(s)}.bytes()))
	}
	return frames
}

// However many read, a message is encoded once in each dialect that is spoken.
func TestEncodedOnceForEachDialect(t *testing.T) {
	const messages = 10
	n := start(t, bare(), lenient(server.Config{}))
	var streams sync.WaitGroup
	for i := range 30 {
		w := n.narrow("/rooms/lobby", []string{asRaw, asJSON, asEvents}[i%3])
		streams.Go(func() { _, _ = io.Copy(io.Discard, w.br) }) // to its end
	}
	n.joined("lobby", 30)
	for i := range messages {
		n.publishes("lobby", sequel(i, 100))
	}
	n.gauge(30*messages, "hubd_frames_sent_total")
	for encoding, want := range map[string]float64{"raw": messages, "json": messages, "sse": messages, "raw_deflate": 0, "json_deflate": 0} {
		n.wants(want, "hubd_frames_encoded_total", "encoding", encoding)
	}
	if err := n.srv.Close(); err != nil {
		t.Error(err)
	}
	streams.Wait()
}
