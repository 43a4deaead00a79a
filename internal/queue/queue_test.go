package queue

import (
	"math"
	"testing"
	"time"
)

// TestFigures runs one publisher of 5 a tick against drains of 1 a tick.
func TestSmoke(t *testing.T) {
	for _, p := range Policies() {
		q := New(Config[int]{Policy: p, Limits: Limits{10, math.MaxInt}})
		seq, last := 0, 0
		for tick := range 200 {
			now := time.Duration(tick)
			got := q.Take(nil, now, Limits{1, math.MaxInt})
			for _, it := range got.Items {
				last = it.Value
			}
			q.Done(len(got.Items), 0)
			for range 5 {
				if p == RejectPublish && !q.Fits(1) {
					continue
				}
				q.Offer(Item[int]{Value: seq, Bytes: 1, At: now})
				seq++
			}
		}
		t.Logf("%v %+v last %d seq %d", p, q.Stats(200), last, seq)
	}
}
