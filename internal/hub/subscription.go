package hub

import (
	"sync/atomic"
	"time"

	"hubd/internal/frame"
	"hubd/internal/metrics"
	"hubd/internal/queue"
)

// Owner is the connection that a subscription belongs to. The hub calls it
// without holding a lock, on the publisher's goroutine: both methods return at
// once and never call back into the hub.
type Owner interface {
	// Wake says that frames are queued and nobody is taking them. It may come
	// when there is nothing to take any more, and after the owner has ended.
	Wake()
	// Evicted says that the subscription ended because its queue overflowed
	// under the policy disconnect. It comes at most once a subscription.
	Evicted(Eviction)
}

// Eviction is what a subscription looked like when its queue overflowed.
type Eviction struct {
	Subscription *Subscription
	// Depth is what was queued, and is lost; Oldest is the age of its head.
	Depth  queue.Limits
	Oldest time.Duration
}

// Subscription is one connection's membership of one room. It owns one queue.
// Take and Sent belong to the connection's writer; all else may be called
// concurrently.
type Subscription struct {
	// immutable
	id     string
	owner  Owner
	room   *room
	policy queue.Policy
	limits queue.Limits
	since  time.Time
	series *metrics.Series
	queue  *queue.Queue[*frame.Frame]
	// set once, on joining
	joined             frame.Position
	start              uint64
	resumed            bool
	replayed, snapshot int

	replay replay

	departed atomic.Bool // see departing

	// guarded by room.mu
	live  bool // in room.live, otherwise in room.behind
	index int  // the place there, -1 when in neither
}

// Item is a frame on its way to one subscriber.
type Item = queue.Item[*frame.Frame]

// Taken is what a writer got from one queue.
type Taken = queue.Taken[*frame.Frame]

// JoinRequest names the room to join, what the subscriber asks for, and the
// connection.
type JoinRequest struct {
	Room    frame.Room
	Options Options
	// After is the position to resume from, or nil.
	After *frame.Position
	Owner Owner
	// ID is the subscription's name for operators, unique in the process.
	ID string
}

// Join registers a subscription. From then on every frame of the room is
// offered to it; the owner may be woken before Join has returned.
func (h *Hub) Join(q JoinRequest) (*Subscription, error) {
	feed := h.feedOf(q.Room)
	policy, limits, err := h.feeds[feed].resolve(q.Options)
	if err != nil {
		return nil, err
	}
	if err := h.Reserve(subscriptionBytes); err != nil {
		return nil, err
	}
	for {
		r, err := h.acquire(q.Room)
		if err != nil {
			h.Unreserve(subscriptionBytes)
			return nil, err
		}
		s := &Subscription{
			id: q.ID, owner: q.Owner, room: r, policy: policy, limits: limits, since: time.Now(),
			series: h.series[feed][policy], index: -1,
			queue: queue.New(queue.Config[*frame.Frame]{
				Policy: policy, Limits: limits, TTL: h.feeds[feed].TTL, Released: release,
			}),
		}
		if r.join(s, q.After) {
			return s, nil
		}
	}
}

func release(f *frame.Frame) { f.Release(1) }

// Check reports whether a join of the room with these options would be refused
// for what it asks.
func (h *Hub) Check(room frame.Room, o Options) error {
	_, _, err := h.feeds[h.feedOf(room)].resolve(o)
	return err
}

// ID returns the subscription's name for operators.
func (s *Subscription) ID() string { return s.id }

// Room returns the name of the room.
func (s *Subscription) Room() frame.Room { return s.room.name }

// Joined returns the room's position at the moment of joining.
func (s *Subscription) Joined() frame.Position { return s.joined }

// Resumed reports whether what was missed since the position asked for comes
// first, and how many frames that was at the moment of joining.
func (s *Subscription) Resumed() (replayed int, ok bool) { return s.replayed, s.resumed }

// Snapshot returns how many last values come first, at the moment of joining.
func (s *Subscription) Snapshot() int { return s.snapshot }

// Start returns the seq after which the first frame comes that this
// subscription can get.
func (s *Subscription) Start() uint64 { return s.start }

// Policy returns the policy in force.
func (s *Subscription) Policy() queue.Policy { return s.policy }

// Limits returns the limits in force.
func (s *Subscription) Limits() queue.Limits { return s.limits }

// Since returns when the subscription joined.
func (s *Subscription) Since() time.Time { return s.since }

// Owner returns the connection.
func (s *Subscription) Owner() Owner { return s.owner }

// Take moves frames from the queue into flight, within limit but at least one
// if there is one, and appends them to dst. Each must be given to Sent.
func (s *Subscription) Take(dst []Item, limit queue.Limits) Taken {
	if s.replay.on {
		return s.catchUp(dst, limit)
	}
	t := s.queue.Take(dst, s.room.hub.now(), limit)
	s.series.Dropped(int(queue.Expired), t.Expired)
	// What expired has made room, too, even where nothing was left to take.
	if s.policy == queue.RejectPublish && (len(t.Items) > len(dst) || t.Expired > 0) {
		s.room.signalSpace()
	}
	return t
}

// Sent resolves frames that were in flight: the first n were written to the
// socket whole, the others never will be. ages is scratch space, which it
// returns.
func (s *Subscription) Sent(items []Item, n int, ages []time.Duration) []time.Duration {
	s.queue.Done(n, len(items)-n)
	now := s.room.hub.now()
	ages = ages[:0]
	for i := range items {
		if i < n {
			ages = append(ages, now-items[i].At)
		}
		items[i].Value.Release(1)
	}
	s.series.Sent(ages)
	s.series.Dropped(int(queue.Closed), len(items)-n)
	s.forgetDeparted()
	return ages
}

// Seal takes the subscription out of its room: nothing is offered any more.
// What is queued can still be taken.
func (s *Subscription) Seal() { s.room.leave(s) }

// Leave seals the subscription and ends its queue. It may be called again.
func (s *Subscription) Leave() {
	s.Seal()
	s.series.Dropped(int(queue.Closed), s.queue.Close())
	s.forgetDeparted()
}
