package metrics

import "time"

// Series is the set of instruments of one feed and policy, resolved once. A nil
// *Series works and records nothing. All methods may be called concurrently,
// and none allocates, waits or takes a lock.
type Series struct {
	offered  counter
	dropped  []counter // by Sets.DropReasons
	overflow []counter // by Sets.OverflowReasons
	// inQueue holds one observation a sent frame, so that its count is the
	// number of frames sent: there is no second counter to disagree with it.
	inQueue histogram
}

func newSeries(sets Sets, inQueue *scale) Series {
	return Series{
		dropped:  make([]counter, len(sets.DropReasons)),
		overflow: make([]counter, len(sets.OverflowReasons)),
		inQueue:  newHistogram(inQueue),
	}
}

// Offered counts n frames offered to queues. Like every verb here it ignores an
// n that is not positive.
func (s *Series) Offered(n int) {
	if s != nil {
		s.offered.add(n)
	}
}

// Dropped counts n frames lost, by index in Sets.DropReasons.
func (s *Series) Dropped(reason int, n int) {
	if s != nil {
		s.dropped[reason].add(n)
	}
}

// Overflow counts n offers that hit a limit, by index in Sets.OverflowReasons.
func (s *Series) Overflow(limit int, n int) {
	if s != nil {
		s.overflow[limit].add(n)
	}
}

// Sent counts frames of one write and their times from offer to written, one
// age a frame.
func (s *Series) Sent(ages []time.Duration) {
	if s != nil {
		s.inQueue.observeAll(ages)
	}
}
