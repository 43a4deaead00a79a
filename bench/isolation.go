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
	f := &figure{Setting: fmt.Sprintf("%s subscribers in one room under drop-newest, %d messages/s of %d B for %v a run, %d rounds; "+
		"stuck: receive buffer %d B, never read, queue full. Median (least to most).",
		number(float64(n)), isolationRate, isolationBytes, duration, rounds, stuckReceiveBuffer)}
	name := func(stuck int) string { return fmt.Sprintf("%d stuck", stuck) }
	for _, stuck := range isolationStuck {
		f.Cases = append(f.Cases, name(stuck))
	}
	err := turns(rounds, isolationStuck, func(round int, stuck int) error {
		l.say("isolation: round %d of %d, %s", round+1, rounds, name(stuck))
		// By default the stuck would be gone before the end of the run.
		patient := spec{args: []string{"--write-timeout", "1h"}}
		return l.with(ctx, patient, func(s *server) error {
			run := isolationRun{server: s, healthy: n - stuck, stuck: stuck, messages: messages}
			if err := run.do(ctx); err != nil {
				return err
			}
			run.note(f, name(stuck))
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	base := name(0)
	var fanout, receive []string
	for _, q := range []string{"p50", "p99"} {
		fanout = append(fanout, f.compare("fan-out "+q, base))
		receive = append(receive, f.compare("publish to receive "+q, base))
	}
	for _, stuck := range isolationStuck[1:] {
		for _, row := range fanout {
			f.atMost(row, name(stuck), 1.1)
		}
		f.atMost(receive[1], name(stuck), 1.2)
	}
	for _, stuck := range isolationStuck {
		f.exactly("lost by the healthy", name(stuck), 0)
		f.exactly("overflows of the stuck ÷ offers to them", name(stuck), min(float64(stuck), 1))
	}
	return f, nil
}

// isolationRun is one run.
type isolationRun struct {
	// immutable
	server         *server
	healthy, stuck int
	messages       uint64

	// results
	receive   latencies // of the healthy
	publish   latencies
	fanout    histogram
	received  uint64
	overflows float64
}

func (r *isolationRun) do(ctx context.Context) (err error) {
	end := isolationWarm + r.messages
	r.receive.all = make([]time.Duration, 0, uint64(r.healthy)*r.messages)
	var warm, received atomic.Uint64
	fleet, err := newFleet(func(_ *subscriber, fr frame) {
		number, at := readStamp(fr.lead)
		if number < isolationWarm {
			warm.Add(1)
			return
		}
		r.receive.add(clock() - at)
		received.Add(1)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	join := dialOptions{addr: r.server.addr, path: "/rooms/bench?policy=drop-newest"}
	for i := range r.healthy + r.stuck {
		// The stuck are spread evenly among the others.
		add := fleet.join
		if r.stuck > 0 && i%((r.healthy+r.stuck)/r.stuck) == 0 && i/((r.healthy+r.stuck)/r.stuck) < r.stuck {
			add = fleet.joinStuck
		}
		if _, err := add(ctx, join); err != nil {
			return err
		}
	}
	if err := r.server.joined(ctx, "bench", r.healthy+r.stuck); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var over atomic.Bool
	publishing := make(chan error, 1)
	go func() { // joined below
		publishing <- r.publishAll(ctx, end, &warm)
		over.Store(true)
	}()
	// After the last publish what is still coming has a while to come.
	expected := uint64(r.healthy) * r.messages
	var deadline time.Duration
	err = fleet.run(func() bool {
		if !over.Load() {
			return false
		}
		if deadline == 0 {
			deadline = clock() + arrivalTimeout
		}
		return received.Load() == expected || clock() > deadline
	})
	cancel() // if the fleet has failed, the publisher is still at it
	r.received = received.Load()
	if published := <-publishing; err == nil {
		err = published
	}
	return err
}

// arrivalTimeout is how long after the last publish a message may arrive that
// is not to count as lost.
const arrivalTimeout = 5 * time.Second

func (r *isolationRun) publishAll(ctx context.Context, end uint64, warm *atomic.Uint64) error {
	p := newStampedPublisher(r.server, "bench", isolationBytes)
	publish := func(number uint64, at time.Duration) error { return p.publish(ctx, number, at) }
	if err := pace(ctx, isolationWarmRate, 0, isolationWarm, publish); err != nil {
		return err
	}
	if err := await(ctx, func() bool { return warm.Load() == uint64(r.healthy)*isolationWarm }); err != nil {
		return fmt.Errorf("the healthy have not got all that was published beforehand: %w", err)
	}
	before, err := r.server.scrape(ctx)
	if err != nil {
		return err
	}
	p.took = latencies{}
	if err := pace(ctx, isolationRate, isolationWarm, end, publish); err != nil {
		return err
	}
	after, err := r.server.scrape(ctx)
	if err != nil {
		return err
	}
	r.publish = p.took
	r.overflows = after.sum("hubd_overflow_total") - before.sum("hubd_overflow_total")
	r.fanout, err = after.histogramSince(before, "hubd_fanout_duration_seconds")
	return err
}

func (r *isolationRun) note(f *figure, inCase string) {
	expected := float64(r.healthy) * float64(r.messages)
	overflows := 0.0
	if r.stuck > 0 {
		overflows = r.overflows / float64(r.stuck) / float64(r.messages)
	}
	f.add("fan-out p50", "µs", inCase, r.fanout.quantile(0.5)*1e6)
	f.add("fan-out p99", "µs", inCase, r.fanout.quantile(0.99)*1e6)
	f.add("publish to receive p50", "ms", inCase, r.receive.ms(0.5))
	f.add("publish to receive p99", "ms", inCase, r.receive.ms(0.99))
	f.add("publish p99", "ms", inCase, r.publish.ms(0.99))
	f.add("lost by the healthy", "messages", inCase, expected-float64(r.received))
	f.add("overflows of the stuck ÷ offers to them", "", inCase, overflows)
}
