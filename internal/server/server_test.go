package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/metrics/metricstest"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// node is a whole hub on a real socket, or on a network in memory.
type node struct {
	t      *testing.T
	hub    *hub.Hub
	srv    *server.Server
	reg    *prometheus.Registry
	url    string // http://127.0.0.1:port
	log    *syncBuffer
	dialer func(context.Context) (net.Conn, error)
	http   *http.Client
	// patience bounds a wire's life; 0 where time is fake, and a test that would
	// wait for ever is found out by synctest.
	patience time.Duration
}

// syncBuffer is a log that tests may read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// patience is how long a test waits for what must come. It is no expectation
// of speed: a test that reaches it has failed.
const patience = 30 * time.Second

func start(t *testing.T, hc hub.Config, sc server.Config) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, hc, sc, ln, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	})
}

// startMem serves on a network in memory, each direction of whose connections
// buffers so many bytes.
func startMem(t *testing.T, hc hub.Config, sc server.Config, buffer int) *node {
	t.Helper()
	m := newMemNet(buffer)
	return startOn(t, hc, sc, m, m.dial)
}

func startOn(t *testing.T, hc hub.Config, sc server.Config, ln net.Listener, dial func(context.Context) (net.Conn, error)) *node {
	t.Helper()
	n := &node{t: t, reg: prometheus.NewRegistry(), log: new(syncBuffer), dialer: dial, patience: patience, url: "http://" + ln.Addr().String()}
	n.http = &http.Client{Transport: &http.Transport{DialContext: n.dialContext}}
	m := metrics.New(n.reg, metrics.Sets{
		Feeds: hc.FeedNames(), Policies: queue.PolicyNames(), DropReasons: queue.ReasonNames(), OverflowReasons: queue.LimitNames(),
		Encodings: frame.Encodings(), PublishReasons: server.PublishReasons(), Transports: server.Transports(),
		CloseReasons: server.CloseReasons(), CloseOutcomes: server.CloseOutcomes(), HandshakeReasons: server.HandshakeReasons(),
	})
	hc.Metrics = m
	var err error
	n.hub, err = hub.New(hc)
	if err != nil {
		t.Fatal(err)
	}
	sc.Hub, sc.Metrics, sc.Gatherer = n.hub, m, n.reg
	if sc.Logger == nil {
		sc.Logger = slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if n.srv, err = server.New(sc); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- n.srv.Serve(ln) }()
	t.Cleanup(func() {
		n.http.CloseIdleConnections()
		if err := n.srv.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
		n.hub.Close()
		n.nothingLeft()
		if t.Failed() {
			log := n.log.String()
			t.Logf("log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	return n
}

// dialContext reaches the node, whatever the address.
func (n *node) dialContext(ctx context.Context, _, _ string) (net.Conn, error) { return n.dialer(ctx) }

// nothingLeft is what must hold after the end, whatever happened before.
func (n *node) nothingLeft() {
	metricstest.Conserved(n.t, n.reg)
	samples, err := metricstest.Samples(n.reg) // one scrape: it reads much of /proc
	if err != nil {
		n.t.Error(err)
	}
	gauges := []string{"hubd_connections", "hubd_rooms", "hubd_subscriptions", "hubd_queued_frames", "hubd_frames_in_flight", "hubd_retained_bytes"}
	found := map[string]bool{}
	for _, s := range samples {
		if !slices.Contains(gauges, s.Name) {
			continue
		}
		found[s.Name] = true
		if s.Value != 0 {
			n.t.Errorf("%s%v is %v after the end", s.Name, s.Labels, s.Value)
		}
	}
	if len(found) != len(gauges) {
		n.t.Errorf("of the gauges %v there are only %v", gauges, found)
	}
}

// conservation reports whether all that was offered is accounted for.
func conservation(n *node) (bool, error) {
	b, err := metricstest.Conservation(n.reg)
	return b.Conserved(), err
}

// value is the sum of the samples of that name and those labels.
func (n *node) value(name string, labels ...string) float64 {
	n.t.Helper()
	return metricstest.Value(n.t, n.reg, name, labels...)
}

func ctxFor(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// client is a well-behaved WebSocket client.
type client struct {
	t  *testing.T
	ws *websocket.Conn
}

// dial opens path; protocols are the subprotocols offered.
func (n *node) dial(path string, protocols ...string) *client {
	n.t.Helper()
	ws, resp, err := websocket.Dial(ctxFor(n.t), n.url+path, &websocket.DialOptions{Subprotocols: protocols, HTTPClient: n.http})
	if err != nil {
		n.t.Fatalf("dial %s: %v", path, err)
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	ws.SetReadLimit(-1)
	n.t.Cleanup(func() { ws.CloseNow() })
	return &client{n.t, ws}
}

// json opens path in hubd.v1.json.
func (n *node) json(path string) *client { return n.dial(path, server.Protocol) }

func (c *client) read() string {
	c.t.Helper()
	_, b, err := c.ws.Read(ctxFor(c.t))
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return string(b)
}

func (c *client) send(text string) {
	c.t.Helper()
	if err := c.ws.Write(ctxFor(c.t), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// answer is any frame of the server's.
type answer struct {
	Type, Room, Epoch, Policy, Code, Reason, Message string
	Text                                             *string
	Base64                                           *string
	Data                                             json.RawMessage
	ID                                               *uint64
	Seq, After, Before                               uint64
	Lost                                             int
	Queue                                            struct{ Messages, Bytes int }
	Resumed                                          *bool
	Replayed                                         *int
	Expires                                          int64
}

func (c *client) next() answer {
	c.t.Helper()
	text := c.read()
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		c.t.Fatalf("frame %q: %v", text, err)
	}
	return a
}

// closed reads to the end and returns the close code and reason.
func (c *client) closed() (websocket.StatusCode, string) {
	c.t.Helper()
	for {
		_, _, err := c.ws.Read(ctxFor(c.t))
		if err == nil {
			continue
		}
		var ce websocket.CloseError
		if !asCloseError(err, &ce) {
			return -1, err.Error()
		}
		return ce.Code, ce.Reason
	}
}

// published is the answer to a POST.
type published struct {
	Room, Epoch, Code, Detail                             string
	Seq                                                   uint64
	Subscribers, Queued, Dropped, Conflated, Disconnected int
	Status                                                int
}

func (n *node) post(room, contentType, body string) published {
	n.t.Helper()
	resp, err := n.http.Post(n.url+"/rooms/"+room, contentType, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	return decode[published](n.t, resp, func(p *published) { p.Status = resp.StatusCode })
}

func decode[T any](t *testing.T, resp *http.Response, more ...func(*T)) T {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%d %q: %v", resp.StatusCode, b, err)
	}
	for _, f := range more {
		f(&v)
	}
	return v
}

func (n *node) get(path string) *http.Response {
	n.t.Helper()
	resp, err := n.http.Get(n.url + path)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp
}

func TestRoundTrip(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	raw := n.dial("/rooms/lobby")
	js := n.json("/rooms/lobby")
	if a := js.next(); a.Type != "joined" || a.Room != "lobby" || a.Seq != 0 || a.Epoch == "" {
		t.Fatalf("joined: %+v", a)
	}
	for i := 1; i <= 3; i++ {
		p := n.post("lobby", "application/json", fmt.Sprintf(`{"n":%d}`, i))
		if p.Status != 200 || p.Seq != uint64(i) || p.Subscribers != 2 || p.Queued != 2 {
			t.Fatalf("published: %+v", p)
		}
		if got := raw.read(); got != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("raw: %q", got)
		}
		if a := js.next(); a.Type != "message" || a.Seq != uint64(i) || string(a.Data) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("json: %+v", a)
		}
	}
	js.send(`{"type":"publish","id":7,"room":"lobby","text":"hi"}`)
	if got := raw.read(); got != "hi" {
		t.Errorf("raw: %q", got)
	}
	js.ws.Close(websocket.StatusNormalClosure, "")
	raw.ws.Close(websocket.StatusNormalClosure, "")
}

// eventually waits for what comes by itself and has no event to wait on. It
// yields between looks and does not sleep.
func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	for limit := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(limit) {
			n.t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}
