package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// The setting of freshness.
const (
	freshnessRate     = 1000
	freshnessBytes    = 1 << 10
	freshnessReads    = 64 << 10 // bytes a second
	freshnessBuffer   = 16 << 10
	freshnessDuration = 30 * time.Second
	freshnessRounds   = 1
	// freshnessPiece is what the reader reads at once.
	freshnessPiece = 1 << 10
)

// freshnessCases differ in what the kernel may hold unsent.
var freshnessCases = []variant{
	{"as delivered", spec{}},
	{"--max-unsent-bytes 0", spec{args: []string{"--max-unsent-bytes", "0"}}},
}

// freshness lets a subscriber under keep-latest read a sixteenth of what is
// published, and measures how old the messages are that it gets. Both cases run
// at the same time: they are idle most of it.
func freshness(ctx context.Context, l *lab, o options) (*figure, error) {
	rounds := orDefault(o.rounds, freshnessRounds)
	duration := orDefault(o.duration, freshnessDuration)
	marks := []time.Duration{duration / 6, duration / 2, duration}
	f := &figure{Setting: fmt.Sprintf("%d messages/s of %d B under keep-latest, a subscriber that reads %d KiB/s with a receive buffer of %d KiB, %v, "+
		"%d rounds; age of a message: from its publish until it is read, median of the second before the mark.",
		freshnessRate, freshnessBytes, freshnessReads>>10, freshnessBuffer>>10, duration, rounds)}
	for _, c := range freshnessCases {
		f.Cases = append(f.Cases, c.name)
	}
	for round := range rounds {
		l.say("freshness: round %d of %d", round+1, rounds)
		runs := make([]freshnessRun, len(freshnessCases))
		err := workers(len(runs), func(i int) error {
			return l.with(ctx, freshnessCases[i].spec, func(s *server) error { return runs[i].do(ctx, s, duration) })
		})
		if err != nil {
			return nil, err
		}
		for i, c := range freshnessCases {
			for _, mark := range marks {
				f.add(ageAt(mark), "s", c.name, runs[i].ageAt(mark))
			}
			f.add("oldest", "s", c.name, runs[i].ages.ms(1)/1000)
			f.add("messages read", "", c.name, float64(len(runs[i].ages.all)))
		}
	}
	for _, mark := range marks {
		f.atMost(ageAt(mark), freshnessCases[0].name, 1)
	}
	first, last := f.runs(ageAt(marks[0]), freshnessCases[0].name), f.runs(ageAt(duration), freshnessCases[0].name)
	for _, ratio := range ratios(last, first) {
		f.add("growth from first to last mark", "", freshnessCases[0].name, ratio)
	}
	f.atMost("growth from first to last mark", freshnessCases[0].name, 1.25)
	return f, nil
}

func ageAt(mark time.Duration) string {
	return fmt.Sprintf("age at %v", mark.Round(100*time.Millisecond))
}

// freshnessRun is one server and its reader.
type freshnessRun struct {
	start time.Duration // of publishing
	read  []time.Duration
	ages  latencies // in the order of read until the first quantile is asked for
	byAge []time.Duration
}

func (r *freshnessRun) do(ctx context.Context, s *server, duration time.Duration) (err error) {
	conn, leftover, err := dial(ctx, dialOptions{addr: s.addr, path: "/rooms/bench?policy=keep-latest", receiveBuffer: freshnessBuffer})
	if err != nil {
		return err
	}
	if err := s.joined(ctx, "bench", 1); err != nil {
		return errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading := make(chan error, 1)
	r.start = clock()
	go func() { reading <- r.readAll(ctx, conn, leftover) }() // joined below
	p := newStampedPublisher(s, "bench", freshnessBytes)
	end := uint64(duration.Seconds() * freshnessRate)
	err = pace(ctx, freshnessRate, 0, end, func(number uint64, at time.Duration) error { return p.publish(ctx, number, at) })
	cancel()
	return errors.Join(err, conn.Close(), <-reading)
}

// readAll reads at the set pace until ctx ends, and never catches up on a pause.
func (r *freshnessRun) readAll(ctx context.Context, conn net.Conn, leftover []byte) error {
	var d decoder
	note := func(fr frame) {
		if fr.op == opBinary {
			_, at := readStamp(fr.lead)
			r.read = append(r.read, clock()-r.start)
			r.byAge = append(r.byAge, clock()-at)
			r.ages.add(clock() - at)
		}
	}
	if err := d.feed(leftover, note); err != nil {
		return err
	}
	buffer := make([]byte, freshnessPiece)
	tick := time.NewTicker(time.Second * freshnessPiece / freshnessReads)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		n, err := conn.Read(buffer)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the slow reader: %w", err)
		}
		if err := d.feed(buffer[:n], note); err != nil {
			return err
		}
	}
}

// ageAt returns the median age, in seconds, of what was read in the second
// before the mark.
func (r *freshnessRun) ageAt(mark time.Duration) float64 {
	var ages []float64
	for i, at := range r.read {
		if at > mark-time.Second && at <= mark {
			ages = append(ages, r.byAge[i].Seconds())
		}
	}
	return median(ages)
}
