package hub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHub(t)
		cut := n.join("lobby", with(queue.Disconnect), limited(2, 100))
		kept := n.join("lobby")
		n.publish("lobby", "1234")
		time.Sleep(3 * time.Second) // of the bubble
		n.publish("lobby", "56")
		inFlight := cut.Take(nil, queue.Limits{Messages: 1, Bytes: 100}).Items
		n.publish("lobby", "789")

		p := n.publish("lobby", "last")
		same(t, "published", p, hub.Published{Position: p.Position, Subscribers: 2, Queued: 1, Dropped: 1, Disconnected: 1})
		e := receive(t, cut.evicted, "eviction")
		equal(t, "who", e.Subscription, cut.Subscription)
		equal(t, "depth", e.Depth, queue.Limits{Messages: 2, Bytes: 5})
		equal(t, "oldest", e.Oldest, 0)
		equal(t, "subscribers left", n.Info(room("lobby")).Subscribers, 1)

		n.publish("lobby", "after")
		same(t, "left to take after the eviction", cut.take(), []hub.Item{})
		cut.Sent(inFlight, 0, nil)
		cut.Leave()
		cut.Leave()
		equal(t, "evictions told", len(cut.evicted), 0)
		same(t, "read by the one who was kept", kept.read(), []string{"1234", "56", "789", "last", "after"})
		for _, c := range []struct {
			reason string
			want   int
		}{{"overflow", 1}, {"closed", 3}} {
			equal(t, c.reason, n.value("hubd_frames_dropped_total", "policy", "disconnect", "reason", c.reason), c.want)
		}
		equal(t, "offered", n.value("hubd_frames_offered_total", "policy", "disconnect"), 4)
		kept.Leave()
		n.empty()
	})
}

// The oldest age is that of the queue's head, at the overflow.
func TestEvictionTellsTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHub(t)
		s := n.join("lobby", with(queue.Disconnect), limited(2, 100))
		n.publish("lobby", "1")
		time.Sleep(3 * time.Second)
		n.publish("lobby", "2")
		time.Sleep(time.Second)
		n.publish("lobby", "3")
		equal(t, "oldest", receive(t, s.evicted, "eviction").Oldest, 4*time.Second)
		s.Leave()
		n.empty()
	})
}

// lookingOwner looks at the hub when it is told something, which under a lock
// of the hub's would never come back.
type lookingOwner struct {
	*owner
	n *node
}

func (o lookingOwner) Evicted(e hub.Eviction) {
	o.n.State()
	o.n.Info(e.Subscription.Room())
	o.owner.Evicted(e)
}

func (o lookingOwner) Wake() {
	o.n.State()
	o.owner.Wake()
}

func TestOwnersAreCalledWithoutLocks(t *testing.T) {
	n := newHub(t)
	asLooking := func(q *hub.JoinRequest) { q.Owner = lookingOwner{q.Owner.(*owner), n} }
	s := n.join("lobby", with(queue.Disconnect), limited(1, 100), asLooking)
	published := make(chan struct{})
	go func() {
		defer close(published)
		n.publish("lobby", "1")
		n.publish("lobby", "2")
	}()
	receive(t, published, "return of the publish")
	receive(t, s.evicted, "eviction")
	s.Leave()
	n.empty()
}

// Many at once, among them the last ones in the room: each is told once, and
// the room is gone.
func TestAllAreEvictedAtOnce(t *testing.T) {
	const subscribers = 200
	n := newHub(t)
	var members []member
	for range subscribers {
		members = append(members, n.join("lobby", with(queue.Disconnect), limited(1, 100)))
	}
	n.publish("lobby", "1")
	p := n.publish("lobby", "2")
	same(t, "published", p, hub.Published{Position: p.Position, Subscribers: subscribers, Dropped: subscribers, Disconnected: subscribers})
	for _, m := range members {
		receive(t, m.evicted, "eviction")
		equal(t, "further evictions", len(m.evicted), 0)
	}
	n.empty()
	equal(t, "counted as closed", n.value("hubd_frames_dropped_total", "reason", "closed"), subscribers)
	p = n.publish("lobby", "3")
	equal(t, "subscribers of the next", p.Subscribers, 0)
	equal(t, "seq of the next", p.Position.Seq, 1)
	for _, m := range members {
		m.Leave()
	}
}

// A frame that alone is over the byte limit cuts a disconnect subscriber off,
// and costs others only itself.
func TestAFrameOverTheByteLimit(t *testing.T) {
	for _, p := range []queue.Policy{queue.DropNewest, queue.DropOldest, queue.KeepLatest, queue.Disconnect} {
		n := newHub(t)
		s := n.join("lobby", with(p), limited(10, 4))
		n.publish("lobby", "1234")
		got := n.publish("lobby", "12345")
		equal(t, p.String()+": dropped", got.Dropped, 1)
		if p == queue.Disconnect {
			receive(t, s.evicted, "eviction")
		} else {
			same(t, p.String()+": read", s.read(), []string{"1234"})
			equal(t, p.String()+": conflated", got.Conflated, 0)
		}
		equal(t, p.String()+": counted", n.value("hubd_overflow_total", "policy", p.String(), "reason", "bytes"), 1)
		s.Leave()
		n.empty()
	}
}

// A loss is to be told although no frame may ever come after it.
func TestALossWakesTheWriter(t *testing.T) {
	n := newHub(t)
	s := n.join("lobby", limited(10, 4))
	n.publish("lobby", "12345")
	receive(t, s.wakes, "wake")
	taken := s.Take(nil, all)
	same(t, "tail", taken.Tail, queue.Gap{Lost: 1, Reason: queue.Overflow})
	s.Leave()
	n.empty()
}

// Whatever is published while subscribers are cut off, the publisher is told
// the truth: what the answers add up to is what was counted.
func TestAnswersAddUp(t *testing.T) {
	n := newHub(t)
	for _, p := range []queue.Policy{queue.DropNewest, queue.DropOldest, queue.KeepLatest, queue.Disconnect} {
		for range 3 {
			m := n.join("lobby", with(p), limited(3, 20))
			defer m.Leave()
		}
	}
	sum := hub.Published{}
	for i := range 20 {
		q := say("lobby", "12345"[:i%6])
		q.Message.Key = string("ab"[i%2])
		p, err := n.Publish(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		sum.Subscribers += p.Subscribers
		sum.Dropped += p.Dropped
		sum.Conflated += p.Conflated
		sum.Disconnected += p.Disconnected
		sum.Queued += p.Queued
	}
	equal(t, "offered", n.value("hubd_frames_offered_total"), sum.Subscribers)
	equal(t, "overflow", n.value("hubd_frames_dropped_total", "reason", "overflow"), sum.Dropped)
	equal(t, "conflated", n.value("hubd_frames_dropped_total", "reason", "conflated"), sum.Conflated)
	equal(t, "disconnected", 3, sum.Disconnected)
	if sum.Queued == 0 || sum.Queued >= sum.Subscribers {
		t.Errorf("queued: %d of %d", sum.Queued, sum.Subscribers)
	}
	equal(t, "encodings", n.value("hubd_frames_encoded_total", "encoding", frame.EncodingRaw.String()), 0)
}
