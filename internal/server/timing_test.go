package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// listen reads for so long, answering pings, and returns when they came. It
// ends early with the connection.
func (w *wire) listen(d time.Duration) (pings []time.Time, err error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return nil, err
	}
	for {
		f, err := w.frame()
		if err != nil {
			return pings, err
		}
		if f.op != opPing {
			return pings, fmt.Errorf("opcode %d came, %q", f.op, f.payload)
		}
		pings = append(pings, time.Now())
		if err := w.tryWrite(sent{op: opPong, payload: f.payload}.bytes()); err != nil {
			return pings, err
		}
	}
}

// Quiet connections live as long as their clients: they are pinged often enough
// for every proxy, and not all at once.
func TestPings(t *testing.T) {
	const clients, hours = 50, 2
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{}, 4096)
		var wires []*wire
		for i := range clients {
			if i%2 == 0 {
				wires = append(wires, n.wire("/rooms/a"))
				continue
			}
			w := n.wireJSON("/rooms/a")
			w.answer()
			wires = append(wires, w)
		}
		begin := time.Now()
		var mu sync.Mutex
		var first []time.Duration
		var wg sync.WaitGroup
		for _, w := range wires {
			wg.Go(func() {
				pings, err := w.listen(hours * time.Hour)
				if !isTimeout(err) {
					t.Errorf("ended after %v: %v", time.Since(begin), err)
				}
				last := begin
				for _, at := range pings {
					if d := at.Sub(last); d > server.DefaultPingInterval || d < server.DefaultPingInterval*3/4 {
						t.Errorf("a ping after %v", d)
					}
					last = at
				}
				mu.Lock()
				defer mu.Unlock()
				first = append(first, pings[0].Sub(begin))
			})
		}
		wg.Wait()
		slices.Sort(first)
		for i := range first {
			together := 0
			for _, at := range first[i:] {
				if at-first[i] <= 100*time.Millisecond {
					together++
				}
			}
			if together > clients/4 {
				t.Errorf("%d of %d were pinged within 100 ms", together, clients)
			}
		}
		if server.DefaultPingInterval > 25*time.Second {
			t.Errorf("the interval is %v", server.DefaultPingInterval)
		}
		if got := n.value("hubd_connections_closed_total"); got != 0 {
			t.Errorf("%v closed", got)
		}
	})
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// A client that answers no ping is told so when its time is up, and the next
// one that does is not.
func TestPongTimeout(t *testing.T) {
	for _, open := range []func(*node, string, ...string) *wire{(*node).wire, (*node).wireJSON} {
		synctest.Test(t, func(t *testing.T) {
			n := startFake(t, hub.Config{}, server.Config{PingInterval: 8 * time.Second, PongTimeout: 3 * time.Second}, 4096)
			w := open(n, "/rooms/a")
			w.noPong = true
			e := w.closes(4007)
			if len(w.pings) != 1 || time.Since(w.pings[0]) != 3*time.Second {
				t.Errorf("%d pings, the last %v ago", len(w.pings), time.Since(w.pings[0]))
			}
			if e.reason == "" {
				t.Error("no reason")
			}
			synctest.Wait()
			if got := n.value("hubd_connections_closed_total", "reason", "ping_timeout"); got != 1 {
				t.Errorf("%v closed for it", got)
			}
			// A pong that nobody asked for does not put a ping off.
			w = open(n, "/rooms/a")
			begin := time.Now()
			for range 6 {
				time.Sleep(time.Second)
				w.send(sent{op: opPong, payload: []byte("unasked")})
			}
			for len(w.pings) == 0 {
				f, err := w.frame()
				if err != nil {
					t.Fatal(err)
				}
				if f.op == opPing {
					w.pings = append(w.pings, time.Now())
				}
			}
			if d := time.Since(begin); d > 8*time.Second {
				t.Errorf("a ping after %v", d)
			}
		})
	}
}

// A pong may be late while its ping waits behind data that the client is
// reading, in the kernel or before it; it may not while nothing is read.
func TestLatePong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{PingInterval: 4 * time.Second, PongTimeout: 2 * time.Second}, 2000)
		w := n.wire("/rooms/a")
		n.publish("a", strings.Repeat("x", 1900))
		time.Sleep(4 * time.Second) // the ping is written behind it
		n.publish("a", strings.Repeat("y", 3000))
		// 60 bytes a second: the ping is read half a minute after it was due.
		behind := make([]byte, 4+1900+2)
		for at := 0; at < len(behind); {
			k, err := w.conn.Read(behind[at:min(at+60, len(behind))])
			if err != nil {
				t.Fatalf("after %d bytes: %v", at, err)
			}
			at += k
			time.Sleep(time.Second)
		}
		if ping := behind[len(behind)-2:]; string(ping) != "\x89\x00" {
			t.Fatalf("no ping but % x", ping)
		}
		w.send(sent{op: opPong})
		w.expect(strings.Repeat("y", 3000))
		w.ping()
	})
}

// Once it reads no more either, the pong that is missing ends it.
func TestLatePongThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{PingInterval: 4 * time.Second, PongTimeout: 2 * time.Second, WriteTimeout: time.Hour}, 2000)
		w := n.wire("/rooms/a")
		n.publish("a", strings.Repeat("x", 1900))
		time.Sleep(4 * time.Second)
		n.publish("a", strings.Repeat("y", 3000))
		for range 10 {
			if _, err := w.conn.Read(make([]byte, 60)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := n.value("hubd_connections"); got != 1 {
			t.Fatalf("%v connections while it read", got)
		}
		time.Sleep(2*2*time.Second + server.DefaultCloseTimeout)
		synctest.Wait()
		if got := n.value("hubd_connections_closed_total", "reason", "ping_timeout"); got != 1 {
			t.Errorf("%v closed when it stopped reading", got)
		}
	})
}

// lives reports how long the server keeps a connection whose client sends what
// trickle says and then one byte of drip every second.
func lives(t *testing.T, n *node, w *wire, drip string) time.Duration {
	t.Helper()
	begin := time.Now()
	gone := make(chan time.Duration, 1)
	go func() {
		for {
			if _, err := w.br.ReadByte(); err != nil {
				gone <- time.Since(begin)
				return
			}
		}
	}()
	for i := 0; ; i++ {
		select {
		case d := <-gone:
			return d
		case <-time.After(time.Second):
			if time.Since(begin) > 5*time.Minute {
				t.Fatal("kept for five minutes")
			}
			if i < len(drip) {
				_ = w.tryWrite([]byte{drip[i]}) // it may be gone just now
			}
		}
	}
}

// Requests have their time: 5 s for the headers, 10 s for the body, however
// they trickle in.
func TestRequestTimeouts(t *testing.T) {
	long := strings.Repeat("a", 400)
	for _, c := range []struct {
		name, begin, drip string
		want, slack       time.Duration
	}{
		{"nothing", "", "", 5 * time.Second, 0},
		{"half a header", "GET /rooms/a HTTP/1.1\r\nHost: h\r\nX: ", "", 5 * time.Second, time.Second},
		{"a header that trickles", "GET /rooms/a HTTP/1.1\r\nHost: h\r\nX: ", long, 5 * time.Second, time.Second},
		{"half a body", "POST /rooms/a HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\n\r\nhalf", "", 10 * time.Second, time.Second},
		{"a body that trickles", "POST /rooms/a HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\n\r\n", long, 10 * time.Second, time.Second},
		{"chunks that trickle", "POST /rooms/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", 100), 10 * time.Second, time.Second},
		{"a body never sent", "POST /rooms/a HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\nExpect: 100-continue\r\n\r\n", "", 10 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startFake(t, hub.Config{}, server.Config{}, 1<<16)
				w := n.connect()
				w.write([]byte(c.begin))
				if got := lives(t, n, w, c.drip); got < c.want || got > c.want+c.slack {
					t.Errorf("kept for %v, want %v", got, c.want)
				}
				if got := n.value("hubd_messages_published_total"); got != 0 {
					t.Errorf("%v published", got)
				}
			})
		})
	}
}

// A message has 10 s from its first frame to its last, whatever else comes
// between; between messages there is no hurry.
func TestAssemblyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{PingInterval: 24 * time.Hour}, 1<<16)
		for name, c := range map[string]struct {
			first []byte
			more  func(i int) []byte
		}{
			"silence":        {sent{op: opText, more: true, payload: []byte("x")}.bytes(), func(int) []byte { return nil }},
			"fragments":      {sent{op: opText, more: true}.bytes(), func(int) []byte { return sent{op: opContinuation, more: true}.bytes() }},
			"control frames": {sent{op: opText, more: true}.bytes(), func(int) []byte { return sent{op: opPing}.bytes() }},
			"bytes":          {sent{op: opText, payload: make([]byte, 500)}.bytes()[:8], func(int) []byte { return []byte("x") }},
		} {
			w := n.wire("/rooms/a")
			begin := time.Now()
			w.write(c.first)
			ended := make(chan ending, 1)
			go func() { ended <- w.end() }()
			var e ending
			for i := 0; e.code == 0; i++ {
				select {
				case e = <-ended:
				case <-time.After(time.Second):
					if time.Since(begin) > time.Minute {
						t.Fatalf("%s: kept for a minute", name)
					}
					_ = w.tryWrite(c.more(i))
				}
			}
			if d := time.Since(begin); e.code != 1002 || d < 10*time.Second || d > 12*time.Second {
				t.Errorf("%s: closed with %d after %v", name, e.code, d)
			}
		}
		w := n.wire("/rooms/a")
		for range 3 {
			w.send(sent{op: opText, more: true, payload: []byte("in ")})
			time.Sleep(9 * time.Second)
			w.send(sent{op: opContinuation, payload: []byte("time")})
			w.expect("in time")
			time.Sleep(time.Hour)
		}
	})
}

// A keep-alive connection may be idle for a while, and then is closed.
func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{}, 1<<16)
		w := n.connect()
		w.write([]byte("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"))
		if r := w.reply(); r.status != 200 {
			t.Fatal(r)
		}
		time.Sleep(time.Minute)
		w.write([]byte("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"))
		if r := w.reply(); r.status != 200 {
			t.Fatal(r)
		}
		if d := lives(t, n, w, ""); d < 70*time.Second || d > 80*time.Second {
			t.Errorf("kept for %v", d)
		}
	})
}
