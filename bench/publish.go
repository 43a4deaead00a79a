package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// published is hubd's answer to a publish.
type published struct {
	Seq          uint64 `json:"seq"`
	Subscribers  int    `json:"subscribers"`
	Queued       int    `json:"queued"`
	Dropped      int    `json:"dropped"`
	Conflated    int    `json:"conflated"`
	Disconnected int    `json:"disconnected"`
}

// publish posts one binary message over a connection that is kept.
func (s *server) publish(ctx context.Context, path string, payload []byte) (p published, err error) {
	answer, err := s.do(ctx, http.MethodPost, path, bytes.NewReader(payload))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(answer, &p); err != nil {
		return p, fmt.Errorf("answer to a publish: %w", err)
	}
	return p, nil
}

// joined waits until the room has n subscribers. A subscriber has its answer to
// the upgrade a moment before it is in the room: what is published in that
// moment passes it by.
func (s *server) joined(ctx context.Context, room string, n int) error {
	var failure error
	err := await(ctx, func() bool {
		var info struct{ Subscribers int }
		answer, err := s.get(ctx, "/rooms/"+room)
		failure = errors.Join(err, json.Unmarshal(answer, &info))
		return failure != nil || info.Subscribers == n
	})
	if failure = errors.Join(failure, err); failure != nil {
		return fmt.Errorf("waiting for %d subscribers: %w", n, failure)
	}
	return nil
}

// await asks for a condition until it holds, for at most half a minute.
func await(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pace calls f for each number from first to end-1, rate times a second. at is
// when the call was due if it is late because the one before took too long, and
// now otherwise: so a server that holds up the publisher is charged for it, and
// the generator's own timers are not charged to the server.
func pace(ctx context.Context, rate int, first, end uint64, f func(number uint64, at time.Duration) error) error {
	start := clock()
	for number := first; number < end; number++ {
		at := start + time.Duration(number-first)*time.Second/time.Duration(rate)
		if wait := at - clock(); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
			at = clock()
		}
		if err := f(number, at); err != nil {
			return err
		}
	}
	return nil
}

// stampedPublisher posts stamped messages of one size to one room and keeps how
// long each publish took.
type stampedPublisher struct {
	server  *server
	room    string
	payload []byte
	took    latencies
	last    published
}

func newStampedPublisher(s *server, room string, bytes int) *stampedPublisher {
	return &stampedPublisher{server: s, room: "/rooms/" + room, payload: make([]byte, bytes)}
}

func (p *stampedPublisher) publish(ctx context.Context, number uint64, at time.Duration) (err error) {
	putStamp(p.payload, number, at)
	p.last, err = p.server.publish(ctx, p.room, p.payload)
	p.took.add(clock() - at)
	return err
}
