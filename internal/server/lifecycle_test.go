package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// In these tests time is fake, so that times are exact, and the network is
// memory with a buffer of known size.

// bubble runs a test in fake time.
func bubble(t *testing.T, hc hub.Config, sc server.Config, f func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := startMem(t, hc, sc, 2048)
		n.patience = 0 // what would wait for ever is found out
		f(t, n)
		// Clients that read nothing would hold up the end.
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

// A client that is told of the end and neither answers nor goes is no clean
// end, although there was room for all it was sent.
func TestAMuteClientIsDestroyed(t *testing.T) {
	n := start(t, bare(), lenient(server.Config{CloseTimeout: 50 * time.Millisecond}))
	for i, line := range []string{"X-Nothing: in particular", "Sec-WebSocket-Protocol: " + server.Protocol, "Accept: text/event-stream"} {
		w := n.connect()
		request := n.handshake("/rooms/lobby", line)
		if i == 2 {
			request = "GET /rooms/lobby HTTP/1.1\r\nHost: 127.0.0.1\r\n" + line
		}
		w.write([]byte(request + "\r\n\r\n"))
		n.joined("lobby", 1)
		n.kick(n.subscribers()[0].ID, http.StatusNoContent)
		n.gauge(0, "hubd_connections")
		n.wants(float64(i+1), "hubd_close_outcome_total", "outcome", "deadline")
	}
	n.wants(3, "hubd_connections_closed_total", "reason", "kicked")
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

// Hundreds of subscribers that are stuck overflow in the same publish.
func TestAllStuckAreCutOffAtOnce(t *testing.T) {
	stuck := size(300, 500)
	const deadline = time.Second
	bubble(t, bare(everywhere(queue.Disconnect, queue.Limits{Messages: 4})), lenient(server.Config{CloseTimeout: deadline}), func(t *testing.T, n *node) {
		began := make(chan struct{})
		close(began)
		healthy := n.wire("/rooms/lobby")
		kept := make(chan int, 1)
		go func() {
			got := 0
			for ; ; got++ {
				if _, err := healthy.tryMessage(); err != nil {
					kept <- got
					return
				}
			}
		}()
		for range stuck {
			n.wire("/rooms/lobby")
		}
		origin := time.Now()
		messages, gone := 0, 0
		for gone == 0 {
			p := n.publishes("lobby", sequel(messages, 1500))
			messages++
			gone = p.Disconnected
			rest() // the healthy one has read
		}
		if gone != stuck || time.Since(origin) != 0 {
			t.Errorf("%d of %d were cut off, after %v", gone, stuck, time.Since(origin))
		}
		p := n.publishes("lobby", sequel(messages, 1500))
		if p.Subscribers != 1 || p.Queued != 1 {
			t.Errorf("the next publish: %+v", p)
		}
		messages++
		n.wants(float64(stuck+1), "hubd_connections") // the sockets are not gone yet
		time.Sleep(deadline)                          // of the bubble
		rest()
		n.wants(1, "hubd_connections")
		n.wants(float64(stuck), "hubd_connections_closed_total", "reason", "slow_consumer")
		n.wants(float64(stuck), "hubd_close_outcome_total", "outcome", "deadline")
		n.wants(float64(stuck), "hubd_frames_dropped_total", "reason", "overflow", "policy", "disconnect")
		eachIsLoggedOnce(t, n, stuck)
		healthy.abort()
		if got := <-kept; got != messages {
			t.Errorf("the healthy one got %d of %d", got, messages)
		}
	})
}

// Over TCP they fill at different times; each goes by itself, and its socket is
// destroyed with what the kernel held.
func TestTheStuckAreCutOffOverTCP(t *testing.T) {
	stuck := size(40, 500)
	n := start(t, bare(everywhere(queue.Disconnect, queue.Limits{Messages: 4})), lenient(server.Config{CloseTimeout: 50 * time.Millisecond}))
	var clients []*wire
	for range stuck {
		clients = append(clients, n.narrow("/rooms/lobby"))
	}
	n.joined("lobby", stuck)
	cut, dropped := 0, 0
	for i := 0; cut < stuck; i++ {
		p := n.publishes("lobby", sequel(i, 1500))
		cut += p.Disconnected
		dropped += p.Dropped
	}
	if dropped != stuck {
		t.Errorf("%d frames overflowed, of %d subscribers", dropped, stuck)
	}
	n.gauge(0, "hubd_connections")
	n.wants(float64(stuck), "hubd_connections_closed_total", "reason", "slow_consumer")
	n.wants(0, "hubd_rooms")
	n.wants(0, "hubd_retained_bytes")
	eachIsLoggedOnce(t, n, stuck)
	for _, w := range clients {
		if err := w.until(nil); err == nil {
			t.Error("a client that was stuck saw an orderly end")
		}
	}
}

func eachIsLoggedOnce(t *testing.T, n *node, evictions int) {
	t.Helper()
	lines := n.logged("slow consumer")
	conns, subscribers := map[string]bool{}, map[string]bool{}
	for _, line := range lines {
		conns[field(line, "conn")] = true
		subscribers[field(line, "subscriber")] = true
		for name, want := range map[string]string{"room": "lobby", "policy": "disconnect", "queued_messages": "4", "queued_bytes": "6000"} {
			if got := field(line, name); got != want {
				t.Errorf("%s=%s in %q", name, got, line)
			}
		}
		if age, err := time.ParseDuration(field(line, "oldest")); err != nil || age < 0 {
			t.Errorf("oldest in %q: %v", line, err)
		}
	}
	if len(lines) != evictions || len(conns) != evictions || len(subscribers) != evictions || conns[""] || subscribers[""] {
		t.Errorf("%d evictions are logged in %d lines, with %d connections and %d subscribers", evictions, len(lines), len(conns), len(subscribers))
	}
}

// A write that makes no progress ends the connection, whatever the policy, when
// the write timeout has passed. The close timeout is for the rest.
func TestWriteTimeout(t *testing.T) {
	const timeout, deadline = 2 * time.Second, 300 * time.Millisecond
	for _, p := range queue.Policies() {
		feeds := bare(everywhere(p, queue.Limits{Messages: 100}))
		bubble(t, feeds, server.Config{WriteTimeout: timeout, CloseTimeout: deadline, PingInterval: time.Hour}, func(t *testing.T, n *node) {
			n.wire("/rooms/lobby")
			origin := time.Now()
			for i := range 4 {
				n.publishes("lobby", sequel(i, 1500))
			}
			time.Sleep(timeout - time.Millisecond)
			rest()
			n.wants(1, "hubd_connections")
			n.await("the end of the stuck one", func() bool { return n.value("hubd_connections") == 0 })
			took := time.Since(origin)
			t.Logf("%v: gone after %v", p, took)
			if took < timeout || took > timeout+timeout/4+deadline {
				t.Errorf("%v: gone after %v, the write timeout is %v, the close timeout %v", p, took, timeout, deadline)
			}
			n.wants(1, "hubd_connections_closed_total", "reason", "write_timeout")
		})
	}
}

// A client that reads slowly is left alone for as long as it reads, be it a few
// bytes at a time; when it stops, it goes.
func TestSlowReadersAreLeftAlone(t *testing.T) {
	const timeout, deadline, pace = 2 * time.Second, 300 * time.Millisecond, 1500 * time.Millisecond
	for _, bytes := range []int{1, 100, 1000} {
		bubble(t, bare(everywhere(queue.DropOldest, queue.Limits{Messages: 4})), server.Config{WriteTimeout: timeout, CloseTimeout: deadline, PingInterval: time.Hour}, func(t *testing.T, n *node) {
			w := n.wire("/rooms/lobby")
			for i := range 50 {
				n.publishes("lobby", sequel(i, 30_000))
			}
			buf := make([]byte, bytes)
			for i := range 40 {
				time.Sleep(pace)
				if _, err := io.ReadFull(w.conn, buf); err != nil {
					t.Fatalf("%d bytes every %v: after %d reads: %v", bytes, pace, i, err)
				}
				rest()
				n.wants(1, "hubd_connections")
			}
			stopped := time.Now()
			n.await("the end of the one that has stopped", func() bool { return n.value("hubd_connections") == 0 })
			if took := time.Since(stopped); took > timeout+timeout/4+deadline {
				t.Errorf("gone %v after it stopped reading", took)
			}
			n.wants(1, "hubd_connections_closed_total", "reason", "write_timeout")
		})
	}
}

// Who has seen the answer to its handshake is in the room and counted: a raw
// client is told so by nothing else.
func TestTheHandshakesAnswerComesAfterTheJoin(t *testing.T) {
	n := start(t, bare(), lenient(server.Config{}))
	var all sync.WaitGroup
	for c := range 4 {
		all.Go(func() {
			name := fmt.Sprint("room-", c)
			room, err := frame.ParseRoom(name)
			if err != nil {
				t.Error(err)
				return
			}
			for range size(100, 5000) {
				w, err := n.tryNarrow("/rooms/" + name)
				if err != nil {
					t.Error(err)
					return
				}
				p, err := n.hub.Publish(t.Context(), hub.PublishRequest{Message: frame.Message{Room: room, Kind: frame.Text, Data: []byte("x")}})
				conns, _ := connections(n.reg)
				if err != nil || p.Subscribers == 0 || conns < 1 {
					t.Errorf("published right after the handshake: %+v, %v; %v connections", p, err, conns)
				}
				w.abort()
			}
		})
	}
	all.Wait()
}

// Over TCP the kernel tells a write that waits only when a good part of what it
// holds is gone. Without a limit on that, this reader takes many times the write
// timeout for it, but reads all the same.
func TestSlowReadersAreLeftAloneOverTCP(t *testing.T) {
	if !soak {
		t.Skip("it reads in real time: run it with -tags soak, on a machine that has time")
	}
	for limit, bytes := range map[int]int{0: 800, -1: 2000} {
		n := start(t, bare(everywhere(queue.DropOldest, queue.Limits{Messages: 4})), server.Config{WriteTimeout: time.Second, PingInterval: time.Hour, MaxUnsentBytes: limit})
		w := n.narrow("/rooms/lobby")
		n.joined("lobby", 1)
		n.stuck("lobby", 16<<10)
		pace := time.NewTicker(50 * time.Millisecond)
		buf := make([]byte, bytes)
		for began := time.Now(); time.Since(began) < 5*time.Second; <-pace.C {
			if _, err := io.ReadFull(w.br, buf); err != nil {
				t.Fatalf("limit %d, after %v: %v", limit, time.Since(began), err)
			}
			n.publishes("lobby", sequel(0, 16<<10)) // it never catches up
		}
		pace.Stop()
		n.wants(1, "hubd_connections")
		n.gauge(0, "hubd_connections") // it has stopped
		n.wants(1, "hubd_connections_closed_total", "reason", "write_timeout")
	}
}

// Connections end in every way there is, in rounds. After each, nothing of them
// is left.
func TestEveryEndLeavesNothing(t *testing.T) {
	each, rounds := size(15, 800), 4
	n := start(t, bare(everywhere(queue.DropOldest, queue.Limits{Messages: 8})), lenient(server.Config{CloseTimeout: 50 * time.Millisecond, MaxConnections: 100_000}))
	n.publishes("warm", "x")
	n.http.CloseIdleConnections()
	base := footprintNow(t)
	first := int64(0)
	for round := range rounds {
		for name, end := range ends {
			n.endAll(name, each, end)
		}
		for name, end := range streamEnds {
			n.endAll("stream-"+name, each, end)
		}
		n.backTo(base)
		if now := heap(); round == 0 {
			first = now
		} else if now > first+first/5+4*mib {
			t.Errorf("the heap was %d bytes after the first round and is %d after round %d", first, now, round+1)
		}
	}
	n.wants(float64(rounds*(len(ends)+len(streamEnds))*each), "hubd_connections_closed_total")
	n.wants(0, "hubd_connections_closed_total", "reason", "error")
}

// endAll lets so many clients join and go in one way.
func (n *node) endAll(name string, clients int, end func(*wire) error) {
	n.t.Helper()
	kinds := []string{asRaw, asJSON}
	if strings.HasPrefix(name, "stream-") {
		kinds = []string{asEvents}
	}
	all := make([]*wire, clients)
	for i := range all {
		w, err := n.tryNarrow("/rooms/"+name, kinds[i%len(kinds)])
		if err != nil {
			n.t.Fatal(err)
		}
		all[i] = w
	}
	n.joined(name, clients)
	if strings.Contains(name, "full") {
		for i := range 40 {
			n.publishes(name, sequel(i, 16<<10))
		}
	}
	var going sync.WaitGroup
	for _, w := range all {
		going.Go(func() {
			if err := end(w); err != nil {
				n.t.Errorf("%s: %v", name, err)
			}
			w.conn.Close()
		})
	}
	going.Wait()
	n.gauge(0, "hubd_connections")
	n.wants(0, "hubd_rooms")
	n.wants(0, "hubd_retained_bytes")
}

// streamEnds are the ways in which the client of an event stream goes.
var streamEnds = map[string]func(w *wire) error{
	"reset":           func(w *wire) error { w.abort(); return nil },
	"closed":          func(w *wire) error { return w.conn.Close() },
	"full-and-reset":  func(w *wire) error { w.abort(); return nil },
	"full-and-closed": func(w *wire) error { return w.conn.Close() },
	"half-close": func(w *wire) error {
		if err := w.conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, w.conn)
		return err
	},
}

// ends are the ways in which a WebSocket client goes.
var ends = map[string]func(w *wire) error{
	"clean": func(w *wire) error {
		return w.until(sent{op: opClose, payload: closePayload(1000, "")}.bytes())
	},
	"reset": func(w *wire) error { w.abort(); return nil },
	"half-close": func(w *wire) error {
		if err := w.conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		return w.until(nil)
	},
	"mid-frame": func(w *wire) error {
		frame := text(`{"type":"ping","id":1,"token":"%0200d"}`, 7).bytes()
		_, err := w.conn.Write(frame[:len(frame)/2])
		return err
	},
	"mid-header": func(w *wire) error {
		_, err := w.conn.Write([]byte{0x81})
		w.abort()
		return err
	},
	"mid-message": func(w *wire) error {
		f := text(`{"type":"ping",`)
		f.more = true
		return w.tryWrite(f.bytes())
	},
	"full-and-reset":  func(w *wire) error { w.abort(); return nil },
	"full-and-closed": func(w *wire) error { return w.conn.Close() },
	"full-and-polite": func(w *wire) error { return w.tryWrite(sent{op: opClose, payload: closePayload(1000, "")}.bytes()) },
	"nothing":         func(w *wire) error { return w.conn.Close() },
	"unmasked":        func(w *wire) error { return w.until([]byte{0x81, 0x02, 'h', 'i'}) },
}

// until sends and then reads to the end.
func (w *wire) until(last []byte) error {
	if len(last) > 0 {
		if err := w.tryWrite(last); err != nil {
			return err
		}
	}
	for {
		switch _, err := w.tryMessage(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading to the end: %w", err)
		}
	}
}
