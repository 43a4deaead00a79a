// Package metrics holds the node's instruments: plain verbs for what happens,
// and a collector that at scrape reads what is so.
//
// # Model
//
// There are two kinds of fact. What happens (an offer, a write, a refusal) is
// counted the moment it happens, by a verb, in a plain atomic number. What is so
// (connections, subscriptions, depths) is kept by nobody here: it is read from
// its owner at each scrape. A gauge that is kept beside the truth goes negative
// on the first path that forgets it; one that is read cannot.
//
// Labels are closed sets, handed to [New] once, and the verbs take indices into
// them. No verb takes a string, so nothing that a client chooses can become a
// label, and the number of series depends on the configuration alone. Every
// series is there from the first scrape with 0, as a rate over a counter that
// springs into being with its first event misses that event.
//
// # Cost
//
// A [Series] is resolved once for a feed and policy; its verbs then are one
// atomic add each. Nothing on the way of a frame looks up a label, takes a lock
// or allocates. [Series.Sent] is given a whole write: it sorts the ages into
// buckets on its stack and adds once to each bucket concerned, mostly one, and
// once to the sum. Prometheus' own types are made only at scrape, from these
// numbers. A nil *Metrics and a nil *Series are valid and record nothing.
//
// # Histograms
//
// Bounds are whole nanoseconds and compare as integers; they are 1, 3, 10 or six
// or twelve preferred numbers a decade, so that "le" reads well. The count of a
// histogram is the sum of its buckets as read, never a number of its own that
// could disagree with +Inf; and frames sent are the count of the time in queue.
//
// Buckets are most of the page, and are multiplied by feeds and policies. Up to
// 8 feeds have 14 bounds of time in queue and 55 of fan-out; more feeds have 4
// and 9, all of them among the finer ones. So the page stays under 200 kB with
// 8 feeds of the longest names and with 20 of usual ones.
//
// # Invariants
//
//   - The series are those of the sets, from start to end.
//   - Counters never fall: what is not positive is ignored.
//   - At rest offered = sent + dropped + queued + in flight, where hub and server
//     count as they must; package metricstest checks it.
//   - The quantiles of depths are by nearest rank over all subscriptions, in the
//     same code for the page and the admin's JSON. Without subscriptions they
//     are 0, not NaN: nobody's queue is deep, and a NaN would poison averages
//     over nodes and show as such on a dashboard.
//
// # Files
//
//   - metrics.go: Sets, Metrics, New, the verbs that are not a feed's
//   - series.go: Series, the verbs of one feed and policy
//   - histogram.go: bounds, and buckets of plain numbers
//   - descs.go: names, help texts and labels of all that is ours
//   - collect.go: State, and the two collectors: what was counted, what is so
//   - quantiles.go: nearest-rank quantiles
//   - totals.go: the counters summed, for the admin's JSON
//   - metricstest: reading metrics in tests of other packages
package metrics
