package metrics

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what gauges and summaries are read from at scrape. What it lacks
// reads as 0.
type State struct {
	// Rooms have subscribers or retained history.
	Rooms         int
	Subscriptions [][]int // [feed][policy]
	// DepthMessages and DepthBytes have one entry a subscription, in any order.
	DepthMessages, DepthBytes []int
	// InFlight frames are taken out of a queue and not yet sent.
	InFlight int
	// Oldest is the age of the oldest queued frame.
	Oldest time.Duration
	// RetainedBytes are of distinct frames that are kept alive.
	RetainedBytes int64
	// Encoded is by encoding, since the start.
	Encoded []uint64
}

// instruments exposes what a Metrics counted.
type instruments Metrics

// Describe implements prometheus.Collector.
func (m *instruments) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		publishedDesc, publishRejectedDesc, offeredDesc, sentDesc, droppedDesc, overflowDesc,
		inQueueDesc, fanoutDesc, writeDesc, connectionsClosedDesc, closeOutcomeDesc,
		handshakesRejectedDesc, buildInfoDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *instruments) Collect(ch chan<- prometheus.Metric) {
	for f, feed := range m.sets.Feeds {
		emitCounter(ch, publishedDesc, m.published[f].value(), feed)
		h, _ := m.fanout[f].metric(fanoutDesc, feed)
		ch <- h
		for p, policy := range m.sets.Policies {
			m.collectSeries(ch, &m.series[f][p], feed, policy)
		}
	}
	h, _ := m.write.metric(writeDesc)
	ch <- h
	emitSet(ch, publishRejectedDesc, m.publishRejected, m.sets.PublishReasons)
	emitSet(ch, connectionsClosedDesc, m.connectionsClosed, m.sets.CloseReasons)
	emitSet(ch, closeOutcomeDesc, m.closeOutcomes, m.sets.CloseOutcomes)
	emitSet(ch, handshakesRejectedDesc, m.handshakesRejected, m.sets.HandshakeReasons)
	version, revision := build(m.sets)
	emitGauge(ch, buildInfoDesc, 1, version, revision, runtime.Version())
}

func (m *instruments) collectSeries(ch chan<- prometheus.Metric, s *Series, feed, policy string) {
	h, sent := s.inQueue.metric(inQueueDesc, feed, policy)
	ch <- h
	emitCounter(ch, sentDesc, float64(sent), feed, policy)
	emitSet(ch, droppedDesc, s.dropped, m.sets.DropReasons, feed, policy)
	emitSet(ch, overflowDesc, s.overflow, m.sets.OverflowReasons, feed, policy)
	// Read last, that a scrape in the midst of things finds few outcomes of
	// offers that it does not see.
	emitCounter(ch, offeredDesc, s.offered.value(), feed, policy)
}

// gauges exposes what is read from the hub and the server at each scrape.
type gauges struct {
	sets        Sets
	hub         func() State
	connections func() []int
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		connectionsDesc, roomsDesc, subscriptionsDesc, encodedDesc, depthMessagesDesc, depthBytesDesc,
		queuedFramesDesc, inFlightDesc, queuedBytesDesc, retainedBytesDesc, oldestDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	connections, st := g.connections(), g.hub()
	for i, transport := range g.sets.Transports {
		emitGauge(ch, connectionsDesc, float64(at(connections, i)), transport)
	}
	for i, encoding := range g.sets.Encodings {
		emitCounter(ch, encodedDesc, float64(at(st.Encoded, i)), encoding)
	}
	for f, feed := range g.sets.Feeds {
		for p, policy := range g.sets.Policies {
			emitGauge(ch, subscriptionsDesc, float64(at(at(st.Subscriptions, f), p)), feed, policy)
		}
	}
	emitGauge(ch, roomsDesc, float64(st.Rooms))
	emitGauge(ch, queuedFramesDesc, emitDepths(ch, depthMessagesDesc, st.DepthMessages))
	emitGauge(ch, queuedBytesDesc, emitDepths(ch, depthBytesDesc, st.DepthBytes))
	emitGauge(ch, inFlightDesc, float64(st.InFlight))
	emitGauge(ch, retainedBytesDesc, float64(st.RetainedBytes))
	emitGauge(ch, oldestDesc, st.Oldest.Seconds())
}

// at returns s[i], or the zero value past its end.
func at[T any](s []T, i int) (zero T) {
	if i < len(s) {
		return s[i]
	}
	return zero
}

func emitGauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func emitCounter(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// emitSet emits one counter for each value of a closed set, the last label.
func emitSet(ch chan<- prometheus.Metric, d *prometheus.Desc, counters []counter, values []string, labels ...string) {
	for i, value := range values {
		emitCounter(ch, d, counters[i].value(), append(labels[:len(labels):len(labels)], value)...)
	}
}

// emitDepths emits a summary and returns its sum.
func emitDepths(ch chan<- prometheus.Metric, d *prometheus.Desc, depths []int) (sum float64) {
	for _, n := range depths {
		sum += float64(n)
	}
	q := Quantiles(depths)
	ch <- prometheus.MustNewConstSummary(d, uint64(len(depths)), sum, map[float64]float64{
		0.5: float64(q.P50), 0.9: float64(q.P90), 0.99: float64(q.P99), 0.999: float64(q.P999), 1: float64(q.Max),
	})
	return sum
}

// build returns the labels of hubd_build_info.
func build(sets Sets) (version, revision string) {
	version, revision = "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if sets.Version != "" {
		version = sets.Version
	}
	if sets.Revision != "" {
		revision = sets.Revision
	}
	return version, revision
}
