package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hubd/internal/frame"
	"hubd/internal/queue"
)

// MaxWait bounds how long a publish may wait for room.
const MaxWait = 5 * time.Second

// PublishRequest is one message to publish.
type PublishRequest struct {
	Message frame.Message
	// Wait is how long to wait for room where the feed's policy refuses
	// publishes; capped at MaxWait.
	Wait time.Duration
}

// Published is what became of a message on this node.
type Published struct {
	Position frame.Position
	// Subscribers is how many queues it was offered to.
	Subscribers int
	// Queued is how many took it.
	Queued int
	// Dropped counts frames, this one or older, lost to overflow by it.
	Dropped int
	// Conflated counts frames it replaced.
	Conflated int
	// Disconnected counts subscribers cut off.
	Disconnected int
}

// Publish offers the message to every subscription of its room and returns
// when that is done. It waits only for room in queues that refuse publishes,
// within q.Wait and ctx, and never for a socket. Its errors are *Error, or
// ctx's.
func (h *Hub) Publish(ctx context.Context, q PublishRequest) (Published, error) {
	m := q.Message
	if len(m.Data) > h.maxMessage {
		return Published{}, &Error{Code: MessageTooLarge, Detail: fmt.Sprintf("a message has at most %d bytes", h.maxMessage)}
	}
	if err := m.Validate(); err != nil {
		return Published{}, &Error{Code: InvalidMessage, Detail: err.Error()}
	}
	out := fanouts.Get().(*fanout)
	defer out.free()
	var patience <-chan time.Time
	for {
		r, err := h.acquire(m.Room)
		if err != nil {
			return Published{}, err
		}
		start := h.now()
		pos, refused, ok := r.publish(m, out)
		switch {
		case ok:
			r.forgetDead()
			h.boundHistory()
			p := h.settle(r, pos, start, out)
			h.relieve()
			return p, nil
		case refused == nil: // the room died; there is another
			continue
		case q.Wait <= 0:
			return Published{}, errOverflow
		case patience == nil:
			timer := time.NewTimer(min(q.Wait, MaxWait))
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-refused:
		case <-h.drained: // the next look says so
		case <-patience:
			return Published{}, errOverflow
		case <-ctx.Done():
			return Published{}, fmt.Errorf("waiting for room: %w", ctx.Err())
		}
	}
}

var errOverflow = &Error{Code: Overflow, RetryAfter: time.Second,
	Detail: "a subscriber's queue is full and this feed refuses the publish; nobody got it"}

// settle does what a publish left to do, without locks: wake writers, tell the
// owners of the evicted, count.
func (h *Hub) settle(r *room, pos frame.Position, start time.Duration, out *fanout) Published {
	for _, s := range out.wake {
		s.owner.Wake()
	}
	for _, e := range out.evicted {
		e.sub.owner.Evicted(Eviction{Subscription: e.sub, Depth: e.depth, Oldest: e.age})
	}
	h.metrics.Published(r.feed)
	h.metrics.Fanout(r.feed, h.now()-start)
	p := Published{Position: pos, Disconnected: len(out.evicted)}
	for policy := range out.tally {
		t := &out.tally[policy]
		if t.offered == 0 {
			continue
		}
		p.Subscribers += t.offered
		p.Queued += t.accepted
		p.Dropped += t.dropped
		p.Conflated += t.conflated
		series := h.series[r.feed][policy]
		series.Offered(t.offered)
		series.Dropped(int(queue.Overflow), t.dropped)
		series.Dropped(int(queue.Conflated), t.conflated)
		series.Dropped(int(queue.Closed), t.closed)
		series.Overflow(int(queue.LimitMessages)-1, t.overflow[queue.LimitMessages])
		series.Overflow(int(queue.LimitBytes)-1, t.overflow[queue.LimitBytes])
	}
	return p
}

// CodeOf returns err's code, or "" if it has none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
