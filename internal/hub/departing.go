package hub

import (
	"maps"
	"slices"
	"sync"
)

// departing are the subscriptions that are out of their room and still have
// frames queued or in flight: what a drain flushes, and what is stuck in a
// write until the close timeout frees it. Without them the balance would be
// short of those frames for so long.
type departing struct {
	// mu is a leaf: nothing but the map is touched under it. It may be taken
	// under a room's lock.
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

func (d *departing) add(s *Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subs == nil {
		d.subs = map[*Subscription]struct{}{}
	}
	d.subs[s] = struct{}{}
}

func (d *departing) remove(s *Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subs, s)
}

func (d *departing) list() []*Subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.subs))
}

// depart is called once s is out of its room, so that its frames can only
// become fewer.
func (s *Subscription) depart() {
	if s.resolved() {
		return
	}
	// In this order: whoever resolves the last frame either sees that s has
	// departed, and removes it, or did so before the look below.
	s.room.hub.departing.add(s)
	s.departed.Store(true)
	s.forgetDeparted()
}

// forgetDeparted forgets a departed subscription whose frames are all resolved.
func (s *Subscription) forgetDeparted() {
	if s.departed.Load() && s.resolved() {
		s.room.hub.departing.remove(s)
	}
}

func (s *Subscription) resolved() bool {
	st := s.queue.Stats(0)
	return st.Queued.Messages == 0 && st.InFlight == 0
}
