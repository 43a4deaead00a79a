package sim

import (
	"fmt"
	"slices"
	"strings"

	"hubd/internal/queue"
)

// Loss is how many of rate messages a tick a queue loses in so many ticks, if
// as many as drain are taken a tick: what is too much in each, less the credit
// of the queue, less what the first drain takes early or the last late.
//
// It is exact for drop-newest and drop-oldest where one tick's messages fit the
// queue, all else being constant, in either order within a tick.
func Loss(rate, drain, ticks, capacity int) int {
	return max(0, (rate-drain)*ticks-(capacity-drain))
}

// predict adds to what was seen what the formula says of it.
func (c Config) predict(policy queue.Policy, s Subscriber, seen *Seen) {
	capacity, outside := c.domain(s)
	loss := Loss(c.Rate, s.Drain, c.Ticks, capacity)
	seen.Predicted = loss
	switch {
	case policy == queue.RejectPublish:
		seen.Predicted = 0
		if capacity > 0 && c.TTL == 0 {
			outside = nil // whatever else is so
		}
	case policy == queue.Disconnect && loss > 0:
		seen.Predicted = capacity + 1 // all that is queued, and the frame too many
	case policy == queue.KeepLatest && loss > 0:
		if c.Keys > 0 {
			outside = append(outside, "a message makes room for a newer one of its key")
		} else {
			outside = append(outside, "clearing the queue gives its credit back")
		}
	}
	seen.InDomain = len(outside) == 0
	seen.Note = compare(outside, seen.Predicted, seen.Lost)
}

// predictRefused adds what the formula says of the publisher, who may publish
// what the slowest subscriber can take.
func (c Config) predictRefused(r *Result) {
	var outside []string
	if r.Policy == queue.RejectPublish {
		for _, s := range c.Subscribers {
			capacity, why := c.domain(s)
			r.PredictedRefused = max(r.PredictedRefused, Loss(c.Rate, s.Drain, c.Ticks, capacity))
			if len(why) > len(outside) {
				outside = why
			}
		}
	}
	r.InDomain = len(outside) == 0
	r.Note = compare(outside, r.PredictedRefused, r.Refused)
}

// domain returns the number of messages that a queue can hold, and the reasons
// why the formula need not hold for that subscriber.
func (c Config) domain(s Subscriber) (capacity int, outside []string) {
	least, most, sum := slices.Min(c.Sizes), slices.Max(c.Sizes), 0
	for _, size := range c.Sizes {
		sum += size
	}
	capacity = c.Capacity
	if most > 0 && c.Bytes/most < c.Capacity {
		mean := float64(sum) / float64(len(c.Sizes))
		capacity = min(capacity, int(float64(c.Bytes)/mean))
		if least != most {
			outside = append(outside, "sizes differ under a byte limit that counts")
		}
	}
	if c.Rate > capacity {
		outside = append(outside, fmt.Sprintf("the %d messages of a tick do not fit a queue of %d", c.Rate, capacity))
	}
	if len(s.Pauses) > 0 {
		outside = append(outside, "the subscriber pauses")
	}
	if c.TTL > 0 {
		outside = append(outside, "a ttl drops what waits")
	}
	return capacity, outside
}

// compare says in words how the formula fared, unless that goes without saying.
func compare(outside []string, predicted, observed int) string {
	if len(outside) == 0 {
		if predicted == observed {
			return ""
		}
		outside = []string{"nothing that would explain it"}
	}
	found := "as the formula says all the same"
	switch diff := observed - predicted; {
	case diff > 0:
		found = fmt.Sprintf("%d more than the formula says", diff)
	case diff < 0:
		found = fmt.Sprintf("%d fewer than the formula says", -diff)
	}
	return strings.Join(outside, ", ") + ": " + found
}
