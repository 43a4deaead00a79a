package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestAllocations: no verb on a frame's way allocates, with instruments or
// without.
func TestAllocations(t *testing.T) {
	ages := make([]time.Duration, 500)
	for i := range ages {
		ages[i] = time.Duration(500-i) * ms
	}
	for name, m := range map[string]*Metrics{"live": New(nil, testSets()), "nil": nil} {
		s := m.Series(1, 2)
		for verb, do := range map[string]func(){
			"Series":            func() { m.Series(1, 2) },
			"Offered":           func() { s.Offered(3) },
			"Dropped":           func() { s.Dropped(2, 3) },
			"Overflow":          func() { s.Overflow(1, 3) },
			"Sent of one":       func() { s.Sent(ages[:1]) },
			"Sent of many":      func() { s.Sent(ages) },
			"Published":         func() { m.Published(0) },
			"Fanout":            func() { m.Fanout(0, ms) },
			"Write":             func() { m.Write(ms) },
			"PublishRejected":   func() { m.PublishRejected(0) },
			"ConnectionClosed":  func() { m.ConnectionClosed(0) },
			"CloseOutcome":      func() { m.CloseOutcome(0) },
			"HandshakeRejected": func() { m.HandshakeRejected(0) },
		} {
			if n := testing.AllocsPerRun(100, do); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, verb, n)
			}
		}
	}
}

// BenchmarkSent is the cost of a frame's instruments, per write of so many
// frames, beside Prometheus' own types doing the same.
func BenchmarkSent(b *testing.B) {
	ages := make([]time.Duration, 64)
	for i := range ages {
		ages[i] = time.Duration(5000-7*i) * us
	}
	labels := []string{"feed", "policy"}
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "a", Buckets: newScale(queueBounds[:]).seconds}, labels)
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "b"}, labels)
	resolved, resolvedSent := vec.WithLabelValues("chat", "drop-newest"), sent.WithLabelValues("chat", "drop-newest")
	s, none := New(nil, testSets()).Series(0, 0), (*Series)(nil)
	for _, n := range []int{1, 16, 64} {
		batch := ages[:n]
		for _, c := range []struct {
			name string
			do   func()
		}{
			{"series", func() { s.Sent(batch) }},
			{"nil", func() { none.Sent(batch) }},
			{"observer", func() {
				for _, d := range batch {
					resolved.Observe(d.Seconds())
				}
				resolvedSent.Add(float64(len(batch)))
			}},
			{"vec", func() {
				for _, d := range batch {
					vec.WithLabelValues("chat", "drop-newest").Observe(d.Seconds())
				}
				sent.WithLabelValues("chat", "drop-newest").Add(float64(len(batch)))
			}},
		} {
			name := map[int]string{1: "1", 16: "16", 64: "64"}[n] + "/" + c.name
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					c.do()
				}
			})
			b.Run(name+"/parallel", func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						c.do()
					}
				})
			})
		}
	}
}

func BenchmarkFanout(b *testing.B) {
	m := New(nil, testSets())
	for b.Loop() {
		m.Fanout(0, 230*us)
	}
}

func BenchmarkOffered(b *testing.B) {
	s := New(nil, testSets()).Series(0, 0)
	for b.Loop() {
		s.Offered(1)
	}
}

// BenchmarkPage renders the page with 20 feeds and 10,000 subscriptions.
func BenchmarkPage(b *testing.B) {
	reg := prometheus.NewRegistry()
	m := New(reg, testSets(feeds(20, 8)...))
	depths := make([]int, 10_000)
	for i := range depths {
		depths[i] = i * 7919 % 257
	}
	m.Collect(func() State { return State{DepthMessages: depths, DepthBytes: depths} }, nil)
	m.busy()
	for b.Loop() {
		page(b, reg)
	}
}
