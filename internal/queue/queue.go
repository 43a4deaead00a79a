package queue

import (
	"fmt"
	"sync"
	"time"
)

// Queue is a bounded queue of frames. All methods may be called concurrently;
// none waits.
type Queue[T any] struct {
	// immutable
	cfg Config[T]

	// mu is held for a few nanoseconds, or for one pass over the queued frames
	// when keep-latest conflates. Nothing may wait under it.
	mu sync.Mutex

	// guarded by mu
	ring      ring[T]
	bytes     int // payload of all queued frames
	inFlight  int
	tail      Gap // lost after the last queued frame
	signalled bool
	closed    bool
	offered   uint64
	sent      uint64
	dropped   [NumReasons]uint64
	conflation
}

// New returns an empty queue. It allocates nothing but itself until the first
// frame arrives. Limits are not checked; see [Limits.Valid].
func New[T any](cfg Config[T]) *Queue[T] {
	return &Queue[T]{cfg: cfg}
}

// Policy returns what the queue was made with.
func (q *Queue[T]) Policy() Policy { return q.cfg.Policy }

// Limits returns what the queue was made with.
func (q *Queue[T]) Limits() Limits { return q.cfg.Limits }

// Offer tries to add a frame; it.At is now.
func (q *Queue[T]) Offer(it Item[T]) (v Verdict) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		v.Closed = true
		return v
	}
	q.offered++
	if q.fitsLocked(it.Bytes) {
		q.acceptLocked(&it, it.At)
		v.Accepted, v.Wake = true, q.signalLocked()
	} else {
		q.overflowLocked(&it, &v)
	}
	return v
}

// Fits reports whether an offer of a payload of that size would be accepted
// now without loss. Takers can only make more room, so a publisher that keeps
// others from offering may ask every queue first and offer afterwards.
//
// The answer is true for a frame that the queue could never hold, and once it
// is closed: to wait would change nothing.
func (q *Queue[T]) Fits(bytes int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.holdsLocked(bytes) || q.fitsLocked(bytes)
}

// Take moves frames from the head of the queue to dst, in order: as many as
// limit allows. Where dst is empty it takes at least one if there is one, so a
// batch gathered from several queues is within its limits or one frame. Frames
// past their TTL are dropped on the way. What was taken is in flight until Done.
//
// A taker goes on until a take comes back Empty; then, and only then, the next
// offer asks for it to be woken.
func (q *Queue[T]) Take(dst []Item[T], now time.Duration, limit Limits) Taken[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := Taken[T]{Items: dst}
	messages, bytes := 0, 0
	for q.ring.n > 0 {
		s := q.ring.at(0)
		if q.cfg.TTL > 0 && now-s.At > q.cfg.TTL {
			q.dropHeadLocked(Expired)
			t.Expired++
			continue
		}
		if len(t.Items) > 0 && (messages >= limit.Messages || s.Bytes > limit.Bytes-bytes) {
			break
		}
		messages++
		bytes += s.Bytes
		t.Items = append(t.Items, s.Item)
		q.popLocked()
	}
	q.inFlight += messages
	if q.ring.n == 0 {
		t.Tail, q.tail = q.tail, Gap{}
	}
	if messages == 0 && q.ring.n == 0 {
		t.Empty = true
		q.signalled = false
		// Only now: while a taker is at work, more is likely to come.
		q.ring.shrink()
	}
	return t
}

// Begin puts frames into flight that did not come through the queue: those that
// a subscriber was given from history. They count as offered.
func (q *Queue[T]) Begin(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offered += uint64(n)
	q.inFlight += n
}

// Done resolves frames in flight: so many were sent, so many were lost with
// their connection and count as closed. It panics if there are not that many.
func (q *Queue[T]) Done(sent, lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if sent < 0 || lost < 0 || sent+lost > q.inFlight {
		panic(fmt.Sprintf("queue: Done(%d, %d) with %d frames in flight", sent, lost, q.inFlight))
	}
	q.inFlight -= sent + lost
	q.sent += uint64(sent)
	q.dropped[Closed] += uint64(lost)
}

// Shed gives up the frames that were offered before a moment, for want of
// memory: they are lost as Budget. Under disconnect that closes the queue. The
// verdict says what was lost; its Overflow is LimitBudget where anything was.
func (q *Queue[T]) Shed(before, now time.Duration) (v Verdict) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring.n == 0 || q.ring.at(0).At >= before {
		return v
	}
	v.Overflow = LimitBudget
	v.Depth = Limits{Messages: q.ring.n, Bytes: q.bytes}
	v.Oldest = q.oldestLocked(now)
	if q.cfg.Policy == Disconnect {
		v.Disconnect = true
		v.Discarded = q.closeLocked()
		return v
	}
	for q.ring.n > 0 && q.ring.at(0).At < before {
		q.dropHeadLocked(Budget)
		v.Dropped++
	}
	return v
}

// Close ends the queue and returns how many queued frames it discarded. Frames
// in flight stay so until Done. Closing again does nothing.
//
// It wakes nobody: whoever closes a queue knows its taker.
func (q *Queue[T]) Close() (discarded int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closeLocked()
}

// Stats returns a snapshot.
func (q *Queue[T]) Stats(now time.Duration) Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{
		Queued:   Limits{Messages: q.ring.n, Bytes: q.bytes},
		InFlight: q.inFlight,
		Oldest:   q.oldestLocked(now),
		Offered:  q.offered,
		Sent:     q.sent,
		Dropped:  q.dropped,
	}
}

func (q *Queue[T]) oldestLocked(now time.Duration) time.Duration {
	if q.ring.n == 0 {
		return 0
	}
	return max(0, now-q.ring.at(0).At)
}

// fitsLocked reports whether one more frame keeps both limits. The subtraction
// cannot overflow, as the addition could.
func (q *Queue[T]) fitsLocked(bytes int) bool {
	return q.ring.n < q.cfg.Limits.Messages && bytes <= q.cfg.Limits.Bytes-q.bytes
}

// holdsLocked reports whether the frame would fit if the queue were empty.
func (q *Queue[T]) holdsLocked(bytes int) bool {
	return q.cfg.Limits.Messages > 0 && bytes <= q.cfg.Limits.Bytes
}

// signalLocked reports whether the taker needs a wake, and notes that it got one.
func (q *Queue[T]) signalLocked() bool {
	wake := !q.signalled
	q.signalled = true
	return wake
}

func (q *Queue[T]) acceptLocked(it *Item[T], since time.Duration) {
	s := q.ring.push()
	s.Item, s.since = *it, since
	s.Gap, q.tail = q.tail, Gap{}
	q.bytes += it.Bytes
}

// overflowLocked applies the policy to a frame that does not fit.
func (q *Queue[T]) overflowLocked(it *Item[T], v *Verdict) {
	v.Overflow = LimitMessages
	if !q.holdsLocked(it.Bytes) || q.ring.n < q.cfg.Limits.Messages {
		v.Overflow = LimitBytes
	}
	since := it.At
	switch {
	case q.cfg.Policy == Disconnect:
		v.Disconnect = true
		v.Dropped = 1
		v.Depth = Limits{Messages: q.ring.n, Bytes: q.bytes}
		v.Oldest = q.oldestLocked(it.At)
		q.dropped[Overflow]++
		v.Discarded = q.closeLocked()
		return
	case !q.holdsLocked(it.Bytes) || (q.cfg.Policy != DropOldest && q.cfg.Policy != KeepLatest):
		v.Dropped = 1
		q.dropped[Overflow]++
		addGap(&q.tail, 1, Overflow)
		v.Wake = q.signalLocked()
		return
	case q.cfg.Policy == KeepLatest:
		since, v.Conflated = q.conflateLocked(it)
	}
	for !q.fitsLocked(it.Bytes) {
		q.dropHeadLocked(Overflow)
		v.Dropped++
	}
	q.acceptLocked(it, since)
	if q.cfg.Policy == KeepLatest {
		q.distinct = q.ring.n
	}
	v.Accepted, v.Wake = true, q.signalLocked()
}

// dropHeadLocked drops the first frame; the next one, or the tail, tells of it.
func (q *Queue[T]) dropHeadLocked(why Reason) {
	s := q.ring.at(0)
	gap := &q.tail
	if q.ring.n > 1 {
		gap = &q.ring.at(1).Gap
	}
	addGap(gap, 1+s.Gap.Lost, why)
	q.letGoLocked(s, why)
	q.popLocked()
}

// letGoLocked accounts for a queued frame that will not be taken. The caller
// removes it from the ring.
func (q *Queue[T]) letGoLocked(s *slot[T], why Reason) {
	q.dropped[why]++
	if q.cfg.Released != nil {
		q.cfg.Released(s.Value)
	}
}

func (q *Queue[T]) popLocked() {
	q.bytes -= q.ring.at(0).Bytes
	q.ring.pop(1)
	q.conflation.popped()
}

func (q *Queue[T]) closeLocked() (discarded int) {
	discarded = q.ring.n
	for i := range discarded {
		q.letGoLocked(q.ring.at(i), Closed)
	}
	q.closed = true
	q.ring.free()
	q.bytes = 0
	q.tail = Gap{}
	return discarded
}

// addGap notes a loss that has just happened, so its reason is the latest.
func addGap(g *Gap, lost int, why Reason) {
	g.Lost += lost
	g.Reason = why
}
