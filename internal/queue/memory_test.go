package queue

import (
	"math"
	"runtime"
	"strconv"
	"testing"
	"unsafe"
	"weak"
)

func TestNoAllocationInSteadyState(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = "player-" + strconv.Itoa(i)
	}
	it := Item[*int]{Value: new(int), Bytes: 1}
	dst := make([]Item[*int], 0, 64)
	for _, tt := range []struct {
		name  string
		cfg   Config[*int]
		keys  int // of the frames in turn; 0: none
		burst int // offers
		take  int // frames taken after each burst
		drain bool
	}{
		{"trickle", Config[*int]{Limits: Limits{64, 64}}, 0, 1, 1, true},
		{"small bursts", Config[*int]{Limits: Limits{64, 64}}, 0, 8, 8, true},
		{"large bursts", Config[*int]{Limits: Limits{64, 64}}, 0, 50, 50, true},
		{"drop-newest overload", Config[*int]{Limits: Limits{32, 64}}, 0, 50, 5, false},
		{"drop-oldest overload", Config[*int]{Policy: DropOldest, Limits: Limits{32, 64}}, 0, 50, 5, false},
		{"keep-latest overload", Config[*int]{Policy: KeepLatest, Limits: Limits{32, 64}}, 0, 50, 5, false},
		{"keep-latest, few keys", Config[*int]{Policy: KeepLatest, Limits: Limits{32, 64}}, 5, 50, 5, false},
		{"keep-latest, many keys", Config[*int]{Policy: KeepLatest, Limits: Limits{64, 64}}, 40, 50, 15, false},
		{"keep-latest, too many keys", Config[*int]{Policy: KeepLatest, Limits: Limits{32, 64}}, 40, 50, 5, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, n := New(tt.cfg), 0
			round := func() {
				for range tt.burst {
					if n++; tt.keys > 0 {
						it.Key = names[n%tt.keys]
					}
					q.Offer(it)
				}
				for {
					got := q.Take(dst[:0], 0, Limits{tt.take, math.MaxInt})
					q.Done(len(got.Items), 0)
					if !tt.drain || got.Empty {
						break
					}
				}
				q.Stats(0)
				q.Fits(1)
			}
			// The pools are emptied by collections, and under the race detector
			// at random; so a few allocations may be seen, but not one a round.
			if got := testing.AllocsPerRun(200, round); got >= 1 && !raceEnabled {
				t.Errorf("%v allocations a round", got)
			}
		})
	}
}

func TestMemoryGrowsAndGoes(t *testing.T) {
	q := New(Config[*int]{Limits: Limits{1000, math.MaxInt}})
	want := func(slots int) {
		t.Helper()
		if got := len(q.ring.slots); got != slots {
			t.Errorf("with %d frames there are %d slots, want %d", q.ring.n, got, slots)
		}
	}
	offer := func(n int) {
		for range n {
			q.Offer(Item[*int]{Value: new(int)})
		}
	}
	take := func(n int) { q.Take(nil, 0, Limits{n, math.MaxInt}) }

	want(0)
	take(1)
	q.Stats(0)
	want(0)
	offer(1)
	want(4)
	offer(4)
	want(8)
	take(5)
	take(1)
	want(8) // small enough to keep
	offer(9)
	want(16)
	take(9)
	take(1)
	want(0)
	offer(100)
	want(128)
	take(99)
	want(128)
	take(1)
	want(128) // drained, but the taker may be about to find more
	take(1)
	want(0)
	offer(3)
	q.Close()
	want(0)
}

func TestRingBytes(t *testing.T) {
	q := New(Config[*int]{Limits: Limits{1000, math.MaxInt}})
	for n := range 300 {
		if got, want := RingBytes(n), int64(len(q.ring.slots))*int64(unsafe.Sizeof(slot[*int]{})); got != want {
			t.Errorf("the ring of %d frames takes %d bytes, RingBytes says %d", n, want, got)
		}
		q.Offer(Item[*int]{})
	}
	if got := RingBytes(math.MaxInt); got <= 0 {
		t.Errorf("the largest ring takes %d bytes", got)
	}
}

// TestNothingTakenIsRetained watches frames become collectable while the queue
// and its memory live on.
func TestNothingTakenIsRetained(t *testing.T) {
	for _, p := range []Policy{DropNewest, DropOldest, KeepLatest} {
		q := New(Config[*[64]byte]{Policy: p, Limits: Limits{6, math.MaxInt}})
		var gone []weak.Pointer[[64]byte]
		for i := range 40 {
			v := new([64]byte)
			gone = append(gone, weak.Make(v))
			q.Offer(Item[*[64]byte]{Value: v, Key: strconv.Itoa(i % 4)})
		}
		q.Take(nil, 0, unbounded)
		runtime.GC()
		for i, w := range gone {
			if w.Value() != nil {
				t.Errorf("%v: frame %d is still reachable", p, i)
			}
		}
		runtime.KeepAlive(q)
	}
}
