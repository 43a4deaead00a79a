package metrics

import (
	"fmt"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func page(t testing.TB, g prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// feeds returns n names of so many bytes.
func feeds(n, bytes int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%0*d", bytes, i)
	}
	return names
}

// busy sets every counter of a feed to nine digits.
func (m *Metrics) busy() {
	const n = 123456789
	fill := func(h *histogram) {
		h.counts[0].Store(n)
		h.sum.Store(n * 1_234_567)
	}
	for f := range m.series {
		m.published[f].n.Store(n)
		fill(&m.fanout[f])
		for p := range m.series[f] {
			s := &m.series[f][p]
			s.offered.n.Store(n)
			fill(&s.inQueue)
			for i := range s.dropped {
				s.dropped[i].n.Store(n)
			}
			for i := range s.overflow {
				s.overflow[i].n.Store(n)
			}
		}
	}
}

// TestPageSize: the page stays under 200 kB, with the most feeds that have fine
// buckets, of the longest names, and with twenty of usual ones.
func TestPageSize(t *testing.T) {
	for _, c := range []struct{ feeds, name, limit int }{
		{1, 7, 40_000},
		{fineFeeds, 32, 200_000},
		{fineFeeds + 1, 32, 200_000},
		{20, 8, 200_000},
	} {
		m, reg := newTest(t, testSets(feeds(c.feeds, c.name)...))
		fresh := len(page(t, reg))
		m.busy()
		size := len(page(t, reg))
		t.Logf("%d feeds with names of %d bytes: %d bytes at the start, %d when busy", c.feeds, c.name, fresh, size)
		if size >= c.limit {
			t.Errorf("%d feeds with names of %d bytes: %d bytes, want under %d", c.feeds, c.name, size, c.limit)
		}
	}
}

// TestPromtool has the page judged by Prometheus' own linter.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian package prometheus)")
	}
	for _, n := range []int{1, fineFeeds + 1} {
		m, reg := newTest(t, testSets(feeds(n, 8)...))
		for _, busy := range []bool{false, true} {
			if busy {
				m.busy()
			}
			cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
			cmd.Stdin = strings.NewReader(page(t, reg))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("promtool check metrics, %d feeds, busy %v: %v\n%s", n, busy, err, out)
			}
		}
	}
}
