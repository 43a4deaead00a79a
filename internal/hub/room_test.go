package hub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

func TestRoomsAppearAndVanish(t *testing.T) {
	n := newHub(t)
	info := n.Info(room("lobby"))
	equal(t, "position before anyone came", info.Position, frame.Position{})
	n.empty() // looking made none

	a := n.join("lobby")
	equal(t, "joined at", a.Joined().Seq, 0)
	equal(t, "seq", n.publish("lobby", "1").Position.Seq, 1)
	b := n.join("lobby")
	equal(t, "the second joined at", b.Joined(), frame.Position{Epoch: a.Joined().Epoch, Seq: 1})
	equal(t, "subscribers", n.Info(room("lobby")).Subscribers, 2)
	equal(t, "rooms", n.State().Rooms, 1)
	a.Leave()
	equal(t, "rooms while one is left", n.State().Rooms, 1)
	equal(t, "epoch while one is left", n.publish("lobby", "2").Position, frame.Position{Epoch: a.Joined().Epoch, Seq: 2})
	same(t, "read by the one who stayed", b.read(), []string{"2"})
	b.Leave()
	n.empty()
	equal(t, "position after all have gone", n.Info(room("lobby")).Position, frame.Position{})

	c := n.join("lobby")
	if c.Joined().Epoch == a.Joined().Epoch || c.Joined().Seq != 0 {
		t.Errorf("a room that came back has position %v, the first had %v", c.Joined(), a.Joined())
	}
	c.Leave()
	n.empty()
}

func TestAPublishToNobodyLeavesNothing(t *testing.T) {
	n := newHub(t)
	for i := range 100 {
		p := n.publish(fmt.Sprint("room-", i%7), "x")
		equal(t, "published to nobody", p, hub.Published{Position: p.Position})
	}
	n.empty()
	equal(t, "published", n.value("hubd_messages_published_total"), 100)
	equal(t, "offered", n.value("hubd_frames_offered_total"), 0)
}

// One room costs another nothing, not even of the same owner.
func TestRoomsAreSeparate(t *testing.T) {
	n := newHub(t)
	full, other := n.join("a", limited(1, 100)), n.join("b", limited(1, 100))
	n.publish("a", "1")
	p := n.publish("a", "2")
	equal(t, "dropped in a", p.Dropped, 1)
	p = n.publish("b", "3")
	equal(t, "queued in b", p.Queued, 1)
	equal(t, "seq in b", p.Position.Seq, 1)
	same(t, "read in b", other.read(), []string{"3"})
	full.Leave()
	other.Leave()
}

// A room that died is forgotten by whoever saw it die, while others may already
// be in its successor: whoever is in a room is in the one that others find.
func TestTheLastOneOutAndTheFirstOneIn(t *testing.T) {
	n := newHub(t)
	// More threads than processors, so that they are interrupted anywhere.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 2000 {
				s := n.join("lobby")
				if found := n.Info(room("lobby")).Position.Epoch; found != s.Joined().Epoch {
					t.Errorf("joined epoch %q, while others find %q", s.Joined().Epoch, found)
					return
				}
				s.Leave()
			}
		})
	}
	workers.Wait()
	n.empty()
}

// Joins, leaves and publishes of all kinds race for few rooms. What must hold:
// nobody joins a room that is already gone, and nothing is left at the end.
func TestRoomsUnderChurn(t *testing.T) {
	n := newHub(t, hub.Feed{Name: "cut", Match: []string{"room-0"}, Policy: queue.Disconnect, Queue: queue.Limits{Messages: 2, Bytes: 1 << 16}})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 500 {
				name := fmt.Sprint("room-", rng.IntN(3))
				s := n.join(name)
				p, err := n.Publish(context.Background(), say(name, "x"))
				if err != nil {
					t.Errorf("publish: %v", err)
				}
				// Whoever has joined is in the room that the publish found: the
				// joiner's own, unless it was cut off there meanwhile.
				if p.Position.Epoch != s.Joined().Epoch && len(s.evicted) == 0 {
					t.Errorf("joined %v, but a publish afterwards went to %v", s.Joined(), p.Position)
				}
				switch rng.IntN(4) {
				case 0: // left with frames queued
				case 1:
					s.read()
				case 2: // left with frames in flight
					items := s.take()
					s.Leave()
					s.Sent(items, rng.IntN(len(items)+1), nil)
				case 3:
					s.Seal()
					s.read()
				}
				s.Leave()
			}
		})
	}
	workers.Wait()
	n.empty()
}
