package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
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

// RenderTable writes the report for people: a column for each policy.
func RenderTable(w io.Writer, r Report) error {
	var b strings.Builder
	in := r.Input
	fmt.Fprintf(&b, "At the peak %s messages a second of %s", short(in.Rate), ByteText(int64(in.Size)))
	if in.Keys > 0 {
		fmt.Fprintf(&b, " with %d keys", in.Keys)
	}
	fmt.Fprintf(&b, " a room; %s of %s, of which %d take %s.\n",
		count(in.Rooms, "room"), count(in.Subscribers, "subscriber"), in.Slow, amount(in.Drain))
	fmt.Fprintf(&b, "A stall to survive is %s, the memory to spend %s.\n\n", Seconds(in.Stall.Seconds()), ByteText(in.Memory))

	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows(r) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
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

// rows are the table's; those with nothing in them are left out.
func rows(r Report) [][]string {
	judged := r.Input.Queue != (queue.Limits{})
	var rows [][]string
	for _, row := range []struct {
		label string
		cell  func(Advice) string
	}{
		{"", func(a Advice) string { return a.Policy.String() }},
		{"recommended, messages", func(a Advice) string { return strconv.Itoa(a.Recommended.Messages) }},
		{"recommended, bytes", func(a Advice) string { return ByteText(int64(a.Recommended.Bytes)) }},
		{"given, messages", only(judged, func(a Advice) string { return strconv.Itoa(a.Queue.Messages) })},
		{"given, bytes", only(judged, func(a Advice) string { return ByteText(int64(a.Queue.Bytes)) })},
		{"stall without loss", func(a Advice) string { return a.Survives.String() }},
		{"slow ones overflow after", func(a Advice) string { return a.Overflow.String() }},
		{"and then lose", func(a Advice) string { return perSecond(a.Loss) }},
		{"  of all there is", func(a Advice) string { return percent(a.LossPercent) }},
		{"all are refused", func(a Advice) string { return perSecond(a.Refused) }},
		{"  of all there is", func(a Advice) string { return percent(a.RefusedPercent) }},
		{"reconnects", func(a Advice) string { return perSecond(a.Reconnects) }},
		{"oldest they read", func(a Advice) string { return oldText(a.Staleness) }},
		{"memory at worst", func(a Advice) string { return ByteText(a.Memory.Worst) }},
		{"memory, likely", func(a Advice) string { return ByteText(a.Memory.Likely) }},
	} {
		cells, some := []string{row.label}, false
		for _, a := range r.Advice {
			cell := row.cell(a)
			cells, some = append(cells, cell), some || cell != none
		}
		if some {
			rows = append(rows, cells)
		}
	}
	return rows
}

// none is a cell with nothing in it.
const none = "-"

func only(wanted bool, cell func(Advice) string) func(Advice) string {
	if wanted {
		return cell
	}
	return func(Advice) string { return none }
}

func perSecond(n float64) string {
	if n == 0 {
		return none
	}
	return short(n) + "/s"
}

func percent(n float64) string {
	if n == 0 {
		return none
	}
	return short(n) + "%"
}

func limitsText(l queue.Limits) string {
	return fmt.Sprintf("%s, %s", count(l.Messages, "message"), ByteText(int64(l.Bytes)))
}

func oldText(s Seconds) string {
	if s == Never {
		return "read nothing"
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
