package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// The setting of isolation.
const (
	isolationSubscribers = 1000
	isolationRate        = 50
	isolationBytes       = 1 << 10
	isolationDuration    = 10 * time.Second
	isolationRounds      = 5
	// What is published beforehand, at a higher rate, until the queues of the
	// stuck are full: the measurement is of the state that stays.
	isolationWarm     = 400
	isolationWarmRate = 200
	// isolationSlice is how many messages are published before it is the next
	// case's turn.
	isolationSlice = isolationRate
)

var isolationStuck = []int{0, 1, 100}

// isolation measures one room with and without stuck subscribers: how long a
// publish takes to offer its message to all, when the healthy get it, and
// whether they get all.
func isolation(ctx context.Context, l *lab, o options) (*figure, error) {
	n := orDefault(o.subscribers, isolationSubscribers)
	rounds := orDefault(o.rounds, isolationRounds)
	duration := orDefault(o.duration, isolationDuration)
	messages := uint64(duration.Seconds() * isolationRate)
	f := &figure{Setting: fmt.Sprintf("%s subscribers in one room under drop-newest, %d messages/s of %d B for %v each, the cases in turn for a second at a time, %d rounds; "+
		"stuck: receive buffer %d B, never read, queue full. Median (least to most).",
		number(float64(n)), isolationRate, isolationBytes, duration, rounds, stuckReceiveBuffer)}
	name := func(stuck int) string { return fmt.Sprintf("%d stuck", stuck) }
	pools := map[string]*isolationPool{}
	for _, stuck := range isolationStuck {
		f.Cases = append(f.Cases, name(stuck))
		pools[name(stuck)] = new(isolationPool)
	}
	for round := range rounds {
		l.say("isolation: round %d of %d", round+1, rounds)
		runs := make([]*isolationRun, len(isolationStuck))
		specs := make([]spec, len(runs))
		for i, stuck := range isolationStuck {
			runs[i] = &isolationRun{healthy: n - stuck, stuck: stuck}
			// By default the stuck would be gone before the end of the run.
			specs[i].args = []string{"--write-timeout", "1h"}
		}
		err := l.withAll(ctx, specs, func(servers []*server) error { return isolationRound(ctx, servers, runs, messages) })
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			r.note(f, name(r.stuck))
			pools[name(r.stuck)].add(r)
		}
	}
	for _, inCase := range f.Cases {
		pools[inCase].note(f, inCase)
	}
	for _, c := range []struct {
		row string
		aim float64
	}{
		{"fan-out p50", 1.1}, {"fan-out p99", 1.1}, {"publish to receive p50", 0}, {"publish to receive p99", 1.2},
	} {
		ratio := f.compare(c.row+allRounds, name(0))
		for _, stuck := range isolationStuck[1:] {
			if c.aim > 0 {
				f.atMost(ratio, name(stuck), c.aim)
			}
		}
	}
	for _, stuck := range isolationStuck {
		f.exactly("lost by the healthy", name(stuck), 0)
		f.exactly("overflows of the stuck ÷ offers to them", name(stuck), min(float64(stuck), 1))
	}
	return f, nil
}

// allRounds marks rows that are taken over all rounds of a case together. A p99
// of one run rests on its few slowest messages, and says more about the machine
// in that second than about the case.
const allRounds = ", all rounds"

// isolationPool is all rounds of one case.
type isolationPool struct {
	receive latencies
	fanout  histogram
}

func (p *isolationPool) add(r *isolationRun) {
	p.receive.all = append(p.receive.all, r.receive.all...)
	p.fanout = p.fanout.plus(r.fanout)
}

func (p *isolationPool) note(f *figure, inCase string) {
	for _, q := range []struct {
		name  string
		value float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		f.add("fan-out "+q.name+allRounds, "µs", inCase, p.fanout.quantile(q.value)*1e6)
		f.add("publish to receive "+q.name+allRounds, "ms", inCase, p.receive.ms(q.value))
	}
}

// isolationRound has a server for each case, all of them up and only one of
// them busy: so all meet the same weather, second by second.
func isolationRound(ctx context.Context, servers []*server, runs []*isolationRun, messages uint64) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // where something failed, the fleets are still at it
		for _, r := range runs {
			if r.ended != nil {
				err = errors.Join(err, <-r.ended)
			}
		}
	}()
	for i, r := range runs {
		if err := r.start(ctx, servers[i]); err != nil {
			return err
		}
	}
	slices := int((messages + isolationSlice - 1) / isolationSlice)
	err = turns(slices, runs, func(_ int, r *isolationRun) error {
		return r.publish(ctx, isolationRate, min(isolationSlice, messages-r.published))
	})
	if err != nil {
		return err
	}
	for _, r := range runs {
		if err := r.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// isolationRun is one server's part of a round.
type isolationRun struct {
	// immutable
	healthy, stuck int

	server    *server
	publisher *stampedPublisher
	before    scrape
	ended     chan error  // gets the fleet's error when it has ended, once
	stop      atomic.Bool // asks the fleet to end
	next      uint64      // number of the next message
	published uint64      // without those beforehand

	// By the fleet, which others may look at when it has ended, or count by:
	receive        latencies // of the healthy
	warm, received atomic.Uint64

	// results
	fanout    histogram
	overflows float64
}

// start opens the room, fills the queues of the stuck, and leaves the fleet
// running.
func (r *isolationRun) start(ctx context.Context, s *server) error {
	r.server, r.publisher = s, newStampedPublisher(s, "bench", isolationBytes)
	fleet, err := newFleet(func(_ *subscriber, fr frame) {
		number, at := readStamp(fr.lead)
		if number < isolationWarm {
			r.warm.Add(1)
			return
		}
		r.receive.add(clock() - at)
		r.received.Add(1)
	})
	if err != nil {
		return err
	}
	if err := r.join(ctx, fleet); err != nil {
		return errors.Join(err, fleet.close())
	}
	r.ended = make(chan error, 1)
	go func() { // joined by isolationRound
		err := fleet.run(func() bool { return r.stop.Load() || ctx.Err() != nil })
		r.ended <- errors.Join(err, fleet.close())
	}()
	if err := r.publish(ctx, isolationWarmRate, isolationWarm); err != nil {
		return err
	}
	if err := await(ctx, func() bool { return r.warm.Load() == uint64(r.healthy)*isolationWarm }); err != nil {
		return fmt.Errorf("the healthy have not got all that was published beforehand: %w", err)
	}
	r.published, r.publisher.took = 0, latencies{}
	r.before, err = s.scrape(ctx)
	return err
}

// join adds the subscribers, the stuck evenly among the others.
func (r *isolationRun) join(ctx context.Context, fleet *fleet) error {
	o := dialOptions{addr: r.server.addr, path: "/rooms/bench?policy=drop-newest"}
	all := r.healthy + r.stuck
	for i := range all {
		add := fleet.join
		if (i+1)*r.stuck/all > i*r.stuck/all {
			add = fleet.joinStuck
		}
		if _, err := add(ctx, o); err != nil {
			return err
		}
	}
	return r.server.joined(ctx, "bench", all)
}

func (r *isolationRun) publish(ctx context.Context, rate int, n uint64) error {
	first := r.next
	r.next += n
	r.published += n
	return pace(ctx, rate, first, r.next, func(number uint64, at time.Duration) error {
		return r.publisher.publish(ctx, number, at)
	})
}

// arrivalTimeout is how long after the last publish a message may arrive that
// is not to count as lost.
const arrivalTimeout = 5 * time.Second

// finish waits for what is still coming, ends the fleet and takes stock.
func (r *isolationRun) finish(ctx context.Context) error {
	expected := uint64(r.healthy) * r.published
	patience, cancel := context.WithTimeout(ctx, arrivalTimeout)
	_ = await(patience, func() bool { return r.received.Load() == expected }) // what is missing shows
	cancel()
	r.stop.Store(true)
	err := <-r.ended
	r.ended = nil
	if err != nil {
		return err
	}
	after, err := r.server.scrape(ctx)
	if err != nil {
		return err
	}
	r.overflows = after.sum("hubd_overflow_total") - r.before.sum("hubd_overflow_total")
	r.fanout, err = after.histogramSince(r.before, "hubd_fanout_duration_seconds")
	return err
}

func (r *isolationRun) note(f *figure, inCase string) {
	expected := float64(r.healthy) * float64(r.published)
	overflows := 0.0
	if r.stuck > 0 {
		overflows = r.overflows / float64(r.stuck) / float64(r.published)
	}
	f.add("fan-out p50", "µs", inCase, r.fanout.quantile(0.5)*1e6)
	f.add("fan-out p99", "µs", inCase, r.fanout.quantile(0.99)*1e6)
	f.add("publish to receive p50", "ms", inCase, r.receive.ms(0.5))
	f.add("publish to receive p99", "ms", inCase, r.receive.ms(0.99))
	f.add("publish p99", "ms", inCase, r.publisher.took.ms(0.99))
	f.add("lost by the healthy", "messages", inCase, expected-float64(r.received.Load()))
	f.add("overflows of the stuck ÷ offers to them", "", inCase, overflows)
}
