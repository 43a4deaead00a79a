package main

import (
	"context"
	"errors"
	"fmt"
)

const (
	encodingsMessages = 200
	encodingsBytes    = 128
)

var encodingsSubscribers = []int{10, 100, 1000}

// encodings counts how often a message is encoded for a room of raw and JSON
// subscribers.
func encodings(ctx context.Context, l *lab, o options) (*figure, error) {
	sizes := encodingsSubscribers
	if o.subscribers > 0 {
		sizes = []int{o.subscribers}
	}
	f := &figure{Setting: fmt.Sprintf("one room, half of the subscribers raw and half hubd.v1.json, %d messages of %d B.", encodingsMessages, encodingsBytes)}
	for _, n := range sizes {
		inCase := number(float64(n)) + " subscribers"
		l.say("encodings: %s", inCase)
		err := l.with(ctx, spec{}, func(s *server) error { return encodingsRun(ctx, s, n, f, inCase) })
		if err != nil {
			return nil, err
		}
		f.exactly("encodings a message", inCase, 2)
		f.exactly("deliveries a message", inCase, float64(n/2*2))
	}
	return f, nil
}

func encodingsRun(ctx context.Context, s *server, n int, f *figure, inCase string) (err error) {
	delivered := 0
	fleet, err := newFleet(func(_ *subscriber, fr frame) {
		if fr.op == opBinary || isMessage(fr) {
			delivered++
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	for _, json := range []bool{false, true} {
		if err := fleet.joinAll(ctx, n/2, dialOptions{addr: s.addr, path: "/rooms/bench", json: json}); err != nil {
			return err
		}
	}
	if err := s.joined(ctx, "bench", n/2*2); err != nil {
		return err
	}
	before, err := s.scrape(ctx)
	if err != nil {
		return err
	}
	p := newStampedPublisher(s, "bench", encodingsBytes)
	for i := range encodingsMessages {
		if err := p.publish(ctx, uint64(i), clock()); err != nil {
			return err
		}
		// All have it before the next comes, so nothing overflows.
		deadline := clock() + arrivalTimeout
		if err := fleet.run(func() bool { return delivered >= (i+1)*(n/2*2) || clock() > deadline }); err != nil {
			return err
		}
	}
	after, err := s.scrape(ctx)
	if err != nil {
		return err
	}
	encoded := after.sum("hubd_frames_encoded_total") - before.sum("hubd_frames_encoded_total")
	f.add("encodings a message", "", inCase, encoded/encodingsMessages)
	f.add("deliveries a message", "", inCase, float64(delivered)/encodingsMessages)
	return nil
}

// isMessage reports whether a JSON frame is a message, not an answer or a gap.
func isMessage(fr frame) bool {
	const begin = `{"type":"message"`
	return fr.op == opText && len(fr.lead) >= len(begin) && string(fr.lead[:len(begin)]) == begin
}
