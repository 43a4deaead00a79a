package metricstest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/metrics"
)

// node returns instruments of two feeds and two policies over a state.
func node(st *metrics.State) (*metrics.Metrics, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	m := metrics.New(reg, metrics.Sets{
		Feeds: []string{"chat", "default"}, Policies: []string{"drop-newest", "disconnect"},
		DropReasons: []string{"overflow", "closed"}, OverflowReasons: []string{"messages"},
		Transports: []string{"websocket"},
	})
	m.Collect(func() metrics.State { return *st }, func() []int { return []int{4} })
	return m, reg
}

// recorder is a testing.TB that records instead of failing. A fatal call ends
// the goroutine, as the real one does.
type recorder struct {
	testing.TB
	errors, fatals []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Error(args ...any)         { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.errors = append(r.errors, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(args ...any) {
	r.fatals = append(r.fatals, fmt.Sprint(args...))
	runtime.Goexit()
}
func (r *recorder) Fatalf(f string, a ...any) { r.Fatal(fmt.Sprintf(f, a...)) }

// record runs f with a recorder.
func record(f func(t testing.TB)) (r *recorder) {
	r = &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

func TestValue(t *testing.T) {
	st := metrics.State{DepthMessages: []int{1, 2, 3}}
	m, reg := node(&st)
	m.Series(0, 0).Dropped(0, 3)
	m.Series(1, 0).Dropped(0, 4)
	m.Series(1, 1).Dropped(1, 5)
	m.Fanout(1, 2*time.Second)
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{12, "hubd_frames_dropped_total", nil},
		{7, "hubd_frames_dropped_total", []string{"reason", "overflow"}},
		{4, "hubd_frames_dropped_total", []string{"feed", "default", "reason", "overflow"}},
		{0, "hubd_frames_dropped_total", []string{"feed", "chat", "reason", "closed"}},
		{4, "hubd_connections", nil},
		{1, "hubd_fanout_duration_seconds_count", []string{"feed", "default"}},
		{2, "hubd_fanout_duration_seconds_sum", nil},
		{3, "hubd_queue_depth_messages_count", nil},
		{6, "hubd_queue_depth_messages_sum", nil},
		{2, "hubd_queue_depth_messages", []string{"quantile", "0.5"}},
		{3, "hubd_queue_depth_messages", []string{"quantile", "1"}},
	} {
		if got := Value(t, reg, c.name, c.labels...); got != c.want {
			t.Errorf("%s%q = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	bad := prometheus.NewRegistry()
	bad.MustRegister(broken{})
	if r := record(func(t testing.TB) { Conserved(t, bad) }); len(r.errors) != 1 {
		t.Errorf("Conserved of a broken scrape: %q, want one error", r.errors)
	}
	for name, f := range map[string]func(t testing.TB){
		"an unknown name":  func(t testing.TB) { Value(t, reg, "hubd_frames_droped_total") },
		"an unknown value": func(t testing.TB) { Value(t, reg, "hubd_frames_dropped_total", "reason", "oveflow") },
		"half a pair":      func(t testing.TB) { Value(t, reg, "hubd_frames_dropped_total", "reason") },
		"a broken scrape":  func(t testing.TB) { Value(t, bad, "hubd_rooms") },
	} {
		if r := record(f); len(r.fatals) != 1 {
			t.Errorf("%s: fatal %q, want one", name, r.fatals)
		}
	}
}

// broken is a collector whose scrape fails.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}
func (broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "broken", nil, nil), errors.New("broken on purpose"))
}

func TestConserved(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(m *metrics.Metrics, st *metrics.State)
		want string // in the complaint; empty: conserved
	}{
		{"nothing", func(*metrics.Metrics, *metrics.State) {}, ""},
		{"all ways", func(m *metrics.Metrics, st *metrics.State) {
			m.Series(0, 0).Offered(10)
			m.Series(0, 0).Sent(make([]time.Duration, 3))
			m.Series(0, 0).Dropped(0, 1)
			m.Series(0, 0).Dropped(1, 1)
			st.DepthMessages, st.InFlight = []int{2, 0, 1}, 2
		}, ""},
		{"lost", func(m *metrics.Metrics, st *metrics.State) {
			m.Series(0, 1).Offered(2)
			st.InFlight = 1
		}, "missing 1\n\tchat/disconnect: 2"},
		{"twice", func(m *metrics.Metrics, _ *metrics.State) {
			m.Series(1, 0).Offered(1)
			m.Series(1, 0).Sent(make([]time.Duration, 1))
			m.Series(1, 0).Dropped(1, 1)
		}, "missing -1\n\tdefault/drop-newest: -1"},
		{"one lends another", func(m *metrics.Metrics, _ *metrics.State) {
			m.Series(0, 0).Offered(1)
			m.Series(1, 0).Sent(make([]time.Duration, 1))
		}, "missing 0\n\tchat/drop-newest: 1 neither sent nor dropped\n\tdefault/drop-newest: -1"},
		{"one lends another, behind a queue", func(m *metrics.Metrics, st *metrics.State) {
			m.Series(0, 0).Offered(2)
			m.Series(1, 0).Sent(make([]time.Duration, 1))
			st.DepthMessages = []int{1}
		}, "missing 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var st metrics.State
			m, reg := node(&st)
			c.do(m, &st)
			r := record(func(t testing.TB) { Conserved(t, reg) })
			switch complaint := strings.Join(r.errors, "; "); {
			case c.want == "" && complaint != "":
				t.Errorf("complains: %s", complaint)
			case !strings.Contains(complaint, c.want) || c.want != "" && complaint == "":
				t.Errorf("complaint %q, want %q in it", complaint, c.want)
			}
		})
	}
}
