package hub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// Whatever the number of subscribers, and although they all ask at once, a
// message is encoded once in each encoding that somebody uses.
func TestEncodedOnce(t *testing.T) {
	for _, subscribers := range []int{1, 2, 64} {
		n := newHub(t)
		var members []member
		for range 2 * subscribers {
			members = append(members, n.join("lobby"))
		}
		const messages = 10
		for range messages {
			n.publish("lobby", "hello")
			encoded := make([][]byte, len(members))
			var writers sync.WaitGroup
			for i, m := range members {
				writers.Go(func() {
					items := m.take()
					if len(items) != 1 {
						t.Errorf("took %d frames", len(items))
						return
					}
					encoded[i] = items[0].Value.Bytes(frame.Encoding(i % 2))
					m.Sent(items, 1, nil)
				})
			}
			writers.Wait()
			for i := range encoded {
				if &encoded[i][0] != &encoded[i%2][0] {
					t.Fatal("two subscribers got two copies of one encoding")
				}
			}
		}
		for e, want := range map[frame.Encoding]int{frame.EncodingRaw: messages, frame.EncodingJSON: messages, frame.EncodingSSE: 0} {
			equal(t, fmt.Sprintf("%v encodings for %d subscribers", e, len(members)), n.value("hubd_frames_encoded_total", "encoding", e.String()), want)
		}
		for _, m := range members {
			m.Leave()
		}
		n.empty()
	}
}

// What nobody reads is not encoded.
func TestNotEncodedWhereNobodyReads(t *testing.T) {
	n := newHub(t)
	s := n.join("lobby", limited(1, 100))
	for range 10 {
		n.publish("lobby", "x")
	}
	equal(t, "encodings", n.value("hubd_frames_encoded_total"), 0)
	s.Leave()
	n.publish("lobby", "x")
	equal(t, "encodings", n.value("hubd_frames_encoded_total"), 0)
}

// The allocations of a publish are of the message, none of the subscribers.
func TestFanoutAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes allocations of its own")
	}
	for _, stuck := range []bool{true, false} {
		counts := map[int]float64{}
		for _, subscribers := range []int{1, 10, 1000} {
			counts[subscribers] = allocsPerPublish(t, queue.DropOldest, subscribers, stuck)
		}
		t.Logf("stuck %v: allocations per publish by subscribers: %v", stuck, counts)
		if counts[10] > counts[1] || counts[1000] > counts[1] {
			t.Errorf("stuck %v: allocations per publish grow with the subscribers: %v", stuck, counts)
		}
	}
}

func allocsPerPublish(t *testing.T, p queue.Policy, subscribers int, stuck bool) float64 {
	n := newHub(t)
	var members []member
	for range subscribers {
		members = append(members, n.join("lobby", with(p), limited(4, 1<<16)))
	}
	req := say("lobby", "hello")
	items, ages := make([]hub.Item, 0, 8), make([]time.Duration, 0, 8) // a writer's scratch space
	publish := func() {
		if _, err := n.Publish(context.Background(), req); err != nil {
			t.Fatal(err)
		}
		for i := range members {
			if stuck {
				break
			}
			taken := members[i].Take(items[:0], all)
			members[i].Sent(taken.Items, len(taken.Items), ages)
			members[i].Take(items[:0], all)
		}
	}
	for range 10 { // rings and pools grow first
		publish()
	}
	allocs := testing.AllocsPerRun(100, publish)
	for _, m := range members {
		m.Leave()
	}
	return allocs
}

// A publish is the same work whether the others read or not: what a full queue
// costs is its own affair, and bounded.
func BenchmarkFanout(b *testing.B) {
	for _, state := range []string{"healthy", "stuck"} {
		for _, p := range []queue.Policy{queue.DropNewest, queue.DropOldest, queue.KeepLatest} {
			for _, subscribers := range []int{1, 100, 1000, 10_000} {
				b.Run(fmt.Sprintf("%s/%v/%d", state, p, subscribers), func(b *testing.B) {
					benchmarkFanout(b, p, subscribers, state == "stuck")
				})
			}
		}
	}
}

func benchmarkFanout(b *testing.B, p queue.Policy, subscribers int, stuck bool) {
	const depth = 16
	n := newHub(b)
	var members []member
	for range subscribers {
		members = append(members, n.join("lobby", with(p), limited(depth, 1<<20)))
	}
	req := say("lobby", "a message of some length, as they are")
	var items []hub.Item
	published := 0
	publish := func() {
		if _, err := n.Publish(context.Background(), req); err != nil {
			b.Fatal(err)
		}
		published++
		if stuck || published%depth != 0 {
			return
		}
		// The writers' part is theirs to pay.
		b.StopTimer()
		for i := range members {
			taken := members[i].Take(items[:0], all)
			items = taken.Items
			members[i].Sent(items, len(items), nil)
			members[i].Take(items[:0], all)
		}
		b.StartTimer()
	}
	for range 2 * depth {
		publish()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		publish()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(subscribers), "ns/offer")
	for _, m := range members {
		m.Leave()
	}
}
