package metrics

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"hubd/internal/metrics/metricstest"
)

// testSets are the contract's closed sets, with two feeds.
func testSets(feeds ...string) Sets {
	if feeds == nil {
		feeds = []string{"chat", "default"}
	}
	return Sets{
		Feeds:           feeds,
		Policies:        []string{"drop-newest", "drop-oldest", "keep-latest", "disconnect", "reject-publish"},
		DropReasons:     []string{"overflow", "conflated", "expired", "budget", "closed"},
		OverflowReasons: []string{"messages", "bytes", "budget"},
		Encodings:       []string{"raw", "json", "sse", "raw_deflate", "json_deflate"},
		PublishReasons: []string{
			"overflow", "too_large", "invalid", "unauthorized", "forbidden", "origin", "rate_limited", "draining", "broker",
		},
		Transports: []string{"websocket", "sse"},
		CloseReasons: []string{
			"client", "slow_consumer", "write_timeout", "ping_timeout", "drain", "protocol_error",
			"unauthorized", "forbidden", "over_capacity", "kicked", "error",
		},
		CloseOutcomes: []string{"clean", "deadline", "reset"},
		HandshakeReasons: []string{
			"invalid", "unauthorized", "forbidden", "origin", "host", "over_capacity", "rate_limited", "draining",
		},
		Version: "v1.2.3", Revision: "abc",
	}
}

// newTest returns instruments in a registry that checks its collectors.
func newTest(t testing.TB, sets Sets) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, sets)
	m.Collect(nil, nil)
	return m, reg
}

// values scrapes all that is ours, by "name{label=value}".
func values(t testing.TB, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	samples, err := metricstest.Samples(g)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, s := range samples {
		if strings.HasPrefix(s.Name, "hubd_") {
			all[series(s.Name, s.Labels)] = s.Value
		}
	}
	return all
}

func series(name string, labels map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		name += fmt.Sprintf("{%s=%s}", k, labels[k])
	}
	return name
}

// contract is the table of the interface, label by label.
func contract(s Sets) []struct {
	name, kind string
	labels     map[string][]string
} {
	feed := map[string][]string{"feed": s.Feeds}
	feedPolicy := map[string][]string{"feed": s.Feeds, "policy": s.Policies}
	return []struct {
		name, kind string
		labels     map[string][]string
	}{
		{"hubd_build_info", "GAUGE", map[string][]string{"version": {"v1.2.3"}, "revision": {"abc"}, "goversion": {runtime.Version()}}},
		{"hubd_close_outcome_total", "COUNTER", map[string][]string{"outcome": s.CloseOutcomes}},
		{"hubd_connections", "GAUGE", map[string][]string{"transport": s.Transports}},
		{"hubd_connections_closed_total", "COUNTER", map[string][]string{"reason": s.CloseReasons}},
		{"hubd_fanout_duration_seconds", "HISTOGRAM", feed},
		{"hubd_frames_dropped_total", "COUNTER", map[string][]string{"feed": s.Feeds, "policy": s.Policies, "reason": s.DropReasons}},
		{"hubd_frames_encoded_total", "COUNTER", map[string][]string{"encoding": s.Encodings}},
		{"hubd_frames_in_flight", "GAUGE", nil},
		{"hubd_frames_offered_total", "COUNTER", feedPolicy},
		{"hubd_frames_sent_total", "COUNTER", feedPolicy},
		{"hubd_handshakes_rejected_total", "COUNTER", map[string][]string{"reason": s.HandshakeReasons}},
		{"hubd_messages_published_total", "COUNTER", feed},
		{"hubd_overflow_total", "COUNTER", map[string][]string{"feed": s.Feeds, "policy": s.Policies, "reason": s.OverflowReasons}},
		{"hubd_publish_rejected_total", "COUNTER", map[string][]string{"reason": s.PublishReasons}},
		{"hubd_queue_depth_bytes", "SUMMARY", nil},
		{"hubd_queue_depth_messages", "SUMMARY", nil},
		{"hubd_queue_oldest_seconds", "GAUGE", nil},
		{"hubd_queued_bytes", "GAUGE", nil},
		{"hubd_queued_frames", "GAUGE", nil},
		{"hubd_retained_bytes", "GAUGE", nil},
		{"hubd_rooms", "GAUGE", nil},
		{"hubd_subscriptions", "GAUGE", feedPolicy},
		{"hubd_time_in_queue_seconds", "HISTOGRAM", feedPolicy},
		{"hubd_write_duration_seconds", "HISTOGRAM", nil},
	}
}

// TestContract: the names, types and labels are the contract's, no more and no
// fewer, and each series is there before anything has happened.
func TestContract(t *testing.T) {
	sets := testSets()
	_, reg := newTest(t, sets)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "hubd_") {
			continue
		}
		got = append(got, f.GetName()+" "+f.GetType().String())
		for _, unit := range []string{"seconds", "bytes"} {
			if strings.HasSuffix(f.GetName(), "_"+unit) && !strings.Contains(f.GetHelp(), "in "+unit) {
				t.Errorf("help of %s does not name its unit: %q", f.GetName(), f.GetHelp())
			}
		}
		if !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("help of %s is no sentence: %q", f.GetName(), f.GetHelp())
		}
	}
	var want []string
	have := values(t, reg)
	for _, c := range contract(sets) {
		want = append(want, c.name+" "+c.kind)
		for _, labels := range product(c.labels) {
			for _, key := range samplesOf(c.name, c.kind, labels) {
				v, ok := have[key]
				zero := v == 0 || c.name == "hubd_build_info" && v == 1
				if !ok || !zero {
					t.Errorf("%s is %v (present: %v) at the start", key, v, ok)
				}
				delete(have, key)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("families:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	for key := range have {
		t.Errorf("%s is not in the contract", key)
	}
}

// product returns every combination of label values.
func product(labels map[string][]string) []map[string]string {
	all := []map[string]string{{}}
	for k, vs := range labels {
		var next []map[string]string
		for _, l := range all {
			for _, v := range vs {
				with := maps.Clone(l)
				with[k] = v
				next = append(next, with)
			}
		}
		all = next
	}
	return all
}

func samplesOf(name, kind string, labels map[string]string) []string {
	switch kind {
	case "HISTOGRAM":
		return []string{series(name+"_count", labels), series(name+"_sum", labels)}
	case "SUMMARY":
		keys := []string{series(name+"_count", labels), series(name+"_sum", labels)}
		for _, q := range []string{"0.5", "0.9", "0.99", "0.999", "1"} {
			keys = append(keys, series(name, map[string]string{"quantile": q}))
		}
		return keys
	}
	return []string{series(name, labels)}
}

// TestVerbs: each verb moves its own series, by index, and no other.
func TestVerbs(t *testing.T) {
	sets := testSets()
	m, reg := newTest(t, sets)
	s := m.Series(1, 2)
	fp := "{feed=default}{policy=keep-latest}"
	for _, c := range []struct {
		verb string
		do   func()
		want map[string]float64
	}{
		{"Offered", func() { s.Offered(7) }, map[string]float64{"hubd_frames_offered_total" + fp: 7}},
		{"Dropped", func() { s.Dropped(1, 3) }, map[string]float64{"hubd_frames_dropped_total" + fp + "{reason=conflated}": 3}},
		{"Overflow", func() { s.Overflow(2, 2) }, map[string]float64{"hubd_overflow_total" + fp + "{reason=budget}": 2}},
		{"Sent", func() { s.Sent([]time.Duration{1e9, 2e9}) }, map[string]float64{
			"hubd_frames_sent_total" + fp: 2, "hubd_time_in_queue_seconds_count" + fp: 2, "hubd_time_in_queue_seconds_sum" + fp: 3,
		}},
		{"Sent of one", func() { s.Sent([]time.Duration{5e8}) }, map[string]float64{
			"hubd_frames_sent_total" + fp: 1, "hubd_time_in_queue_seconds_count" + fp: 1, "hubd_time_in_queue_seconds_sum" + fp: 0.5,
		}},
		{"nothing", func() { s.Offered(0); s.Dropped(0, 0); s.Overflow(0, -1); s.Offered(-5); s.Sent(nil) }, nil},
		{"Published", func() { m.Published(0) }, map[string]float64{"hubd_messages_published_total{feed=chat}": 1}},
		{"Fanout", func() { m.Fanout(0, 250*ms) }, map[string]float64{
			"hubd_fanout_duration_seconds_count{feed=chat}": 1, "hubd_fanout_duration_seconds_sum{feed=chat}": 0.25,
		}},
		{"Write", func() { m.Write(500 * ms) }, map[string]float64{
			"hubd_write_duration_seconds_count": 1, "hubd_write_duration_seconds_sum": 0.5,
		}},
		{"Write of a clock that went back", func() { m.Write(-1) }, map[string]float64{"hubd_write_duration_seconds_count": 1}},
		{"PublishRejected", func() { m.PublishRejected(8) }, map[string]float64{"hubd_publish_rejected_total{reason=broker}": 1}},
		{"ConnectionClosed", func() { m.ConnectionClosed(1) }, map[string]float64{"hubd_connections_closed_total{reason=slow_consumer}": 1}},
		{"CloseOutcome", func() { m.CloseOutcome(2) }, map[string]float64{"hubd_close_outcome_total{outcome=reset}": 1}},
		{"HandshakeRejected", func() { m.HandshakeRejected(4) }, map[string]float64{"hubd_handshakes_rejected_total{reason=host}": 1}},
	} {
		t.Run(c.verb, func(t *testing.T) {
			before := values(t, reg)
			c.do()
			moved := map[string]float64{}
			for key, v := range values(t, reg) {
				if v != before[key] {
					moved[key] = v - before[key]
				}
			}
			if c.want == nil {
				c.want = map[string]float64{}
			}
			if !maps.Equal(moved, c.want) {
				t.Errorf("moved %v, want %v", moved, c.want)
			}
		})
	}
}

// TestClosed: no verb takes text, and none brings a series into being, whatever
// the index.
func TestClosed(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[*Metrics](), reflect.TypeFor[*Series]()} {
		for i := range typ.NumMethod() {
			verb := typ.Method(i)
			for p := 1; p < verb.Type.NumIn(); p++ {
				switch in := verb.Type.In(p); in.Kind() {
				case reflect.Int, reflect.Int64, reflect.Slice, reflect.Func:
				default:
					t.Errorf("%v.%s takes a %v: a label could come from there", typ, verb.Name, in)
				}
			}
		}
	}

	m, reg := newTest(t, testSets())
	before := slices.Sorted(maps.Keys(values(t, reg)))
	for name, verb := range map[string]func(i int){
		"Series feed":       func(i int) { m.Series(i, 0) },
		"Series policy":     func(i int) { m.Series(0, i) },
		"Dropped":           func(i int) { m.Series(0, 0).Dropped(i, 1) },
		"Overflow":          func(i int) { m.Series(0, 0).Overflow(i, 1) },
		"Published":         m.Published,
		"Fanout":            func(i int) { m.Fanout(i, 1) },
		"PublishRejected":   m.PublishRejected,
		"ConnectionClosed":  m.ConnectionClosed,
		"CloseOutcome":      m.CloseOutcome,
		"HandshakeRejected": m.HandshakeRejected,
	} {
		for _, i := range []int{-1, 11} {
			if !panics(func() { verb(i) }) {
				t.Errorf("%s with index %d did not panic", name, i)
			}
		}
	}
	if after := slices.Sorted(maps.Keys(values(t, reg))); !slices.Equal(before, after) {
		t.Errorf("series changed from\n%s\nto\n%s", before, after)
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestNil(t *testing.T) {
	var m *Metrics
	m.Published(9)
	m.Fanout(9, 1)
	m.PublishRejected(9)
	m.Write(1)
	m.ConnectionClosed(9)
	m.CloseOutcome(9)
	m.HandshakeRejected(9)
	m.Collect(nil, nil)
	s := m.Series(9, 9)
	if s != nil {
		t.Errorf("Series of nil Metrics is %v", s)
	}
	s.Offered(1)
	s.Dropped(9, 1)
	s.Overflow(9, 1)
	s.Sent([]time.Duration{1})
	if got := m.Totals(); !reflect.DeepEqual(got, Totals{Dropped: map[string]uint64{}}) {
		t.Errorf("Totals of nil Metrics: %+v", got)
	}
}

func TestTotals(t *testing.T) {
	m := New(nil, testSets()) // nothing exposed
	m.Collect(nil, nil)
	for f := range 2 {
		m.Published(f)
		for p := range 5 {
			s := m.Series(f, p)
			s.Offered(100)
			s.Sent([]time.Duration{1, 2, 3})
			for r := range 5 {
				s.Dropped(r, r)
			}
		}
	}
	want := Totals{Published: 2, Offered: 1000, Sent: 30, Dropped: map[string]uint64{
		"overflow": 0, "conflated": 10, "expired": 20, "budget": 30, "closed": 40,
	}}
	if got := m.Totals(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Sets){
		"a duplicate":    func(s *Sets) { s.Feeds = []string{"a", "b", "a"} },
		"an empty value": func(s *Sets) { s.CloseReasons[3] = "" },
	} {
		sets := testSets()
		spoil(&sets)
		if !panics(func() { New(nil, sets) }) {
			t.Errorf("New took sets with %s", name)
		}
	}
	reg := prometheus.NewRegistry()
	m := New(reg, testSets())
	m.Collect(nil, nil)
	if !panics(func() { New(reg, testSets()) }) {
		t.Error("a second New on one registry did not panic")
	}
	if !panics(func() { m.Collect(nil, nil) }) {
		t.Error("a second Collect did not panic")
	}
}

// TestRuntimeCollectors: they are there once, also where the registry, as the
// default one does, has them already.
func TestRuntimeCollectors(t *testing.T) {
	for _, has := range []bool{false, true} {
		reg := prometheus.NewRegistry()
		if has {
			reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		}
		New(reg, testSets())
		for _, name := range []string{"go_goroutines", "process_open_fds"} {
			if v := metricstest.Value(t, reg, name); v <= 0 {
				t.Errorf("%s = %v (registered before: %v)", name, v, has)
			}
		}
	}
}

func TestBuildInfo(t *testing.T) {
	sets := testSets()
	sets.Version, sets.Revision = "", ""
	version, revision := build(sets)
	if version == "" || revision == "" {
		t.Errorf("build() = %q, %q: an empty label is no label", version, revision)
	}
}
