package queue

import (
	"math"
	"slices"
	"testing"
	"time"
)

var unbounded = Limits{Messages: math.MaxInt, Bytes: math.MaxInt}

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
