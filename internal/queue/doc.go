// Package queue is the bounded queue between a publisher that never waits and
// a writer that may be slow. A subscription owns one. What a full queue loses
// is decided by its [Policy] and told exactly: to the publisher by the
// [Verdict] of each offer, to the subscriber by the [Gap] before the next
// frame it does get, to the operator by [Stats].
//
// The package is pure: it starts no goroutine, reads no clock (times are
// arguments) and knows nothing of what its frames are. Every run can therefore
// be replayed without sleeping.
//
// # Life of a frame
//
//	        ┌ refused ── overflow
//	Offer ──┤                       ┌ Done ── sent or closed
//	        └ queued ──── Take ──── in flight
//	             └ dropped ── overflow, conflated, expired, closed
//
// Frames that a subscriber is given from elsewhere go into flight by Begin and
// are counted here, so that the sums hold for all that it was ever to get.
//
// These hold after every call:
//
//   - Offered = Sent + Dropped (all reasons) + queued + in flight.
//   - Neither limit is exceeded, the arriving frame included. Frames in flight
//     are no longer queued and under no limit of the queue; the taker bounds
//     them by the limit of its takes.
//   - Frames are taken in the order they were offered, whatever was lost.
//   - A frame that could never fit loses only itself.
//   - The gaps told and those still to tell add up to all drops but the closed
//     ones.
//   - Slots that are not in use keep nothing alive.
//
// # Gaps
//
// Each queued frame carries the loss that lies right before it. A frame that
// is removed hands its own gap and itself to the next one, and the last one
// hands them to the tail, which is also where refused frames go. The next
// frame accepted takes the tail over. A taker is told the tail only once
// nothing is queued, so that one run of losses is one notice. A gap's reason
// is that of its latest loss, which is always the one just noted.
//
// # Waking the taker
//
// An offer asks for a wake once; the request stands until a take finds the
// queue empty. A taker that goes on until then is never signalled while at
// work and never missed: an offer either comes before its last take, which
// finds the frame, or after, and asks again. An offer that is refused by an
// empty queue asks, too, or its gap would wait for a frame that may not come.
// Closing asks for nothing; whoever closes a queue tells its taker otherwise.
//
// # Keep-latest, and why one frame is spared
//
// A full keep-latest queue keeps of each key the newest frame. A key's frame
// could take its predecessor's place in the queue, which would be fair, but
// the subscriber would then see positions go back. Here it takes its place at
// the tail. That alone starves: with a reader slower than the keys are
// updated, a key's frame can be replaced every time before its turn comes, and
// where keys are updated in turns it is the same few keys that are read for
// ever.
//
// So every frame knows since when its key has waited. A frame that replaces
// another inherits that time, and it starts anew with the first frame after
// one was taken. The key that has waited longest has its oldest queued frame
// spared, although newer ones exist: it keeps its place until it is taken,
// which nothing that arrives can delay. Then the next key's turn comes. As no
// key can come to have waited longer than one that waits already, each is read
// again after a bounded number of takes; 100 keys that are updated in turns
// take turns exactly.
//
// Spared is one frame at a time, of a key that is not empty, and only where it
// fits beside the newest of every key and would not be read next anyway. So a
// feed without keys is simply cleared, and every key is promised its turn where
// the limits hold one frame more than there are keys. Where they hold fewer,
// the head is dropped as overflow.
//
// A pass over the queue is needed only when it is full. It looks for the keys
// of frames that were added since the last pass, and for the arriving frame's;
// with a queue full of different keys that is one comparison a frame. It moves
// frames within the ring and allocates nothing.
//
// # Memory
//
// A queue that was never used holds no ring. One grows by doubling from 4
// slots, and an empty queue gives all but a small one back when its taker finds
// nothing more: to a pool shared by all queues, so that neither bursts nor idle
// subscribers cost memory of their own.
//
// # Files
//
//   - policy.go: policies, reasons and limits, and their names
//   - types.go: what goes in and comes out
//   - queue.go: the queue, its policies, its counters
//   - conflate.go: the pass of keep-latest
//   - ring.go: the circular buffer and its memory
package queue
