package metrics

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// fineFeeds is the largest number of feeds whose histograms have all their
// bounds. Buckets are most of the page: with this many feeds, whatever their
// names, it stays under 200 kB; more feeds share coarser ones.
const fineFeeds = 8

// Upper bounds, inclusive. Coarse ones are among the fine ones, so a rule that
// names a coarse bound holds in every configuration.
var (
	// One histogram a feed and policy, so few: half a decade each.
	queueBounds = [...]time.Duration{
		50 * us, 100 * us, 300 * us,
		1 * ms, 3 * ms, 10 * ms, 30 * ms, 100 * ms, 300 * ms,
		1 * time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second,
	}
	queueBoundsCoarse = []time.Duration{1 * ms, 10 * ms, 100 * ms, 1 * time.Second}

	// Twelve a decade where the fan-out to tens or thousands is, else six: a p50
	// interpolated by Prometheus is within 5% of the true one there, a p99
	// within 10%, so two runs can be compared.
	fanoutBounds = slices.Concat(
		decades(1*us, 9*us, 10, 15, 22, 33, 47, 68),
		decades(10*us, 9*ms, 10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82),
		decades(10*ms, 1*time.Second, 10, 15, 22, 33, 47, 68))
	fanoutBoundsCoarse = append(decades(10*us, 10*ms, 10, 33), 100*ms, 1*time.Second)

	writeBounds = decades(4*us, 33*time.Second, 10, 15, 22, 33, 47, 68)
)

// decades returns tenths/10 × 10^k for all k, from first to last.
func decades(first, last time.Duration, tenths ...time.Duration) []time.Duration {
	var bounds []time.Duration
	for unit := 1 * us; unit <= last; unit *= 10 {
		for _, t := range tenths {
			if b := t * (unit / 10); first <= b && b <= last {
				bounds = append(bounds, b)
			}
		}
	}
	return bounds
}

// scales returns the bounds of the histograms of which there is one a feed.
func scales(feeds int) (inQueue, fanout *scale) {
	if feeds > fineFeeds {
		return newScale(queueBoundsCoarse), newScale(fanoutBoundsCoarse)
	}
	return newScale(queueBounds[:]), newScale(fanoutBounds)
}

// scale is the bounds of one metric's histograms, shared by them. Immutable.
type scale struct {
	bounds  []time.Duration
	seconds []float64
	// first is, by a value's bit length, the lowest bucket it can be in. From
	// there it is at most a few steps, where a binary search takes four or five
	// and mispredicts them.
	first [65]uint8
}

func newScale(bounds []time.Duration) *scale {
	s := &scale{bounds: bounds}
	for _, b := range bounds {
		s.seconds = append(s.seconds, float64(b)/1e9)
	}
	for length := 1; length < len(s.first); length++ {
		i := int(s.first[length-1])
		for i < len(bounds) && uint64(bounds[i]) < 1<<(length-1) {
			i++
		}
		s.first[length] = uint8(i)
	}
	return s
}

// bucket returns the index of the lowest bound that d does not exceed,
// len(bounds) if there is none.
func (s *scale) bucket(d time.Duration) int {
	i := int(s.first[bits.Len64(uint64(d))])
	for i < len(s.bounds) && d > s.bounds[i] {
		i++
	}
	return i
}

// histogram counts durations in buckets of plain numbers. What a scrape sees is
// always consistent in that the count is the sum of the buckets; the sum of the
// durations may be ahead or behind by the observations under way.
type histogram struct {
	scale  *scale
	counts []atomic.Uint64 // not cumulative; the last is +Inf
	// sum is in nanoseconds. It wraps after 584 years of durations, which ten
	// thousand frames always queued reach in three weeks; to Prometheus that is
	// a counter's reset.
	sum atomic.Uint64
}

func newHistogram(s *scale) histogram {
	return histogram{scale: s, counts: make([]atomic.Uint64, len(s.bounds)+1)}
}

// observe records one duration. A negative one is a clock's fault and counts
// as 0, lest the sum falls.
func (h *histogram) observe(d time.Duration) {
	d = max(d, 0)
	h.counts[h.scale.bucket(d)].Add(1)
	h.sum.Add(uint64(d))
}

// observeAll records many durations with one add to each bucket concerned: a
// batch's ages are much alike, so mostly two adds in all.
func (h *histogram) observeAll(ds []time.Duration) {
	if len(ds) == 1 {
		h.observe(ds[0])
		return
	}
	var (
		tally  [len(queueBounds) + 1]uint64
		sum    uint64
		lo, hi = len(tally), -1
	)
	for _, d := range ds {
		d = max(d, 0)
		i := h.scale.bucket(d)
		tally[i]++
		sum += uint64(d)
		lo, hi = min(lo, i), max(hi, i)
	}
	for i := lo; i <= hi; i++ {
		if tally[i] > 0 {
			h.counts[i].Add(tally[i])
		}
	}
	if sum > 0 {
		h.sum.Add(sum)
	}
}

// count returns the number of observations.
func (h *histogram) count() uint64 {
	var n uint64
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// metric returns a snapshot and its count.
func (h *histogram) metric(desc *prometheus.Desc, labels ...string) (prometheus.Metric, uint64) {
	var count uint64
	cumulative := make(map[float64]uint64, len(h.counts))
	for i := range h.counts {
		count += h.counts[i].Load()
		if i < len(h.scale.seconds) {
			cumulative[h.scale.seconds[i]] = count
		}
	}
	sum := float64(h.sum.Load()) / 1e9
	return prometheus.MustNewConstHistogram(desc, count, sum, cumulative, labels...), count
}
