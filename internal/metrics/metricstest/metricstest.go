// Package metricstest reads metrics in tests: single values, and whether what
// was offered is accounted for.
//
//   - metricstest.go: the whole of it
package metricstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Sample is one number of a scrape. A histogram gives name_count and name_sum;
// a summary those and its quantiles, with the label quantile; buckets are left
// out.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Samples scrapes g.
func Samples(g prometheus.Gatherer) ([]Sample, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	var samples []Sample
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			add := func(suffix string, v float64) {
				samples = append(samples, Sample{f.GetName() + suffix, labels, v})
			}
			switch {
			case m.Counter != nil:
				add("", m.Counter.GetValue())
			case m.Gauge != nil:
				add("", m.Gauge.GetValue())
			case m.Histogram != nil:
				add("_count", float64(m.Histogram.GetSampleCount()))
				add("_sum", m.Histogram.GetSampleSum())
			case m.Summary != nil:
				add("_count", float64(m.Summary.GetSampleCount()))
				add("_sum", m.Summary.GetSampleSum())
				for _, q := range m.Summary.GetQuantile() {
					with := maps.Clone(labels)
					with["quantile"] = fmt.Sprint(q.GetQuantile())
					samples = append(samples, Sample{f.GetName(), with, q.GetValue()})
				}
			}
		}
	}
	return samples, nil
}

// Value scrapes g and returns the sum of the samples that have this name and
// these labels, given as name, value, name, value; labels that are not given
// are summed over. It is fatal to t if there is no such sample: in a closed set
// that is a typing error, never an event that has not happened yet.
//
//	dropped := metricstest.Value(t, g, "hubd_frames_dropped_total", "reason", "overflow")
func Value(t testing.TB, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	samples, err := Samples(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(labels)%2 != 0 {
		t.Fatalf("Value(%s): labels %q are not pairs", name, labels)
	}
	sum, found := 0.0, false
	for _, s := range samples {
		if s.Name == name && s.has(labels) {
			sum, found = sum+s.Value, true
		}
	}
	if !found {
		t.Fatalf("no metric %s%q", name, labels)
	}
	return sum
}

func (s Sample) has(labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if s.Labels[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// Balance is what became of the frames that were offered.
type Balance struct {
	Offered, Sent, Dropped, Queued, InFlight int64
	// Pending is offered - (sent + dropped) by "feed/policy", for those that
	// have any: what must be queued or in flight there.
	Pending map[string]int64
}

// Missing is offered - (sent + dropped + queued + in flight): 0 at rest. It is
// negative if something was counted twice.
func (b Balance) Missing() int64 {
	return b.Offered - b.Sent - b.Dropped - b.Queued - b.InFlight
}

// Conserved reports whether, at rest, all that was offered is accounted for: in
// sum, and no feed and policy hiding another's surplus behind its own lack.
// (What is queued and in flight is not known by feed and policy; that it is not
// negative is.)
func (b Balance) Conserved() bool {
	for _, pending := range b.Pending {
		if pending < 0 {
			return false
		}
	}
	return b.Missing() == 0
}

// String is one line, and one more for each feed and policy that has pending
// frames.
func (b Balance) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "offered %d, sent %d, dropped %d, queued %d, in flight %d: missing %d",
		b.Offered, b.Sent, b.Dropped, b.Queued, b.InFlight, b.Missing())
	for _, k := range slices.Sorted(maps.Keys(b.Pending)) {
		fmt.Fprintf(&s, "\n\t%s: %d neither sent nor dropped", k, b.Pending[k])
	}
	return s.String()
}

// Conservation scrapes g for the balance. A scrape is no snapshot: the result
// is exact only while nothing is offered or written.
func Conservation(g prometheus.Gatherer) (Balance, error) {
	samples, err := Samples(g)
	if err != nil {
		return Balance{}, err
	}
	b := Balance{Pending: map[string]int64{}}
	for _, s := range samples {
		n := int64(s.Value)
		key := s.Labels["feed"] + "/" + s.Labels["policy"]
		switch s.Name {
		case "hubd_frames_offered_total":
			b.Offered += n
			b.Pending[key] += n
		case "hubd_frames_sent_total":
			b.Sent += n
			b.Pending[key] -= n
		case "hubd_frames_dropped_total":
			b.Dropped += n
			b.Pending[key] -= n
		case "hubd_queued_frames":
			b.Queued += n
		case "hubd_frames_in_flight":
			b.InFlight += n
		}
	}
	maps.DeleteFunc(b.Pending, func(_ string, n int64) bool { return n == 0 })
	return b, nil
}

// Conserved scrapes g and fails t unless all that was offered is accounted for.
// Call it at rest.
func Conserved(t testing.TB, g prometheus.Gatherer) {
	t.Helper()
	b, err := Conservation(g)
	switch {
	case err != nil:
		t.Error(err)
	case !b.Conserved():
		t.Errorf("not conserved: %s", b)
	}
}
