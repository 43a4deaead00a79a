package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The setting of throughput.
const (
	throughputSubscribers = 1000
	throughputBytes       = 128
	throughputDuration    = time.Second
	throughputWarm        = 300 * time.Millisecond
	throughputRounds      = 9
)

// throughputAims are how many times the deliveries of conn-write hubd is to
// make, under each load.
var throughputAims = []float64{1.2, 3}

// throughputServers take turns.
var throughputServers = []variant{
	{"hubd", spec{}},
	{"conn-write", spec{peer: "conn-write"}},
	{"conn-write-timeout", spec{peer: "conn-write-timeout"}},
	{"gorilla", spec{peer: "gorilla"}},
	{"floor", spec{peer: "floor"}},
}

// throughputLoads are how many messages are under way at most: published and
// not yet received by all.
var throughputLoads = []struct {
	name     string
	inFlight int
}{
	{"one at a time", 1},
	{"16 in flight", 16},
}

// throughput measures how fast messages get to all subscribers of one raw room
// and what the server's processor time for it is. The publisher is one of the
// subscribers, over its WebSocket.
func throughput(ctx context.Context, l *lab, o options) (*figure, error) {
	n := orDefault(o.subscribers, throughputSubscribers)
	rounds := orDefault(o.rounds, throughputRounds)
	duration := orDefault(o.duration, throughputDuration)
	f := &figure{Setting: fmt.Sprintf("%s raw subscribers of %d B messages, %v a run, %d rounds; the next message is published when all have the one "+
		"that was published one (or 16) before. Median (least to most).", number(float64(n)), throughputBytes, duration, rounds)}
	servers, err := o.chosen(throughputServers)
	if err != nil {
		return nil, err
	}
	for _, v := range servers {
		f.Cases = append(f.Cases, v.name)
	}
	err = turns(rounds, servers, func(round int, v variant) error {
		l.say("throughput: round %d of %d, %s", round+1, rounds, v.name)
		return l.with(ctx, v.spec, func(s *server) error {
			run := throughputRun{server: s, figure: f, variant: v}
			if v.name == "hubd" && o.profile != "" {
				run.profile = filepath.Join(o.profile, fmt.Sprintf("throughput-%d", round+1))
			}
			return run.do(ctx, n, duration)
		})
	})
	if err != nil {
		return nil, err
	}
	for i, load := range throughputLoads {
		deliveries := load.name + ": deliveries/s"
		for _, row := range []string{deliveries, load.name + ": server CPU per million"} {
			f.faster(row, "hubd")
		}
		if slices.Contains(f.Cases, "conn-write") {
			f.atLeast("hubd's "+deliveries+" ÷", "conn-write", throughputAims[i])
		}
	}
	return f, nil
}

// faster adds a row with the ratio of one case to each of the others.
func (f *figure) faster(row, of string) {
	for _, c := range f.Cases {
		if c == of {
			continue
		}
		for _, ratio := range ratios(f.runs(row, of), f.runs(row, c)) {
			f.add(of+"'s "+row+" ÷", "", c, ratio)
		}
	}
}

// throughputRun is one server's turn.
type throughputRun struct {
	server  *server
	figure  *figure
	variant variant
	profile string // beginning of the files' names, "": none

	// The state of the load under way.
	fleet     *fleet
	publisher *subscriber
	n         int
	payload   []byte
	published uint64
	complete  uint64     // received by all, in order
	have      [32]uint32 // by number modulo its length: how many have it
	stopping  bool
}

func (r *throughputRun) do(ctx context.Context, n int, duration time.Duration) (err error) {
	r.n, r.payload = n, make([]byte, throughputBytes)
	if r.fleet, err = newFleet(r.received); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.fleet.close()) }()
	if err := r.fleet.joinAll(ctx, n, dialOptions{addr: r.server.addr, path: "/rooms/bench"}); err != nil {
		return err
	}
	if err := r.server.joined(ctx, "bench", n); err != nil {
		return err
	}
	r.publisher = r.fleet.all[0]
	for _, load := range throughputLoads {
		if err := r.load(ctx, load.inFlight, throughputWarm); err != nil {
			return err
		}
		m, err := r.measure(ctx, load.inFlight, duration, load.name)
		if err != nil {
			return err
		}
		million := float64(m.deliveries) / 1e6
		note := func(name, unit string, value float64) {
			r.figure.add(load.name+": "+name, unit, r.variant.name, value)
		}
		note("deliveries/s", "", float64(m.deliveries)/m.took.Seconds())
		note("server CPU per million", "s", m.server.Seconds()/million)
		note("generator CPU per million", "s", m.generator.Seconds()/million)
	}
	return nil
}

// load keeps so many messages in flight for that long, and returns when all
// have been received.
func (r *throughputRun) load(ctx context.Context, inFlight int, duration time.Duration) error {
	r.stopping = false
	stop := clock() + duration
	for range inFlight {
		if err := r.publish(); err != nil {
			return err
		}
	}
	patience := stop + arrivalTimeout
	return r.fleet.run(func() bool {
		now := clock()
		r.stopping = r.stopping || now > stop || ctx.Err() != nil
		return r.complete == r.published || now > patience
	})
}

func (r *throughputRun) publish() error {
	r.published++
	return r.publisher.send(opBinary, r.payload)
}

// received counts; the last subscriber to get a message sets off the next.
func (r *throughputRun) received(s *subscriber, _ frame) {
	have := &r.have[s.got%uint64(len(r.have))]
	*have++
	if int(*have) < r.n {
		return
	}
	*have = 0
	r.complete++
	if !r.stopping {
		r.fleet.failed = r.publish()
	}
}

// measured is what one load cost.
type measured struct {
	deliveries              uint64
	took, server, generator time.Duration
}

func (r *throughputRun) measure(ctx context.Context, inFlight int, duration time.Duration, name string) (m measured, err error) {
	profiled := make(chan error, 1)
	if r.profile == "" {
		profiled <- nil
	} else {
		go func() { profiled <- r.saveProfile(ctx, duration, name) }() // joined below
	}
	before, err := cpu(r.server.pid)
	if err != nil {
		return m, err
	}
	own, err := ownCPU()
	if err != nil {
		return m, err
	}
	start, from := clock(), r.complete
	err = r.load(ctx, inFlight, duration)
	m.took, m.deliveries = clock()-start, (r.complete-from)*uint64(r.n)
	if err = errors.Join(err, <-profiled, ctx.Err()); err != nil {
		return m, err
	}
	if r.complete != r.published {
		return m, fmt.Errorf("%s: of %d messages %d were received by all within %v of the last", name, r.published, r.complete, arrivalTimeout)
	}
	after, err := cpu(r.server.pid)
	if err != nil {
		return m, err
	}
	ownAfter, err := ownCPU()
	m.server, m.generator = after-before, ownAfter-own
	return m, err
}

func (r *throughputRun) saveProfile(ctx context.Context, duration time.Duration, name string) error {
	seconds := max(1, int(duration.Seconds()))
	profile, err := r.server.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("%s-%s.pprof", r.profile, name), profile, 0o600)
}
