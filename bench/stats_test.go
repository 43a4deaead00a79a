package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestQuantileIsNearestRank(t *testing.T) {
	ten := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct {
		values []int
		q      float64
		want   int
	}{
		{nil, 0.5, 0},
		{[]int{7}, 0, 7},
		{[]int{7}, 0.99, 7},
		{ten, 0, 1},
		{ten, 0.5, 5},
		{ten, 0.51, 6},
		{ten, 0.9, 9},
		{ten, 0.99, 10},
		{ten, 1, 10},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) = %d, want %d", c.values, c.q, got, c.want)
		}
	}
}

func TestLatenciesSortBeforeTheyAnswer(t *testing.T) {
	var l latencies
	for _, d := range []time.Duration{3, 1, 2} {
		l.add(d * time.Millisecond)
	}
	if got := l.ms(0.5); got != 2 {
		t.Errorf("median %v ms, want 2", got)
	}
	l.add(0)
	if got := l.ms(0); got != 0 {
		t.Errorf("after a further sample the least is %v ms, want 0", got)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 4}, 4},
		{[]float64{9, 1, 4, 2}, 3},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v, want NaN", got)
	}
	unsorted := []float64{2, 1}
	median(unsorted)
	if !slices.Equal(unsorted, []float64{2, 1}) {
		t.Errorf("median has sorted its argument: %v", unsorted)
	}
}

func TestRatiosPairRounds(t *testing.T) {
	got := ratios([]float64{2, 9}, []float64{1, 3})
	if !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("ratios are %v, want [2 3]", got)
	}
}

func TestHistogramQuantileInterpolates(t *testing.T) {
	inf := math.Inf(1)
	h := histogram{bounds: []float64{1, 2, 4, inf}, counts: []float64{10, 10, 30, 40}}
	for _, c := range []struct{ q, want float64 }{
		{0.125, 0.5}, // half of the first bucket, which begins at 0
		{0.25, 1},    // its end
		{0.5, 3},     // rank 20: half of (2, 4]
		{0.75, 4},
		{0.9, 4}, // beyond all bounds
	} {
		if got := h.quantile(c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v) = %v, want %v", c.q, got, c.want)
		}
	}
	empty := histogram{bounds: []float64{1, inf}, counts: []float64{0, 0}}
	if got := empty.quantile(0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing is %v, want NaN", got)
	}
}

func TestHistogramDifference(t *testing.T) {
	inf := math.Inf(1)
	before := histogram{bounds: []float64{1, 2, inf}, counts: []float64{5, 6, 6}}
	after := histogram{bounds: []float64{1, 2, inf}, counts: []float64{5, 8, 8}}
	d := after.minus(before)
	if d.count() != 2 || d.quantile(0.5) != 1.5 {
		t.Errorf("difference has count %v and median %v, want 2 and 1.5", d.count(), d.quantile(0.5))
	}
	if after.counts[1] != 8 {
		t.Error("minus has changed its receiver")
	}
	sum := histogram{}.plus(d).plus(before)
	if sum.count() != 8 || sum.counts[0] != 5 || sum.counts[1] != 8 {
		t.Errorf("the sum has counts %v, want [5 8 8]", sum.counts)
	}
	if d.count() != 2 {
		t.Error("plus has changed its receiver")
	}
}
