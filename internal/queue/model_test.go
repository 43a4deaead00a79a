package queue

import (
	"slices"
	"time"
)

// model is the queue as its documentation reads, in plain slices and without a
// thought for speed. Gaps are not carried along with frames but found at the
// moment they are told, from a list of losses.
type model struct {
	policy  Policy
	limits  Limits
	ttl     time.Duration
	queued  []modelFrame
	flight  int
	awake   bool
	closed  bool
	offered uint64
	sent    uint64
	dropped [NumReasons]uint64
	// untold losses, in the order they happened
	untold []modelLoss
	// released since the last look
	released []int
}

// modelFrame is numbered by id in the order of offers.
type modelFrame struct {
	id, bytes int
	key       string
	at, since time.Duration
}

type modelLoss struct {
	id  int
	why Reason
}

func (m *model) drop(f modelFrame, why Reason) {
	m.dropped[why]++
	if why != Closed {
		m.untold = append(m.untold, modelLoss{f.id, why})
	}
}

// release drops a frame that was queued. The caller removes it.
func (m *model) release(f modelFrame, why Reason) {
	m.drop(f, why)
	m.released = append(m.released, f.id)
}

// tell returns the losses among the frames offered before id, once.
func (m *model) tell(id int) (g Gap) {
	var rest []modelLoss
	for _, l := range m.untold {
		if l.id < id {
			g.Lost++
			g.Reason = l.why
		} else {
			rest = append(rest, l)
		}
	}
	m.untold = rest
	return g
}

func (m *model) depth() Limits { return depthOf(m.queued) }

func depthOf(frames []modelFrame) (l Limits) {
	for _, f := range frames {
		l.Messages++
		l.Bytes += f.bytes
	}
	return l
}

func (m *model) within(frames []modelFrame) bool {
	d := depthOf(frames)
	return d.Messages <= m.limits.Messages && d.Bytes <= m.limits.Bytes
}

func (m *model) fits(bytes int) bool {
	f := modelFrame{bytes: bytes}
	return !m.within([]modelFrame{f}) || m.within(append(slices.Clone(m.queued), f))
}

func (m *model) oldest(now time.Duration) time.Duration {
	if len(m.queued) == 0 {
		return 0
	}
	return now - m.queued[0].at
}

func (m *model) wake() bool {
	wake := !m.awake
	m.awake = true
	return wake
}

func (m *model) offer(f modelFrame) Verdict {
	if m.closed {
		return Verdict{Closed: true}
	}
	m.offered++
	f.since = f.at
	all := append(slices.Clone(m.queued), f)
	if m.within(all) {
		m.queued = all
		return Verdict{Accepted: true, Wake: m.wake()}
	}

	var v Verdict
	tooLarge := !m.within([]modelFrame{f})
	if !tooLarge && len(all) > m.limits.Messages {
		v.Overflow = LimitMessages
	} else {
		v.Overflow = LimitBytes
	}
	if m.policy == Disconnect {
		v.Disconnect = true
		v.Dropped = 1
		v.Depth, v.Oldest = m.depth(), m.oldest(f.at)
		m.drop(f, Overflow)
		v.Discarded = m.close()
		return v
	}
	if tooLarge || m.policy == DropNewest || m.policy == RejectPublish {
		m.drop(f, Overflow)
		v.Dropped = 1
		v.Wake = m.wake()
		return v
	}
	if m.policy == KeepLatest {
		kept := m.conflate(all)
		v.Conflated = len(all) - len(kept)
		all = kept
	}
	for !m.within(all) {
		m.release(all[0], Overflow)
		v.Dropped++
		all = all[1:]
	}
	m.queued = all
	v.Accepted, v.Wake = true, m.wake()
	return v
}

// conflate returns what keep-latest keeps of the frames, the last of which is
// the arriving one.
func (m *model) conflate(all []modelFrame) (kept []modelFrame) {
	newest := map[string]int{}
	for i, f := range all {
		newest[f.key] = i
	}
	longest := -1
	for i, f := range all[:len(all)-1] {
		if f.key != "" && (longest < 0 || f.since < all[longest].since) {
			longest = i
		}
	}
	choose := func(spare int) (chosen []modelFrame) {
		for i, f := range all {
			if i == newest[f.key] || i == spare {
				chosen = append(chosen, f)
			}
		}
		return chosen
	}
	without, with := choose(-1), choose(longest)
	if longest >= 0 && (without[0].key == all[longest].key || !m.within(with)) {
		longest = -1
	}
	for i, f := range all {
		if heir := newest[f.key]; i != heir && i != longest {
			m.release(f, Conflated)
			all[heir].since = min(all[heir].since, f.since)
		}
	}
	return choose(longest)
}

// take returns the frames and the gap before each. A batch that has frames
// already is bound by the limit from the first.
func (m *model) take(started bool, now time.Duration, limit Limits) (got []modelFrame, gaps []Gap, expired int, tail Gap) {
	total := 0
	for len(m.queued) > 0 {
		f := m.queued[0]
		if m.ttl > 0 && now-f.at > m.ttl {
			m.release(f, Expired)
			m.queued = m.queued[1:]
			expired++
			continue
		}
		if (started || len(got) > 0) && (len(got)+1 > limit.Messages || total+f.bytes > limit.Bytes) {
			break
		}
		got = append(got, f)
		gaps = append(gaps, m.tell(f.id))
		total += f.bytes
		m.queued = m.queued[1:]
	}
	if len(m.queued) == 0 && !m.closed {
		tail = m.tell(1 << 62)
	}
	m.flight += len(got)
	if len(got)+len(m.queued) == 0 {
		m.awake = false
	}
	return got, gaps, expired, tail
}

func (m *model) shed(before, now time.Duration) (v Verdict) {
	if len(m.queued) == 0 || m.queued[0].at >= before {
		return v
	}
	v = Verdict{Overflow: LimitBudget, Depth: m.depth(), Oldest: m.oldest(now)}
	if m.policy == Disconnect {
		v.Disconnect, v.Discarded = true, m.close()
		return v
	}
	for len(m.queued) > 0 && m.queued[0].at < before {
		m.release(m.queued[0], Budget)
		m.queued = m.queued[1:]
		v.Dropped++
	}
	return v
}

func (m *model) begin(n int) {
	m.offered += uint64(n)
	m.flight += n
}

func (m *model) done(sent, lost int) {
	m.flight -= sent + lost
	m.sent += uint64(sent)
	m.dropped[Closed] += uint64(lost)
}

func (m *model) close() (discarded int) {
	m.closed = true
	discarded = len(m.queued)
	for _, f := range m.queued {
		m.release(f, Closed)
	}
	m.queued = nil
	return discarded
}

func (m *model) stats(now time.Duration) Stats {
	return Stats{
		Queued:   m.depth(),
		InFlight: m.flight,
		Oldest:   m.oldest(now),
		Offered:  m.offered,
		Sent:     m.sent,
		Dropped:  m.dropped,
	}
}
