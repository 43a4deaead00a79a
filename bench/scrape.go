package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// scrape is one reading of /metrics: the value of each series by its text, such
// as hubd_frames_sent_total{feed="default",policy="disconnect"}.
type scrape map[string]float64

// parseScrape reads the Prometheus text format, as far as hubd uses it.
func parseScrape(r io.Reader) (scrape, error) {
	s := scrape{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		series, text, ok := cutLast(line, " ")
		if !ok {
			return nil, fmt.Errorf("reading metrics: no value in %q", line)
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("reading metrics: %q: %w", line, err)
		}
		s[series] = value
	}
	return s, lines.Err()
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// scrape reads the server's metrics.
func (s *server) scrape(ctx context.Context) (scrape, error) {
	body, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseScrape(strings.NewReader(string(body)))
}

// nameOf returns the metric's name of a series.
func nameOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// label returns the value of a label of a series, or "".
func label(series, name string) string {
	_, rest, ok := strings.Cut(series, "{")
	for ok {
		var key, value string
		key, rest, ok = strings.Cut(strings.TrimLeft(rest, ","), `="`)
		if !ok {
			break
		}
		value, rest, ok = strings.Cut(rest, `"`)
		if key == name {
			return value
		}
	}
	return ""
}

// sum adds up the series of a metric that have all the labels given, as pairs
// of name and value.
func (s scrape) sum(metric string, labels ...string) float64 {
	var total float64
	for series, value := range s {
		if nameOf(series) == metric && hasLabels(series, labels) {
			total += value
		}
	}
	return total
}

func hasLabels(series string, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if label(series, labels[i]) != labels[i+1] {
			return false
		}
	}
	return true
}

// histogram returns the histogram of that name, summed over all its series.
func (s scrape) histogram(metric string) (histogram, error) {
	byBound := map[float64]float64{}
	for series, value := range s {
		if nameOf(series) != metric+"_bucket" {
			continue
		}
		bound, err := strconv.ParseFloat(label(series, "le"), 64)
		if err != nil {
			return histogram{}, fmt.Errorf("bucket %s: %w", series, err)
		}
		byBound[bound] += value
	}
	h := histogram{bounds: slices.Sorted(maps.Keys(byBound))}
	if len(h.bounds) < 2 || !math.IsInf(h.bounds[len(h.bounds)-1], 1) {
		return histogram{}, fmt.Errorf("the server shows no histogram %s", metric)
	}
	for _, bound := range h.bounds {
		h.counts = append(h.counts, byBound[bound])
	}
	return h, nil
}

// histogramSince returns what was observed in the histogram since before.
func (s scrape) histogramSince(before scrape, metric string) (histogram, error) {
	now, err := s.histogram(metric)
	if err != nil {
		return histogram{}, err
	}
	then, err := before.histogram(metric)
	if err != nil {
		return histogram{}, err
	}
	return now.minus(then), nil
}
