package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"hubd/internal/queue"
)

// RenderJSON writes the report as an object. Times are in seconds, null where
// something never happens.
func RenderJSON(w io.Writer, r Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// MarshalJSON adds what has no JSON form of its own.
func (in Input) MarshalJSON() ([]byte, error) {
	type plain Input
	return json.Marshal(struct {
		plain
		Stall     float64 `json:"stall_s"`
		Reconnect float64 `json:"reconnect_s"`
		OfferCost float64 `json:"offer_cost_s"`
		WakeCost  float64 `json:"wake_cost_s"`
	}{plain(in), in.Stall.Seconds(), in.Reconnect.Seconds(), in.OfferCost.Seconds(), in.WakeCost.Seconds()})
}

// RenderTable writes the report for people.
func RenderTable(w io.Writer, r Report) error {
	var b strings.Builder
	in := r.Input
	fmt.Fprintf(&b, "At the peak %s messages a second of %s", short(in.Rate), byteText(int64(in.Size)))
	if in.Keys > 0 {
		fmt.Fprintf(&b, " with %d keys", in.Keys)
	}
	fmt.Fprintf(&b, " a room; %s of %s, of which %d take %s.\n",
		count(in.Rooms, "room"), count(in.Subscribers, "subscriber"), in.Slow, amount(in.Drain))
	fmt.Fprintf(&b, "A stall to survive is %s, the memory to spend %s.\n\n", Seconds(in.Stall.Seconds()), byteText(in.Memory))

	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	judged := in.Queue != (queue.Limits{})
	head := []string{"policy", "recommended", "survives", "slow overflow after", "and then", "oldest it reads", "memory at worst", "likely"}
	if judged {
		head = append(head[:2], append([]string{"given"}, head[2:]...)...)
	}
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, a := range r.Advice {
		cells := []string{a.Policy.String(), limitsText(a.Recommended)}
		if judged {
			cells = append(cells, limitsText(a.Queue))
		}
		cells = append(cells, a.Survives.String(), a.Overflow.String(), a.outcome(), oldText(a.Staleness),
			byteText(a.Memory.Worst), byteText(a.Memory.Likely))
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	t.Flush()

	fmt.Fprintf(&b, "\nOffering one message to a room takes %s, or %s where all writers must be woken; at the peak %s%% of one processor.\n",
		r.FanOut.Busy, r.FanOut.Idle, short(100*r.FanOut.Share))
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "\n- %s", warning)
	}
	if len(r.Warnings) > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func limitsText(l queue.Limits) string {
	return fmt.Sprintf("%s, %s", count(l.Messages, "message"), byteText(int64(l.Bytes)))
}

func oldText(s Seconds) string {
	if s == Never {
		return "reads nothing"
	}
	return s.String()
}

func amount(messages float64) string {
	if messages == 0 {
		return "nothing"
	}
	return short(messages) + " a second"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// outcome is what a slow subscriber's overflow costs.
func (a Advice) outcome() string {
	switch {
	case a.Overflow == Never:
		return "-"
	case a.Policy == queue.RejectPublish:
		return fmt.Sprintf("all are refused %s/s (%s%%)", short(a.Refused), short(a.RefusedPercent))
	case a.Policy == queue.Disconnect:
		return fmt.Sprintf("lose %s/s (%s%%), %s reconnects/s", short(a.Loss), short(a.LossPercent), short(a.Reconnects))
	}
	return fmt.Sprintf("lose %s/s (%s%%)", short(a.Loss), short(a.LossPercent))
}
