package metrics

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Sets are the closed sets of label values, in the order of the types that own
// them, so that a typed value's number is its index here. A set left empty
// has no series.
type Sets struct {
	Feeds            []string // configured feeds, in order of match
	Policies         []string // queue.Policy
	DropReasons      []string // queue.Reason
	OverflowReasons  []string // queue.Limit, without none
	Encodings        []string // frame.Encoding
	PublishReasons   []string // reasons of hubd_publish_rejected_total
	Transports       []string
	CloseReasons     []string
	CloseOutcomes    []string
	HandshakeReasons []string

	// Version and Revision are the labels of hubd_build_info. Where empty, what
	// the Go toolchain recorded in the binary is used, else "unknown".
	Version, Revision string
}

// validate returns what would make two series one.
func (s Sets) validate() error {
	var errs []error
	for _, set := range []struct {
		name   string
		values []string
	}{
		{"Feeds", s.Feeds}, {"Policies", s.Policies}, {"DropReasons", s.DropReasons},
		{"OverflowReasons", s.OverflowReasons}, {"Encodings", s.Encodings},
		{"PublishReasons", s.PublishReasons}, {"Transports", s.Transports},
		{"CloseReasons", s.CloseReasons}, {"CloseOutcomes", s.CloseOutcomes},
		{"HandshakeReasons", s.HandshakeReasons},
	} {
		for i, v := range set.values {
			if v == "" || slices.Contains(set.values[:i], v) {
				errs = append(errs, fmt.Errorf("value %d of %s: %q is empty or a duplicate", i, set.name, v))
			}
		}
	}
	return errors.Join(errs...)
}

// Metrics holds the instruments. A nil *Metrics works and records nothing.
//
// All methods may be called concurrently, and none waits or takes a lock. An
// index outside its set is a programming error and panics, as with a slice: a
// series can be neither created nor missed at run time.
type Metrics struct {
	// immutable
	reg  prometheus.Registerer
	sets Sets

	// atomics
	series             [][]Series  // [feed][policy]
	published          []counter   // [feed]
	fanout             []histogram // [feed]
	write              histogram
	publishRejected    []counter
	connectionsClosed  []counter
	closeOutcomes      []counter
	handshakesRejected []counter
}

// counter is a plain monotonic number. Being no prometheus.Counter it costs
// one uncontended add, and becomes a metric only at scrape.
type counter struct{ n atomic.Uint64 }

// add ignores what would make a counter fall.
func (c *counter) add(n int) {
	if n > 0 {
		c.n.Add(uint64(n))
	}
}

func (c *counter) value() float64 { return float64(c.n.Load()) }

// New registers the instruments with reg, every series of every closed set at
// 0, and beside them hubd_build_info and the go_* and process_* collectors
// (unless reg has those). With a nil reg nothing is exposed, but Totals works.
//
// It panics on sets with empty or duplicate values and, as MustRegister does,
// on a reg that has instruments of an earlier New.
func New(reg prometheus.Registerer, sets Sets) *Metrics {
	if err := sets.validate(); err != nil {
		panic(fmt.Errorf("metrics: %w", err))
	}
	inQueue, fanout := scales(len(sets.Feeds))
	m := &Metrics{
		reg:                reg,
		sets:               sets,
		series:             make([][]Series, len(sets.Feeds)),
		published:          make([]counter, len(sets.Feeds)),
		fanout:             make([]histogram, len(sets.Feeds)),
		write:              newHistogram(newScale(writeBounds)),
		publishRejected:    make([]counter, len(sets.PublishReasons)),
		connectionsClosed:  make([]counter, len(sets.CloseReasons)),
		closeOutcomes:      make([]counter, len(sets.CloseOutcomes)),
		handshakesRejected: make([]counter, len(sets.HandshakeReasons)),
	}
	for f := range m.series {
		m.fanout[f] = newHistogram(fanout)
		m.series[f] = make([]Series, len(sets.Policies))
		for p := range m.series[f] {
			m.series[f][p] = newSeries(sets, inQueue)
		}
	}
	if reg == nil {
		return m
	}
	reg.MustRegister((*instruments)(m))
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		var has prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !errors.As(err, &has) {
			panic(fmt.Errorf("metrics: %w", err))
		}
	}
	return m
}

// Collect registers a collector that at each scrape reads the gauges and the
// summaries from hub, and the connections by transport from connections. Both
// must be safe for concurrent use, as scrapes may overlap; a nil one reads as
// zeros. Until Collect is called those series are absent; calling it twice
// panics, as MustRegister does.
func (m *Metrics) Collect(hub func() State, connections func() []int) {
	if m == nil || m.reg == nil {
		return
	}
	if hub == nil {
		hub = func() State { return State{} }
	}
	if connections == nil {
		connections = func() []int { return nil }
	}
	m.reg.MustRegister(&gauges{sets: m.sets, hub: hub, connections: connections})
}

// Series returns the instruments of a feed and a policy; nil from a nil
// Metrics. Resolve it once, not per frame.
func (m *Metrics) Series(feed, policy int) *Series {
	if m == nil {
		return nil
	}
	return &m.series[feed][policy]
}

// Published counts one message accepted for a room of the feed.
func (m *Metrics) Published(feed int) {
	if m != nil {
		m.published[feed].add(1)
	}
}

// Fanout records how long offering one message to all subscriptions took.
func (m *Metrics) Fanout(feed int, d time.Duration) {
	if m != nil {
		m.fanout[feed].observe(d)
	}
}

// PublishRejected counts one refused publish, by index in Sets.PublishReasons.
func (m *Metrics) PublishRejected(reason int) {
	if m != nil {
		m.publishRejected[reason].add(1)
	}
}

// Write records how long one write to a socket took, failed ones included.
func (m *Metrics) Write(d time.Duration) {
	if m != nil {
		m.write.observe(d)
	}
}

// ConnectionClosed counts one ended connection, by index in Sets.CloseReasons.
func (m *Metrics) ConnectionClosed(reason int) {
	if m != nil {
		m.connectionsClosed[reason].add(1)
	}
}

// CloseOutcome counts how one connection's end went, by index in
// Sets.CloseOutcomes.
func (m *Metrics) CloseOutcome(outcome int) {
	if m != nil {
		m.closeOutcomes[outcome].add(1)
	}
}

// HandshakeRejected counts one request refused before its upgrade, by index in
// Sets.HandshakeReasons.
func (m *Metrics) HandshakeRejected(reason int) {
	if m != nil {
		m.handshakesRejected[reason].add(1)
	}
}
