package hub

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"hubd/internal/frame"
	"hubd/internal/metrics"
	"hubd/internal/queue"
)

// Hub is the registry of rooms. All methods may be called concurrently; none
// waits for a socket.
type Hub struct {
	// immutable
	feeds      []Feed
	series     [][queue.NumPolicies]*metrics.Series // by feed and policy
	metrics    *metrics.Metrics
	maxMessage int
	maxHistory int64
	budget     int64 // 0: none
	start      time.Time
	ledger     frame.Ledger

	historyBytes atomic.Int64 // what all histories take
	bounding     atomic.Bool  // one publish is at it
	fixed        atomic.Int64 // reserved, in bytes
	relieving    atomic.Bool  // one publish is making room
	closed       atomic.Bool
	departing    departing

	// mu guards the registry only: it is held for a look-up, never while a
	// room's or a queue's lock is.
	mu       sync.RWMutex
	rooms    map[frame.Room]*room
	draining bool

	drained chan struct{} // closed with draining
}

// New returns a hub, or what Validate has against cfg.
func New(cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	cfg = cfg.WithDefaults()
	h := &Hub{
		feeds:      cfg.Feeds,
		metrics:    cfg.Metrics,
		maxMessage: cfg.MaxMessageBytes,
		maxHistory: int64(cfg.MaxHistoryBytes),
		budget:     cfg.MemoryBudget,
		start:      time.Now(),
		rooms:      map[frame.Room]*room{},
		drained:    make(chan struct{}),
	}
	for f := range h.feeds {
		var row [queue.NumPolicies]*metrics.Series
		for p := range row {
			row[p] = cfg.Metrics.Series(f, p)
		}
		h.series = append(h.series, row)
	}
	return h, nil
}

// MaxMessageBytes returns the limit on one message's payload.
func (h *Hub) MaxMessageBytes() int { return h.maxMessage }

// now is the time that queues are given: monotonic, since the hub's start.
func (h *Hub) now() time.Duration { return time.Since(h.start) }

// feedOf returns the index of the room's feed: the first that matches, else the
// one named DefaultFeed.
func (h *Hub) feedOf(name frame.Room) int {
	fallback := 0
	for i := range h.feeds {
		if h.feeds[i].matches(name) {
			return i
		}
		if h.feeds[i].Name == DefaultFeed {
			fallback = i
		}
	}
	return fallback
}

// Drain refuses joins and publishes from now on, those that wait for room
// among them. What is queued stays queued.
func (h *Hub) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.draining {
		h.draining = true
		close(h.drained)
	}
}

// Close lets go of all histories and stops their timers. Subscriptions must
// have left before.
func (h *Hub) Close() {
	h.Drain()
	h.closed.Store(true)
	for _, r := range h.snapshot() {
		r.clear()
	}
}

// find returns the room, or nil where there is none.
func (h *Hub) find(name frame.Room) *room {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.rooms[name]
}

// acquire returns the room, made if need be. It may die before the caller has
// its lock; then the caller acquires again.
func (h *Hub) acquire(name frame.Room) (*room, error) {
	h.mu.RLock()
	r, draining := h.rooms[name], h.draining
	h.mu.RUnlock()
	if draining {
		return nil, errDraining
	}
	if r != nil && !r.dead.Load() {
		return r, nil
	}
	feed := h.feedOf(name)
	fresh := &room{hub: h, name: name, feed: feed, epoch: frame.NewEpoch(), history: history{
		limits: *h.feeds[feed].History, compact: h.feeds[feed].Policy == queue.KeepLatest, total: &h.historyBytes,
	}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return nil, errDraining
	}
	if r := h.rooms[name]; r != nil && !r.dead.Load() {
		return r, nil
	}
	h.rooms[name] = fresh
	return fresh, nil
}

// forget takes a dead room out of the registry, unless its successor is there
// already.
func (h *Hub) forget(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms[r.name] == r {
		delete(h.rooms, r.name)
	}
}

// snapshot returns the rooms that are there now.
func (h *Hub) snapshot() []*room {
	h.mu.RLock()
	defer h.mu.RUnlock()
	rooms := make([]*room, 0, len(h.rooms))
	for _, r := range h.rooms {
		rooms = append(rooms, r)
	}
	return rooms
}
