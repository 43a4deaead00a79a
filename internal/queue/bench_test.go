package queue

import (
	"fmt"
	"math"
	"strconv"
	"testing"
)

// BenchmarkOffer is what a publisher pays for each subscriber that keeps up.
func BenchmarkOffer(b *testing.B) {
	const batch = 256
	q := New(Config[*int]{Limits: Limits{batch, math.MaxInt}})
	it := Item[*int]{Value: new(int), Bytes: 1}
	dst := make([]Item[*int], 0, batch)
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		if i%batch == 0 {
			b.StopTimer()
			q.Done(len(q.Take(dst[:0], 0, Limits{batch, math.MaxInt}).Items), 0)
			b.StartTimer()
		}
		q.Offer(it)
	}
}

// BenchmarkOfferFull is what a publisher pays for each subscriber that does not
// read at all, once its queue is full.
func BenchmarkOfferFull(b *testing.B) {
	for _, p := range []Policy{DropNewest, DropOldest, KeepLatest} {
		b.Run(p.String(), func(b *testing.B) {
			q := New(Config[*int]{Policy: p, Limits: Limits{256, math.MaxInt}})
			it := Item[*int]{Value: new(int), Bytes: 1}
			b.ReportAllocs()
			for b.Loop() {
				q.Offer(it)
			}
		})
	}
	for _, keys := range []int{1, 100, 200, 250, 254, 255, 256, 400} {
		b.Run(fmt.Sprintf("keep-latest/keys=%d", keys), func(b *testing.B) {
			q := New(Config[*int]{Policy: KeepLatest, Limits: Limits{256, math.MaxInt}})
			it := Item[*int]{Value: new(int), Bytes: 1}
			names := make([]string, keys)
			for i := range names {
				names[i] = "player-" + strconv.Itoa(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				it.Key = names[i%keys]
				q.Offer(it)
			}
		})
	}
}

// BenchmarkOfferTake is one burst of a size through a queue that is empty
// before and after.
func BenchmarkOfferTake(b *testing.B) {
	for _, burst := range []int{1, 8, 20, 64} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) {
			q := New(Config[*int]{Limits: Limits{1024, math.MaxInt}})
			it := Item[*int]{Value: new(int), Bytes: 1}
			dst := make([]Item[*int], 0, burst)
			b.ReportAllocs()
			for b.Loop() {
				for range burst {
					q.Offer(it)
				}
				q.Take(dst[:0], 0, Limits{burst, math.MaxInt})
				q.Done(burst, 0)
				q.Take(dst[:0], 0, Limits{burst, math.MaxInt})
			}
		})
	}
}

// BenchmarkFanout offers one message to 1,000 queues, each of which takes it
// from cold memory; the figure is per queue.
func BenchmarkFanout(b *testing.B) {
	const subscribers, messages = 1000, 16
	var queues [subscribers]*Queue[*int]
	for i := range queues {
		queues[i] = New(Config[*int]{Limits: Limits{256, math.MaxInt}})
	}
	it := Item[*int]{Value: new(int), Bytes: 1}
	dst := make([]Item[*int], 0, messages)
	for i := 0; i < b.N; i += subscribers * messages {
		for range messages {
			for _, q := range queues {
				q.Offer(it)
			}
		}
		b.StopTimer()
		for _, q := range queues {
			q.Done(len(q.Take(dst[:0], 0, Limits{messages, math.MaxInt}).Items), 0)
		}
		b.StartTimer()
	}
}
