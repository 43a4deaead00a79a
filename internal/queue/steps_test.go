package queue

import (
	"math"
	"strings"
	"testing"
	"time"
)

// step is one call and what is seen of it. Frames are written "name" or
// "key/name", with "*n" for n bytes instead of 1.
type step struct {
	now   time.Duration
	offer string
	want  Verdict

	// take is what a take of at most that many messages is to return: the
	// frames, each with "(lost reason)" before it where there is a gap, and the
	// tail gap as the last.
	max  int
	take string
}

const wakes = true

func accepted(wake bool) Verdict { return Verdict{Accepted: true, Wake: wake} }

func refused(hit Limit) Verdict { return Verdict{Overflow: hit, Dropped: 1} }

func TestSteps(t *testing.T) {
	over := func(hit Limit, dropped, conflated int) Verdict {
		return Verdict{Accepted: true, Overflow: hit, Dropped: dropped, Conflated: conflated}
	}
	tests := []struct {
		name   string
		policy Policy
		limits Limits
		ttl    time.Duration
		steps  []step
	}{
		{"drop-newest refuses until there is room", DropNewest, Limits{2, 10}, 0, []step{
			{offer: "a", want: accepted(wakes)},
			{offer: "b", want: accepted(false)},
			{offer: "c", want: refused(LimitMessages)},
			{offer: "d", want: refused(LimitMessages)},
			{max: 1, take: "a"},
			{offer: "e", want: accepted(false)},
			{max: 9, take: "b (2 overflow)e"},
			{max: 9, take: ""},
			{offer: "f", want: accepted(wakes)},
		}},
		{"drop-newest tells the tail once drained", DropNewest, Limits{2, 10}, 0, []step{
			{offer: "a", want: accepted(wakes)},
			{offer: "b", want: accepted(false)},
			{offer: "c", want: refused(LimitMessages)},
			{max: 1, take: "a"},
			{max: 1, take: "b (1 overflow)"},
			{max: 1, take: ""},
		}},
		{"drop-oldest makes room at the head", DropOldest, Limits{2, 10}, 0, []step{
			{offer: "a", want: accepted(wakes)},
			{offer: "b", want: accepted(false)},
			{offer: "c", want: over(LimitMessages, 1, 0)},
			{offer: "d", want: over(LimitMessages, 1, 0)},
			{max: 9, take: "(2 overflow)c d"},
		}},
		{"drop-oldest drops several for one of many bytes", DropOldest, Limits{9, 10}, 0, []step{
			{offer: "a*4", want: accepted(wakes)},
			{offer: "b*4", want: accepted(false)},
			{offer: "c*7", want: over(LimitBytes, 2, 0)},
			{offer: "d*3", want: accepted(false)},
			{max: 9, take: "(2 overflow)c d"},
		}},
		{"a frame that never fits empties no queue", DropOldest, Limits{2, 10}, 0, []step{
			{offer: "a", want: accepted(wakes)},
			{offer: "b*11", want: refused(LimitBytes)},
			{offer: "c", want: accepted(false)},
			{offer: "d*11", want: refused(LimitBytes)},
			{max: 9, take: "a (1 overflow)c (1 overflow)"},
		}},
		{"byte counts do not wrap around", DropOldest, Limits{2, math.MaxInt}, 0, []step{
			{offer: "a*9223372036854775807", want: accepted(wakes)},
			{offer: "b", want: over(LimitBytes, 1, 0)},
			{offer: "c*9223372036854775807", want: over(LimitBytes, 1, 0)},
			{max: 9, take: "(2 overflow)c"},
		}},
		{"a frame that never fits is told of by a queue at rest", KeepLatest, Limits{2, 10}, 0, []step{
			{offer: "a*11", want: Verdict{Wake: true, Overflow: LimitBytes, Dropped: 1}},
			{offer: "b*11", want: refused(LimitBytes)},
			{max: 9, take: "(2 overflow)"},
			{offer: "c", want: accepted(wakes)},
		}},
		{"keep-latest without keys clears", KeepLatest, Limits{3, 10}, 0, []step{
			{offer: "a", want: accepted(wakes)},
			{max: 1, take: "a"},
			{offer: "b", want: accepted(false)},
			{offer: "c", want: accepted(false)},
			{offer: "d", want: accepted(false)},
			{offer: "e", want: over(LimitMessages, 0, 3)},
			{offer: "f", want: accepted(false)},
			{max: 9, take: "(3 conflated)e f"},
		}},
		{"keep-latest keeps the newest of each key in order", KeepLatest, Limits{5, 10}, 0, []step{
			{offer: "x/1", want: accepted(wakes)},
			{offer: "y/1", want: accepted(false)},
			{offer: "x/2", want: accepted(false)},
			{offer: "z/1", want: accepted(false)},
			{offer: "z/2", want: accepted(false)},
			// x has waited longest, and its newest frame is the next anyway.
			{offer: "y/2", want: over(LimitMessages, 0, 3)},
			{max: 9, take: "(2 conflated)x/2 (1 conflated)z/2 y/2"},
		}},
		{"keep-latest spares the key that has waited longest", KeepLatest, Limits{4, 10}, 0, []step{
			{now: 1, offer: "x/1", want: accepted(wakes)},
			{now: 2, offer: "y/1", want: accepted(false)},
			{now: 3, offer: "z/1", want: accepted(false)},
			{now: 4, offer: "y/2", want: accepted(false)},
			{now: 5, offer: "x/2", want: over(LimitMessages, 0, 1)},
			{now: 6, offer: "z/2", want: over(LimitMessages, 0, 1)},
			{max: 1, take: "x/1"},
			{now: 7, offer: "y/3", want: accepted(false)},
			// Now y's turn: it waits since 2, having inherited from y/1.
			{now: 8, offer: "x/3", want: over(LimitMessages, 0, 1)},
			{max: 9, take: "(2 conflated)y/2 (1 conflated)z/2 y/3 x/3"},
		}},
		{"keep-latest spares nothing where it would not fit", KeepLatest, Limits{9, 6}, 0, []step{
			{offer: "x/1*2", want: accepted(wakes)},
			{offer: "y/1*2", want: accepted(false)},
			{offer: "x/2*4", want: over(LimitBytes, 0, 1)},
			{max: 9, take: "(1 conflated)y/1 x/2"},
		}},
		{"keep-latest drops from the head when keys are too many", KeepLatest, Limits{2, 10}, 0, []step{
			{offer: "x/1", want: accepted(wakes)},
			{offer: "y/1", want: accepted(false)},
			{offer: "z/1", want: over(LimitMessages, 1, 0)},
			{max: 9, take: "(1 overflow)y/1 z/1"},
		}},
		{"the empty key is a key, never spared", KeepLatest, Limits{3, 10}, 0, []step{
			{now: 1, offer: "a", want: accepted(wakes)},
			{now: 2, offer: "x/1", want: accepted(false)},
			{now: 3, offer: "b", want: accepted(false)},
			{now: 4, offer: "c", want: over(LimitMessages, 0, 2)},
			{max: 9, take: "(1 conflated)x/1 (1 conflated)c"},
		}},
		{"disconnect ends the queue and counts the rest as closed", Disconnect, Limits{2, 10}, 0, []step{
			{now: 1, offer: "a*2", want: accepted(wakes)},
			{now: 2, offer: "b*3", want: accepted(false)},
			{now: 5, offer: "c", want: Verdict{
				Overflow: LimitMessages, Dropped: 1, Disconnect: true, Discarded: 2,
				Depth: Limits{2, 5}, Oldest: 4,
			}},
			{offer: "d", want: Verdict{Closed: true}},
			{max: 9, take: ""},
		}},
		{"disconnect for a frame that never fits", Disconnect, Limits{2, 10}, 0, []step{
			{offer: "a*11", want: Verdict{Overflow: LimitBytes, Dropped: 1, Disconnect: true}},
			{offer: "b", want: Verdict{Closed: true}},
		}},
		{"reject-publish refuses what was offered all the same", RejectPublish, Limits{1, 10}, 0, []step{
			{offer: "a", want: accepted(wakes)},
			{offer: "b", want: refused(LimitMessages)},
			{max: 9, take: "a (1 overflow)"},
		}},
		{"ttl drops what waited longer when its turn comes", DropNewest, Limits{3, 10}, 5, []step{
			{now: 0, offer: "a", want: accepted(wakes)},
			{now: 1, offer: "b", want: accepted(false)},
			{now: 2, offer: "c", want: accepted(false)},
			{now: 5, max: 1, take: "a"},
			{now: 7, max: 9, take: "(1 expired)c"},
			{now: 8, offer: "d", want: accepted(false)},
			{now: 14, max: 9, take: "(1 expired)"},
			{now: 15, offer: "e", want: accepted(wakes)},
		}},
		{"a gap's reason is that of its latest loss", DropOldest, Limits{2, 10}, 5, []step{
			{now: 0, offer: "a", want: accepted(wakes)},
			{now: 0, offer: "b", want: accepted(false)},
			{now: 1, offer: "c", want: over(LimitMessages, 1, 0)},
			{now: 6, max: 9, take: "(2 expired)c"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := New(Config[string]{Policy: tt.policy, Limits: tt.limits, TTL: tt.ttl})
			for i, s := range tt.steps {
				if s.offer != "" {
					it := item(s.offer, s.now)
					if got := q.Offer(it); got != s.want {
						t.Errorf("step %d: offer %s: got %+v, want %+v", i, s.offer, got, s.want)
					}
					continue
				}
				got := q.Take(nil, s.now, Limits{s.max, math.MaxInt})
				if words := spell(got); words != s.take {
					t.Errorf("step %d: took %q, want %q", i, words, s.take)
				}
				if got.Empty != (len(got.Items) == 0) {
					t.Errorf("step %d: Empty is %v with %d items", i, got.Empty, len(got.Items))
				}
			}
		})
	}
}

func item(spec string, at time.Duration) Item[string] {
	name, size, sized := strings.Cut(spec, "*")
	it := Item[string]{Value: name, Bytes: 1, At: at}
	if sized {
		it.Bytes = 0
		for _, digit := range size {
			it.Bytes = 10*it.Bytes + int(digit-'0')
		}
	}
	if key, _, keyed := strings.Cut(name, "/"); keyed {
		it.Key = key
	}
	return it
}

func spell(t Taken[string]) string {
	var words []string
	gap := func(g Gap) string {
		if g.Lost == 0 {
			return ""
		}
		return "(" + strings.Join([]string{string(rune('0' + g.Lost)), g.Reason.String()}, " ") + ")"
	}
	for _, it := range t.Items {
		words = append(words, gap(it.Gap)+it.Value)
	}
	if tail := gap(t.Tail); tail != "" {
		words = append(words, tail)
	}
	return strings.Join(words, " ")
}
