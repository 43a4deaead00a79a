package queue

import (
	"sync"
	"time"
)

// conflation is what keep-latest remembers of its last pass, so that the next
// one looks only for what has changed since.
type conflation struct {
	// distinct frames from the head on have a key each, but for the spared one.
	distinct int
	// spared is one more than the index of the frame that was kept although its
	// key has a newer one; 0 if there is none.
	spared int
}

// popped shifts the indices after the head was removed.
func (c *conflation) popped() {
	if c.distinct > 0 {
		c.distinct--
	}
	if c.spared > 0 {
		c.spared--
	}
}

// conflateLocked drops every queued frame whose key has a newer one, it being
// the newest of all, except the one frame that must be spared for its key's
// turn to come (see the package's essay). It returns since when the key of the
// arriving frame has been waiting, and the number of frames dropped. The
// arriving frame need not fit afterwards.
//
// The pass goes from the newest frame to the oldest and moves what is kept
// towards the tail.
func (q *Queue[T]) conflateLocked(it *Item[T]) (since time.Duration, conflated int) {
	since = it.At
	n := q.ring.n
	longest := q.spared - 1 // its key has waited longest ever since
	if longest < 0 {
		longest = q.longestWaitingLocked()
	}
	spare, spareHeir := -1, -1
	newest := newKeyset(it.Key, n)
	defer newest.free()
	to := n // the oldest frame kept so far is here
	for i := n - 1; i >= 0; i-- {
		s := q.ring.at(i)
		heir, superseded := newest.find(s.Key)
		if i >= q.distinct && !superseded {
			newest.add(s.Key, to-1)
		}
		if i == q.spared-1 && !superseded {
			heir, superseded = q.newestOfLocked(s.Key, to), true
		}
		if superseded && i != longest {
			q.conflateOneLocked(s, to, n)
			q.inheritLocked(s.since, heir, n, &since)
			continue
		}
		to--
		if superseded {
			spare, spareHeir = to, heir
		}
		if to != i {
			*q.ring.at(to) = *s
		}
	}
	q.ring.pop(to)
	conflated = to
	q.spared = 0
	if spare >= 0 {
		spare, spareHeir = spare-to, spareHeir-to
		if keyIsNext := spareHeir == 1; keyIsNext || !q.fitsLocked(it.Bytes) {
			q.unspareLocked(spare, spareHeir, &since)
			conflated++
		} else {
			q.spared = spare + 1
		}
	}
	return since, conflated
}

// longestWaitingLocked returns the index of the frame whose key has waited
// longest, the first of several, and -1 if no frame has a key.
func (q *Queue[T]) longestWaitingLocked() int {
	longest, least := -1, time.Duration(0)
	for i := range q.ring.n {
		if s := q.ring.at(i); s.Key != "" && (longest < 0 || s.since < least) {
			longest, least = i, s.since
		}
	}
	return longest
}

// newestOfLocked returns the index of the newest frame of a key that is known
// to be queued at or after index from.
func (q *Queue[T]) newestOfLocked(key string, from int) int {
	i := q.ring.n - 1
	for i > from && q.ring.at(i).Key != key {
		i--
	}
	return i
}

// conflateOneLocked accounts for a frame dropped right before index next, n
// being the tail.
func (q *Queue[T]) conflateOneLocked(s *slot[T], next, n int) {
	gap := &q.tail
	if next < n {
		gap = &q.ring.at(next).Gap
	}
	addGap(gap, 1+s.Gap.Lost, Conflated)
	q.bytes -= s.Bytes
	q.letGoLocked(s, Conflated)
}

// inheritLocked hands a dropped frame's place in time to the newest of its key,
// n being the arriving one.
func (q *Queue[T]) inheritLocked(since time.Duration, heir, n int, arriving *time.Duration) {
	to := arriving
	if heir < n {
		to = &q.ring.at(heir).since
	}
	*to = min(*to, since)
}

// unspareLocked drops the frame that was to be spared after all.
func (q *Queue[T]) unspareLocked(spare, heir int, arriving *time.Duration) {
	s := q.ring.at(spare)
	q.conflateOneLocked(s, spare+1, q.ring.n)
	q.inheritLocked(s.since, heir, q.ring.n, arriving)
	for i := spare; i > 0; i-- {
		*q.ring.at(i) = *q.ring.at(i - 1)
	}
	q.ring.pop(1)
}

// keyset maps keys to the index of their newest frame: a few by comparing,
// more by a map that is borrowed, so that no pass allocates.
type keyset struct {
	n    int
	keys [8]string
	at   [8]int
	more map[string]int
}

var keyMaps = sync.Pool{New: func() any { return make(map[string]int) }}

func newKeyset(key string, at int) *keyset {
	s := &keyset{n: 1}
	s.keys[0], s.at[0] = key, at
	return s
}

func (s *keyset) find(key string) (at int, ok bool) {
	for i := range s.n {
		if s.keys[i] == key {
			return s.at[i], true
		}
	}
	if s.more != nil {
		at, ok = s.more[key]
	}
	return at, ok
}

func (s *keyset) add(key string, at int) {
	if s.n < len(s.keys) {
		s.keys[s.n], s.at[s.n] = key, at
		s.n++
		return
	}
	if s.more == nil {
		s.more = keyMaps.Get().(map[string]int)
	}
	s.more[key] = at
}

// free returns the borrowed map, with no key left in it. A large one is left to
// the collector: clearing it would cost the next, smaller pass as much.
func (s *keyset) free() {
	if s.more != nil && len(s.more) <= 1024 {
		clear(s.more)
		keyMaps.Put(s.more)
	}
}
