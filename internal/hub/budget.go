package hub

import (
	"cmp"
	"slices"
	"time"

	"hubd/internal/queue"
)

// subscriptionBytes is what a subscription takes beside its frames: itself, its
// place in the room, and a ring that has seen some use.
const subscriptionBytes = 4 << 10

// Reserve sets fixed memory aside, or reports why there is none. Of the budget
// at least a quarter is left for frames: a hub full of empty queues is of no
// use.
func (h *Hub) Reserve(bytes int64) error {
	if h.fixed.Add(bytes) > h.budget/4*3 && h.budget > 0 {
		h.fixed.Add(-bytes)
		return &Error{Code: OverCapacity, Detail: "this node has no memory left for more subscribers", RetryAfter: 5 * time.Second}
	}
	return nil
}

// Unreserve gives back what Reserve set aside.
func (h *Hub) Unreserve(bytes int64) { h.fixed.Add(-bytes) }

// relieve makes room when the retained frames and what is reserved exceed the
// budget: the queues and histories that keep the oldest frames alive lose them,
// worst first, until a tenth of the budget is free, so that not every publish
// has to.
//
// A frame is free only when all who hold it have let go, so looking for the
// queue that holds most would free nothing: it is age that laggards and
// histories share and the queues of the healthy have not. Each round gives up
// the older half of the time that all of them span.
func (h *Hub) relieve() {
	if h.budget <= 0 || h.ledger.Retained()+h.fixed.Load() <= h.budget || !h.relieving.CompareAndSwap(false, true) {
		return
	}
	defer h.relieving.Store(false)
	const rounds = 10 // then the oldest frame is younger by a factor of a thousand
	for range rounds {
		worst, oldest := h.laggards()
		now := h.now()
		before := now - oldest/2
		for _, l := range worst {
			if h.ledger.Retained()+h.fixed.Load() <= h.budget/10*9 {
				return
			}
			l.shed(before, now)
		}
	}
}

// laggard is a queue or a history that holds frames.
type laggard struct {
	shed func(before, now time.Duration)
	age  time.Duration // of its oldest frame
}

// laggards returns all that hold frames, the oldest first, and the age of that.
func (h *Hub) laggards() (all []laggard, oldest time.Duration) {
	now := h.now()
	for _, r := range h.snapshot() {
		if age, ok := r.historyAge(now); ok {
			all = append(all, laggard{r.shed, age})
		}
		_, subs := r.members()
		for _, s := range subs {
			if st := s.queue.Stats(now); st.Queued.Messages > 0 {
				all = append(all, laggard{s.shed, st.Oldest})
			}
		}
	}
	if len(all) == 0 {
		return nil, 0
	}
	slices.SortFunc(all, func(a, b laggard) int { return cmp.Compare(b.age, a.age) })
	return all, all[0].age
}

// shed gives up what was offered before a moment, and counts it. A queue that
// closes itself is out of the room in the same step: a frame offered in
// between would be counted as offered and never be resolved.
func (s *Subscription) shed(before, now time.Duration) {
	r := s.room
	r.mu.Lock()
	v := s.queue.Shed(before, now)
	if v.Disconnect {
		r.removeLocked(s)
		r.retireLocked()
	}
	r.mu.Unlock()
	if v.Overflow == queue.LimitNone {
		return
	}
	s.series.Overflow(int(queue.LimitBudget)-1, 1)
	s.series.Dropped(int(queue.Budget), v.Dropped)
	s.series.Dropped(int(queue.Closed), v.Discarded)
	switch {
	case v.Disconnect:
		r.forgetDead()
		s.owner.Evicted(Eviction{Subscription: s, Depth: v.Depth, Oldest: v.Oldest})
	case s.policy == queue.RejectPublish:
		r.signalSpace()
	}
}
