package metrics

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestState: gauges and summaries are what hub and connections say at the
// moment of each scrape.
func TestState(t *testing.T) {
	depths := make([]int, 1000)
	for i := range depths {
		depths[i] = 1000 - i
	}
	st := State{
		Rooms:         3,
		Subscriptions: [][]int{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}},
		DepthMessages: depths,
		DepthBytes:    []int{10, 0, 20},
		InFlight:      11,
		Oldest:        1500 * ms,
		RetainedBytes: 1 << 40,
		Encoded:       []uint64{1, 2, 3, 4, 5},
	}
	reg := prometheus.NewPedanticRegistry()
	New(reg, testSets()).Collect(func() State { return st }, func() []int { return []int{7, 8} })
	want := map[string]float64{
		"hubd_rooms": 3, "hubd_frames_in_flight": 11, "hubd_queue_oldest_seconds": 1.5, "hubd_retained_bytes": 1 << 40,
		"hubd_connections{transport=websocket}": 7, "hubd_connections{transport=sse}": 8,
		"hubd_frames_encoded_total{encoding=raw}": 1, "hubd_frames_encoded_total{encoding=json_deflate}": 5,
		"hubd_subscriptions{feed=chat}{policy=drop-newest}":       1,
		"hubd_subscriptions{feed=default}{policy=reject-publish}": 10,
		"hubd_queued_frames":                        500500,
		"hubd_queue_depth_messages_sum":             500500,
		"hubd_queue_depth_messages_count":           1000,
		"hubd_queue_depth_messages{quantile=0.5}":   500,
		"hubd_queue_depth_messages{quantile=0.9}":   900,
		"hubd_queue_depth_messages{quantile=0.99}":  990,
		"hubd_queue_depth_messages{quantile=0.999}": 999,
		"hubd_queue_depth_messages{quantile=1}":     1000,
		"hubd_queued_bytes":                         30,
		"hubd_queue_depth_bytes_sum":                30,
		"hubd_queue_depth_bytes_count":              3,
		"hubd_queue_depth_bytes{quantile=0.5}":      10,
		"hubd_queue_depth_bytes{quantile=1}":        20,
	}
	got := values(t, reg)
	for key, v := range want {
		if g, ok := got[key]; g != v || !ok {
			t.Errorf("%s = %v, want %v", key, g, v)
		}
	}
	st = State{} // everybody left
	for key, v := range values(t, reg) {
		if v != 0 && !strings.HasPrefix(key, "hubd_connections{") && !strings.HasPrefix(key, "hubd_build_info") {
			t.Errorf("%s = %v in an empty hub", key, v)
		}
	}
}

// TestStateOfAnotherShape: what the state lacks is 0, and what it has beyond
// the sets makes no series.
func TestStateOfAnotherShape(t *testing.T) {
	_, empty := newTest(t, testSets())
	for name, st := range map[string]State{
		"short": {Subscriptions: [][]int{{1}}, Encoded: []uint64{1}},
		"long":  {Subscriptions: make([][]int, 99), Encoded: make([]uint64, 99)},
	} {
		reg := prometheus.NewPedanticRegistry()
		New(reg, testSets()).Collect(func() State { return st }, func() []int { return make([]int, 99) })
		got := slices.Sorted(maps.Keys(values(t, reg)))
		if want := slices.Sorted(maps.Keys(values(t, empty))); !slices.Equal(got, want) {
			t.Errorf("%s: series %v, want %v", name, got, want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		values []int
		want   Depths
	}{
		{nil, Depths{}},
		{[]int{7}, Depths{7, 7, 7, 7, 7}},
		{[]int{2, 1}, Depths{1, 2, 2, 2, 2}},
		{[]int{3, 1, 2}, Depths{2, 3, 3, 3, 3}},
		{[]int{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, Depths{5, 9, 10, 10, 10}},
		{[]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 256}, Depths{0, 0, 256, 256, 256}},
	} {
		if got := Quantiles(c.values); got != c.want {
			t.Errorf("Quantiles(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

// TestQuantilesByDefinition: each is the least value that at least its share of
// all do not exceed; the values are left as they were.
func TestQuantilesByDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := 1; n < 1500; n += 1 + n/7 {
		values := make([]int, n)
		for i := range values {
			values[i] = rng.IntN(n)
		}
		before := slices.Clone(values)
		least := func(permille int) int {
			for _, v := range slices.Sorted(slices.Values(values)) {
				within := 0
				for _, w := range values {
					if w <= v {
						within++
					}
				}
				if within*1000 >= permille*n {
					return v
				}
			}
			return -1
		}
		want := Depths{least(500), least(900), least(990), least(999), least(1000)}
		if got := Quantiles(values); got != want {
			t.Errorf("%d values: %v, want %v", n, got, want)
		}
		if !slices.Equal(values, before) {
			t.Fatalf("Quantiles reordered its argument")
		}
	}
}

// TestScrapesOverlap is for the race detector.
func TestScrapesOverlap(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, testSets())
	shared := State{DepthMessages: []int{3, 1, 2}, Oldest: time.Second}
	m.Collect(func() State { return shared }, func() []int { return nil })
	done := make(chan error)
	for range 4 {
		go func() {
			_, err := reg.Gather()
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
