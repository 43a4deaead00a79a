package queue

import "time"

// Limits bounds a queue or a batch: in messages and in payload bytes. Both
// hold at every instant.
type Limits struct {
	Messages int `json:"messages"`
	Bytes    int `json:"bytes"`
}

// Valid reports whether both limits are positive. A queue whose limits are not
// is harmless and useless: every offer overflows it.
func (l Limits) Valid() bool { return l.Messages > 0 && l.Bytes > 0 }

// Item is one frame in a queue.
type Item[T any] struct {
	Value T
	// Key is the conflation key; frames without one share the empty key.
	Key string
	// Bytes counts payload, not encoding, so a limit means the same to every
	// subscriber of a room. It is never negative.
	Bytes int
	// At is the moment of the offer, measured from an instant of the caller's
	// choosing. Only differences between such times matter. It never decreases
	// from one offer to the next.
	At time.Duration
	// Gap is what was lost between the frame taken before this one and this
	// one. Take sets it; Offer ignores it.
	Gap Gap
}

// Gap is a run of lost frames and the reason of the latest loss in it. Frames
// lost because the queue closed are in no gap: nobody is left to be told.
type Gap struct {
	Lost   int
	Reason Reason
}

// Config is what a queue is made with.
type Config[T any] struct {
	Policy Policy
	Limits Limits
	// TTL drops frames that waited longer when their turn comes; 0 is never.
	TTL time.Duration
	// Released, if set, is called for each queued frame that the queue lets go
	// of without its having been taken; so not for an offered frame that was
	// refused. It runs under the queue's lock: it must neither block nor call
	// back.
	Released func(T)
}

// Verdict is the outcome of one offer.
type Verdict struct {
	// Accepted: the frame is in the queue.
	Accepted bool
	// Wake: no taker was under way and there is something to take or, where a
	// frame was refused by an empty queue, a gap to tell; signal it. It is true
	// at most once between two takes that found the queue empty.
	Wake bool
	// Overflow is the limit that was hit, if any.
	Overflow Limit
	// Dropped counts frames lost to overflow, the offered one included; of a
	// Shed, those lost to the budget.
	Dropped int
	// Conflated counts frames replaced by the offered one.
	Conflated int
	// Disconnect: the queue closed itself, this frame having overflowed it.
	// Discarded frames were queued; they count as closed. Depth and Oldest are
	// what was queued just before, and the age of the oldest of it.
	Disconnect bool
	Discarded  int
	Depth      Limits
	Oldest     time.Duration
	// Closed: the queue had ended before; the frame was not counted as offered.
	Closed bool
}

// Taken is the outcome of one take.
type Taken[T any] struct {
	// Items is the slice that was given, with the frames taken appended in
	// order of their offers. They are in flight until Done.
	Items []Item[T]
	// Expired counts frames that were dropped on the way.
	Expired int
	// Tail is what was lost after the last of Items. It is told only once
	// nothing is queued any more, and may be all there is to tell: it comes
	// with Empty, too.
	Tail Gap
	// Empty: nothing was taken because nothing is there; the next accepted offer
	// asks for a wake.
	Empty bool
}

// Stats is a snapshot of a queue. Offered = Sent + the sum of Dropped +
// Queued.Messages + InFlight.
type Stats struct {
	Queued   Limits
	InFlight int
	// Oldest is the age of the oldest queued frame, 0 if there is none.
	Oldest  time.Duration
	Offered uint64
	Sent    uint64
	Dropped [NumReasons]uint64
}
