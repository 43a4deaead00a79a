package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Sets are the closed sets of label values, in the order of the types that own
// them, so that a typed value's number is its index here.
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
}

// Metrics holds the instruments. A nil *Metrics works and records nothing.
type Metrics struct{}

// New registers the instruments with reg, every series of every closed set at 0.
func New(reg prometheus.Registerer, sets Sets) *Metrics { return nil }

// Series is the set of instruments of one feed and policy, resolved once.
type Series struct{}

func (m *Metrics) Series(feed, policy int) *Series { return nil }

func (s *Series) Offered(n int)             {}
func (s *Series) Dropped(reason int, n int) {}
func (s *Series) Overflow(limit int, n int) {}

// Sent counts frames of one write and their times from offer to written.
func (s *Series) Sent(ages []time.Duration) {}

func (m *Metrics) Published(feed int)               {}
func (m *Metrics) Fanout(feed int, d time.Duration) {}
func (m *Metrics) PublishRejected(reason int)       {}
func (m *Metrics) Write(d time.Duration)            {}
func (m *Metrics) ConnectionClosed(reason int)      {}
func (m *Metrics) CloseOutcome(outcome int)         {}
func (m *Metrics) HandshakeRejected(reason int)     {}

// State is what gauges and summaries are read from at scrape.
type State struct {
	Rooms         int
	Subscriptions [][]int // [feed][policy]
	// DepthMessages and DepthBytes have one entry a subscription, in any order.
	DepthMessages, DepthBytes []int
	InFlight                  int
	Oldest                    time.Duration
	RetainedBytes             int64
	Encoded                   []uint64 // by encoding
}

// Collect registers a collector that reads hub and connections at each scrape.
func (m *Metrics) Collect(hub func() State, connections func() []int) {}
