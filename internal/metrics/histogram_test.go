package metrics

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scalesInUse is every scale that New may choose.
func scalesInUse() map[string]*scale {
	fineQueue, fineFanout := scales(fineFeeds)
	coarseQueue, coarseFanout := scales(fineFeeds + 1)
	return map[string]*scale{
		"time in queue": fineQueue, "time in queue, coarse": coarseQueue,
		"fan-out": fineFanout, "fan-out, coarse": coarseFanout, "write": newScale(writeBounds),
	}
}

// TestBounds: they ascend, span what they are for, and the coarse ones are
// among the fine ones.
func TestBounds(t *testing.T) {
	fineQueue, fineFanout := scales(fineFeeds)
	coarseQueue, coarseFanout := scales(fineFeeds + 1)
	for _, c := range []struct {
		name        string
		s           *scale
		first, last time.Duration
		n           int
	}{
		{"time in queue", fineQueue, 50 * us, 60 * time.Second, 14},
		{"time in queue, coarse", coarseQueue, 1 * ms, 1 * time.Second, 4},
		{"fan-out", fineFanout, 1 * us, 1 * time.Second, 55},
		{"fan-out, coarse", coarseFanout, 10 * us, 1 * time.Second, 9},
		{"write", newScale(writeBounds), 4700, 33 * time.Second, 42},
	} {
		b := c.s.bounds
		if b[0] != c.first || b[len(b)-1] != c.last || len(b) != c.n {
			t.Errorf("%s: %d bounds from %v to %v, want %d from %v to %v", c.name, len(b), b[0], b[len(b)-1], c.n, c.first, c.last)
		}
		for i := 1; i < len(b); i++ {
			if b[i] <= b[i-1] {
				t.Errorf("%s: %v after %v", c.name, b[i], b[i-1])
			}
		}
	}
	for i := 1; i < len(fineFanout.bounds); i++ {
		if r := float64(fineFanout.bounds[i]) / float64(fineFanout.bounds[i-1]); r < 1.17 || r > 1.51 {
			t.Errorf("fan-out: %v is %.2f times the bound before", fineFanout.bounds[i], r)
		}
	}
	for _, pair := range [][2]*scale{{coarseQueue, fineQueue}, {coarseFanout, fineFanout}} {
		for _, b := range pair[0].bounds {
			if !slices.Contains(pair[1].bounds, b) {
				t.Errorf("the coarse bound %v is not among the fine ones", b)
			}
		}
	}
}

// durations are n values spread over all magnitudes, and all values about each
// bound.
func durations(s *scale, n int, rng *rand.Rand) []time.Duration {
	ds := []time.Duration{0, 1, math.MaxInt32, 5 * time.Minute}
	for _, b := range s.bounds {
		ds = append(ds, b-1, b, b+1)
	}
	for range n {
		ds = append(ds, time.Duration(math.Pow(10, rng.Float64()*11)))
	}
	rng.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	return ds
}

// TestHistogramAgainstPrometheus: the same durations give what Prometheus' own
// histogram with the same bounds gives, one by one and by the batch.
func TestHistogramAgainstPrometheus(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, s := range scalesInUse() {
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Help: "x", Buckets: s.seconds})
		single, batched := newHistogram(s), newHistogram(s)
		batches := len(s.bounds) <= len(queueBounds) // those that Sent is for
		for ds := durations(s, 5000, rng); len(ds) > 0; {
			n := min(rng.IntN(40), len(ds))
			for _, d := range ds[:n] {
				theirs.Observe(float64(d) / 1e9)
				single.observe(d)
			}
			if batches {
				batched.observeAll(ds[:n])
			}
			ds = ds[n:]
		}
		want := gather(t, theirs)
		for kind, h := range map[string]*histogram{"single": &single, "batched": &batched} {
			if kind == "batched" && !batches {
				continue
			}
			m, count := h.metric(prometheus.NewDesc("x", "x", nil, nil))
			got := gather(t, constant{m})
			if !slices.Equal(got.cumulative, want.cumulative) || !slices.Equal(got.bounds, want.bounds) ||
				got.count != want.count || count != want.count || h.count() != want.count {
				t.Errorf("%s, %s:\n got %+v\nwant %+v", name, kind, got, want)
			}
			if math.Abs(got.sum-want.sum) > 1e-9*want.sum {
				t.Errorf("%s, %s: sum %v, want %v", name, kind, got.sum, want.sum)
			}
		}
	}
}

type buckets struct {
	bounds     []float64
	cumulative []uint64
	count      uint64
	sum        float64
}

func gather(t *testing.T, c prometheus.Collector) (b buckets) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	for _, bucket := range h.GetBucket() {
		b.bounds = append(b.bounds, bucket.GetUpperBound())
		b.cumulative = append(b.cumulative, bucket.GetCumulativeCount())
	}
	b.count, b.sum = h.GetSampleCount(), h.GetSampleSum()
	return b
}

// constant is a collector of one metric.
type constant struct{ prometheus.Metric }

func (c constant) Describe(ch chan<- *prometheus.Desc) { ch <- c.Desc() }
func (c constant) Collect(ch chan<- prometheus.Metric) { ch <- c.Metric }

// TestFanoutQuantiles: p50 and p99 interpolated from the buckets as Prometheus
// does are near enough to the true ones to compare two runs by, wherever the
// median lies among the bounds.
func TestFanoutQuantiles(t *testing.T) {
	_, s := scales(1)
	for k := range 40 {
		median := 20e3 * math.Pow(1.1, float64(k)) // ns; up to 0.8 ms
		rng := rand.New(rand.NewPCG(3, uint64(k)))
		h := newHistogram(s)
		var ds []time.Duration
		for range 5000 {
			d := time.Duration(median * math.Exp(0.3*rng.NormFloat64()))
			ds = append(ds, d)
			h.observe(d)
		}
		slices.Sort(ds)
		for q, within := range map[float64]float64{0.5: 0.05, 0.99: 0.1} {
			exact := float64(ds[int(q*float64(len(ds)))])
			if got := interpolate(&h, q); math.Abs(got/exact-1) > within {
				t.Errorf("median %v: p%v is %v, from the buckets %v", time.Duration(median), 100*q, time.Duration(exact), time.Duration(got))
			}
		}
	}
}

// interpolate is Prometheus' histogram_quantile, in nanoseconds.
func interpolate(h *histogram, q float64) float64 {
	rank, seen, low := q*float64(h.count()), 0.0, 0.0
	for i, b := range h.scale.bounds {
		n := float64(h.counts[i].Load())
		if seen+n >= rank {
			return low + (float64(b)-low)*(rank-seen)/n
		}
		seen, low = seen+n, float64(b)
	}
	return low
}

// TestNothingLost: concurrent verbs on one series all count.
func TestNothingLost(t *testing.T) {
	const workers, rounds = 4, 100_000
	m := New(nil, testSets())
	s := m.Series(0, 0)
	one, two := []time.Duration{2 * us}, []time.Duration{1 * us, 7 * us}
	for verb, c := range map[string]struct {
		do    func()
		count func() uint64
		want  uint64 // a round
	}{
		"Offered":              {func() { s.Offered(3) }, s.offered.n.Load, 3},
		"Sent of one":          {func() { s.Sent(one) }, s.inQueue.counts[0].Load, 1},
		"Sent of two":          {func() { s.Sent(two) }, s.inQueue.counts[0].Load, 2},
		"Sent of one, the sum": {func() { s.Sent(one) }, s.inQueue.sum.Load, 2000},
		"Sent of two, the sum": {func() { s.Sent(two) }, s.inQueue.sum.Load, 8000},
	} {
		before := c.count()
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range rounds {
					c.do()
				}
			})
		}
		wg.Wait()
		if got := c.count() - before; got != workers*rounds*c.want {
			t.Errorf("%s: %d counted of %d", verb, got, workers*rounds*c.want)
		}
	}
}

// TestScrapeUnderLoad: every scrape in the midst of things is consistent in
// itself and never behind the one before.
func TestScrapeUnderLoad(t *testing.T) {
	const scrapes = 30
	m, reg := newTest(t, testSets())
	s := m.Series(0, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			ages := make([]time.Duration, 16)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				for k := range ages {
					ages[k] = time.Duration(i%1000*k*(w+1)) * us
				}
				s.Sent(ages)
				s.Dropped(i%5, 1)
				m.Fanout(0, ages[1])
				m.Write(ages[2])
			}
		})
	}
	last := map[string]float64{}
	for range scrapes {
		checkPage(t, reg)
		now := values(t, reg)
		for key, v := range now {
			if v < last[key] {
				t.Errorf("%s fell from %v to %v", key, last[key], v)
			}
		}
		last = now
	}
	close(stop)
	wg.Wait()
}

// checkPage scrapes once: buckets ascend, the count is at +Inf, and sent frames
// are those with a time in queue.
func checkPage(t *testing.T, g prometheus.Gatherer) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sent, timed float64
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "hubd_frames_sent_total" {
				sent += m.GetCounter().GetValue()
			}
			if m.Histogram == nil {
				continue
			}
			if f.GetName() == "hubd_time_in_queue_seconds" {
				timed += float64(m.GetHistogram().GetSampleCount())
			}
			below := uint64(0)
			for _, b := range m.GetHistogram().GetBucket() {
				if b.GetCumulativeCount() < below || b.GetCumulativeCount() > m.GetHistogram().GetSampleCount() {
					t.Errorf("%s: bucket %v has %d after %d, of %d", f.GetName(), b.GetUpperBound(), b.GetCumulativeCount(), below, m.GetHistogram().GetSampleCount())
				}
				below = b.GetCumulativeCount()
			}
		}
	}
	if sent != timed {
		t.Errorf("%v frames sent, %v with a time in queue", sent, timed)
	}
}
