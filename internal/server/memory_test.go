package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hubd/internal/queue"
	"hubd/internal/server"
)

const mib = 1 << 20

// Many clients stop reading while large, distinct messages go on being
// published. What their queues hold is bounded by the queues' limits, is shared
// between them, and is gone when they are.
func TestStalledSubscribersHoldLittle(t *testing.T) {
	const bytes, payload = 1 * mib, 64 << 10
	stalled, messages := size(25, 100), size(150, 5000)
	n := start(t, bare(everywhere(queue.DropOldest, queue.Limits{Messages: 1000, Bytes: bytes})), lenient(server.Config{CloseTimeout: 100 * time.Millisecond}))
	n.publishes("warm", strings.Repeat("x", payload))
	base := heap()
	var clients []*wire
	for range stalled {
		clients = append(clients, n.narrow("/rooms/lobby"))
	}
	n.joined("lobby", stalled)

	// Each queue is full of the newest; the frames in flight are all from the
	// beginning, but each writer may be stuck in another one of them.
	const inQueue = bytes / payload
	few := float64((inQueue + 8) * 2 * payload) // payload and its encoding
	var highest, early float64
	for i := range messages {
		if p := n.publishes("lobby", sequel(i, payload)); p.Subscribers != stalled {
			t.Fatalf("message %d: %+v", i, p)
		}
		queued, retained := n.value("hubd_queued_bytes"), n.value("hubd_retained_bytes")
		if queued > float64(stalled*bytes) {
			t.Fatalf("after message %d the queues hold %v bytes, more than %d × %d", i, queued, stalled, bytes)
		}
		if i == messages/3 {
			early = retained
		}
		highest = max(highest, retained)
	}
	if highest > few {
		t.Errorf("%v bytes were retained for %d queues of %d bytes, more than %v: they do not share", highest, stalled, bytes, few)
	}
	if now := n.value("hubd_retained_bytes"); early == 0 || now > early+2*payload {
		t.Errorf("retained %v bytes after a third of the messages, %v at the end", early, now)
	}
	full := heap()
	for _, s := range n.subscribers() {
		if s.Queued.Messages != inQueue || s.Dropped == 0 {
			t.Errorf("not full: %+v", s)
		}
	}
	for _, c := range clients {
		c.abort()
	}
	n.gauge(0, "hubd_connections")
	for _, gauge := range []string{"hubd_queued_bytes", "hubd_retained_bytes", "hubd_frames_in_flight", "hubd_rooms"} {
		n.wants(0, gauge)
	}
	after := heap()
	t.Logf("heap: %d KiB before, %d with %d stalled, %d after; retained at most %.0f KiB", base>>10, full>>10, stalled, after>>10, highest/1024)
	if full > base+120*mib {
		t.Errorf("the heap grew from %d to %d bytes", base, full)
	}
	if after > base+base/10+8*mib {
		t.Errorf("the heap was %d bytes before and is %d after", base, after)
	}
	runtime.KeepAlive(clients)
}

// Clients join and break the connection in the same breath. Nobody is left in a
// room, no room is left, nor anything else.
func TestJoinsRacingResets(t *testing.T) {
	clients, rounds := size(200, 5000), 4
	// A collection would close what was forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := start(t, bare(), lenient(server.Config{MaxConnections: 100_000, CloseTimeout: 100 * time.Millisecond}))
	first := int64(0)
	n.publishes("warm", "x")
	base := footprintNow(t)
	for round := range rounds {
		var failed atomic.Bool
		var all sync.WaitGroup
		slots := make(chan struct{}, 50) // so many at once
		for i := range clients {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				if err := joinAndGo(n, i); err != nil {
					t.Errorf("client %d: %v", i, err)
					failed.Store(true)
				}
			})
		}
		all.Wait()
		if failed.Load() {
			t.FailNow()
		}
		n.gauge(0, "hubd_connections")
		n.wants(0, "hubd_rooms")
		n.wants(0, "hubd_subscriptions")
		for i := range clients {
			if i%25 < 2 {
				if p := n.publishes(fmt.Sprint("room-", i), "x"); p.Subscribers != 0 {
					t.Fatalf("room-%d after all have gone: %+v", i, p)
				}
			}
		}
		n.backTo(base)
		if now := heap(); round == 0 {
			first = now
		} else if now > first+first/5+mib {
			t.Errorf("the heap was %d bytes after the first round and is %d after round %d", first, now, round+1)
		}
	}
}

// joinAndGo joins a room of the client's own and goes: with a reset right
// behind the handshake and the join, with one right behind the join, or in
// peace.
func joinAndGo(n *node, i int) error {
	const protocol = "Sec-WebSocket-Protocol: " + server.Protocol
	join := text(`{"type":"join","id":1,"room":"room-%d"}`, i).bytes()
	if i%4 == 0 {
		w, err := n.tryConnect()
		if err != nil {
			return err
		}
		defer w.abort()
		return w.tryWrite(append([]byte(n.handshake("/ws", protocol)+"\r\n\r\n"), join...))
	}
	w, err := n.tryNarrow("/ws", protocol)
	if err != nil {
		return err
	}
	defer w.conn.Close()
	if err := w.tryWrite(join); err != nil {
		return err
	}
	if i%2 == 0 {
		w.abort()
		return nil
	}
	if answer, err := w.tryMessage(); err != nil || !strings.Contains(string(answer), `"joined"`) {
		return fmt.Errorf("%q, %w", answer, err)
	}
	return nil
}

// What waits in the kernel is part of a client's backlog: it is bounded, or the
// queue's limits mean little. It is reported for each subscriber.
func TestTheKernelsBacklogIsBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("TCP_NOTSENT_LOWAT is Linux's")
	}
	const bytes = 4096
	backlog := func(limit int) (unsent, sent int) {
		n := start(t, bare(everywhere(queue.DropNewest, queue.Limits{Messages: 8})), lenient(server.Config{MaxUnsentBytes: limit}))
		n.narrow("/rooms/lobby")
		n.joined("lobby", 1)
		s := n.stuck("lobby", bytes)
		return s.UnsentBytes, s.Sent * bytes
	}
	bounded, sent := backlog(0)
	t.Logf("bounded: %d bytes unsent, %d bytes of messages counted as sent", bounded, sent)
	if bounded == 0 || bounded > 2*server.DefaultMaxUnsentBytes {
		t.Errorf("%d bytes wait in the kernel, the limit is %d", bounded, server.DefaultMaxUnsentBytes)
	}
	larger, _ := backlog(64 << 10)
	unbounded, sent := backlog(-1)
	t.Logf("64 KiB: %d bytes unsent; unbounded: %d, %d counted as sent", larger, unbounded, sent)
	if larger < 2*bounded || larger > 128<<10 || unbounded < 8*bounded {
		t.Errorf("unsent: %d by default, %d with 64 KiB, %d without a limit", bounded, larger, unbounded)
	}
}

// A reader of a few of many keys' updates, far slower than they come: it ends
// up with the newest of every key, and none goes back.
func TestKeepLatestBringsEveryKey(t *testing.T) {
	keys, updates := 100, size(3000, 50_000)
	n := start(t, bare(everywhere(queue.KeepLatest, queue.Limits{Messages: 128})), lenient(server.Config{}))
	w := n.narrowJSON("/rooms/state")
	w.answer() // joined
	last := make([]int, keys)
	for i := range updates {
		key := i % keys
		if i%7 == 0 {
			key = i % 3 // some far more often
		}
		last[key] = i
		req, err := http.NewRequest(http.MethodPost, n.url+"/rooms/state", strings.NewReader(fmt.Sprintf(`{"key":%d,"value":%d,"pad":%q}`, key, i, strings.Repeat("x", 500))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Hubd-Key", fmt.Sprint(key))
		resp, err := n.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if p := decode[published](t, resp); p.Queued != 1 {
			t.Fatalf("update %d: %+v", i, p)
		}
	}
	if n.value("hubd_frames_dropped_total", "reason", "conflated") == 0 {
		t.Fatal("the reader was not slower than the updates")
	}
	seen, final, lost, read := map[int]int{}, 0, 0, 0
	for final < keys {
		a := w.answer()
		if a.Type == "gap" {
			lost += a.Lost
			continue
		}
		read++
		var u struct{ Key, Value int }
		if err := json.Unmarshal(a.Data, &u); err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[u.Key]; ok && u.Value <= before {
			t.Fatalf("key %d went back from %d to %d", u.Key, before, u.Value)
		}
		seen[u.Key] = u.Value
		if u.Value == last[u.Key] {
			final++
		}
	}
	if lost+read != updates {
		t.Errorf("read %d and was told of %d lost, of %d", read, lost, updates)
	}
}
