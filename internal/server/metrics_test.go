package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// Upgrades are refused for every reason there is while others come and go in
// every way there is. Each refusal is counted once, for what it was, and none
// touches the gauge of connections.
func TestRefusedUpgradesAreNoConnections(t *testing.T) {
	refusals := size(40, 500)
	const capacity = 20
	n := start(t, bare(), lenient(server.Config{Open: true, MaxConnections: capacity}))
	stop := watchConnections(n, capacity)

	try := func(path string, want int, lines ...string) {
		t.Helper()
		w := n.connect()
		defer w.conn.Close()
		w.write([]byte(n.handshake(path, lines...) + "\r\n\r\n"))
		if resp := w.response(); resp.StatusCode != want {
			t.Errorf("%s %v: %s", path, lines, resp.Status)
		}
	}
	for range refusals {
		try("/rooms/a", http.StatusForbidden, "Origin: http://evil.example")
		// The Host of the request line's URL counts before the header's.
		try("http://evil.example/rooms/a", http.StatusForbidden)
		try("/rooms/a%20b", http.StatusBadRequest)
		try("/rooms/a?policy=none", http.StatusBadRequest)
		try("/ws", http.StatusBadRequest) // without the subprotocol
	}
	// 50 come and go in either way; some at a time, within the capacity.
	for i := range size(4, 50) {
		var round []*wire
		for range capacity / 2 {
			w := n.wire("/rooms/a")
			round = append(round, w)
		}
		n.gauge(capacity/2, "hubd_connections")
		for j, w := range round {
			if (i+j)%2 == 0 {
				w.abort()
				continue
			}
			w.send(sent{op: opClose, payload: closePayload(1000, "")})
			w.closes(1000)
		}
		n.gauge(0, "hubd_connections")
	}
	var held []*wire
	for range capacity {
		held = append(held, n.wire("/rooms/a"))
	}
	n.gauge(capacity, "hubd_connections")
	for range refusals {
		try("/rooms/a", http.StatusServiceUnavailable)
		try("/ws", http.StatusServiceUnavailable, "Sec-WebSocket-Protocol: "+server.Protocol)
	}
	n.wants(capacity, "hubd_connections")
	for _, w := range held {
		w.abort()
	}
	n.gauge(0, "hubd_connections")
	for reason, want := range map[string]int{
		"origin": refusals, "host": refusals, "invalid": 3 * refusals, "over_capacity": 2 * refusals,
		"unauthorized": 0, "forbidden": 0, "rate_limited": 0, "draining": 0,
	} {
		n.wants(float64(want), "hubd_handshakes_rejected_total", "reason", reason)
	}
	n.wants(float64(capacity/2*size(4, 50)+capacity), "hubd_connections_closed_total")
	stop()
}

// watchConnections scrapes all the time until it is stopped, and looks at the
// gauge of connections.
func watchConnections(n *node, most float64) (stop func()) {
	quit := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		looks := 0
		for {
			select {
			case <-quit:
				n.t.Logf("%d scrapes", looks)
				return
			default:
			}
			v, err := connections(n.reg)
			if err != nil || v < 0 || v > most {
				n.t.Errorf("hubd_connections is %v (%v)", v, err)
				return
			}
			looks++
		}
	})
	return func() {
		close(quit)
		watcher.Wait()
	}
}

// connections reads the gauge, for goroutines that may not fail the test.
func connections(g prometheus.Gatherer) (v float64, err error) {
	families, err := g.Gather()
	for _, f := range families {
		if f.GetName() == "hubd_connections" {
			for _, m := range f.GetMetric() {
				v += m.GetGauge().GetValue()
			}
		}
	}
	return v, err
}

// Many rooms with names of the clients' choosing, messages with keys, users
// with addresses: the page grows by nothing and names none of them.
func TestMetricsNameNobody(t *testing.T) {
	users, rooms := size(10, 200), size(30, 250)
	n := start(t, hub.Config{Feeds: []hub.Feed{{Name: "chat", Match: []string{"chat.*"}, Policy: queue.Disconnect}}}, lenient(server.Config{MaxRoomsPerConnection: 1000}))
	n.publishes("warm", "x")
	before := seriesOf(t, n.page())
	clients := make([]*wire, users)
	for u := range users {
		w := n.wireJSON("/ws")
		clients[u] = w
		for r := range rooms {
			room := fmt.Sprintf("%szebra-%d-%d", []string{"", "chat."}[r%2], u, r)
			w.say(fmt.Sprintf(`{"type":"join","id":1,"room":%q}`, room))
			if a := w.answer(); a.Type != "joined" {
				t.Fatalf("join: %+v", a)
			}
			w.say(fmt.Sprintf(`{"type":"publish","id":2,"room":%q,"text":"giraffe","key":"okapi"}`, room))
			for range 2 { // the message and the answer, in either order
				w.answer()
			}
		}
	}
	page := n.page()
	after := seriesOf(t, page)
	n.wants(float64(users*rooms+1), "hubd_rooms") // and the one of before, in its history
	for s := range after {
		if !before[s] {
			t.Errorf("a new series: %s", s)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d series before, %d after", len(before), len(after))
	}
	if len(page) > 200_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, name := range []string{"zebra", "giraffe", "okapi", "127.0.0.1", "warm"} {
		if strings.Contains(page, name) {
			t.Errorf("the page names %q", name)
		}
	}
	t.Logf("%d series, %d bytes, %d rooms", len(after), len(page), users*rooms)
	for _, w := range clients {
		w.abort()
	}
}

func (n *node) page() string {
	n.t.Helper()
	resp := n.get("/metrics")
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("/metrics: %s, %v", resp.Status, err)
	}
	return string(b)
}

// seriesOf is what the page names, without the values.
func seriesOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	series := map[string]bool{}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			t.Fatal(errors.New("a line without a value: " + line))
		}
		series[line[:i]] = true
	}
	return series
}

// Every refused publish over HTTP is counted once, whoever refused it.
func TestRefusedPublishes(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	post := func(key, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/rooms/a", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := n.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, step := range []struct {
		key, body string
		status    int
		rejected  float64
	}{
		{"k", "one", http.StatusOK, 0},
		{"k", "one", http.StatusOK, 0},
		{"k", "two", http.StatusConflict, 1},
		{strings.Repeat("k", 300), "one", http.StatusBadRequest, 2},
		{"l", "\xff", http.StatusBadRequest, 3},
	} {
		if got := post(step.key, step.body); got != step.status {
			t.Errorf("%.10s %q: %d, want %d", step.key, step.body, got, step.status)
		}
		if got := n.value("hubd_publish_rejected_total", "reason", "invalid"); got != step.rejected {
			t.Errorf("%.10s %q: %v rejected, want %v", step.key, step.body, got, step.rejected)
		}
	}
}

// deaf owns a subscription and takes nothing.
type deaf struct{}

func (deaf) Wake()                {}
func (deaf) Evicted(hub.Eviction) {}

// A publisher that goes away while it waits for room is no fault of the hub's,
// and not logged as one.
func TestPublisherGoesAway(t *testing.T) {
	n := start(t, hub.Config{Feeds: []hub.Feed{{
		Name: "all", Match: []string{"*"}, Policy: queue.RejectPublish, Queue: queue.Limits{Messages: 1, Bytes: 1 << 20}, History: &hub.HistoryLimits{},
	}}}, server.Config{})
	room, err := frame.ParseRoom("a")
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := n.hub.Join(hub.JoinRequest{Room: room, Owner: deaf{}, ID: "stuck"})
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Leave()
	n.publishes("a", "fills the queue")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+"/rooms/a?wait=5s", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := n.http.Do(req); err == nil {
		resp.Body.Close()
		t.Fatalf("the publish was answered: %s", resp.Status)
	}
	for end := time.Now().Add(patience); !strings.Contains(n.log.String(), "waiting for room"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the end of the request is not logged at all")
		}
	}
	if strings.Contains(n.log.String(), "level=ERROR") {
		t.Error("it is logged as an error")
	}
}
