package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// quantile returns the q-quantile (0 to 1) of sorted by the nearest-rank
// method: a value that did occur, and at least a share of q of all is not above
// it. Of nothing it is the zero value.
func quantile[T cmp.Ordered](sorted []T, q float64) T {
	var zero T
	if len(sorted) == 0 {
		return zero
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median returns the median of values, in whatever order they are: of an even
// number the mean of the middle two. Of nothing it is NaN.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// ratios returns a[i]/b[i]: both sides of one round.
func ratios(a, b []float64) []float64 {
	r := make([]float64, min(len(a), len(b)))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return r
}

// latencies collects durations, to be asked for quantiles once all are in.
type latencies struct {
	all    []time.Duration
	sorted bool
}

func (l *latencies) add(d time.Duration) {
	l.all = append(l.all, d)
	l.sorted = false
}

// ms returns the q-quantile in milliseconds.
func (l *latencies) ms(q float64) float64 {
	if !l.sorted {
		slices.Sort(l.all)
		l.sorted = true
	}
	return float64(quantile(l.all, q)) / float64(time.Millisecond)
}

// histogram is a Prometheus histogram: cumulative counts by upper bound, the
// last bound being +Inf.
type histogram struct {
	bounds []float64
	counts []float64
}

// minus returns what was observed between the scrapes of before and h, which
// have the same bounds.
func (h histogram) minus(before histogram) histogram {
	d := histogram{bounds: h.bounds, counts: slices.Clone(h.counts)}
	for i := range before.counts {
		d.counts[i] -= before.counts[i]
	}
	return d
}

// plus returns what was observed in both, which have the same bounds unless one
// is empty.
func (h histogram) plus(other histogram) histogram {
	if len(h.counts) == 0 {
		return other
	}
	sum := histogram{bounds: h.bounds, counts: slices.Clone(h.counts)}
	for i := range other.counts {
		sum.counts[i] += other.counts[i]
	}
	return sum
}

func (h histogram) count() float64 {
	if len(h.counts) == 0 {
		return 0
	}
	return h.counts[len(h.counts)-1]
}

// quantile interpolates within the bucket that holds the q-quantile, as
// Prometheus' histogram_quantile does: linearly, the first bucket beginning at
// 0. What lies beyond the last finite bound is reported as that bound; of
// nothing it is NaN.
func (h histogram) quantile(q float64) float64 {
	total := h.count()
	if total == 0 {
		return math.NaN()
	}
	rank := q * total
	i := slices.IndexFunc(h.counts, func(c float64) bool { return c >= rank })
	if i == len(h.counts)-1 {
		return h.bounds[i-1]
	}
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = h.bounds[i-1], h.counts[i-1]
	}
	in := h.counts[i] - below
	if in == 0 {
		return h.bounds[i]
	}
	return low + (h.bounds[i]-low)*(rank-below)/in
}
