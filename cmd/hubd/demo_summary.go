package main

import (
	"fmt"
	"strings"
	"time"

	"hubd/internal/queue"
)

// demoRules say what each policy does, in the order of the policies.
var demoRules = [queue.NumPolicies]string{
	queue.DropNewest:    "a full queue takes nothing more",
	queue.DropOldest:    "in a full queue the oldest message makes room",
	queue.KeepLatest:    "a full queue is cleared, and only the newest message kept",
	queue.Disconnect:    "a subscriber whose queue is full is cut off",
	queue.RejectPublish: "while one queue is full, every publish to the room is refused",
}

// summary tells in words what each policy cost, and whom.
func (r demoReport) summary() string {
	var b strings.Builder
	if r.disturbed == 0 {
		b.WriteString("The slow and the stuck had not joined yet, so nobody paid anything.\n")
	} else {
		fmt.Fprintf(&b, "What a slow and a stuck subscriber cost in %s, and whom:\n\n", seconds(r.disturbed.Round(100*time.Millisecond)))
		for _, room := range r.rooms {
			if !room.control {
				b.WriteString(room.summary())
			}
		}
	}
	fmt.Fprintf(&b, "\n%s%s\n%s", r.staleness(), r.conservation(), r.swiftness())
	b.WriteString(`
In earnest a subscriber that reads nothing for 10 s is cut off, whatever the policy;
here it was left alone. With numbers of your own: hubd simulate, hubd plan.
`)
	return b.String()
}

func (r *roomReport) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s. %s\n", r.name, demoRules[r.policy], r.verdict())
	for i := range r.clients {
		fmt.Fprintf(&b, "  %-6s %s\n", r.clients[i].pace, r.clients[i].fate(r))
	}
	return b.String()
}

// verdict says who paid.
func (r *roomReport) verdict() string {
	laggards, fast := 0, 0
	for i := range r.clients {
		if c := &r.clients[i]; c.pace == demoFast {
			fast += c.lost()
		} else {
			laggards += c.lost()
		}
	}
	switch {
	case fast > 0:
		return "The fast one paid, too: this machine held it up for longer than its queue lasts."
	case r.refused > 0:
		return fmt.Sprintf("Everybody paid: %d of %d publishes were refused.", r.refused, uint64(r.refused)+r.published)
	case laggards == 0:
		return "Nobody paid yet."
	case r.policy == queue.Disconnect:
		return "The laggards paid, with their connections."
	}
	return "The laggards paid, with messages."
}

// fate says what became of one client.
func (c *clientReport) fate(room *roomReport) string {
	if c.gone > 0 {
		return fmt.Sprintf("was cut off %s after it joined, and lost the %s on the way to it; %d more were published since.",
			seconds(c.gone-c.joined), messages(c.lost()), c.since-min(c.since, c.Offered))
	}
	var b strings.Builder
	switch lost := c.lost(); {
	case lost > 0:
		fmt.Fprintf(&b, "lost %d of %s", lost, messages(int(c.since)))
		if c.told > 0 {
			fmt.Fprintf(&b, " and was told of %d so far", c.told)
		}
	case c.pace == demoFast && c.Queued.Messages == 0:
		fmt.Fprintf(&b, "got all %s", messages(int(c.Offered)))
		if room.refused > 0 {
			fmt.Fprintf(&b, " and went without the %d that were refused", room.refused)
		}
	default:
		fmt.Fprintf(&b, "lost none of %s", messages(int(c.since)))
	}
	if c.Queued.Messages > 0 {
		fmt.Fprintf(&b, "; %d wait in its queue, the oldest for %s", c.Queued.Messages, seconds(c.Oldest))
	}
	if c.pace == demoStuck {
		fmt.Fprintf(&b, "; the %d sent lie unread in its socket", c.Sent)
	}
	b.WriteByte('.')
	return b.String()
}

// staleness compares what the slow ones read.
func (r demoReport) staleness() string {
	var parts []string
	for _, room := range r.rooms {
		for _, c := range room.clients {
			if c.pace == demoSlowPace && c.gone == 0 && c.lost() > 0 && c.mean > 0 {
				parts = append(parts, fmt.Sprintf("%s under %v", seconds(c.mean), room.policy))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("The last messages that the slow ones read were on average this old: %s.\n", list(parts))
}

// conservation adds up the books of all.
func (r demoReport) conservation() string {
	var offered, sent uint64
	var lost, queued, inFlight int
	for _, room := range r.rooms {
		for _, c := range room.clients {
			offered, sent = offered+c.Offered, sent+c.Sent
			lost, queued, inFlight = lost+c.lost(), queued+c.Queued.Messages, inFlight+c.InFlight
		}
	}
	return fmt.Sprintf("Every message is accounted for: %d offered = %d sent + %d lost + %d queued + %d being written.\n",
		offered, sent, lost, queued, inFlight)
}

func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// list writes "a, b and c".
func list(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}
