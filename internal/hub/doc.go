// Package hub is the registry of rooms and the fan-out: it offers each message
// to every subscriber's own queue and never waits for any of them.
//
// A publish finds its room, and in one critical section of that room takes the
// next sequence number and offers the shared frame to each subscription's
// queue. That section is the whole of the room's order: whoever joins, leaves
// or publishes does so before or after it. What is left to do (waking writers,
// telling connections that they were cut off, counting) is done after the lock
// is released, on the publisher's goroutine. The hub has no goroutine of its
// own, but a room has a timer while it retains history: what is too old goes
// although nobody publishes.
//
// A subscription owns one queue, filled by publishers and drained by its
// connection's writer; slowness stays in it. What the queue loses is decided by
// its policy, counted at once, and told to the subscriber by the writer in the
// place where it was lost.
//
// A room is there while somebody is subscribed or something is retained. When
// neither is so any more it is marked dead under its lock, and never used again:
// who finds it dead asks the registry for its successor, which has another
// epoch. So no lock is ever held while another room's or the registry's is
// taken.
//
// Invariants:
//   - an offer never waits, whatever any subscriber does;
//   - offered = sent + dropped + queued + in flight, for each subscription and
//     in sum;
//   - seq rises by one a message, and every subscriber sees the same order;
//   - a refused publish has offered nothing and takes no seq;
//   - nothing is offered to a subscription after it was sealed, evicted or left.
//
// Locks: Hub.mu guards the registry, room.mu the membership and order; queues
// have their own under it. Order: room, then queue. Nothing slow happens under
// any: no I/O, no logging, no callback.
//
// Files: hub.go, the registry; room.go, the critical section; publish.go, a
// publish from start to end; subscription.go, what a connection holds; feed.go,
// the configuration; stats.go, the looking side; departing.go, what is not settled
// when a subscription leaves; history.go, what is retained and resumed from;
// budget.go, what happens when memory is short; code.go, refusals.
package hub
