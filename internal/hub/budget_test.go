package hub_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// evicted is an owner that notes its eviction.
type evicted struct{ n *int }

func (evicted) Wake()                  {}
func (e evicted) Evicted(hub.Eviction) { *e.n++ }

// TestBudget: laggards of every policy pay for the memory they hold, and those
// who keep up lose nothing.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = hub.MinMemoryBudget
		h, err := hub.New(hub.Config{MemoryBudget: budget, Feeds: []hub.Feed{{
			Name: "all", Match: []string{"*"}, Queue: queue.Limits{Messages: 1000, Bytes: 1 << 30}, History: &hub.HistoryLimits{},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		w := world{t, h}
		evictions := 0
		join := func(room string, policy queue.Policy) *hub.Subscription {
			s, err := h.Join(hub.JoinRequest{Room: roomNamed(t, room), Options: hub.Options{Policy: &policy}, Owner: evicted{&evictions}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		policies := []queue.Policy{queue.DropNewest, queue.DropOldest, queue.KeepLatest, queue.Disconnect}
		var laggards []*hub.Subscription
		for i, p := range policies { // a room each, so that no two share a frame
			laggards = append(laggards, join("r"+strconv.Itoa(i), p))
		}
		healthy := join("r0", queue.DropNewest)
		received := 0
		payload := strings.Repeat("x", 60<<10)
		for range 500 {
			for i := range policies {
				w.publish("r"+strconv.Itoa(i), "", payload)
				if n := h.State().RetainedBytes; n > budget {
					t.Fatalf("%d bytes are retained", n)
				}
			}
			for _, got := range take(healthy, 100) {
				if got < 0 {
					t.Fatalf("the healthy one lost %d", -got)
				}
				received++
			}
			time.Sleep(10 * time.Millisecond)
		}
		expect(t, "received by the healthy one", received, 500)
		expect(t, "evictions", evictions, 1)
		for _, room := range h.Rooms() {
			for _, st := range room.Subscriptions {
				if st.Subscription == healthy {
					continue
				}
				if st.Dropped[queue.Budget] == 0 {
					t.Errorf("%s of %s lost nothing", st.Policy(), room.Room)
				}
				var dropped uint64
				for _, n := range st.Dropped {
					dropped += n
				}
				if st.Offered != dropped+uint64(st.Queued.Messages) {
					t.Errorf("%s: not conserved: %+v", room.Room, st.Stats)
				}
			}
		}
		told := 0
		for range 10 {
			for _, got := range take(laggards[0], 1000) {
				told += max(0, -got)
			}
		}
		if told == 0 {
			t.Error("a laggard was not told of its loss")
		}
		for _, s := range append(laggards, healthy) {
			s.Leave()
		}
		expect(t, "retained in the end", h.State().RetainedBytes, 0)
	})
}

// TestBudgetAdmits: joins are refused when even empty queues would not fit, and
// what a subscription had reserved is there for another when it has left.
func TestBudgetAdmits(t *testing.T) {
	h, err := hub.New(hub.Config{MemoryBudget: hub.MinMemoryBudget})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	join := func() (*hub.Subscription, error) {
		return h.Join(hub.JoinRequest{Room: roomNamed(t, "r"), Owner: reader{}})
	}
	var subs []*hub.Subscription
	for {
		s, err := join()
		if err != nil {
			expect(t, "code", hub.CodeOf(err), hub.OverCapacity)
			break
		}
		subs = append(subs, s)
		if len(subs) > hub.MinMemoryBudget/1024 {
			t.Fatal("joins without end")
		}
	}
	subs[0].Leave()
	subs[0].Leave() // gives nothing back again
	again, err := join()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := join(); hub.CodeOf(err) != hub.OverCapacity {
		t.Errorf("one too many: %v", err)
	}
	for _, s := range append(subs, again) {
		s.Leave()
	}
	if err := h.Reserve(hub.MinMemoryBudget / 4 * 3); err != nil {
		t.Errorf("not all was given back: %v", err)
	}
}

// TestBudgetAndHistory: what histories retain is given up before it costs
// somebody who keeps up a message.
func TestBudgetAndHistory(t *testing.T) {
	const budget = hub.MinMemoryBudget
	h, err := hub.New(hub.Config{MemoryBudget: budget, Feeds: []hub.Feed{{
		Name: "all", Match: []string{"*"}, History: &hub.HistoryLimits{Messages: 1000, Bytes: budget, Age: time.Hour},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w := world{t, h}
	healthy := w.join("r", nil)
	defer healthy.Leave()
	payload := strings.Repeat(`"`, 60<<10) // twice as long in JSON
	for i := range 300 {
		w.publish("r", "", payload)
		if n := h.State().RetainedBytes; n > budget {
			t.Fatalf("%d bytes are retained", n)
		}
		batch := healthy.Take(nil, all)
		for _, it := range batch.Items { // as with subscribers in all dialects
			it.Value.Bytes(frame.EncodingRaw)
			it.Value.Bytes(frame.EncodingJSON)
			it.Value.Bytes(frame.EncodingSSE)
		}
		healthy.Sent(batch.Items, len(batch.Items), nil)
		if len(batch.Items) != 1 || batch.Items[0].Gap.Lost+batch.Tail.Lost > 0 {
			t.Fatalf("message %d: %d frames came, and a gap of %+v", i+1, len(batch.Items), batch.Tail)
		}
	}
	if n := len(h.History(roomNamed(t, "r"), nil, 1000).Messages); n < 10 {
		t.Errorf("of the history only %d messages are left", n)
	}
}

// A queue that lost frames to the budget has room, which a publisher may be
// waiting for.
func TestBudgetMakesRoomForPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := hub.New(hub.Config{MemoryBudget: hub.MinMemoryBudget, MaxMessageBytes: 8 << 20, Feeds: []hub.Feed{{
			Name: "all", Match: []string{"*"}, Policy: queue.RejectPublish, Queue: queue.Limits{Messages: 2, Bytes: 64 << 20}, History: &hub.HistoryLimits{},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		w := world{t, h}
		stuck, other := w.join("stuck", nil), w.join("other", nil)
		big := strings.Repeat("x", 8<<20-1)
		w.publish("stuck", "", "1")
		w.publish("stuck", "", "2")
		time.AfterFunc(time.Second, func() {
			w.publish("other", "", big)
			w.publish("other", "", big)
		})
		start := time.Now()
		_, err = h.Publish(t.Context(), hub.PublishRequest{Wait: hub.MaxWait, Message: frame.Message{Room: roomNamed(t, "stuck"), Kind: frame.Text, Data: []byte("3")}})
		expect(t, "error and time", []any{err, time.Since(start)}, []any{nil, time.Second})
		stuck.Leave()
		other.Leave()
	})
}

// Whoever is cut off for want of memory is offered nothing more, whatever is
// published meanwhile.
func TestBudgetConserves(t *testing.T) {
	n := newHubWith(t, hub.Config{MemoryBudget: hub.MinMemoryBudget, Feeds: []hub.Feed{{
		Name: "all", Match: []string{"*"}, Queue: queue.Limits{Messages: 1000, Bytes: 1 << 30}, History: &hub.HistoryLimits{},
	}}})
	var publishers sync.WaitGroup
	payload := strings.Repeat("x", 60<<10)
	for range 2 {
		publishers.Go(func() {
			for range 1500 {
				n.publish("r", payload)
			}
		})
	}
	var subs []member
	for range 400 {
		subs = append(subs, n.join("r", with(queue.Disconnect)))
		time.Sleep(100 * time.Microsecond)
	}
	publishers.Wait()
	for _, s := range subs {
		s.Leave()
	}
}
