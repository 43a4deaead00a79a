package queue

import (
	"math/bits"
	"sync"
	"time"
)

const (
	minSlots = 4
	// keepSlots is the largest ring that an empty queue holds on to: enough that
	// a trickle of messages goes nowhere for its memory, too little to matter
	// while idle.
	keepSlots = 8
)

// RingBytes is what a queue of pointers spends on its ring, beside the frames
// themselves, while it holds that many.
func RingBytes(messages int) int64 {
	const slotBytes = 64
	if messages <= 0 {
		return 0
	}
	slots := 1 << bits.Len(uint(min(messages, 1<<50)-1))
	return slotBytes * int64(max(minSlots, slots))
}

// slot is one place of the ring. An unused one is zero.
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
	box   *[]slot[T]
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
	bigger := ring[T]{n: r.n}
	bigger.borrow(max(minSlots, 2*len(r.slots)))
	k := copy(bigger.slots, r.slots[r.head:])
	copy(bigger.slots[k:], r.slots[:r.head])
	clear(r.slots)
	r.giveBack()
	*r = bigger
}

// pop forgets the first k slots, keeping nothing of them alive.
func (r *ring[T]) pop(k int) {
	for i := range k {
		*r.at(i) = slot[T]{}
	}
	r.head = (r.head + k) & (len(r.slots) - 1)
	r.n -= k
}

// shrink gives the memory of a drained ring back, unless it is small.
func (r *ring[T]) shrink() {
	if r.n == 0 && len(r.slots) > keepSlots {
		r.giveBack()
	}
}

// free forgets everything.
func (r *ring[T]) free() {
	r.pop(r.n)
	r.giveBack()
}

// spareSlots holds slots between a burst and the next, whichever queue it
// comes to: by the number of bits of their length. All are zero.
var spareSlots [bits.UintSize + 1]sync.Pool

func (r *ring[T]) borrow(length int) {
	// A pool may hand out the slots of another type of frame. They are of no
	// use here, and rare: a program has one type of frame.
	if box, ok := spareSlots[bits.Len(uint(length))].Get().(*[]slot[T]); ok {
		r.box, r.slots = box, *box
		return
	}
	slots := make([]slot[T], length)
	r.box, r.slots = &slots, slots
}

func (r *ring[T]) giveBack() {
	if r.box != nil {
		spareSlots[bits.Len(uint(len(r.slots)))].Put(r.box)
	}
	*r = ring[T]{}
}
