package hub

import (
	"time"

	"hubd/internal/frame"
	"hubd/internal/metrics"
	"hubd/internal/queue"
)

// RoomInfo describes a room for anyone who looks.
type RoomInfo struct {
	Room        frame.Room
	Feed        string
	Policy      queue.Policy
	Position    frame.Position // zero where there is no such room now
	Subscribers int
	Queue       queue.Limits
}

// Info describes the room. Looking creates none.
func (h *Hub) Info(name frame.Room) RoomInfo {
	info := RoomInfo{Room: name}
	feed := h.feedOf(name)
	if r := h.find(name); r != nil {
		if pos, subs := r.members(); !r.dead.Load() {
			info.Position, info.Subscribers = pos, len(subs)
		}
	}
	f := &h.feeds[feed]
	info.Feed, info.Policy, info.Queue = f.Name, f.Policy, f.Queue
	return info
}

// SubscriptionStats is one subscription, for operators.
type SubscriptionStats struct {
	*Subscription
	queue.Stats
}

// Lost counts the frames that the subscriber did not get and was, or will be,
// told of.
func (s SubscriptionStats) Lost() (n uint64) {
	for reason, dropped := range s.Dropped {
		if queue.Reason(reason) != queue.Closed {
			n += dropped
		}
	}
	return n
}

// Stats returns the books of the subscription's queue. They stay what they were
// at its end.
func (s *Subscription) Stats() queue.Stats { return s.queue.Stats(s.room.hub.now()) }

// RoomStats is one room, for operators.
type RoomStats struct {
	RoomInfo
	Queued        queue.Limits
	Dropped       uint64 // the losses of the subscriptions of now
	Subscriptions []SubscriptionStats
}

// Rooms returns every room that has subscribers or history, in no order.
func (h *Hub) Rooms() []RoomStats {
	var all []RoomStats
	for _, r := range h.snapshot() {
		if st := h.roomStats(r); !r.dead.Load() {
			all = append(all, st)
		}
	}
	return all
}

// Room returns the room's stats, or false where there is no such room now.
func (h *Hub) Room(name frame.Room) (RoomStats, bool) {
	r := h.find(name)
	if r == nil {
		return RoomStats{}, false
	}
	st := h.roomStats(r)
	return st, !r.dead.Load()
}

func (h *Hub) roomStats(r *room) RoomStats {
	pos, subs := r.members()
	f := &h.feeds[r.feed]
	st := RoomStats{RoomInfo: RoomInfo{Room: r.name, Feed: f.Name, Policy: f.Policy, Position: pos, Subscribers: len(subs), Queue: f.Queue}}
	now := h.now()
	st.Subscriptions = make([]SubscriptionStats, len(subs))
	for i, s := range subs {
		sub := SubscriptionStats{s, s.queue.Stats(now)}
		st.Subscriptions[i] = sub
		st.Queued.Messages += sub.Queued.Messages
		st.Queued.Bytes += sub.Queued.Bytes
		st.Dropped += sub.Lost()
	}
	return st
}

// State is what the metrics' collector reads at a scrape. It walks every queue
// once, holding no lock longer than one room's list takes to copy. A
// subscription counts until its last frame is resolved, which may be later than
// it left its room.
func (h *Hub) State() metrics.State {
	st := metrics.State{Subscriptions: make([][]int, len(h.feeds)), RetainedBytes: h.ledger.Retained()}
	for i := range st.Subscriptions {
		st.Subscriptions[i] = make([]int, queue.NumPolicies)
	}
	for _, n := range h.ledger.Encoded() {
		st.Encoded = append(st.Encoded, n)
	}
	now := h.now()
	for _, r := range h.snapshot() {
		_, subs := r.members()
		if !r.dead.Load() {
			st.Rooms++
		}
		for _, s := range subs {
			addState(&st, s, now)
		}
	}
	for _, s := range h.departing.list() {
		addState(&st, s, now)
	}
	return st
}

func addState(st *metrics.State, s *Subscription, now time.Duration) {
	qs := s.queue.Stats(now)
	st.Subscriptions[s.room.feed][s.policy]++
	st.DepthMessages = append(st.DepthMessages, qs.Queued.Messages)
	st.DepthBytes = append(st.DepthBytes, qs.Queued.Bytes)
	st.InFlight += qs.InFlight
	st.Oldest = max(st.Oldest, qs.Oldest)
}
