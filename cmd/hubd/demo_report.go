package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"hubd/internal/plan"
	"hubd/internal/queue"
)

// demoReport is how things stand, room by room.
type demoReport struct {
	rooms                []roomReport
	disturbed            time.Duration   // how long there have been laggards
	alone, beside, apart []time.Duration // sorted; see demo
}

type roomReport struct {
	name      string
	policy    queue.Policy
	control   bool
	published uint64 // the room's position
	refused   int
	clients   []clientReport // the fast one first
}

// clientReport is one client from both ends: what the server's queue has in its
// books, and what the client has read.
type clientReport struct {
	queue.Stats
	pace          demoPace
	since         uint64 // published since it joined
	received      int
	told, notices int
	last          time.Duration
	mean          time.Duration // age of what it read lately
	joined, gone  time.Duration // when, since the start; gone is 0 while it is in the room
}

// lost counts the frames that were offered and never will be sent.
func (c *clientReport) lost() int {
	n := 0
	for _, dropped := range c.Dropped {
		n += int(dropped)
	}
	return n
}

// look takes stock.
func (d *demo) look() demoReport {
	d.mu.Lock()
	report := demoReport{alone: d.alone.sorted(), beside: d.beside.sorted(), apart: d.apart.sorted()}
	d.mu.Unlock()
	if since := d.laggards.Load(); since > 0 {
		report.disturbed = time.Since(d.start) - time.Duration(since)
	}
	for _, room := range d.rooms {
		report.rooms = append(report.rooms, room.look())
	}
	return report
}

func (r *demoRoom) look() roomReport {
	members := r.members() // all of them are in the room, or were
	stats, _ := r.demo.hub.Room(r.name)
	report := roomReport{name: r.name.String(), policy: r.policy, control: r.control, published: stats.Position.Seq, refused: int(r.refused.Load())}
	present := make(map[string]bool)
	for _, s := range stats.Subscriptions {
		present[s.ID()] = true
	}
	for _, c := range members {
		report.clients = append(report.clients, c.look(max(report.published, c.joined), present[c.sub.ID()]))
	}
	return report
}

func (c *demoClient) look(published uint64, present bool) clientReport {
	stats := c.sub.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !present && c.gone == 0 {
		c.gone = time.Since(c.room.demo.start)
	}
	return clientReport{
		Stats: stats, pace: c.pace, since: published - c.joined,
		received: c.received, told: c.told, notices: c.notices,
		last: c.last, mean: c.ages.mean(),
		joined: c.since, gone: c.gone,
	}
}

// imbalance is the error of books that do not balance.
func (r demoReport) imbalance() error {
	var errs []error
	for _, room := range r.rooms {
		for _, c := range room.clients {
			if resolved := c.Sent + uint64(c.lost()+c.Queued.Messages+c.InFlight); resolved != c.Offered {
				errs = append(errs, fmt.Errorf("%s, %v: offered %d frames and can account for %d: this is a fault of hubd, please report it",
					room.name, c.pace, c.Offered, resolved))
			}
		}
	}
	return errors.Join(errs...)
}

// table is the state of all, for people.
func (r demoReport) table() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "room\trefused\tsubscriber\tsent\tlost\tqueued\toldest\tage read")
	for _, room := range r.rooms {
		lead := fmt.Sprintf("%s\t%d", room.name, room.refused)
		for _, c := range room.clients {
			fmt.Fprintf(t, "%s\t%v\t%d\t%d\t%s\n", lead, c.pace, c.Sent, c.lost(), c.place())
			lead = "\t"
		}
	}
	t.Flush()
	return b.String()
}

// place is what the table says of a client's queue and of what it reads.
func (c *clientReport) place() string {
	if c.gone > 0 {
		return "cut off\tat " + seconds(c.gone) + "\t-"
	}
	oldest, read := "-", "-"
	if c.Queued.Messages > 0 {
		oldest = seconds(c.Oldest)
	}
	if c.received > 0 {
		read = seconds(c.last)
	}
	return fmt.Sprintf("%d/%d\t%s\t%s", c.Queued.Messages, demoQueue, oldest, read)
}

// swiftness compares what the fast ones have without and with laggards: before
// and after, and at the same time, as the machine may have got busier.
func (r demoReport) swiftness() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "from publish to read, the fast ones\tmedian\tp99\n")
	for _, row := range []struct {
		when   string
		sorted []time.Duration
	}{
		{"before there were laggards", r.alone},
		{"beside laggards", r.beside},
		{"meanwhile, in the room without any", r.apart},
	} {
		fmt.Fprintf(t, "%s\t%s\t%s\n", row.when, quantile(row.sorted, 50), quantile(row.sorted, 99))
	}
	t.Flush()
	return b.String()
}

// brief is the state in one line.
func (r demoReport) brief() string {
	var lost [demoStuck + 1]int
	refused, cut := 0, 0
	for _, room := range r.rooms {
		refused += room.refused
		for _, c := range room.clients {
			lost[c.pace] += c.lost()
			if c.gone > 0 {
				cut++
			}
		}
	}
	now := r.alone
	if len(r.beside) > 0 {
		now = r.beside
	}
	return fmt.Sprintf("lost: fast %d, slow %d, stuck %d; cut off: %d; refused: %d; p99 to the fast: %s",
		lost[demoFast], lost[demoSlowPace], lost[demoStuck], cut, refused, quantile(now, 99))
}

// quantile is that percentile of what is sorted.
func quantile(sorted []time.Duration, percent int) string {
	if len(sorted) == 0 {
		return "-"
	}
	return seconds(sorted[(len(sorted)-1)*percent/100])
}

func seconds(d time.Duration) string { return plan.Seconds(d.Seconds()).String() }

// recent are the latest of many durations, up to a number.
type recent struct {
	most   int
	latest []time.Duration
	next   int
}

func (r *recent) add(d time.Duration) {
	if len(r.latest) < r.most {
		r.latest = append(r.latest, d)
		return
	}
	r.latest[r.next] = d
	r.next = (r.next + 1) % r.most
}

func (r *recent) mean() time.Duration {
	var sum time.Duration
	for _, d := range r.latest {
		sum += d
	}
	return sum / time.Duration(max(1, len(r.latest)))
}

func (r *recent) sorted() []time.Duration { return slices.Sorted(slices.Values(r.latest)) }
