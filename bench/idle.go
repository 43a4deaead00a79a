package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The setting of idle.
const (
	idleConnections = 5000
	idleWarm        = 200
	idleRounds      = 3
	idleRest        = time.Second
)

// idleServers take turns.
var idleServers = []variant{
	{"hubd", spec{}},
	{"conn-write", spec{peer: "conn-write"}},
	{"gorilla", spec{peer: "gorilla"}},
}

// idle measures how much resident memory a connection takes that is in a room
// where nothing happens.
func idle(ctx context.Context, l *lab, o options) (*figure, error) {
	n := orDefault(o.subscribers, idleConnections)
	rounds := orDefault(o.rounds, idleRounds)
	f := &figure{Setting: fmt.Sprintf("%s idle raw subscribers of one room after one message to all, less the memory of the server before they came "+
		"(when %d others had come and gone), %d rounds. Median (least to most).", number(float64(n)), idleWarm, rounds)}
	servers, err := o.chosen(idleServers)
	if err != nil {
		return nil, err
	}
	for _, v := range servers {
		f.Cases = append(f.Cases, v.name)
	}
	err = turns(rounds, servers, func(round int, v variant) error {
		l.say("idle: round %d of %d, %s", round+1, rounds, v.name)
		return l.with(ctx, v.spec, func(s *server) error { return idleRun(ctx, s, v, n, f) })
	})
	return f, err
}

func idleRun(ctx context.Context, s *server, v variant, n int, f *figure) error {
	// The first connections make the server allocate what it has once.
	if err := idleHold(ctx, s, idleWarm, func() error { return nil }); err != nil {
		return err
	}
	before, err := s.settled(ctx, v)
	if err != nil {
		return err
	}
	return idleHold(ctx, s, n, func() error {
		after, err := s.settled(ctx, v)
		if err != nil {
			return err
		}
		each := func(bytes float64) float64 { return bytes / float64(n) }
		f.add("resident bytes a connection", "", v.name, each(after.resident-before.resident))
		if v.spec.peer == "" {
			f.add("of which heap in use", "", v.name, each(after.heap-before.heap))
			f.add("of which stacks", "", v.name, each(after.stack-before.stack))
			f.add("goroutines a connection", "", v.name, each(after.goroutines-before.goroutines))
		}
		return nil
	})
}

// idleHold calls f while n subscribers are there that have got one message.
func idleHold(ctx context.Context, s *server, n int, f func() error) (err error) {
	got := 0
	fleet, err := newFleet(func(*subscriber, frame) { got++ })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	if err := fleet.joinAll(ctx, n, dialOptions{addr: s.addr, path: "/rooms/bench"}); err != nil {
		return err
	}
	if err := s.joined(ctx, "bench", n); err != nil {
		return err
	}
	if err := fleet.all[0].send(opBinary, make([]byte, throughputBytes)); err != nil {
		return err
	}
	deadline := clock() + arrivalTimeout
	if err := fleet.run(func() bool { return got >= n || clock() > deadline }); err != nil {
		return err
	}
	if got != n {
		return fmt.Errorf("of %d subscribers %d got the message", n, got)
	}
	rested := clock() + idleRest
	if err := fleet.run(func() bool { return clock() > rested }); err != nil {
		return err
	}
	return f()
}

// memory is what a server uses.
type memory struct {
	resident, heap, stack, goroutines float64
}

// settled reads a server's memory; hubd's after a collection, which asking for
// a heap profile can bring about.
func (s *server) settled(ctx context.Context, v variant) (m memory, err error) {
	if v.spec.peer == "" {
		for range 2 {
			if _, err := s.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
				return m, err
			}
		}
		sc, err := s.scrape(ctx)
		if err != nil {
			return m, err
		}
		m.heap, m.stack = sc.sum("go_memstats_heap_inuse_bytes"), sc.sum("go_memstats_stack_inuse_bytes")
		m.goroutines = sc.sum("go_goroutines")
	}
	bytes, err := resident(s.pid)
	m.resident = float64(bytes)
	return m, err
}
