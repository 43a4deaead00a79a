package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// The setting of churn. Queues and timeouts are short so that all that can end
// a frame or a connection happens often.
const (
	churnDuration   = 20 * time.Second
	churnMembers    = 64
	churnPublishers = 4
	churnMaxMessage = 4 << 10
	churnRooms      = 3 // a feed
	churnStuck      = 5 // a feed, of the first rest
	churnLastBurst  = 100
)

var churnPolicies = []string{"drop-newest", "drop-oldest", "keep-latest", "disconnect", "reject-publish"}

// churnFeeds are one feed a policy, and one whose frames expire.
var churnFeeds = append(slices.Clone(churnPolicies), "expiring")

func churnConfig() string {
	var b strings.Builder
	b.WriteString("feeds:\n")
	for _, feed := range churnFeeds {
		policy, ttl := feed, "0s"
		if feed == "expiring" {
			policy, ttl = "drop-oldest", "30ms"
		}
		fmt.Fprintf(&b, "  - name: %s\n    match: [\"%s.*\"]\n    policy: %s\n    ttl: %s\n    allow_policies: [%s]\n    queue: {messages: 32, bytes: 32KiB}\n"+
			"    history: {messages: 50, bytes: 64KiB, age: 1s}\n",
			feed, feed, policy, ttl, strings.Join(churnPolicies, ", "))
	}
	return b.String()
}

// churn uses a server in random ways, lets it come to rest, and adds up what
// became of every frame.
func churn(ctx context.Context, l *lab, o options) (*figure, error) {
	duration := orDefault(o.duration, churnDuration)
	rounds := orDefault(o.rounds, 1)
	f := &figure{Setting: fmt.Sprintf("%d random subscribers at a time (raw, JSON and SSE, reading, slow and stuck, ending in every way), %d publishers, an operator who kicks, "+
		"%v, seed %d, %d rounds. Difference: offered - sent - dropped (- queued - in flight).", churnMembers, churnPublishers, duration, o.seed, rounds)}
	for round := range rounds {
		seed := o.seed + uint64(round)
		l.say("churn: round %d of %d, seed %d", round+1, rounds, seed)
		sp := spec{config: churnConfig(), args: []string{
			"--max-message-bytes", fmt.Sprint(churnMaxMessage), "--write-timeout", "1s", "--close-timeout", "300ms",
			"--ping-interval", "300ms", "--pong-timeout", "300ms"}}
		err := l.with(ctx, sp, func(s *server) error {
			run := churnRun{server: s, seed: seed, figure: f}
			return run.do(ctx, duration)
		})
		if err != nil {
			return nil, err
		}
	}
	f.exactlyAll("difference", 0)
	return f, nil
}

// churnRun is one server's life.
type churnRun struct {
	server *server
	seed   uint64
	figure *figure

	joined, resumed, published, refused, kicked atomic.Int64
}

func (r *churnRun) do(ctx context.Context, duration time.Duration) error {
	// Not a deadline: what goes on would fail by it a moment before busy is
	// over.
	busy, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(duration, cancel).Stop()
	err := workers(churnMembers+churnPublishers+1, func(i int) error {
		rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
		step := r.member
		switch {
		case i == churnMembers+churnPublishers:
			step = r.operate
		case i >= churnMembers:
			step = r.publish
		}
		for busy.Err() == nil {
			if err := step(busy, rng); err != nil && busy.Err() == nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if err := r.restWithStuck(ctx); err != nil {
		return err
	}
	return r.restAlone(ctx)
}

func churnRoom(rng *rand.Rand) string {
	return fmt.Sprintf("%s.%d", churnFeeds[rng.IntN(len(churnFeeds))], rng.IntN(churnRooms))
}

// publish posts one message of random size, and now and then pauses.
func (r *churnRun) publish(ctx context.Context, rng *rand.Rand) error {
	q := url.Values{}
	if rng.IntN(2) == 0 {
		q.Set("key", fmt.Sprint(rng.IntN(4)))
	}
	if rng.IntN(8) == 0 {
		q.Set("wait", "20ms")
	}
	path := "/rooms/" + churnRoom(rng) + "?" + q.Encode()
	for range 1 + rng.IntN(20) { // bursts
		_, err := r.server.publish(ctx, path, make([]byte, rng.IntN(churnMaxMessage+1)))
		var status *statusError
		switch {
		case errors.As(err, &status) && status.status == http.StatusServiceUnavailable:
			r.refused.Add(1)
		case err != nil:
			return err
		default:
			r.published.Add(1)
		}
	}
	return pause(ctx, time.Duration(rng.IntN(5000))*time.Microsecond)
}

// operate kicks one of the slowest.
func (r *churnRun) operate(ctx context.Context, rng *rand.Rand) error {
	answer, err := r.server.get(ctx, "/admin/subscribers?sort=queued&limit=20")
	if err != nil {
		return err
	}
	var list struct{ Subscribers []struct{ ID string } }
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("list of subscribers: %w", err)
	}
	if n := len(list.Subscribers); n > 0 {
		_, err := r.server.do(ctx, http.MethodDelete, "/admin/subscribers/"+list.Subscribers[rng.IntN(n)].ID, nil)
		var status *statusError
		switch {
		case err == nil:
			r.kicked.Add(1)
		case !errors.As(err, &status) || status.status != http.StatusNotFound: // it may have left
			return err
		}
	}
	return pause(ctx, 50*time.Millisecond)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restWithStuck leaves stuck subscribers with full queues and with writes that
// do not go on, and takes the balance over all: how many frames are queued and
// in flight is not told by feed.
func (r *churnRun) restWithStuck(ctx context.Context) (err error) {
	fleet, err := newFleet(func(*subscriber, frame) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	fleet.onGone = func(*subscriber) {}
	for _, feed := range churnFeeds {
		for range churnStuck {
			if _, err := fleet.joinStuck(ctx, dialOptions{addr: r.server.addr, path: "/rooms/" + feed + ".0"}); err != nil {
				return err
			}
		}
	}
	for range churnLastBurst {
		for _, feed := range churnFeeds {
			_, err := r.server.publish(ctx, "/rooms/"+feed+".0", make([]byte, churnMaxMessage/4))
			var status *statusError
			if err != nil && !errors.As(err, &status) {
				return err
			}
		}
	}
	at, err := r.rest(ctx)
	if err != nil {
		return err
	}
	r.note("all, while stuck subscribers are there", at)
	return nil
}

// rest waits until the server's balance has stopped changing.
func (r *churnRun) rest(ctx context.Context) (scrape, error) {
	var last [4]float64
	for range 200 {
		s, err := r.server.scrape(ctx)
		if err != nil {
			return nil, err
		}
		now := [4]float64{s.sum("hubd_frames_offered_total"), s.sum("hubd_frames_sent_total"), s.sum("hubd_frames_dropped_total"), s.sum("hubd_frames_in_flight")}
		if now == last {
			return s, nil
		}
		last = now
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the server does not come to rest")
}

// restAlone waits until all have gone, and takes the balance of every feed and
// policy.
func (r *churnRun) restAlone(ctx context.Context) error {
	var s scrape
	var failure error
	// Rooms last as long as their history.
	err := await(ctx, func() bool {
		s, failure = r.server.scrape(ctx)
		return failure != nil || s.sum("hubd_connections") == 0 && s.sum("hubd_rooms") == 0
	})
	if err := errors.Join(failure, err); err != nil {
		return fmt.Errorf("waiting for the last connection and room to end: %w", err)
	}
	for series := range s {
		if nameOf(series) != "hubd_frames_offered_total" {
			continue
		}
		feed, policy := label(series, "feed"), label(series, "policy")
		if s[series] > 0 {
			r.note(feed+" / "+policy, s, "feed", feed, "policy", policy)
		}
	}
	r.note("all, at the end", s)
	slices.SortStableFunc(r.figure.Rows, func(a, b *row) int { return strings.Compare(a.Name, b.Name) })
	for _, left := range []string{"hubd_connections", "hubd_subscriptions", "hubd_queued_bytes", "hubd_retained_bytes"} {
		r.figure.add(left+" at the end", "", "difference", s.sum(left))
	}
	r.notes(s)
	return nil
}

// note adds the balance of the series with these labels.
func (r *churnRun) note(name string, s scrape, labels ...string) {
	add := func(column string, value float64) float64 {
		r.figure.add(name, "", column, value)
		return value
	}
	difference := add("offered", s.sum("hubd_frames_offered_total", labels...))
	difference -= add("sent", s.sum("hubd_frames_sent_total", labels...))
	for _, reason := range []string{"overflow", "conflated", "expired", "closed", "budget"} {
		difference -= add(reason, s.sum("hubd_frames_dropped_total", append([]string{"reason", reason}, labels...)...))
	}
	if len(labels) == 0 {
		difference -= add("queued", s.sum("hubd_queued_frames"))
		difference -= add("in flight", s.sum("hubd_frames_in_flight"))
	}
	add("difference", difference)
}

// notes adds how the connections ended, to show what the run has covered.
func (r *churnRun) notes(s scrape) {
	list := func(metric, by string) string {
		var parts []string
		for series, n := range s {
			if nameOf(series) == metric && n > 0 {
				parts = append(parts, fmt.Sprintf("%s %.0f", label(series, by), n))
			}
		}
		slices.Sort(parts)
		return strings.Join(parts, ", ")
	}
	r.figure.Setting += fmt.Sprintf("\nSeed %d: %d joined, %d of them to resume; %d published, %d refused, %d kicked; connections ended: %s; closes: %s.",
		r.seed, r.joined.Load(), r.resumed.Load(), r.published.Load(), r.refused.Load(), r.kicked.Load(),
		list("hubd_connections_closed_total", "reason"), list("hubd_close_outcome_total", "outcome"))
}
