package hub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// oracle knows what stands at each position, from the publishers' answers.
type oracle struct {
	mu   sync.Mutex
	said map[frame.Position]string
}

func (o *oracle) note(t *testing.T, p frame.Position, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other, taken := o.said[p]; taken {
		t.Errorf("position %v was given to both %q and %q", p, other, text)
	}
	o.said[p] = text
}

// Many publish at once to a room that others join and leave. Every subscriber
// must see the publishers' order, from the one after its joining on, without a
// hole, and none of one publisher's messages out of that publisher's order.
func TestOneOrderForAll(t *testing.T) {
	const publishers, messages, visitors, visits = 4, 500, 4, 25
	n := newHub(t, hub.Feed{Name: "all", Match: []string{"*"}, Queue: queue.Limits{Messages: publishers * messages}})
	o := &oracle{said: map[frame.Position]string{}}
	anchor := n.join("lobby") // keeps the room, and so its epoch
	epoch := anchor.Joined().Epoch

	type reading struct {
		from  uint64
		items []string
	}
	var readings []reading
	var mu sync.Mutex
	// visit stays until it has read that many, or there is no more to come.
	visit := func(want int, over <-chan struct{}, joined chan<- struct{}) {
		s := n.join("lobby")
		if joined != nil {
			close(joined)
		}
		r := reading{from: s.Joined().Seq}
		for waiting := true; waiting && len(r.items) < want; {
			select {
			case <-s.wakes:
			case <-over:
				waiting = false
			case <-time.After(patience):
				t.Error("no wake came")
				waiting = false
			}
			for empty := false; !empty; {
				taken := s.Take(nil, queue.Limits{Messages: 7, Bytes: 1 << 20})
				for _, it := range taken.Items {
					if want := r.from + uint64(len(r.items)) + 1; it.Value.Seq() != want || it.Gap.Lost != 0 {
						t.Errorf("got seq %d and gap %+v, want seq %d", it.Value.Seq(), it.Gap, want)
						waiting = false
					}
					r.items = append(r.items, text(it))
				}
				s.Sent(taken.Items, len(taken.Items), nil)
				empty = taken.Empty
			}
		}
		s.Leave()
		mu.Lock()
		defer mu.Unlock()
		readings = append(readings, r)
	}

	published := make(chan struct{})
	var stay, come, send sync.WaitGroup
	for range visitors {
		joined := make(chan struct{})
		stay.Go(func() { visit(publishers*messages, nil, joined) })
		<-joined
		come.Go(func() {
			for range visits {
				visit(1, published, nil)
			}
		})
	}
	for p := range publishers {
		send.Go(func() {
			for i := range messages {
				text := fmt.Sprintf("%d %d", p, i)
				got, err := n.Publish(context.Background(), say("lobby", text))
				if err != nil {
					t.Errorf("publish: %v", err)
				}
				o.note(t, got.Position, text)
			}
		})
	}
	send.Wait()
	close(published)
	stay.Wait()
	come.Wait()
	anchor.Leave()

	for _, r := range readings {
		last := map[int]int{}
		for i, text := range r.items {
			seq := r.from + uint64(i) + 1
			if want := o.said[frame.Position{Epoch: epoch, Seq: seq}]; text != want {
				t.Fatalf("a subscriber got %q as %d, its publisher was told so of %q", text, seq, want)
			}
			var p, k int
			if _, err := fmt.Sscan(text, &p, &k); err != nil {
				t.Fatal(err)
			}
			if before, ok := last[p]; ok && k != before+1 {
				t.Fatalf("publisher %d: %d came after %d", p, k, before)
			}
			last[p] = k
		}
	}
	n.empty()
}
