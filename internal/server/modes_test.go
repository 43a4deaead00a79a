package server_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// Whatever is turned on or off around a connection, it opens, it is served, and
// no timeout of a request's cuts it.
func TestModes(t *testing.T) {
	for i := range 1 << 5 {
		on := func(bit int) bool { return i>>bit&1 == 1 }
		name := fmt.Sprintf("metrics %v, log %v, compression %v, admin apart %v, open %v", on(0), on(1), on(2), on(3), on(4))
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(time.Second) }) // see startFake
			var m *metrics.Metrics
			sc := server.Config{Compression: on(2), SplitAdmin: on(3), Open: on(4), PingInterval: time.Hour}
			if on(0) {
				reg := prometheus.NewRegistry()
				m = metrics.New(reg, metrics.Sets{
					Feeds: hub.Config{}.FeedNames(), Policies: queue.PolicyNames(), DropReasons: queue.ReasonNames(), OverflowReasons: queue.LimitNames(),
					Encodings: frame.Encodings(), PublishReasons: server.PublishReasons(), Transports: server.Transports(),
					CloseReasons: server.CloseReasons(), CloseOutcomes: server.CloseOutcomes(), HandshakeReasons: server.HandshakeReasons(),
				})
				sc.Metrics, sc.Gatherer = m, reg
			}
			if on(1) {
				sc.Logger = slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
			}
			h, err := hub.New(hub.Config{Metrics: m})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			sc.Hub = h
			srv, err := server.New(sc)
			if err != nil {
				t.Fatal(err)
			}
			network := newMemNet(1 << 16)
			served := make(chan error, 1)
			go func() { served <- srv.Serve(network) }()
			n := &node{t: t, hub: h, srv: srv, url: "http://127.0.0.1:80", dialer: network.dial}
			n.http = &http.Client{Transport: &http.Transport{DialContext: n.dialContext}}
			serveAll(t, name, n)
			n.http.CloseIdleConnections()
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// serveAll uses each kind of connection, before and after a quiet while.
func serveAll(t *testing.T, name string, n *node) {
	t.Helper()
	raw := n.wire("/rooms/a", "Sec-WebSocket-Extensions: permessage-deflate")
	js := n.wireJSON("/rooms/a")
	js.answer()
	stream := n.connect()
	stream.write([]byte("GET /rooms/a HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"))
	resp := stream.response()
	if resp.StatusCode != 200 {
		t.Fatalf("%s: %s", name, resp.Status)
	}
	events := bufio.NewReader(resp.Body)
	text := strings.Repeat("text ", 200)
	for seq := uint64(1); seq <= 2; seq++ {
		begin := time.Now()
		if p := n.post("a", "text/plain", text); p.Status != 200 || p.Seq != seq || p.Queued != 3 {
			t.Errorf("%s: %+v", name, p)
		}
		raw.expect(text)
		if a := js.answer(); a.Text == nil || *a.Text != text {
			t.Errorf("%s: %+v", name, a)
		}
		for line := ""; line != "data: "+text+"\n"; {
			var err error
			if line, err = events.ReadString('\n'); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("%s: served after %v", name, waited)
		}
		time.Sleep(10 * time.Minute)
	}
	js.say(`{"type":"ping","id":1}`)
	js.expect(`{"type":"pong","id":1}`)
	raw.send(sent{op: opClose})
	raw.closes(1005)
}
