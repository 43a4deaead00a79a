package hub

import (
	"sync"
	"sync/atomic"
	"time"

	"hubd/internal/frame"
	"hubd/internal/queue"
)

// room is a named fan-out set. It is there as long as somebody is subscribed.
type room struct {
	// immutable
	hub   *Hub
	name  frame.Room
	feed  int
	epoch string

	// dead is set under mu when the last subscription leaves, and never unset:
	// a room that comes back is another, with another epoch.
	dead atomic.Bool

	// mu makes the sequence, the offers and the membership one order. Nothing
	// is done under it but offers to queues, which never wait.
	mu   sync.Mutex
	seq  uint64
	subs []*Subscription
	// rejecting counts subscriptions whose policy is reject-publish.
	rejecting int

	// space, if not nil, is closed when a queue that may refuse publishes has
	// got room. It has a lock of its own because writers signal it.
	spaceMu sync.Mutex
	space   chan struct{}
}

// fanout collects what one publish leaves to be done after the room's lock is
// released. They are pooled: a publish allocates none of it.
type fanout struct {
	wake    []*Subscription
	evicted []eviction
	tally   [queue.NumPolicies]tally
}

type eviction struct {
	sub   *Subscription
	depth queue.Limits
	age   time.Duration
}

// tally sums the verdicts of the subscriptions of one policy.
type tally struct {
	offered, accepted, dropped, conflated, closed int
	overflow                                      [queue.NumLimits]int
}

var fanouts = sync.Pool{New: func() any { return new(fanout) }}

func (o *fanout) free() {
	clear(o.wake)
	clear(o.evicted)
	*o = fanout{wake: o.wake[:0], evicted: o.evicted[:0]}
	fanouts.Put(o)
}

// publish offers m to every subscription. refused is closed when trying again
// may help; ok is false, and nothing has happened, if the room is dead or the
// publish was refused.
func (r *room) publish(m frame.Message, out *fanout) (pos frame.Position, refused <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead.Load() {
		return pos, nil, false
	}
	if r.rejecting > 0 {
		if space := r.refuseLocked(len(m.Data)); space != nil {
			return pos, space, false
		}
	}
	r.seq++
	pos = frame.Position{Epoch: r.epoch, Seq: r.seq}
	if len(r.subs) > 0 {
		r.offerLocked(frame.New(&r.hub.ledger, m, pos), out)
	}
	r.retireLocked()
	return pos, nil, true
}

// offerLocked offers f, which it consumes, to every queue.
func (r *room) offerLocked(f *frame.Frame, out *fanout) {
	item := queue.Item[*frame.Frame]{Value: f, Key: f.Key(), Bytes: f.Size(), At: r.hub.now()}
	// Holders are counted for all at once, before a writer can let go of its
	// frame: one shared atomic operation a publish instead of one an offer.
	offered, accepted := len(r.subs), 0
	f.Retain(offered)
	for i := 0; i < len(r.subs); {
		s := r.subs[i]
		v := s.queue.Offer(item)
		t := &out.tally[s.policy]
		t.offered++
		t.dropped += v.Dropped
		t.conflated += v.Conflated
		if v.Overflow != queue.LimitNone {
			t.overflow[v.Overflow]++
		}
		if v.Accepted {
			accepted++
			t.accepted++
		}
		if v.Wake {
			out.wake = append(out.wake, s)
		}
		if v.Disconnect {
			t.closed += v.Discarded
			out.evicted = append(out.evicted, eviction{s, v.Depth, v.Oldest})
			r.removeLocked(s) // the last one is now at i
			continue
		}
		i++
	}
	// This function's own hold goes with those of the queues that did not take
	// the frame.
	f.Release(1 + offered - accepted)
}

// join registers s, unless the room is dead.
func (r *room) join(s *Subscription) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead.Load() {
		return false
	}
	s.index = len(r.subs)
	r.subs = append(r.subs, s)
	if s.policy == queue.RejectPublish {
		r.rejecting++
	}
	s.joined = frame.Position{Epoch: r.epoch, Seq: r.seq}
	return true
}

// leave takes s out, if it is still in.
func (r *room) leave(s *Subscription) {
	r.mu.Lock()
	r.removeLocked(s)
	r.retireLocked()
	dead := r.dead.Load()
	r.mu.Unlock()
	if s.policy == queue.RejectPublish {
		r.signalSpace()
	}
	if dead {
		r.hub.forget(r)
	}
}

func (r *room) removeLocked(s *Subscription) {
	if s.index < 0 {
		return
	}
	last := len(r.subs) - 1
	moved := r.subs[last]
	r.subs[s.index] = moved
	moved.index = s.index
	r.subs[last] = nil
	r.subs = r.subs[:last]
	if cap(r.subs) >= 64 && last < cap(r.subs)/4 {
		r.subs = append(make([]*Subscription, 0, cap(r.subs)/2), r.subs...)
	}
	s.index = -1
	if s.policy == queue.RejectPublish {
		r.rejecting--
	}
}

// retireLocked marks the room dead once nothing is left of it. The caller
// forgets it in the registry after releasing the lock.
func (r *room) retireLocked() {
	if len(r.subs) == 0 {
		r.dead.Store(true)
	}
}

// members returns the subscriptions of now. Their queues are looked at after
// the lock is released: a scrape must not hold up a publish.
func (r *room) members() (frame.Position, []*Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return frame.Position{Epoch: r.epoch, Seq: r.seq}, append([]*Subscription(nil), r.subs...)
}

// refuseLocked returns a channel that is closed when a queue has got room, if
// one that may refuse publishes has none now for n bytes. The channel is taken
// before the look: a writer that makes room in between closes it.
func (r *room) refuseLocked(n int) <-chan struct{} {
	r.spaceMu.Lock()
	if r.space == nil {
		r.space = make(chan struct{})
	}
	space := r.space
	r.spaceMu.Unlock()
	for _, s := range r.subs {
		if s.policy == queue.RejectPublish && !s.queue.Fits(n) {
			return space
		}
	}
	return nil
}

// signalSpace lets publishers that wait for room try again.
func (r *room) signalSpace() {
	r.spaceMu.Lock()
	defer r.spaceMu.Unlock()
	if r.space != nil {
		close(r.space)
		r.space = nil
	}
}
