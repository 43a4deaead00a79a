package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// demoRoom is one policy's room, its publisher and its subscribers.
type demoRoom struct {
	// immutable
	demo    *demo
	policy  queue.Policy
	name    frame.Room
	control bool // no laggards join it, to compare with

	published atomic.Int64
	refused   atomic.Int64

	mu      sync.Mutex
	clients []*demoClient
}

// demoControl is the name of the room that no laggards join.
const demoControl = "no-laggards"

// newDemoRooms returns a room for each policy and, last, the one to compare
// with.
func newDemoRooms(d *demo) ([]*demoRoom, error) {
	var rooms []*demoRoom
	for _, text := range append(queue.PolicyNames(), demoControl) {
		name, err := frame.ParseRoom(text)
		if err != nil {
			return nil, fmt.Errorf("room %s: %w", text, err)
		}
		policy, err := queue.ParsePolicy(text)
		rooms = append(rooms, &demoRoom{demo: d, policy: policy, name: name, control: err != nil})
	}
	return rooms, nil
}

func (r *demoRoom) members() []*demoClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.clients)
}

func (r *demoRoom) endpoint() string { return r.demo.url + "rooms/" + r.name.String() }

// publish publishes until ctx ends, at the demo's rate if the machine can.
func (r *demoRoom) publish(ctx context.Context, offset time.Duration) error {
	select {
	case <-time.After(offset):
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(demoInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		// A publish that was begun is seen through, or the books were wrong.
		if err := r.post(context.WithoutCancel(ctx), n); err != nil {
			return fmt.Errorf("publish to %v: %w", r.name, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// post publishes one message, over HTTP as anybody would.
func (r *demoRoom) post(ctx context.Context, n int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint(), bytes.NewReader(demoMessage(n, time.Since(r.demo.start))))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	response, err := r.demo.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		refused := refusalOf(response)
		if refused.code != "overflow" {
			return refused
		}
		r.refused.Add(1)
		return nil
	}
	var answer receipt
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	r.published.Add(1)
	if answer.Disconnected > 0 {
		r.look() // now, to know when
	}
	return nil
}

// demoMessage is a text of the demo's size that says when it was published.
func demoMessage(n int, at time.Duration) []byte {
	text := fmt.Appendf(nil, "message %d, published at %v ", n, at)
	return append(text, strings.Repeat(" ", max(0, demoSize-len(text)))...)
}

// publishedAt reads the time that demoMessage wrote.
func publishedAt(text string) (time.Duration, error) {
	_, text, _ = strings.Cut(text, " at ")
	text, _, _ = strings.Cut(text, " ")
	return time.ParseDuration(text)
}

// demoPace is how a subscriber reads.
type demoPace int

const (
	demoFast demoPace = iota
	demoSlowPace
	demoStuck
)

func (p demoPace) String() string { return [...]string{"fast", "slow", "stuck"}[p] }

// speed is the bytes a second that it reads, 0 for as many as there are. One
// that is stuck has a receive buffer as small as a slow one's.
func (p demoPace) speed() speed {
	if p == demoFast {
		return 0
	}
	const envelope = 64 // of a message of the JSON protocol in its frame
	return speed(demoSlow * (demoSize + envelope))
}

// demoClient is one real subscriber.
type demoClient struct {
	// immutable
	room   *demoRoom
	pace   demoPace
	conn   *websocket.Conn
	sub    *hub.Subscription // the server's side, for its books
	joined uint64            // the room's position then
	since  time.Duration     // when it joined, since the demo's start

	mu       sync.Mutex
	received int
	told     int           // losses in gap notices
	notices  int           // gap notices
	last     time.Duration // age of what it read last
	ages     recent        // of what it read
	gone     time.Duration // when it was out of the room, 0: it is not
}

// join has a client join the room, and begins its reading.
func (r *demoRoom) join(ctx context.Context, pace demoPace) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	var raw *measuredConn
	dial := r.demo.dial(pace.speed())
	conn, _, err := websocket.Dial(ctx, r.endpoint(), &websocket.DialOptions{ //nolint:bodyclose // it is the connection's
		Subprotocols: []string{subprotocol},
		HTTPClient: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				raw = newMeasuredConn(c, pace.speed())
				return raw, nil
			},
		}},
	})
	if err != nil {
		return fmt.Errorf("join %v: %w", r.name, err)
	}
	conn.SetReadLimit(maxFrame)
	c := &demoClient{room: r, pace: pace, conn: conn, since: time.Since(r.demo.start), ages: recent{most: demoQueue}}
	if err = c.enter(ctx, raw.LocalAddr().String()); err != nil {
		return errors.Join(fmt.Errorf("join %v: %w", r.name, err), conn.CloseNow())
	}
	r.mu.Lock()
	r.clients = append(r.clients, c)
	r.mu.Unlock()
	if pace != demoStuck {
		raw.pace()
		r.demo.reading.Go(c.read)
	}
	return nil
}

// enter reads that the client has joined, and finds the server's side of it.
func (c *demoClient) enter(ctx context.Context, addr string) error {
	r := c.room
	_, text, err := c.conn.Read(ctx)
	if err != nil {
		return err
	}
	var first serverFrame
	if err := json.Unmarshal(text, &first); err != nil || first.Type != "joined" {
		return fmt.Errorf("the first frame is %q", text)
	}
	c.joined = first.Seq
	id, err := r.idOf(ctx, addr)
	if err != nil {
		return err
	}
	stats, _ := r.demo.hub.Room(r.name)
	for _, s := range stats.Subscriptions {
		if s.ID() == id {
			c.sub = s.Subscription
			return nil
		}
	}
	return fmt.Errorf("it has left already")
}

// idOf asks the hub, as an operator would, for the subscription from an address.
func (r *demoRoom) idOf(ctx context.Context, addr string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.demo.url+"admin/rooms/"+r.name.String(), nil)
	if err != nil {
		return "", err
	}
	response, err := r.demo.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var room struct {
		Subscriptions []struct{ ID, Remote string }
	}
	if err := json.NewDecoder(response.Body).Decode(&room); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	for _, s := range room.Subscriptions {
		if s.Remote == addr {
			return s.ID, nil
		}
	}
	return "", fmt.Errorf("the hub knows nobody at %s", addr)
}

// read reads to the end of the connection, as fast as it may.
func (c *demoClient) read() {
	for {
		_, text, err := c.conn.Read(context.Background())
		if err != nil {
			return
		}
		var f serverFrame
		if json.Unmarshal(text, &f) == nil {
			c.note(&f, time.Since(c.room.demo.start))
		}
	}
}

func (c *demoClient) note(f *serverFrame, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.Type == "gap":
		c.notices++
		c.told += int(f.Lost)
	case f.Type == "message" && f.Text != nil:
		c.received++
		at, err := publishedAt(*f.Text)
		if err != nil {
			return // somebody else's message, from the page
		}
		c.last = max(0, now-at)
		c.ages.add(c.last)
		if c.pace == demoFast {
			c.room.latency(at, c.last)
		}
	}
}

// latency notes how long a message took to the fast subscriber.
func (r *demoRoom) latency(at, took time.Duration) {
	d := r.demo
	d.mu.Lock()
	defer d.mu.Unlock()
	switch since := d.laggards.Load(); {
	case since == 0 || at < time.Duration(since):
		d.alone.add(took)
	case r.control:
		d.apart.add(took)
	default:
		d.beside.add(took)
	}
}
