package queue

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

var unbounded = Limits{Messages: math.MaxInt, Bytes: math.MaxInt}

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

func TestTakeLimits(t *testing.T) {
	fill := func() *Queue[int] {
		q := New(Config[int]{Limits: Limits{9, 100}})
		for i, bytes := range []int{30, 10, 10, 5} {
			q.Offer(Item[int]{Value: i, Bytes: bytes})
		}
		return q
	}
	for _, tt := range []struct {
		limit Limits
		want  int
	}{
		{Limits{9, 100}, 4},
		{Limits{9, 55}, 4},
		{Limits{9, 54}, 3},
		{Limits{2, 100}, 2},
		{Limits{9, 40}, 2},
		{Limits{9, 39}, 1},
		// at least one, however large
		{Limits{9, 1}, 1},
		{Limits{0, 0}, 1},
	} {
		q := fill()
		got := q.Take(nil, 0, tt.limit)
		if len(got.Items) != tt.want {
			t.Errorf("a take limited to %+v took %d frames, want %d", tt.limit, len(got.Items), tt.want)
		}
		if s := q.Stats(0); s.InFlight != tt.want || s.Queued.Messages != 4-tt.want {
			t.Errorf("after a take of %d: %+v", tt.want, s)
		}
	}
}

// TestTakeAppends: a batch that is gathered from several queues is within its
// limit or one frame, not one frame of each.
func TestTakeAppends(t *testing.T) {
	q := New(Config[int]{Limits: unbounded})
	q.Offer(Item[int]{Value: 2, Bytes: 50})
	batch := []Item[int]{{Value: 1, Bytes: 50}}
	for _, full := range []Limits{{0, 100}, {1, 49}} {
		got := q.Take(batch, 0, full)
		if len(got.Items) != 1 || got.Empty || q.Stats(0).InFlight != 0 {
			t.Errorf("a take limited to %+v took %+v", full, got)
		}
	}
	got := q.Take(batch, 0, Limits{1, 50})
	if len(got.Items) != 2 || got.Items[0].Value != 1 || got.Items[1].Value != 2 || got.Empty {
		t.Errorf("took %+v", got)
	}
	if got := q.Take(batch, 0, Limits{1, 50}); len(got.Items) != 1 || !got.Empty {
		t.Errorf("took %+v from an empty queue", got)
	}
}

func TestBegin(t *testing.T) {
	q := New(Config[int]{Limits: unbounded})
	q.Begin(3)
	if s := q.Stats(0); s.Offered != 3 || s.InFlight != 3 || s.Queued != (Limits{}) {
		t.Errorf("3 frames from elsewhere: %+v", s)
	}
	q.Done(2, 1)
	if s := q.Stats(0); s.Sent != 2 || s.Dropped[Closed] != 1 || s.InFlight != 0 {
		t.Errorf("once resolved: %+v", s)
	}
}

func TestFits(t *testing.T) {
	q := New(Config[int]{Policy: RejectPublish, Limits: Limits{2, 10}})
	check := func(bytes int, want bool) {
		t.Helper()
		if got := q.Fits(bytes); got != want {
			t.Errorf("Fits(%d) is %v with %+v queued", bytes, got, q.Stats(0).Queued)
		}
	}
	check(10, true)
	q.Offer(Item[int]{Bytes: 4})
	check(6, true)
	check(7, false)
	check(math.MaxInt, true) // could never fit: no reason to wait
	q.Offer(Item[int]{Bytes: 1})
	check(1, false)
	q.Take(nil, 0, Limits{1, 1})
	check(9, true)
	q.Offer(Item[int]{Bytes: 9})
	check(1, false)
	q.Close()
	check(1, true)
}

func TestInFlight(t *testing.T) {
	q := New(Config[int]{Limits: Limits{9, 100}})
	for range 5 {
		q.Offer(Item[int]{})
	}
	q.Take(nil, 0, Limits{4, 1})
	q.Done(2, 1)
	if got := q.Close(); got != 1 {
		t.Errorf("closing discarded %d frames, want the 1 queued", got)
	}
	if s := q.Stats(0); s.InFlight != 1 || s.Sent != 2 || s.Dropped[Closed] != 2 {
		t.Errorf("one frame should still be in flight: %+v", s)
	}
	q.Done(1, 0)
	if s := q.Stats(0); s.InFlight != 0 || s.Sent != 3 || s.Offered != 5 {
		t.Errorf("all frames should be accounted for: %+v", s)
	}
	for _, n := range [][2]int{{1, 0}, {0, 1}, {-1, 1}, {1, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Done(%d, %d) with nothing in flight passed", n[0], n[1])
				}
			}()
			q.Done(n[0], n[1])
		}()
	}
}

func TestClose(t *testing.T) {
	var released []int
	q := New(Config[int]{Limits: Limits{2, 100}, Released: func(v int) { released = append(released, v) }})
	for i := range 4 {
		q.Offer(Item[int]{Value: i, Bytes: 1})
	}
	if got := q.Close(); got != 2 {
		t.Errorf("closing discarded %d frames, want 2", got)
	}
	if got := q.Close(); got != 0 {
		t.Errorf("closing again discarded %d frames", got)
	}
	if !slices.Equal(released, []int{0, 1}) {
		t.Errorf("released %v, want the frames that were queued", released)
	}
	if got := q.Offer(Item[int]{}); got != (Verdict{Closed: true}) {
		t.Errorf("an offer after the end: %+v", got)
	}
	// The refused frames are a gap that nobody is left to be told of.
	if got := q.Take(nil, 0, unbounded); len(got.Items) > 0 || !got.Empty || got.Tail != (Gap{}) {
		t.Errorf("a take after the end: %+v", got)
	}
	want := Stats{Offered: 4}
	want.Dropped[Overflow], want.Dropped[Closed] = 2, 2
	if got := q.Stats(0); got != want {
		t.Errorf("stats after the end: %+v, want %+v", got, want)
	}
}

func TestReleased(t *testing.T) {
	var released []int
	q := New(Config[int]{
		Policy: DropOldest, Limits: Limits{2, 100}, TTL: 5,
		Released: func(v int) { released = append(released, v) },
	})
	for i := range 4 { // drops 0 and 1
		q.Offer(Item[int]{Value: i, Bytes: 1, At: time.Duration(i)})
	}
	q.Offer(Item[int]{Value: 4, Bytes: 101, At: 4}) // refused: was never queued
	q.Take(nil, 8, unbounded)                       // drops 2, takes 3
	if !slices.Equal(released, []int{0, 1, 2}) {
		t.Errorf("released %v, want 0, 1 and 2", released)
	}
}

func TestWakeOnceBetweenEmptyTakes(t *testing.T) {
	q := New(Config[int]{Limits: Limits{9, 100}})
	wake := func() bool { return q.Offer(Item[int]{}).Wake }
	for range 3 {
		if !wake() {
			t.Error("an idle taker was not woken")
		}
		if wake() {
			t.Error("woken twice")
		}
		q.Take(nil, 0, unbounded)
		if wake() {
			t.Error("woken while it is at work, having drained the queue")
		}
		for !q.Take(nil, 0, unbounded).Empty {
			continue
		}
	}
}

func TestOldest(t *testing.T) {
	q := New(Config[int]{Limits: Limits{9, 100}})
	check := func(now, want time.Duration) {
		t.Helper()
		if got := q.Stats(now).Oldest; got != want {
			t.Errorf("at %d the oldest is %d, want %d", now, got, want)
		}
	}
	check(5, 0)
	q.Offer(Item[int]{At: 2})
	q.Offer(Item[int]{At: 4})
	check(5, 3)
	check(1, 0) // a clock read before the offer
	q.Take(nil, 6, Limits{1, 1})
	check(6, 2)
}

func TestInvalidLimits(t *testing.T) {
	for _, limits := range []Limits{{}, {Messages: 1}, {Bytes: 1}, {-1, 5}, {5, -1}} {
		if limits.Valid() {
			t.Errorf("%+v is valid", limits)
		}
		for _, policy := range Policies() {
			q := New(Config[int]{Policy: policy, Limits: limits})
			if v := q.Offer(Item[int]{Bytes: 2}); v.Accepted || v.Dropped != 1 {
				t.Errorf("%v with %+v: %+v", policy, limits, v)
			}
		}
	}
	if !(Limits{1, 1}).Valid() {
		t.Error("1 message of 1 byte is invalid")
	}
}
