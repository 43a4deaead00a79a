package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// keyed publishes to the room a with a key.
func (n *node) keyed(key, text string) {
	n.t.Helper()
	r, err := frame.ParseRoom("a")
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.hub.Publish(n.t.Context(), hub.PublishRequest{Message: frame.Message{Room: r, Kind: frame.Text, Data: []byte(text), Key: key}}); err != nil {
		n.t.Fatal(err)
	}
}

// brief is a message or a gap of the room a in a few characters.
func brief(a answer) string {
	switch a.Type {
	case "message":
		return fmt.Sprint(a.Seq)
	case "gap":
		return fmt.Sprintf("gap(%d..%d: %d %s)", a.After, a.Before, a.Lost, a.Reason)
	}
	return a.Type
}

// Losses are told once each, in their place, exactly: the neighbours that the
// subscriber does get, how many are missing, and why the latest of them is.
func TestGaps(t *testing.T) {
	texts := func(n *node, from, to int) {
		for i := from; i <= to; i++ {
			n.publish("a", fmt.Sprint(i))
		}
	}
	for _, c := range []struct {
		name string
		// publish goes on behind message 1, which is in flight.
		query, want string
		ttl         time.Duration
		publish     func(n *node)
	}{
		{"none", "", "1 2 3 4", 0, func(n *node) { texts(n, 2, 4) }},
		{"drop-newest", "?queue_messages=3", "1 2 3 4 gap(4..0: 5 overflow)", 0, func(n *node) { texts(n, 2, 9) }},
		{"drop-oldest", "?queue_messages=3&policy=drop-oldest", "1 gap(1..7: 5 overflow) 7 8 9", 0, func(n *node) { texts(n, 2, 9) }},
		{"keep-latest", "?queue_messages=3&policy=keep-latest", "1 gap(1..8: 6 conflated) 8 9", 0, func(n *node) { texts(n, 2, 9) }},
		{"by key", "?queue_messages=3&policy=keep-latest", "1 2 gap(2..4: 1 conflated) 4 5", 0, func(n *node) {
			n.keyed("x", "2")
			n.keyed("y", "3")
			n.keyed("y", "4")
			n.keyed("z", "5")
		}},
		{"in bytes", "?queue_bytes=1000&policy=drop-oldest", "1 gap(1..4: 2 overflow) 4 5", 0, func(n *node) {
			for range 4 {
				n.publish("a", strings.Repeat("x", 500))
			}
		}},
		{"larger than the queue", "?queue_bytes=1000&policy=drop-oldest", "1 2 gap(2..4: 1 overflow) 4", 0, func(n *node) {
			n.publish("a", "2")
			n.publish("a", strings.Repeat("x", 1001))
			n.publish("a", "4")
		}},
		{"expired", "", "1 gap(1..0: 3 expired)", time.Second, func(n *node) {
			texts(n, 2, 4)
			time.Sleep(2 * time.Second)
		}},
		{"expired before a live one", "", "1 gap(1..5: 3 expired) 5", time.Second, func(n *node) {
			texts(n, 2, 4)
			time.Sleep(2 * time.Second)
			n.publish("a", "5")
		}},
		{"overflow, then expired", "?queue_messages=3&policy=drop-oldest", "1 gap(1..0: 8 expired)", time.Second, func(n *node) {
			texts(n, 2, 9)
			time.Sleep(2 * time.Second)
		}},
		{"expired, then overflow", "?queue_messages=3", "1 gap(1..0: 5 expired)", time.Second, func(n *node) {
			texts(n, 2, 4)
			time.Sleep(2 * time.Second)
			texts(n, 5, 6)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hc := hub.Config{Feeds: []hub.Feed{{Name: "default", Match: []string{"*"}, TTL: c.ttl}}}
				n, w := stuckNode(t, hc, server.Config{}, "/rooms/a"+c.query)
				c.publish(n)
				var got []string
				for len(got) == 0 || strings.Join(got, " ") != c.want && len(got) < 20 {
					got = append(got, brief(w.answer()))
				}
				if strings.Join(got, " ") != c.want {
					t.Fatalf("got %q, want %q", got, c.want)
				}
				synctest.Wait()
				if p := n.publish("a", "after"); p.Position.Seq < 4 {
					t.Fatalf("%+v", p)
				} else if a := w.answer(); a.Type != "message" || a.Seq != p.Position.Seq {
					t.Errorf("afterwards: %+v", a)
				}
				n.conserved()
			})
		})
	}
}

// A gap between frames that were taken in different writes is told in front of
// the later one, even while the queue never drains.
func TestGapAmongTakenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hc := hub.Config{Feeds: []hub.Feed{{Name: "default", Match: []string{"*"}, Queue: queue.Limits{Messages: 3, Bytes: 1 << 20}}}}
		n, w := stuckNode(t, hc, server.Config{}, "/rooms/a")
		big := strings.Repeat("x", 10_000)
		for range 5 { // 2, 3 and 4 are queued, 5 and 6 lost
			n.publish("a", big)
		}
		time.Sleep(time.Second) // a writer that had to wait takes less at a time
		w.message()
		synctest.Wait() // 2 is in flight
		if p := n.publish("a", big); p.Queued != 1 {
			t.Fatalf("%+v", p)
		}
		n.publish("a", big) // 8 is lost again
		var got []string
		for range 6 {
			got = append(got, brief(w.answer()))
		}
		if want := "[2 3 4 gap(4..7: 2 overflow) 7 gap(7..0: 1 overflow)]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
}

// Who does not want to hear of losses does not, nor does who has no words for
// them.
func TestNoGaps(t *testing.T) {
	for _, policy := range []string{"drop-newest", "drop-oldest", "keep-latest"} {
		synctest.Test(t, func(t *testing.T) {
			n, quiet := stuckNode(t, hub.Config{}, server.Config{}, "/rooms/a?gaps=off&queue_messages=3&policy="+policy)
			raw := n.wire("/rooms/a?queue_messages=3&policy=" + policy)
			byCommand := n.wireJSON("/ws")
			byCommand.one(`{"type":"join","id":1,"room":"a","gaps":false,"queue_messages":3,"policy":"` + policy + `"}`)
			n.publish("a", strings.Repeat("x", 1000))
			synctest.Wait()
			for range 20 {
				n.publish("a", "x")
			}
			synctest.Wait()
			n.publish("a", "the last")
			lost := n.value("hubd_frames_dropped_total", "reason", "overflow") + n.value("hubd_frames_dropped_total", "reason", "conflated")
			if lost < 3*18 {
				t.Fatalf("%s: %v lost", policy, lost)
			}
			for _, w := range []*wire{quiet, byCommand, raw} {
				for i := 1; ; i++ {
					text := w.text()
					if strings.Contains(text, "gap") {
						t.Fatalf("%s: %s", policy, text)
					}
					if strings.Contains(text, "the last") || policy == "drop-newest" && i == 4 {
						break
					}
				}
				w.ping() // and nothing more
			}
		})
	}
}
