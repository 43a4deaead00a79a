package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// The setting of eviction. The queue is deep and the rate high to have many
// publishes on either side of the overflow.
const (
	evictionStuck   = 500
	evictionHealthy = 100
	evictionRate    = 500
	evictionBytes   = 1 << 10
	evictionQueue   = 1024
	evictionClose   = time.Second
	evictionRounds  = 5
	// evictionPatience is when a run gives up; its publisher stops then.
	evictionPatience = 10 * time.Second

	evictionConfig = `feeds:
  - name: eviction
    match: ["bench"]
    policy: disconnect
    queue: {messages: 1024, bytes: 4MiB}
`
)

// eviction lets many stuck subscribers overflow together under disconnect, and
// measures how long their sockets last and what publishing is like meanwhile.
func eviction(ctx context.Context, l *lab, o options) (*figure, error) {
	stuck := orDefault(o.subscribers, evictionStuck)
	rounds := orDefault(o.rounds, evictionRounds)
	f := &figure{Setting: fmt.Sprintf("%d stuck and %d healthy subscribers in one room under disconnect, queue %d messages, close timeout %v, "+
		"%d messages/s of %d B, %d rounds. Before: until the first overflow; meanwhile: from then until the last socket is gone; "+
		"the same number of publishes each. Median (least to most).",
		stuck, evictionHealthy, evictionQueue, evictionClose, evictionRate, evictionBytes, rounds)}
	for round := range rounds {
		l.say("eviction: round %d of %d", round+1, rounds)
		sp := spec{config: evictionConfig, args: []string{"--close-timeout", evictionClose.String(), "--write-timeout", "1m"}}
		err := l.with(ctx, sp, func(s *server) error {
			run := evictionRun{server: s, stuck: stuck}
			if err := run.do(ctx); err != nil {
				return err
			}
			run.note(f)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	f.compare("publish p99", "before")
	f.atMost("first overflow to last reset", "meanwhile", 1.5)
	f.atMost("first overflow to no socket in the kernel", "meanwhile", 1.5)
	f.exactly("connections left beside the healthy", "meanwhile", 0)
	f.exactly("lost by the healthy", "meanwhile", 0)
	return f, nil
}

// evictionRun is one run.
type evictionRun struct {
	server *server
	stuck  int

	// before and meanwhile are the publishes on either side of the overflow.
	before, meanwhile []time.Duration
	published         uint64
	disconnected      int
	// By clock: the first publish that disconnected anybody, when it began, and
	// the last; the last reset; the kernel without any of their sockets.
	firstOverflow, lastOverflow, lastReset, noSockets time.Duration
	lostByHealthy                                     float64
	connectionsLeft                                   float64
}

func (r *evictionRun) do(ctx context.Context) (err error) {
	var received atomic.Uint64
	fleet, err := newFleet(func(*subscriber, frame) { received.Add(1) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	var gone atomic.Int64
	ports := map[int]bool{}
	fleet.onGone = func(s *subscriber) {
		if s.stuck {
			r.lastReset = clock()
			gone.Add(1)
		}
	}
	join := dialOptions{addr: r.server.addr, path: "/rooms/bench"}
	if err := fleet.joinAll(ctx, evictionHealthy, join); err != nil {
		return err
	}
	for range r.stuck {
		s, err := fleet.joinStuck(ctx, join)
		if err != nil {
			return err
		}
		ports[s.port] = true
	}
	if err := r.server.joined(ctx, "bench", evictionHealthy+r.stuck); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, evictionPatience+time.Minute)
	defer cancel()
	var over atomic.Bool
	publishing := make(chan error, 1)
	go func() { // joined below
		publishing <- r.publishUntil(ctx, func() bool { return gone.Load() == int64(r.stuck) })
		over.Store(true)
	}()
	var deadline time.Duration
	err = fleet.run(func() bool {
		if gone.Load() == int64(r.stuck) && r.noSockets == 0 && err == nil {
			err = r.countSockets(ports)
		}
		if !over.Load() {
			return false
		}
		if deadline == 0 {
			deadline = clock() + arrivalTimeout
		}
		return received.Load() == r.published*evictionHealthy || clock() > deadline
	})
	cancel()
	if err := errors.Join(err, <-publishing); err != nil {
		return err
	}
	r.lostByHealthy = float64(r.published*evictionHealthy) - float64(received.Load())
	return r.finish(context.WithoutCancel(ctx))
}

// publishUntil publishes until done, and sorts the publishes by when they were.
func (r *evictionRun) publishUntil(ctx context.Context, done func() bool) error {
	p := newStampedPublisher(r.server, "bench", evictionBytes)
	errDone := errors.New("done")
	end := uint64(evictionPatience.Seconds() * evictionRate)
	err := pace(ctx, evictionRate, 0, end, func(number uint64, at time.Duration) error {
		if done() {
			return errDone
		}
		if err := p.publish(ctx, number, at); err != nil {
			return err
		}
		r.published++
		if p.last.Disconnected > 0 {
			r.disconnected += p.last.Disconnected
			r.lastOverflow = clock()
			if r.firstOverflow == 0 {
				r.firstOverflow = at
				r.before, p.took = p.took.all[:len(p.took.all)-1], latencies{all: p.took.all[len(p.took.all)-1:]}
			}
		}
		return nil
	})
	r.meanwhile = p.took.all
	if errors.Is(err, errDone) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%v after the first publish there are stuck subscribers left; %d of %d were cut off", evictionPatience, r.disconnected, r.stuck)
	}
	return err
}

// countSockets notes when the kernel has none of the server's sockets left
// whose other end is one of ports.
func (r *evictionRun) countSockets(ports map[int]bool) error {
	_, text, err := net.SplitHostPort(r.server.addr)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	n, err := serverSockets(port, ports)
	if n == 0 {
		r.noSockets = clock()
	}
	return err
}

func (r *evictionRun) finish(ctx context.Context) error {
	if r.noSockets == 0 {
		return errors.New("the kernel still has sockets of subscribers that were cut off")
	}
	// A socket is gone a moment before its connection is off the books.
	var failure error
	err := await(ctx, func() bool {
		s, err := r.server.scrape(ctx)
		failure = err
		r.connectionsLeft = s.sum("hubd_connections") - evictionHealthy
		return err != nil || r.connectionsLeft == 0
	})
	if failure == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil // the figure shows it
	}
	return failure
}

func (r *evictionRun) note(f *figure) {
	// A quantile of few is not comparable with one of many: the same number of
	// publishes on both sides, the nearest to the overflow.
	n := min(len(r.before), len(r.meanwhile))
	before := latencies{all: r.before[len(r.before)-n:]}
	meanwhile := latencies{all: r.meanwhile[:n]}
	for inCase, l := range map[string]*latencies{"before": &before, "meanwhile": &meanwhile} {
		f.add("publish p50", "ms", inCase, l.ms(0.5))
		f.add("publish p99", "ms", inCase, l.ms(0.99))
		f.add("publish max", "ms", inCase, l.ms(1))
		f.add("publishes compared", "", inCase, float64(n))
	}
	const during = "meanwhile"
	f.add("first overflow to last overflow", "s", during, (r.lastOverflow - r.firstOverflow).Seconds())
	f.add("first overflow to last reset", "s", during, (r.lastReset - r.firstOverflow).Seconds())
	f.add("first overflow to no socket in the kernel", "s", during, (r.noSockets - r.firstOverflow).Seconds())
	f.add("cut off", "subscribers", during, float64(r.disconnected))
	f.add("connections left beside the healthy", "", during, r.connectionsLeft)
	f.add("lost by the healthy", "messages", during, r.lostByHealthy)
}
