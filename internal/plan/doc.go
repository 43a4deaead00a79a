// Package plan is the arithmetic of queues for an operator: what limits to set,
// how long they last, what is lost, how old, and in how much memory. It runs
// nothing; package sim does, and the two agree.
//
// All of it follows from a few rates. At the peak a room gets rate messages a
// second, of which a slow subscriber takes drain. A queue holds credit
// messages: its limit in messages, or as many as fit its limit in bytes.
//
//   - A subscriber that stops reading loses nothing for credit ÷ rate.
//   - One that keeps reading slowly overflows after credit ÷ (rate − drain), and
//     from then on loses rate − drain, whatever the size of its queue.
//   - What waits in a queue waits for at most credit ÷ drain (Little's law).
//     Where it is the old that is dropped, what is read waited credit ÷ rate.
//   - Cut off, a subscriber is back after a while, and overflows again. It gets
//     what it takes in the meantime. Its history may spare it the rest.
//   - Refused, a message is lost to everybody.
//
// Memory at worst is every queue full to both limits, of frames that no other
// queue holds. Frames are shared, so that takes subscribers which stop at
// different times; more likely all slow ones of a room hold the same.
//
// The cost of an offer was measured with the fan-out benchmark of package queue
// and that of a wake with a parked goroutine; other machines have others, and
// the input takes them.
//
// # Files
//
//   - plan.go: the input, its defaults, the report
//   - memory.go: what queues and frames take
//   - warn.go: what the numbers mean
//   - units.go, render.go: how they are written
package plan
