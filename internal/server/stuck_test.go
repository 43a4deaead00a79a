package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"hubd/internal/queue"
	"hubd/internal/server"
)

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

// Over TCP they fill at different times; each goes by itself.
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
	// A socket that is closed with something left to send stays for as long as
	// its client does, which is still there.
	n.await("the kernel to let go of the sockets", func() bool { return n.orphans() == 0 })
	for _, w := range clients {
		w.conn.Close()
	}
}

// orphans counts the server's sockets that were closed and go on sending
// (proc_pid_net(5): FIN_WAIT1 is 04).
func (n *node) orphans() (count int) {
	n.t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		n.t.Skip("there is no /proc/net/tcp")
	}
	var port int
	if _, err := fmt.Sscanf(n.url, "http://127.0.0.1:%d", &port); err != nil {
		n.t.Fatal(err)
	}
	local := fmt.Sprintf("0100007F:%04X", port)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == local && f[3] == "04" {
			count++
		}
	}
	return count
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

// However a connection ends whose writer is stuck: the frame that was written
// whole is sent, the one that was written in part and all that waited are closed.
func TestWhatWasWrittenInPartIsNotSent(t *testing.T) {
	const messages = 5
	for name, end := range map[string]func(n *node, w *wire){
		"the client goes":   func(_ *node, w *wire) { w.conn.Close() },
		"the write is late": func(n *node, _ *wire) { n.gauge(0, "hubd_connections") },
		"it is kicked":      func(n *node, _ *wire) { n.kick(n.subscribers()[0].ID, http.StatusNoContent) },
		"it overflows":      func(n *node, _ *wire) { n.publishes("lobby", "x") },
		"the server closes": func(n *node, _ *wire) { _ = n.srv.Close() }, // the cleanup hears of an error, too
	} {
		t.Run(name, func(t *testing.T) {
			feeds := bare(everywhere(queue.Disconnect, queue.Limits{Messages: messages - 2}))
			bubble(t, feeds, server.Config{WriteTimeout: 2 * time.Second, CloseTimeout: time.Second, PingInterval: time.Hour}, func(t *testing.T, n *node) {
				w := n.wire("/rooms/lobby")
				for i := range messages {
					n.publishes("lobby", sequel(i, 1500)) // the network takes one, and a part
					rest()
				}
				n.wants(1, "hubd_frames_sent_total")
				n.wants(1, "hubd_frames_in_flight")
				end(n, w)
				n.gauge(0, "hubd_connections")
				n.wants(1, "hubd_frames_sent_total")
				n.wants(messages-1, "hubd_frames_dropped_total", "reason", "closed")
				n.wants(0, "hubd_retained_bytes")
			})
		})
	}
}

// A write that ended in the midst of a frame is the last: whatever followed it,
// the client would take for the rest of the frame.
func TestNothingFollowsHalfAFrame(t *testing.T) {
	const timeout = 2 * time.Second
	bubble(t, bare(), server.Config{WriteTimeout: timeout, CloseTimeout: time.Minute, PingInterval: time.Hour}, func(t *testing.T, n *node) {
		w := n.wire("/rooms/lobby")
		for i := range 3 {
			n.publishes("lobby", sequel(i, 1500))
			rest()
		}
		time.Sleep(timeout + timeout/4) // of the bubble
		rest()
		// It reads only now, and makes room, in case somebody has more to say.
		if b, err := io.ReadAll(w.conn); err != nil || len(b) != 2048 {
			t.Errorf("%d bytes, %v; the network held 2048", len(b), err)
		}
		n.wants(1, "hubd_connections_closed_total", "reason", "write_timeout")
	})
}

// What the writer takes at once is no longer the policy's to drop: it is no more
// than 64 KiB, and less where the client is slow.
func TestABatchIsBounded(t *testing.T) {
	const bytes = 1500
	bubble(t, bare(), lenient(server.Config{}), func(t *testing.T, n *node) {
		w := n.wire("/rooms/lobby")
		for i := range 200 {
			n.publishes("lobby", sequel(i, bytes))
		}
		for _, wait := range []time.Duration{0, time.Second, 0} {
			time.Sleep(wait) // of the bubble
			for range 3 {
				if _, err := w.tryMessage(); err != nil {
					t.Fatal(err)
				}
			}
			rest()
			inFlight := n.value("hubd_frames_in_flight")
			t.Logf("%v in flight", inFlight)
			if inFlight*bytes > 64<<10 {
				t.Errorf("%v frames of %d bytes are in flight", inFlight, bytes)
			}
		}
	})
}

// Who is kicked gets what is queued, and nothing that is published later,
// however long the rest takes to read.
func TestNothingComesAfterTheRest(t *testing.T) {
	bubble(t, bare(), lenient(server.Config{}), func(t *testing.T, n *node) {
		w := n.wire("/rooms/lobby")
		w.br = bufio.NewReaderSize(w.conn, 16) // nothing is read ahead
		for i := range 4 {
			n.publishes("lobby", sequel(i, 1500))
			rest()
		}
		n.kick(n.subscribers()[0].ID, http.StatusNoContent)
		for i := range 2 {
			if payload, err := w.tryMessage(); err != nil || string(payload) != sequel(i, 1500) {
				t.Fatalf("message %d: %.20q, %v", i, payload, err)
			}
			rest()
		}
		if p := n.publishes("lobby", sequel(4, 1500)); p.Subscribers != 0 {
			t.Errorf("published to one who was kicked: %+v", p)
		}
		if e := w.closes(4009); len(e.messages) != 2 || e.messages[1] != sequel(3, 1500) {
			t.Errorf("%d messages came before the close", len(e.messages))
		}
	})
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
