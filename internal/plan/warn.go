package plan

import (
	"fmt"
	"strings"

	"hubd/internal/queue"
)

// warnings are what the numbers mean where they mean trouble.
func (in Input) warnings(r Report) []string {
	var w warner
	for _, a := range r.Advice {
		in.warnOfQueue(a, w.of(a.Policy))
	}
	for _, a := range r.Advice {
		if in.Drain < in.Rate && a.Credit > 0 {
			in.warnOfSlowness(a, w.of(a.Policy))
		}
	}
	general := w.of()
	if in.Drain < in.Rate {
		general("A subscriber that takes %s, where %s messages a second are published, overflows a queue of any size: twice the size lasts twice as long, and then as much is lost. A larger queue delays the certain; it pays only for stalls that end.",
			amount(in.Drain), short(in.Rate))
	}
	if r.FanOut.Share > 0.5 {
		general("Offering the messages takes %s%% of one processor at the peak, before a byte is written.", short(100*r.FanOut.Share))
	}
	return w.sentences()
}

// warnOfQueue compares the queue with what is wanted of it.
func (in Input) warnOfQueue(a Advice, warn func(format string, args ...any)) {
	need := in.need(a.Policy)
	switch affordable := in.affordable(need); {
	case affordable == 0:
		warn("no queue, however small, keeps the worst case within %s", ByteText(in.Memory))
	case affordable < need:
		warn("a queue would have to hold %s; within %s it can hold %d, which survive %s",
			count(need, "message"), ByteText(in.Memory), affordable, ratio(float64(affordable), in.Rate))
	}
	if a.Memory.Worst > in.Memory {
		warn("all queues can take %s at worst, more than the %s to spend", ByteText(a.Memory.Worst), ByteText(in.Memory))
	}
	switch {
	case a.Credit == 0:
		warn("no message of %s fits a queue of %s", ByteText(int64(in.Size)), limitsText(a.Queue))
	case a.Credit >= need:
	case a.Policy == queue.KeepLatest:
		warn("a queue that holds %s is too small for %s: it drops the newest of some, and a key may never be seen",
			count(a.Credit, "message"), count(in.Keys, "key"))
	default:
		warn("a queue that holds %s survives %s of the %s asked for",
			count(a.Credit, "message"), a.Survives, Seconds(in.Stall.Seconds()))
	}
}

// warnOfSlowness says whom a subscriber costs what that cannot keep up.
func (in Input) warnOfSlowness(a Advice, warn func(format string, args ...any)) {
	switch {
	case a.Policy == queue.Disconnect:
		warn("%d slow subscribers, each back %s after it was cut off, reconnect %s times a second while the peak lasts",
			in.Slow*in.Rooms, Seconds(in.Reconnect.Seconds()), short(a.Reconnects))
	case a.Policy == queue.RejectPublish:
		warn("one slow subscriber has its whole room get %s", amount(in.Drain))
	case a.Policy == queue.DropNewest && in.Drain > 0:
		warn("what a slow subscriber reads is up to %s old; under drop-oldest it loses as many messages and reads what is %s old",
			a.Staleness, a.Survives)
	}
}

// warner gathers warnings; those that are the same for several policies become
// one.
type warner struct {
	texts    []string
	policies map[string][]string // by text
}

func (w *warner) of(policies ...queue.Policy) func(format string, args ...any) {
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if w.policies == nil {
			w.policies = make(map[string][]string)
		}
		if _, known := w.policies[text]; !known {
			w.texts = append(w.texts, text)
			w.policies[text] = nil
		}
		for _, p := range policies {
			w.policies[text] = append(w.policies[text], p.String())
		}
	}
}

func (w *warner) sentences() []string {
	sentences := []string{}
	for _, text := range w.texts {
		if policies := w.policies[text]; len(policies) > 0 {
			text = strings.Join(policies, ", ") + ": " + text + "."
		}
		sentences = append(sentences, text)
	}
	return sentences
}
