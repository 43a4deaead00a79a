// Package sim runs the real queues in a world of integer ticks: a publisher of
// so many messages a tick, subscribers that drain so many, no clock, no
// randomness, no waiting. The same configuration gives the same numbers, so
// what a policy costs can be looked up before it is paid.
//
// In each tick every subscriber takes as many messages as its drain, unless it
// pauses, and the publisher publishes its messages one by one, in the order
// that the configuration says. Each policy has a world of its own, in which all
// subscribers have that policy. Under reject-publish the publisher asks every
// queue first and goes on without the message if one is full.
//
// # The formula
//
// A queue that receives more than it is drained loses the difference, every
// tick, for ever. Its capacity is credit, given once: a queue larger by one
// loses one message less, however long the run.
//
//	loss = (rate − drain)·ticks − (capacity − drain), never below 0
//
// This is exact for drop-newest and drop-oldest, which differ in what they lose
// and not in how much, where a tick's messages fit the queue and nothing
// changes on the way. Under reject-publish it is what the publisher is refused,
// with the drain of the slowest. Keep-latest loses more: a queue that is
// cleared has got its credit back. Disconnect loses a full queue and the frame
// that was too many, once.
//
// Where a byte limit counts and all messages have one size, it is a capacity
// like another. Sizes that differ, bursts larger than the queue, pauses and a
// ttl lie outside the formula's domain; the prediction is shown there, too,
// with a note that says how far it is off.
//
// # Files
//
//   - config.go: the world's configuration, its defaults and text forms
//   - sim.go: the run
//   - predict.go: the formula and its domain
//   - render.go: tables and JSON
package sim
