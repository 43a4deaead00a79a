package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/metrics/metricstest"
	"hubd/internal/server"
)

// stream is a client of Server-Sent Events.
type stream struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Reader
}

func openStream(t *testing.T, client *http.Client, url, lastID string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &stream{t, resp, bufio.NewReader(resp.Body)}
}

// next returns the lines of the next event, or of a comment.
func (s *stream) next() (string, error) {
	var b strings.Builder
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return b.String(), err
		}
		if line == "\n" {
			return b.String(), nil
		}
		b.WriteString(line)
	}
}

func (s *stream) event() string {
	s.t.Helper()
	e, err := s.next()
	if err != nil {
		s.t.Fatalf("after %q: %v", e, err)
	}
	return e
}

func TestEvents(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{AllowedOrigins: []string{"https://ok.example"}})
	s := openStream(t, http.DefaultClient, n.url+"/rooms/r", "")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := s.resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	joined := s.event()
	if !strings.HasPrefix(joined, "event: joined\nid: ") || !strings.Contains(joined, `"type":"joined","room":"r"`) {
		t.Errorf("joined: %q", joined)
	}
	epoch := n.post("r", "text/plain", "one\ntwo\r\nthree\rfour\n").Epoch
	for _, step := range []struct{ contentType, body, want string }{
		{"", "", "event: message\nid: %s:1\ndata: one\ndata: two\ndata: three\ndata: four\ndata: \n"},
		{"text/plain", "", "event: message\nid: %s:2\ndata: \n"},
		{"application/json", `{"n":9007199254740993, "k":1,"k":2}`, "event: message\nid: %s:3\nkind: json\ndata: {\"n\":9007199254740993, \"k\":1,\"k\":2}\n"},
		{"application/octet-stream", "\x00\xff", "event: binary\nid: %s:4\ndata: AP8=\n"},
	} {
		if step.contentType != "" {
			n.post("r", step.contentType, step.body)
		}
		if got, want := s.event(), fmt.Sprintf(step.want, epoch); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
	back := openStream(t, http.DefaultClient, n.url+"/rooms/r?after="+epoch+":1", epoch+":3") // the header is newer
	if got := back.event(); !strings.Contains(got, `"resumed":true,"replayed":1`) {
		t.Errorf("joined again: %q", got)
	}
	if got := back.event(); !strings.HasPrefix(got, "event: binary\n") {
		t.Errorf("replayed: %q", got)
	}
	if got := metricstest.Value(t, n.reg, "hubd_connections", "transport", "sse"); got != 2 {
		t.Errorf("hubd_connections of sse: %v", got)
	}
	closed := make(chan error, 1)
	go func() { closed <- n.srv.Close() }()
	for _, s := range []*stream{s, back} {
		if e, err := s.next(); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %q, %v", e, err)
		}
		s.resp.Body.Close()
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got := metricstest.Value(t, n.reg, "hubd_close_outcome_total", "outcome", "clean"); got != 2 {
		t.Errorf("clean closes: %v", got)
	}
	metricstest.Conserved(t, n.reg)
}

// TestEventsGap: an event stream is told of losses like any other.
func TestEventsGap(t *testing.T) {
	n := start(t, hub.Config{Feeds: []hub.Feed{{Name: "h", Match: []string{"r"}, History: historyOf(2)}}}, server.Config{})
	var epoch string
	for range 5 {
		epoch = n.post("r", "text/plain", "x").Epoch
	}
	s := openStream(t, http.DefaultClient, n.url+"/rooms/r", epoch+":1")
	if got := s.event(); !strings.Contains(got, `"resumed":false`) {
		t.Errorf("joined: %q", got)
	}
	big := strings.Repeat("x", 40<<10)
	small := openStream(t, http.DefaultClient, n.url+"/rooms/r?queue_bytes=1000", "")
	small.event()
	n.post("r", "text/plain", big) // larger than that queue on its own
	if got, want := small.event(), "event: gap\ndata: {\"type\":\"gap\",\"room\":\"r\",\"after\":5,\"before\":0,\"lost\":1,\"reason\":\"overflow\"}\n"; got != want {
		t.Errorf("gap: %q", got)
	}
}

// TestEventsKeepAlive: a quiet stream gets a comment at least every 15 s.
func TestEventsKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := hub.New(hub.Config{})
		if err != nil {
			t.Fatal(err)
		}
		srv, err := server.New(server.Config{Hub: h})
		if err != nil {
			t.Fatal(err)
		}
		ln := newPipeListener()
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		conn := ln.dial()
		if _, err := io.WriteString(conn, "GET /rooms/r HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(conn)
		last := time.Now()
		for comments := 0; comments < 100; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line != ":\n" {
				continue
			}
			comments++
			if quiet := time.Since(last); quiet > 15*time.Second {
				t.Fatalf("quiet for %v", quiet)
			}
			last = time.Now()
		}
		conn.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		h.Close()
	})
}

// pipeListener is a listener whose connections exist in this process only, so
// that a test may have its own time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

func (l *pipeListener) dial() net.Conn {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return ours
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// TestEventsThroughNginx is the way that most streams go: a proxy that buffers
// and compresses unless it is told not to.
func TestEventsThroughNginx(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed")
	}
	n := start(t, hub.Config{}, server.Config{})
	proxy := startNginx(t, nginx, n.url)
	for _, client := range []*http.Client{
		{Transport: &http.Transport{}},                         // asks for gzip by itself
		{Transport: &http.Transport{DisableCompression: true}}, // does not
	} {
		s := openStream(t, client, proxy+"/rooms/r", "")
		if got := s.resp.Header.Get("Content-Encoding"); got != "" || s.resp.Uncompressed {
			t.Errorf("content encoding %q, uncompressed %v", got, s.resp.Uncompressed)
		}
		if e := s.event(); !strings.HasPrefix(e, "event: joined\n") {
			t.Errorf("joined: %q", e)
		}
		for i := range 20 { // each must come before the next is published
			want := fmt.Sprintf("%0100d", i)
			n.post("r", "text/plain", want)
			if e := s.event(); !strings.HasSuffix(e, "data: "+want+"\n") {
				t.Errorf("event %d: %q", i, e)
			}
		}
		client.CloseIdleConnections()
	}
}

func startNginx(t *testing.T, nginx, upstream string) string {
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close() // nginx takes it over
	config := fmt.Sprintf(`
daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events {}
http {
	access_log off; gzip on;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server { listen %[2]s; location / { proxy_pass %[3]s; } }
}`, dir, addr, upstream)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-c", file, "-e", filepath.Join(dir, "error.log"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return "http://" + addr
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("nginx ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
