package server_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// bubble runs a test in fake time, so that times are exact, and on a network in
// memory with a buffer of known size.
func bubble(t *testing.T, hc hub.Config, sc server.Config, f func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := startMem(t, hc, sc, 2048)
		n.patience = 0 // what would wait for ever is found out
		f(t, n)
	})
}

// rest waits until nobody in the bubble has anything to do before time passes.
func rest() { synctest.Wait() }

// farewell is what a client heard last, and when.
type farewell struct {
	messages []string
	code     int
	at       time.Duration
}

// listen reads to the end, from the moment that go is closed.
func listen(w *wire, begin <-chan struct{}, origin time.Time) <-chan farewell {
	heard := make(chan farewell, 1)
	go func() {
		<-begin
		e := w.end()
		heard <- farewell{e.messages, e.code, time.Since(origin)}
	}()
	return heard
}

// A node is drained with healthy, stalled and busy clients. All hear what they
// can hear; nobody holds it up.
func TestDrain(t *testing.T) {
	const healthy, stalled, queued = 40, 8, 5
	const window, deadline = time.Second, 300 * time.Millisecond
	feeds := bare(hub.Feed{Name: "refusing", Match: []string{"refusing"}, Policy: queue.RejectPublish, Queue: queue.Limits{Messages: 1}})
	bubble(t, feeds, lenient(server.Config{DrainWindow: window, CloseTimeout: deadline}), func(t *testing.T, n *node) {
		origin := time.Now()
		begin := make(chan struct{})
		var farewells []<-chan farewell
		for range healthy {
			farewells = append(farewells, listen(n.wire("/rooms/lobby"), begin, origin))
		}
		for range stalled {
			n.wire("/rooms/lobby")
		}
		n.wire("/rooms/refusing") // stalled, too
		for i := range queued {
			if p := n.publishes("lobby", sequel(i, 1000)); p.Subscribers != healthy+stalled || p.Dropped > 0 {
				t.Fatalf("%+v", p)
			}
		}
		for refused := false; !refused; rest() {
			refused = n.post("refusing", "text/plain", sequel(0, 1000)).Status == http.StatusServiceUnavailable
		}

		// Requests under way: one waits for room, one has sent half its body.
		waiting := make(chan published, 1)
		go func() { waiting <- n.post("refusing?wait=5s", "text/plain", "waits") }()
		half := n.connect()
		half.write([]byte("POST /rooms/lobby HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n12345"))
		rest()

		drained := make(chan error, 1)
		close(begin)
		go func() { drained <- n.srv.Drain(context.Background()) }()
		rest()
		if p := <-waiting; p.Status != http.StatusServiceUnavailable || p.Code != string(hub.Draining) {
			t.Errorf("the publish that waited for room was answered %+v", p)
		}
		if at := time.Since(origin); at != 0 {
			t.Errorf("it was answered after %v", at)
		}
		half.write([]byte("67890"))
		if resp := half.response(); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("the publish that came half before was answered %s", resp.Status)
		}
		half.conn.Close()
		n.refusesNewcomers()

		var last time.Duration
		var times []time.Duration
		for i, heard := range farewells {
			f := <-heard
			if f.code != 1001 || len(f.messages) != queued {
				t.Errorf("healthy client %d: code %d after %d messages", i, f.code, len(f.messages))
			}
			times = append(times, f.at)
			last = max(last, f.at)
		}
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
		took := time.Since(origin)
		t.Logf("healthy closed within %v, drained after %v", last, took)
		if last > window || took > window+deadline {
			t.Errorf("drained after %v, the healthy closed within %v; the window is %v, the close timeout %v", took, last, window, deadline)
		}
		isSpread(t, times, window/(healthy+stalled+1))
		n.wants(healthy, "hubd_close_outcome_total", "outcome", "clean")
		n.wants(stalled+1, "hubd_close_outcome_total", "outcome", "deadline")
		n.wants(healthy+stalled+1, "hubd_connections_closed_total", "reason", "drain")
		n.wants(3, "hubd_publish_rejected_total", "reason", "draining")
		if conn, err := n.dialer(shortly(t)); err == nil {
			conn.Close()
			t.Error("the listener is open after the drain")
		}
	})
}

// shortly is a context for what should fail at once.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// refusesNewcomers checks what a node answers that drains.
func (n *node) refusesNewcomers() {
	n.t.Helper()
	if code, _ := n.status("/readyz"); code != http.StatusServiceUnavailable {
		n.t.Errorf("readiness while draining: %d", code)
	}
	if code, _ := n.status("/healthz"); code != http.StatusOK {
		n.t.Errorf("health while draining: %d", code)
	}
	for _, line := range []string{"Sec-WebSocket-Protocol: " + server.Protocol, "X-Nothing: in particular"} {
		w := n.connect()
		w.write([]byte(n.handshake("/rooms/lobby", line) + "\r\n\r\n"))
		resp := w.response()
		p := decode[published](n.t, resp)
		if resp.StatusCode != http.StatusServiceUnavailable || p.Code != string(hub.Draining) || resp.Header.Get("Retry-After") == "" {
			n.t.Errorf("upgrade while draining: %s %+v", resp.Status, p)
		}
		w.conn.Close()
	}
	if p := n.post("lobby", "text/plain", "x"); p.Status != http.StatusServiceUnavailable || p.Code != string(hub.Draining) {
		n.t.Errorf("publish while draining: %+v", p)
	}
	n.wants(2, "hubd_handshakes_rejected_total", "reason", "draining")
}

// isSpread checks that clients were not sent away together: no more than due at
// any time, within a tick.
func isSpread(t *testing.T, times []time.Duration, interval time.Duration) {
	t.Helper()
	slices.Sort(times)
	for i, at := range times {
		if due := int(at/interval) + 2; i >= due {
			t.Errorf("%d clients were closed after %v, at most one every %v is due", i+1, at, interval)
			return
		}
	}
}

// What is nearly idle drains in no time.
func TestDrainOfTheNearlyIdle(t *testing.T) {
	for _, clients := range []int{0, 1, 3} {
		bubble(t, bare(), lenient(server.Config{}), func(t *testing.T, n *node) {
			begin := make(chan struct{})
			close(begin)
			origin := time.Now()
			var farewells []<-chan farewell
			for range clients {
				farewells = append(farewells, listen(n.wire("/rooms/lobby"), begin, origin))
			}
			rest()
			if err := n.srv.Drain(context.Background()); err != nil {
				t.Errorf("drain: %v", err)
			}
			took := time.Since(origin)
			for _, heard := range farewells {
				if f := <-heard; f.code != 1001 {
					t.Errorf("code %d", f.code)
				}
			}
			if most := time.Duration(clients) * 50 * time.Millisecond; took > most {
				t.Errorf("%d clients took %v", clients, took)
			}
		})
	}
}

// A client that never ends its request holds the drain up no longer than one
// that is stuck in its connection, not even both together.
func TestDrainWithAnUnfinishedRequest(t *testing.T) {
	const stalled, window, deadline = 50, time.Second, 300 * time.Millisecond
	bubble(t, bare(), lenient(server.Config{DrainWindow: window, CloseTimeout: deadline}), func(t *testing.T, n *node) {
		for range stalled {
			n.wire("/rooms/lobby")
		}
		half := n.connect()
		half.write([]byte("POST /rooms/lobby HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n12345"))
		rest()
		origin := time.Now()
		if err := n.srv.Drain(context.Background()); err != nil {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(origin); took > window+deadline {
			t.Errorf("drained after %v; the window is %v, the close timeout %v", took, window, deadline)
		}
		n.wants(stalled, "hubd_close_outcome_total", "outcome", "deadline")
	})
}

// When the drain's context ends, whatever is left goes at once.
func TestDrainCutShort(t *testing.T) {
	const deadline = 300 * time.Millisecond
	bubble(t, bare(), lenient(server.Config{CloseTimeout: deadline}), func(t *testing.T, n *node) {
		for range 500 {
			n.wire("/rooms/lobby")
		}
		origin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := n.srv.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(origin); took > time.Second+deadline {
			t.Errorf("a drain that was cut short after 1s took %v", took)
		}
		n.wants(500, "hubd_connections_closed_total", "reason", "drain")
	})
}
