package main

import (
	"strings"
	"testing"
)

const page = `# HELP hubd_frames_sent_total Frames.
# TYPE hubd_frames_sent_total counter
hubd_frames_sent_total{feed="a",policy="drop-newest"} 3
hubd_frames_sent_total{feed="a",policy="disconnect"} 4
hubd_frames_sent_total{feed="b",policy="drop-newest"} 1e+06
hubd_frames_sent_total_more{feed="a",policy="drop-newest"} 100
hubd_rooms 2
hubd_fanout_duration_seconds_bucket{feed="a",le="0.001"} 1
hubd_fanout_duration_seconds_bucket{feed="a",le="0.01"} 2
hubd_fanout_duration_seconds_bucket{feed="a",le="+Inf"} 2
hubd_fanout_duration_seconds_bucket{feed="b",le="0.001"} 10
hubd_fanout_duration_seconds_bucket{feed="b",le="0.01"} 10
hubd_fanout_duration_seconds_bucket{feed="b",le="+Inf"} 11
`

func parsePage(t *testing.T) scrape {
	t.Helper()
	s, err := parseScrape(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScrapeSumsByLabel(t *testing.T) {
	s := parsePage(t)
	for _, c := range []struct {
		labels []string
		want   float64
	}{
		{nil, 1_000_007},
		{[]string{"feed", "a"}, 7},
		{[]string{"policy", "drop-newest"}, 1_000_003},
		{[]string{"feed", "a", "policy", "disconnect"}, 4},
		{[]string{"feed", "c"}, 0},
	} {
		if got := s.sum("hubd_frames_sent_total", c.labels...); got != c.want {
			t.Errorf("sum%v = %v, want %v", c.labels, got, c.want)
		}
	}
	if got := s.sum("hubd_rooms"); got != 2 {
		t.Errorf("a series without labels reads %v, want 2", got)
	}
}

func TestScrapeHistogramIsSummedAndSorted(t *testing.T) {
	h, err := parsePage(t).histogram("hubd_fanout_duration_seconds")
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{11, 12, 13}; len(h.counts) != 3 || h.counts[0] != want[0] || h.counts[1] != want[1] || h.counts[2] != want[2] {
		t.Errorf("counts %v, want %v", h.counts, want)
	}
	if _, err := parsePage(t).histogram("hubd_rooms"); err == nil {
		t.Error("a metric that is no histogram was read as one")
	}
}

func TestScrapeRefusesGarbage(t *testing.T) {
	for _, text := range []string{"hubd_rooms", "hubd_rooms many"} {
		if _, err := parseScrape(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as a metric", text)
		}
	}
}

func TestLabel(t *testing.T) {
	series := `m{feed="a",le="+Inf",policy="drop-newest"}`
	for name, want := range map[string]string{"feed": "a", "le": "+Inf", "policy": "drop-newest", "none": ""} {
		if got := label(series, name); got != want {
			t.Errorf("label %s = %q, want %q", name, got, want)
		}
	}
	if got := label("m", "feed"); got != "" {
		t.Errorf("a series without labels has %q", got)
	}
}
