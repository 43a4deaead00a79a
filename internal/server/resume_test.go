package server_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hubd/internal/hub"
	"hubd/internal/metrics/metricstest"
	"hubd/internal/queue"
	"hubd/internal/server"
)

func historyOf(messages int) *hub.HistoryLimits {
	return &hub.HistoryLimits{Messages: messages, Bytes: 64 << 20, Age: time.Hour}
}

// TestResumePositions asks to resume from every kind of position.
func TestResumePositions(t *testing.T) {
	n := start(t, hub.Config{Feeds: []hub.Feed{{Name: "h", Match: []string{"r"}, History: historyOf(200), Queue: queue.Limits{Messages: 2000}}}}, server.Config{})
	var epoch string
	for i := range 1000 {
		epoch = n.post("r", "text/plain", strconv.Itoa(i+1)).Epoch
	}
	for _, step := range []struct {
		after   string
		resumed bool
		from    uint64
	}{
		{epoch + ":100", false, 0},
		{epoch + ":799", false, 0},
		{epoch + ":800", true, 801},
		{epoch + ":850", true, 851},
		{epoch + ":999", true, 1000},
		{epoch + ":1000", true, 1001},
		{epoch + ":1001", false, 0},
		{epoch + ":0", false, 0},
		{"otherepoch:850", false, 0},
	} {
		t.Run(step.after[strings.Index(step.after, ":"):], func(t *testing.T) {
			c := n.json("/rooms/r?after=" + step.after)
			a := c.next()
			replay := 0
			if step.resumed {
				replay = 1001 - int(step.from)
			}
			if a.Type != "joined" || a.Seq != 1000 || a.Epoch != epoch || a.Resumed == nil || *a.Resumed != step.resumed || *a.Replayed != replay {
				t.Fatalf("joined: %+v", a)
			}
			for i := range replay {
				if a := c.next(); a.Type != "message" || a.Seq != step.from+uint64(i) || *a.Text != strconv.Itoa(int(a.Seq)) {
					t.Fatalf("replayed: %+v", a)
				}
			}
			c.send(`{"type":"ping","id":1}`)
			if a := c.next(); a.Type != "pong" {
				t.Fatalf("after the replay: %+v", a)
			}
			c.ws.Close(websocket.StatusNormalClosure, "")
		})
	}
	resp := n.get("/rooms/r?after=nonsense")
	resp.Body.Close()
	c := n.json("/ws")
	c.send(`{"type":"join","id":1,"room":"r","after":"nonsense"}`)
	if a := c.next(); a.Type != "error" || a.Code != "invalid_position" {
		t.Errorf("malformed: %+v", a)
	}
}

// TestResumeSeam has clients come and go at random under a steady stream of
// publishes, each resuming where it was: none may miss or repeat a message.
func TestResumeSeam(t *testing.T) {
	const messages, clients = 4000, 8
	n := start(t, hub.Config{Feeds: []hub.Feed{{Name: "h", Match: []string{"r"}, History: historyOf(messages), Queue: queue.Limits{Messages: messages}}}}, server.Config{})
	first := n.post("r", "text/plain", "1") // so that the room and its epoch are there
	var wg sync.WaitGroup
	for k := range clients {
		events := k%2 == 1
		rng := rand.New(rand.NewPCG(1, uint64(k)))
		wg.Go(func() {
			seen := uint64(1)
			for seen < messages {
				stop := seen + 1 + rng.Uint64N(200)
				if events {
					seen = readEvents(t, n, first.Epoch, seen, min(stop, messages))
				} else {
					seen = readFrames(t, n, first.Epoch, seen, min(stop, messages))
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	for i := 2; i <= messages; i++ {
		n.post("r", "text/plain", strconv.Itoa(i))
	}
	wg.Wait()
	if err := n.srv.Close(); err != nil {
		t.Error(err)
	}
	metricstest.Conserved(t, n.reg)
}

// readFrames resumes after seen and reads up to stop, checking each seq.
func readFrames(t *testing.T, n *node, epoch string, seen, stop uint64) uint64 {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, fmt.Sprintf("%s/rooms/r?after=%s:%d", n.url, epoch, seen), &websocket.DialOptions{Subprotocols: []string{server.Protocol}})
	if err != nil {
		t.Errorf("dial: %v", err)
		return stop
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	defer ws.CloseNow()
	c := &client{t, ws}
	for seen < stop {
		switch a := c.next(); a.Type {
		case "joined":
			if a.Resumed == nil || !*a.Resumed {
				t.Errorf("not resumed after %d: %+v", seen, a)
				return stop
			}
		case "message":
			if a.Seq != seen+1 || *a.Text != strconv.FormatUint(a.Seq, 10) {
				t.Errorf("after %d came %+v", seen, a)
				return stop
			}
			seen = a.Seq
		default:
			t.Errorf("unexpected %+v", a)
			return stop
		}
	}
	return seen
}

// readEvents does the same over Server-Sent Events.
func readEvents(t *testing.T, n *node, epoch string, seen, stop uint64) uint64 {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/rooms/r", nil)
	if err != nil {
		t.Error(err)
		return stop
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", fmt.Sprintf("%s:%d", epoch, seen))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return stop
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	event := map[string]string{}
	for seen < stop && lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ": "); ok {
			event[name] = value
			continue
		}
		if event["event"] == "message" {
			if want := strconv.FormatUint(seen+1, 10); event["data"] != want || event["id"] != epoch+":"+want {
				t.Errorf("after %d came %v", seen, event)
				return stop
			}
			seen++
		}
		clear(event)
	}
	if seen < stop {
		t.Errorf("the stream ended after %d: %v", seen, lines.Err())
		return stop
	}
	return seen
}

// TestSnapshot: a joiner of a keep-latest room is given the last value of each
// key at once.
func TestSnapshot(t *testing.T) {
	n := start(t, hub.Config{Feeds: []hub.Feed{{Name: "k", Match: []string{"r"}, Policy: queue.KeepLatest}}}, server.Config{})
	for i := range 10 {
		n.post(fmt.Sprintf("r?key=k%d", i%3), "text/plain", strconv.Itoa(i))
	}
	c := n.json("/rooms/r")
	if text := c.read(); !strings.Contains(text, `"seq":10`) || !strings.Contains(text, `"snapshot":3`) {
		t.Fatalf("joined: %s", text)
	}
	for _, want := range []string{"7", "8", "9"} {
		if a := c.next(); a.Type != "message" || *a.Text != want {
			t.Errorf("snapshot: %+v, want %s", a, want)
		}
	}
	n.post("r?key=k0", "text/plain", "10")
	if a := c.next(); a.Type != "message" || *a.Text != "10" || a.Seq != 11 {
		t.Errorf("live: %+v", a)
	}
}
