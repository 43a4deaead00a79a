package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hubd/internal/hub"
	"hubd/internal/metrics/metricstest"
	"hubd/internal/queue"
	"hubd/internal/server"
)

var churnSeed = flag.Uint64("churn.seed", 0, "repeat the choices of a churn test; 0: new ones")

// TestChurn lets clients of all kinds come, go and misbehave at random, in
// rooms of all policies, while others publish to them. Each client checks what
// it gets; at the end everything that was offered must be accounted for, and
// nothing of anyone left.
func TestChurn(t *testing.T) {
	seed := *churnSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -churn.seed=%d", seed)
	history := &hub.HistoryLimits{Messages: 20, Bytes: 16 << 10, Age: time.Minute}
	cfg := hub.Config{MaxMessageBytes: 4 << 10}
	for _, p := range queue.Policies() {
		cfg.Feeds = append(cfg.Feeds, hub.Feed{Name: p.String(), Match: []string{p.String() + "-*"}, Policy: p, History: history,
			Queue: queue.Limits{Messages: 16, Bytes: 16 << 10}})
	}
	cfg.Feeds = append(cfg.Feeds, hub.Feed{Name: "brief", Match: []string{"brief-*"}, TTL: time.Millisecond, History: history})
	n := start(t, cfg, server.Config{CloseTimeout: 20 * time.Millisecond, WriteTimeout: time.Second, PingInterval: 300 * time.Millisecond})
	c := &churn{node: n, seed: seed, over: make(chan struct{}), beat: make(chan struct{})}
	n.http.CloseIdleConnections()
	base := footprintNow(t)

	var publishers, others sync.WaitGroup
	for i := range size(30, 300) {
		others.Go(func() { c.visit(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	others.Go(func() { c.operate(rand.New(rand.NewPCG(seed, 1<<32))) })
	for i := range 4 {
		publishers.Go(func() { c.publish(rand.New(rand.NewPCG(seed, 1<<33+uint64(i))), i, size(200, 20_000)) })
	}
	publishers.Wait()
	close(c.over)
	others.Wait()
	n.gauge(0, "hubd_connections")
	t.Logf("visits %d, published %d, refused %d, kicked %d; checked %d messages and %d losses",
		c.visits.Load(), c.published.Load(), c.refused.Load(), c.kicked.Load(), c.read.Load(), c.lost.Load())

	b, err := metricstest.Conservation(n.reg)
	if err != nil || b.Missing() != 0 || len(b.Pending) != 0 || b.Queued != 0 || b.InFlight != 0 {
		t.Errorf("%s (%v)", b, err)
	}
	t.Log(b)
	for name, set := range map[string][]string{"hubd_frames_dropped_total": queue.ReasonNames(), "hubd_connections_closed_total": server.CloseReasons()} {
		counts := map[string]float64{}
		for _, reason := range set {
			if v := n.value(name, "reason", reason); v > 0 {
				counts[reason] = v
			}
		}
		t.Log(name, counts)
	}
	n.hub.Close()
	n.wants(0, "hubd_retained_bytes")
	n.wants(0, "hubd_rooms")
	n.wants(0, "hubd_connections_closed_total", "reason", "error")
	n.backTo(base)
	if strings.Contains(n.log.String(), "level=ERROR") {
		t.Error("an error was logged")
	}
}

// churn is what the actors of the test share.
type churn struct {
	*node
	seed uint64
	over chan struct{} // closed when nothing more is published

	mu   sync.Mutex
	sent int
	beat chan struct{} // closed every few publishes

	visits, published, refused, kicked, read, lost atomic.Int64
}

// tick is one publish.
func (c *churn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent++; c.sent%8 == 0 {
		close(c.beat)
		c.beat = make(chan struct{})
	}
}

// wait waits for so many beats, or the end.
func (c *churn) wait(beats int) {
	for range beats {
		c.mu.Lock()
		beat := c.beat
		c.mu.Unlock()
		select {
		case <-beat:
		case <-c.over:
			return
		}
	}
}

func (c *churn) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

func (c *churn) anyRoom(rng *rand.Rand) string {
	feeds := append(queue.PolicyNames(), "brief", "other")
	return feeds[rng.IntN(len(feeds))] + "-room"
}

// body is a message that says whose it is and which.
func body(rng *rand.Rand, publisher, i int) string {
	return fmt.Sprintf(`{"p":%d,"k":%d,"pad":%q}`, publisher, i, strings.Repeat("x", rng.IntN(3000)))
}

func (c *churn) publish(rng *rand.Rand, publisher, messages int) {
	for i := range messages {
		url := c.url + "/rooms/" + c.anyRoom(rng)
		if rng.IntN(2) == 0 {
			url += "?wait=2ms"
		}
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body(rng, publisher, i)))
		if err != nil {
			c.t.Error(err)
			return
		}
		req.Header.Set("Content-Type", []string{"application/json", "text/plain", "application/octet-stream"}[rng.IntN(3)])
		if key := rng.IntN(4); key > 0 {
			req.Header.Set("Hubd-Key", fmt.Sprint(key))
		}
		resp, err := c.http.Do(req)
		if err != nil {
			c.t.Error(err)
			return
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			c.t.Error(err)
		case resp.StatusCode == http.StatusOK:
			c.published.Add(1)
		case resp.StatusCode == http.StatusServiceUnavailable:
			c.refused.Add(1)
		default:
			c.t.Errorf("publish: %s", resp.Status)
		}
		c.tick()
	}
}

// operate looks at everything all the time, and kicks somebody now and then.
func (c *churn) operate(rng *rand.Rand) {
	for !c.isOver() {
		if v, err := connections(c.reg); err != nil || v < 0 {
			c.t.Errorf("%v connections (%v)", v, err)
		}
		resp, err := c.http.Get(c.url + "/admin/subscribers?limit=1000")
		if err != nil {
			c.t.Error(err)
			return
		}
		var view struct {
			Subscribers []struct {
				ID            string
				Queued, Limit struct{ Messages, Bytes int }
			}
		}
		err = json.NewDecoder(resp.Body).Decode(&view)
		resp.Body.Close()
		if err != nil {
			c.t.Error(err)
			return
		}
		for _, s := range view.Subscribers {
			if s.Queued.Messages > s.Limit.Messages || s.Queued.Bytes > s.Limit.Bytes {
				c.t.Errorf("a queue over its limits: %+v", s)
			}
		}
		if len(view.Subscribers) > 0 && rng.IntN(4) == 0 {
			c.kickOne(view.Subscribers[rng.IntN(len(view.Subscribers))].ID)
		}
		c.wait(1)
	}
}

func (c *churn) kickOne(id string) {
	req, err := http.NewRequest(http.MethodDelete, c.url+"/admin/subscribers/"+id, nil)
	if err != nil {
		c.t.Error(err)
		return
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNoContent:
		c.kicked.Add(1)
	case http.StatusNotFound: // it has gone by itself
	default:
		c.t.Errorf("kick: %s", resp.Status)
	}
}
