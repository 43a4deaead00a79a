package hub_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
)

// refusing is a feed whose publishes are refused while a queue is full.
func refusing(ttl time.Duration) hub.Feed {
	return hub.Feed{Name: "refusing", Match: []string{"*"}, Policy: queue.RejectPublish, Queue: queue.Limits{Messages: 2, Bytes: 70_000}, TTL: ttl}
}

// A refused publish has happened nowhere.
func TestARefusedPublishReachesNobody(t *testing.T) {
	n := newHub(t, refusing(0))
	healthy, stuck, lossy := n.join("lobby"), n.join("lobby"), n.join("lobby", with(queue.DropNewest), limited(1, 100))
	n.publish("lobby", "1")
	n.publish("lobby", "2") // lossy loses it: its queue is nobody's reason to refuse
	same(t, "read by the healthy", healthy.read(), []string{"1", "2"})
	offered, encoded := n.value("hubd_frames_offered_total"), n.value("hubd_frames_encoded_total")

	for range 3 {
		equal(t, "refusal", n.refused("lobby", "never"), hub.Overflow)
	}
	var e *hub.Error
	if _, err := n.Publish(context.Background(), say("lobby", "never")); !errors.As(err, &e) || e.RetryAfter <= 0 {
		t.Errorf("refused with %v, want a time to retry after", err)
	}
	equal(t, "offered by refused publishes", n.value("hubd_frames_offered_total")-offered, 0)
	equal(t, "encoded by refused publishes", n.value("hubd_frames_encoded_total")-encoded, 0)
	equal(t, "published", n.value("hubd_messages_published_total"), 2)
	equal(t, "overflows counted", n.value("hubd_overflow_total", "policy", "reject-publish"), 0)
	same(t, "read by the healthy", healthy.read(), []string{})

	same(t, "read by the stuck", stuck.read(), []string{"1", "2"})
	equal(t, "the next seq", n.publish("lobby", "3").Position.Seq, 3)
	same(t, "read by the healthy", healthy.read(), []string{"3"})
	same(t, "read by the stuck", stuck.read(), []string{"3"})
	same(t, "read by the lossy", lossy.read(), []string{"1"})
	for _, m := range []member{healthy, stuck, lossy} {
		m.Leave()
	}
	n.empty()
}

// Bytes refuse as messages do; what could never fit is lost by that subscriber
// alone, or the room would be refused for ever.
func TestRefusalByBytes(t *testing.T) {
	n := newHub(t, refusing(0))
	small := n.join("lobby", limited(2, 4))
	big := n.join("lobby")
	n.publish("lobby", "123")
	equal(t, "refusal", n.refused("lobby", "12"), hub.Overflow)
	p := n.publish("lobby", "1234567")
	same(t, "published", p, hub.Published{Position: p.Position, Subscribers: 2, Queued: 1, Dropped: 1})
	same(t, "read by the big", big.read(), []string{"123", "1234567"})
	same(t, "read by the small", small.read(), []string{"123"})
	small.Leave()
	big.Leave()
	n.empty()
}

// wait publishes with patience, and reports what came of it and after how long.
func (n *node) wait(ctx context.Context, name string, d time.Duration) (hub.Published, error, time.Duration) {
	q := say(name, "waited")
	q.Wait = d
	start := time.Now()
	p, err := n.Publish(ctx, q)
	return p, err, time.Since(start)
}

// What a publisher that waits for room is woken by, and when it gives up.
func TestWaitForRoom(t *testing.T) {
	const after = 300 * time.Millisecond
	for _, c := range []struct {
		name string
		wait time.Duration
		ttl  time.Duration
		// then happens after 300 ms
		then func(n *node, full member, cancel context.CancelFunc)
		code hub.Code // "" for accepted
		took time.Duration
	}{
		{"no patience", 0, 0, nil, hub.Overflow, 0},
		{"nothing happens", 700 * time.Millisecond, 0, nil, hub.Overflow, 700 * time.Millisecond},
		{"patience is capped", time.Hour, 0, nil, hub.Overflow, hub.MaxWait},
		{"the subscriber reads", time.Second, 0, func(_ *node, full member, _ context.CancelFunc) { full.read() }, "", after},
		{"the subscriber takes one", time.Second, 0, func(_ *node, full member, _ context.CancelFunc) {
			items := full.Take(nil, queue.Limits{Messages: 1}).Items
			full.Sent(items, len(items), nil)
		}, "", after},
		{"the subscriber leaves", time.Second, 0, func(_ *node, full member, _ context.CancelFunc) { full.Leave() }, "", after},
		{"the subscriber is sealed", time.Second, 0, func(_ *node, full member, _ context.CancelFunc) { full.Seal() }, "", after},
		{"what was queued has expired", time.Second, 100 * time.Millisecond, func(_ *node, full member, _ context.CancelFunc) { full.read() }, "", after},
		{"another one joins", time.Second, 0, func(n *node, _ member, _ context.CancelFunc) { n.join("lobby") }, hub.Overflow, time.Second},
		{"the publisher goes", time.Second, 0, func(_ *node, _ member, cancel context.CancelFunc) { cancel() }, "", after},
		{"the hub drains", time.Second, 0, func(n *node, _ member, _ context.CancelFunc) { n.Drain() }, hub.Draining, after},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newHub(t, refusing(c.ttl))
				full, other := n.join("lobby"), n.join("lobby")
				n.publish("lobby", "1")
				n.publish("lobby", "2")
				other.read()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.then != nil {
					time.AfterFunc(after, func() { c.then(n, full, cancel) })
				}
				p, err, took := n.wait(ctx, "lobby", c.wait)
				equal(t, "time", took, c.took)
				switch {
				case ctx.Err() != nil:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("error %v, want that of the context", err)
					}
				case c.code != "":
					is(t, err, c.code)
				case err != nil:
					t.Error(err)
				default:
					equal(t, "seq", p.Position.Seq, 3)
					same(t, "read by the other", other.read(), []string{"waited"})
				}
				if st, ok := n.Room(room("lobby")); ok {
					for _, s := range st.Subscriptions {
						s.Leave()
					}
				}
				full.Leave()
				n.empty()
			})
		})
	}
}

// Room that is too small wakes a publisher, and does not renew its patience.
func TestPatienceIsForTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHub(t, refusing(0))
		a, b := n.join("lobby"), n.join("lobby")
		n.publish("lobby", "1")
		n.publish("lobby", "2")
		for i := range 9 {
			time.AfterFunc(time.Duration(i+1)*100*time.Millisecond, func() { a.read() }) // b stays full
		}
		_, err, took := n.wait(t.Context(), "lobby", 950*time.Millisecond)
		is(t, err, hub.Overflow)
		equal(t, "time", took, 950*time.Millisecond)
		a.Leave()
		b.Leave()
		n.empty()
	})
}

// Many wait for one queue: as it is read, all get their turn, nobody is
// forgotten, and none is accepted twice.
func TestAllWaitersGetTheirTurn(t *testing.T) {
	const publishers = 20
	n := newHub(t, refusing(0))
	s := n.join("lobby")
	n.publish("lobby", "1")
	n.publish("lobby", "2")
	var waiters sync.WaitGroup
	for range publishers {
		waiters.Go(func() {
			// Far less than the patience of the whole test, should one be forgotten.
			if _, err, _ := n.wait(t.Context(), "lobby", hub.MaxWait); err != nil {
				t.Errorf("a publisher was not served: %v", err)
			}
		})
	}
	for got := 0; got < publishers+2; {
		receive(t, s.wakes, "wake")
		for {
			taken := s.Take(nil, queue.Limits{Messages: 1, Bytes: 100})
			s.Sent(taken.Items, len(taken.Items), nil)
			got += len(taken.Items)
			if taken.Empty {
				break
			}
		}
	}
	waiters.Wait()
	equal(t, "seq", n.Info(room("lobby")).Position.Seq, publishers+2)
	s.Leave()
	n.empty()
}
