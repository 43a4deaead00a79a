package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// BenchmarkReconnects measures what 500 reconnects cost a room with 2,000
// messages a second: nothing may be missing or come twice, and the time that a
// publish takes is compared with that of a run without any, in turns.
func BenchmarkReconnects(b *testing.B) {
	const reconnects = 500
	var with, without []time.Duration
	var missing, twice atomic.Int64
	for b.Loop() {
		with = append(with, reconnectRun(b, reconnects, &missing, &twice)...)
		without = append(without, reconnectRun(b, 0, &missing, &twice)...)
	}
	p99 := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)*99/100]) / float64(time.Microsecond)
	}
	b.ReportMetric(float64(missing.Load()), "missing")
	b.ReportMetric(float64(twice.Load()), "duplicated")
	b.ReportMetric(p99(with), "µs-p99")
	b.ReportMetric(p99(without), "µs-p99-quiet")
	b.ReportMetric(p99(with)/p99(without), "p99-ratio")
}

// reconnectRun publishes for five seconds to 20 clients that reconnect n times
// altogether, at random moments, and returns how long each publish took.
func reconnectRun(b *testing.B, n int, missing, twice *atomic.Int64) (took []time.Duration) {
	const clients, rate, total = 20, 2000, 10_000
	h, err := hub.New(hub.Config{Feeds: []hub.Feed{{Name: "h", Match: []string{"r"}, History: historyOf(total), Queue: queue.Limits{Messages: total}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	srv, err := server.New(server.Config{Hub: h})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	hs := http.Server{Handler: srv.Handler()}
	var serving sync.WaitGroup
	serving.Go(func() { _ = hs.Serve(ln) })
	defer serving.Wait()
	defer hs.Close()
	defer srv.Close()

	room, err := frame.ParseRoom("r")
	if err != nil {
		b.Fatal(err)
	}
	publish := func() frame.Position {
		p, err := h.Publish(b.Context(), hub.PublishRequest{Message: frame.Message{Room: room, Kind: frame.Text, Data: []byte("x")}})
		if err != nil {
			b.Error(err)
		}
		return p.Position
	}
	first := publish()
	var wg sync.WaitGroup
	for k := range clients {
		rng := rand.New(rand.NewPCG(7, uint64(k)))
		cuts := []uint64{total}
		for range n / clients {
			cuts = append(cuts, 2+rng.Uint64N(total-2))
		}
		slices.Sort(cuts)
		wg.Go(func() {
			seen := first.Seq
			for _, cut := range cuts {
				url := fmt.Sprintf("http://%s/rooms/r?after=%s:%d", ln.Addr(), first.Epoch, seen)
				var err error
				if seen, err = follow(b, url, seen, cut, missing, twice); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	start := time.Now()
	for i := range total - 1 {
		for due := start.Add(time.Duration(i) * time.Second / rate); time.Until(due) > 0; {
			<-tick.C
		}
		begin := time.Now()
		publish()
		took = append(took, time.Since(begin))
	}
	wg.Wait()
	return took
}

// follow reads a room from behind seen to cut and drops the link. It counts
// what is missing and what comes twice.
func follow(b *testing.B, url string, seen, cut uint64, missing, twice *atomic.Int64) (uint64, error) {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{server.Protocol}})
	if err != nil {
		return seen, err
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	defer ws.CloseNow()
	for seen < cut {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return seen, err
		}
		var a answer
		if err := json.Unmarshal(text, &a); err != nil {
			return seen, err
		}
		switch {
		case a.Type == "joined" && *a.Resumed:
		case a.Type != "message":
			return seen, fmt.Errorf("after %d: %s", seen, text)
		case a.Seq <= seen:
			twice.Add(1)
		default:
			missing.Add(int64(a.Seq - seen - 1))
			seen = a.Seq
		}
	}
	return seen, nil
}
