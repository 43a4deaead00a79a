package hub

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hubd/internal/frame"
	"hubd/internal/queue"
)

// room is a named fan-out set. It is there as long as somebody is subscribed or
// something is retained.
type room struct {
	// immutable
	hub   *Hub
	name  frame.Room
	feed  int
	epoch string

	// dead is set under mu when nothing is left in the room, and never unset: a
	// room that comes back is another, with another epoch.
	dead atomic.Bool

	// mu makes the sequence, the history, the offers and the membership one
	// order. Nothing is done under it but offers to queues, which never wait.
	mu      sync.Mutex
	seq     uint64
	history history
	live    roster // are offered what is published
	behind  roster // still read history
	// rejecting counts live subscriptions whose policy is reject-publish.
	rejecting int
	used      time.Duration // when last published to, joined or looked at
	timer     *time.Timer   // for the age of history; nil while there is none

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
	f := frame.New(&r.hub.ledger, m, pos)
	r.used = r.hub.now()
	r.history.append(f, r.used)
	r.watchLocked()
	r.offerLocked(f, r.used, out)
	f.Release(1)
	r.retireLocked()
	return pos, nil, true
}

// offerLocked offers f to every queue.
func (r *room) offerLocked(f *frame.Frame, now time.Duration, out *fanout) {
	item := Item{Value: f, Key: f.Key(), Bytes: f.Size(), At: now}
	// Holders are counted for all at once, before a writer can let go of its
	// frame: one shared atomic operation a publish instead of one an offer.
	offered, accepted := len(r.live), 0
	f.Retain(offered)
	for i := 0; i < len(r.live); {
		s := r.live[i]
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
	f.Release(offered - accepted)
}

// join registers s, unless the room is dead. With a position to resume from, or
// a last value to be given, it reads history first.
func (r *room) join(s *Subscription, after *frame.Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead.Load() {
		return false
	}
	r.used = r.hub.now()
	r.beginLocked(s, after)
	if s.replay.on {
		r.behind.add(s)
	} else {
		r.goLiveLocked(s)
	}
	return true
}

func (r *room) goLiveLocked(s *Subscription) {
	s.live = true
	r.live.add(s)
	if s.policy == queue.RejectPublish {
		r.rejecting++
	}
}

// leave takes s out, if it is still in.
func (r *room) leave(s *Subscription) {
	r.mu.Lock()
	r.removeLocked(s)
	r.retireLocked()
	r.mu.Unlock()
	if s.policy == queue.RejectPublish {
		r.signalSpace()
	}
	r.forgetDead()
}

func (r *room) removeLocked(s *Subscription) {
	switch {
	case s.index < 0:
		return
	case s.live:
		r.live.remove(s)
		if s.policy == queue.RejectPublish {
			r.rejecting--
		}
	default:
		r.behind.remove(s)
	}
	r.hub.Unreserve(subscriptionBytes)
	s.depart()
}

// roster is a list of subscriptions, each of which knows its place.
type roster []*Subscription

func (l *roster) add(s *Subscription) {
	s.index = len(*l)
	*l = append(*l, s)
}

// remove puts the last one in s's place.
func (l *roster) remove(s *Subscription) {
	subs := *l
	last := len(subs) - 1
	subs[s.index] = subs[last]
	subs[s.index].index = s.index
	subs[last] = nil
	s.index = -1
	if subs = subs[:last]; cap(subs) >= 64 && last < cap(subs)/4 {
		subs = append(make(roster, 0, cap(subs)/2), subs...)
	}
	*l = subs
}

// retireLocked marks the room dead once nothing is left of it. The caller calls
// forgetDead after releasing the lock.
func (r *room) retireLocked() {
	if len(r.live)+len(r.behind)+len(r.history.frames) > 0 {
		return
	}
	r.dead.Store(true)
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

func (r *room) forgetDead() {
	if r.dead.Load() {
		r.hub.forget(r)
	}
}

// members returns the subscriptions of now. Their queues are looked at after
// the lock is released: a scrape must not hold up a publish.
func (r *room) members() (frame.Position, []*Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return frame.Position{Epoch: r.epoch, Seq: r.seq}, slices.Concat(r.live, r.behind)
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
	for _, s := range r.live {
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
