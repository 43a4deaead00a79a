package queue

import "time"

const (
	minSlots = 4
	// keepSlots is the largest ring that an empty queue holds on to: enough that
	// a trickle of messages allocates nothing, too little to matter while idle.
	keepSlots = 8
)

// slot is one place of the ring.
type slot[T any] struct {
	Item[T]
	// since is when the key of this frame began to wait: the time of the oldest
	// frame that this one replaced, or its own.
	since time.Duration
}

// ring is a circular buffer that holds nothing until it is used and doubles as
// it fills. Index 0 is the head.
type ring[T any] struct {
	slots []slot[T] // length 0 or a power of two
	head  int
	n     int
}

func (r *ring[T]) at(i int) *slot[T] {
	return &r.slots[(r.head+i)&(len(r.slots)-1)]
}

// push appends an empty slot and returns it to be filled.
func (r *ring[T]) push() *slot[T] {
	if r.n == len(r.slots) {
		r.grow()
	}
	r.n++
	return r.at(r.n - 1)
}

func (r *ring[T]) grow() {
	slots := make([]slot[T], max(minSlots, 2*len(r.slots)))
	k := copy(slots, r.slots[r.head:])
	copy(slots[k:], r.slots[:r.head])
	r.slots, r.head = slots, 0
}

// pop forgets the first k slots, keeping nothing of them alive.
func (r *ring[T]) pop(k int) {
	for i := range k {
		*r.at(i) = slot[T]{}
	}
	r.head = (r.head + k) & (len(r.slots) - 1)
	r.n -= k
}

// shrink gives a drained ring back, unless it is small.
func (r *ring[T]) shrink() {
	if r.n == 0 && len(r.slots) > keepSlots {
		r.slots, r.head = nil, 0
	}
}
