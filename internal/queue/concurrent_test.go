package queue

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrent has publishers offer while one taker, woken as a writer would
// be, takes, and others look on; in the end everything is accounted for.
func TestConcurrent(t *testing.T) {
	for _, p := range Policies() {
		t.Run(p.String(), func(t *testing.T) { runConcurrent(t, p) })
	}
}

func runConcurrent(t *testing.T, policy Policy) {
	const publishers, each = 4, 2000
	limits := Limits{Messages: 8, Bytes: 100}
	type frame struct{ publisher, n int }
	var released, verdicts atomic.Uint64
	q := New(Config[frame]{
		Policy: policy, Limits: limits,
		Released: func(frame) { released.Add(1) },
	})
	wake := make(chan struct{}, 1)
	over := make(chan struct{})

	var offering sync.WaitGroup
	var room sync.Mutex // of reject-publish: nobody offers between the two phases
	for publisher := range publishers {
		offering.Go(func() {
			for n := range each {
				it := Item[frame]{Value: frame{publisher, n}, Key: string(rune('a' + n%3)), Bytes: 1 + n%30}
				if policy == RejectPublish {
					room.Lock()
					if !q.Fits(it.Bytes) {
						room.Unlock()
						continue
					}
				}
				v := q.Offer(it)
				if policy == RejectPublish {
					room.Unlock()
					if !v.Accepted {
						t.Errorf("refused what was said to fit: %+v", v)
					}
				}
				verdicts.Add(uint64(v.Dropped + v.Conflated + v.Discarded))
				if v.Wake {
					wake <- struct{}{} // never blocks, being sent once between empty takes
				}
				if s := q.Stats(0); s.Queued.Messages > limits.Messages || s.Queued.Bytes > limits.Bytes {
					t.Errorf("queued %+v", s.Queued)
				}
			}
		})
	}

	var told uint64
	var taking sync.WaitGroup
	taking.Go(func() {
		last := [publishers]int{-1, -1, -1, -1}
		var dst []Item[frame]
		drain := func() {
			for {
				got := q.Take(dst[:0], 0, Limits{3, 60})
				told += uint64(got.Tail.Lost)
				for _, it := range got.Items {
					told += uint64(it.Gap.Lost)
					if it.Value.n <= last[it.Value.publisher] {
						t.Errorf("%+v came after %d", it.Value, last[it.Value.publisher])
					}
					last[it.Value.publisher] = it.Value.n
				}
				if got.Empty {
					return
				}
				q.Done(len(got.Items)-1, 1)
				dst = got.Items
			}
		}
		for {
			select {
			case <-wake:
				drain()
			case <-over:
				drain()
				return
			}
		}
	})
	offering.Wait()
	close(over)
	taking.Wait()

	s := q.Stats(time.Hour)
	if s.Queued != (Limits{}) || s.InFlight != 0 || s.Oldest != 0 {
		t.Errorf("something is left: %+v", s)
	}
	var dropped uint64
	for _, n := range s.Dropped {
		dropped += n
	}
	if s.Offered != s.Sent+dropped {
		t.Errorf("not conserved: %+v", s)
	}
	if policy != RejectPublish && policy != Disconnect && s.Offered != publishers*each {
		t.Errorf("offered %d, want %d", s.Offered, publishers*each)
	}
	lost := s.Dropped[Overflow] + s.Dropped[Conflated]
	if policy != Disconnect {
		if verdicts.Load() != lost {
			t.Errorf("verdicts tell of %d lost frames, the stats of %d", verdicts.Load(), lost)
		}
		if told != lost {
			t.Errorf("gaps tell of %d lost frames, the stats of %d", told, lost)
		}
	}
	if (policy == DropOldest || policy == KeepLatest) && released.Load() != lost {
		t.Errorf("%d frames released, %d lost", released.Load(), lost)
	}
}

// TestNoWakeIsLost has an offer and a taker that is about to find nothing
// cross as often as possible: a frame must never be left with nobody told. The
// bubble turns a lost wake, with which everybody waits, into a failure.
func TestNoWakeIsLost(t *testing.T) { synctest.Test(t, noWakeIsLost) }

func noWakeIsLost(t *testing.T) {
	const frames = 20_000
	q := New(Config[int]{Limits: unbounded})
	wake := make(chan struct{}, 1)
	done := make(chan int)
	go func() { // joined by the receive below
		n := 0
		for n < frames {
			<-wake
			for {
				got := q.Take(nil, 0, Limits{1, 1})
				n += len(got.Items)
				if got.Empty {
					break
				}
			}
		}
		done <- n
	}()
	for range frames {
		if q.Offer(Item[int]{}).Wake {
			wake <- struct{}{}
		}
	}
	if got := <-done; got != frames {
		t.Errorf("took %d frames, want %d", got, frames)
	}
}
