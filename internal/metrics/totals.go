package metrics

// Totals are counters since the start, summed over feeds and policies.
type Totals struct {
	Published uint64
	Offered   uint64
	Sent      uint64
	// Dropped has every reason of Sets.DropReasons.
	Dropped map[string]uint64
}

// Totals reads the counters. It costs a few hundred loads and is meant for an
// admin's request, not for each message. A nil Metrics has no totals, and no
// reasons either.
func (m *Metrics) Totals() Totals {
	t := Totals{Dropped: map[string]uint64{}}
	if m == nil {
		return t
	}
	for f := range m.series {
		t.Published += m.published[f].n.Load()
		for p := range m.series[f] {
			s := &m.series[f][p]
			t.Sent += s.inQueue.count()
			for r, reason := range m.sets.DropReasons {
				t.Dropped[reason] += s.dropped[r].n.Load()
			}
			t.Offered += s.offered.n.Load() // last, as at a scrape
		}
	}
	return t
}
