package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// RenderJSON writes an array of results.
func RenderJSON(w io.Writer, results []Result) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(results)
}

// RenderTable writes results of the configuration for people.
func RenderTable(w io.Writer, cfg Config, results []Result) error {
	rows := [][]string{{
		"policy", "published", "refused", "drain", "sent", "lost", "predicted", "queued", "last sent", "mean age", "max age",
	}}
	var notes []string
	for _, r := range results {
		lead := []string{r.Policy.String(), strconv.Itoa(r.Published), strconv.Itoa(r.Refused)}
		if r.Note != "" {
			notes = append(notes, fmt.Sprintf("%v, refused: %s", r.Policy, r.Note))
		}
		for i, s := range r.Subscribers {
			if i > 0 {
				lead = []string{"", "", ""}
			}
			of := cfg.withDefaults().Subscribers[i]
			rows = append(rows, append(lead, s.cells(of)...))
			notes = append(notes, s.notes(r, of)...)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", cfg.describe())
	writeColumns(&b, rows)
	if len(notes) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(notes, "\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Config) describe() string {
	c = c.withDefaults()
	parts := []string{
		fmt.Sprintf("%d ticks, %d messages a tick", c.Ticks, c.Rate),
		fmt.Sprintf("queues of %d messages", c.Capacity),
	}
	if c.Bytes != math.MaxInt {
		parts[1] += fmt.Sprintf(" and %d bytes", c.Bytes)
	}
	if len(c.Sizes) > 1 || c.Sizes[0] != 1 {
		parts = append(parts, "sizes "+strings.Trim(fmt.Sprint(c.Sizes), "[]"))
	}
	if c.Keys > 0 {
		parts = append(parts, fmt.Sprintf("%d keys in turn", c.Keys))
	}
	if c.TTL > 0 {
		parts = append(parts, fmt.Sprintf("ttl %d", c.TTL))
	}
	return strings.Join(append(parts, c.Order.String()), ", ") + "; ages in ticks, messages numbered from 0"
}

func (s Seen) cells(of Subscriber) []string {
	last, mean, most := "-", "-", "-"
	if s.Sent > 0 {
		last = strconv.Itoa(s.LastSent)
		mean = strconv.FormatFloat(s.MeanAge, 'f', 2, 64)
		most = strconv.Itoa(s.MaxAge)
	}
	return []string{
		of.String(), strconv.Itoa(s.Sent), strconv.Itoa(s.Lost), strconv.Itoa(s.Predicted),
		strconv.Itoa(s.Queued), last, mean, most,
	}
}

// notes are what the numbers alone do not say.
func (s Seen) notes(r Result, of Subscriber) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("%v, drain %v: ", r.Policy, of)+fmt.Sprintf(format, args...))
	}
	if s.Note != "" {
		note("%s", s.Note)
	}
	if s.Disconnected != nil {
		note("cut off in tick %d; %d messages came afterwards", *s.Disconnected, r.Published-s.Sent-s.Lost)
	}
	return notes
}

// writeColumns aligns the first column to the left, the others to the right.
func writeColumns(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		fmt.Fprintf(b, "%-*s", widths[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(b, "  %*s", widths[i+1], cell)
		}
		b.WriteByte('\n')
	}
}
