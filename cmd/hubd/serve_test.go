package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/coder/websocket"
)

// logLine is a line of the server's log.
type logLine map[string]any

// logReader reads a server's log while it is written.
type logReader struct {
	t       *testing.T
	scanner *bufio.Scanner
}

// until returns the next line with that message.
func (r logReader) until(message string) logLine {
	r.t.Helper()
	var seen strings.Builder
	for r.scanner.Scan() {
		var line logLine
		if err := json.Unmarshal(r.scanner.Bytes(), &line); err != nil {
			r.t.Fatalf("a line of the log is no JSON: %s", r.scanner.Text())
		}
		if line["msg"] == message {
			return line
		}
		fmt.Fprintln(&seen, r.scanner.Text())
	}
	r.t.Fatalf("the log ended without %q:\n%s", message, seen.String())
	return nil
}

// rest drains the log, so that the server never waits for its reader.
func (r logReader) rest() {
	for r.scanner.Scan() {
	}
}

// served is a server that runs in this process.
type served struct {
	log    logReader
	url    string
	cancel context.CancelFunc
	status chan int
	logged chan struct{} // closed when the log has been read to its end
}

// serve starts the server at a free port. The test stops it.
func serve(t *testing.T, args ...string) *served {
	t.Helper()
	return serveInto(t, io.Discard, args...)
}

// serveInto does the same, with a copy of the log, complete once it is stopped.
func serveInto(t *testing.T, copied io.Writer, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	s := &served{
		log:    logReader{t, bufio.NewScanner(io.TeeReader(reader, copied))},
		cancel: cancel,
		status: make(chan int, 1),
		logged: make(chan struct{}),
	}
	args = append([]string{"--addr", "127.0.0.1:0", "--log-format", "json"}, args...)
	go func() {
		s.status <- run(ctx, args, nil, nil, io.Discard, writer)
		_ = writer.Close()
	}()
	t.Cleanup(func() { s.stop(t) })
	s.url = strings.TrimSuffix(s.log.until("listening")["url"].(string), "/")
	go func() { // ends with the server
		defer close(s.logged)
		s.log.rest()
	}()
	return s
}

// stop ends the server in an orderly way.
func (s *served) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	status := <-s.status
	<-s.logged
	s.status <- status // it may be asked again
	if status != 0 {
		t.Errorf("the server ended with status %d", status)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServeAnnouncesWhatIsEffective(t *testing.T) {
	var stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it starts, and drains at once
	status := run(ctx, []string{"serve", "--addr", "127.0.0.1:0", "--max-connections", "77", "--max-message-bytes", "128KiB", "--memory-budget", "1GiB"}, nil, nil, io.Discard, &stderr)
	got := outcome{status: status, stderr: stderr.String()}
	for _, want := range []string{
		"msg=\"hubd starts\" version=devel revision=",
		"max_connections=77", "max_message_bytes=131072", "max_rooms_per_connection=32", "feeds=default",
		"msg=\"memory at worst: every queue full, no two of the same messages\" queues=2464 bytes=10536615936 memory_budget=1073741824",
		"level=INFO msg=\"open mode: no authentication",
		"msg=listening addr=127.0.0.1:",
		"msg=\"hubd ends\"",
	} {
		got.want(t, 0, "", want)
	}
}

func TestServeWarnsOfOpenModeElsewhere(t *testing.T) {
	var stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status := run(ctx, []string{"--addr", "0.0.0.0:0", "--insecure"}, nil, nil, io.Discard, &stderr)
	outcome{status: status, stderr: stderr.String()}.want(t, 0, "", "level=WARN msg=\"open mode: no authentication; whoever reaches")
}

func TestServeEndToEnd(t *testing.T) {
	s := serve(t)
	var tailed outcome
	var tailing sync.WaitGroup
	notices, noticed := io.Pipe()
	tailing.Go(func() {
		var stdout bytes.Buffer
		tailed.status = run(t.Context(), []string{"tail", "lobby", "news", "--count", "5", "--url", s.url}, nil, nil, &stdout, noticed)
		tailed.stdout = stdout.String()
		_ = noticed.Close()
	})
	lines := bufio.NewScanner(notices)
	for range 2 { // both rooms are joined
		if !lines.Scan() || !strings.Contains(lines.Text(), "at 0 (drop-newest, queue of 256 messages and 1MiB)") {
			t.Fatalf("notice %q, want one of having joined", lines.Text())
		}
	}
	go func() {
		for lines.Scan() {
		}
	}()

	url := "--url=" + s.url
	hubd(t, "publish", "lobby", "hello", url).want(t, 0, "lobby 1 subscribers=1 queued=1\n", "")
	hubd(t, "publish", "lobby", "{\"a\":\n1}", "--type", "json", url).want(t, 0, "lobby 2 ", "")
	invocation{args: []string{"publish", "news", "--json"}, env: []string{"HUBD_URL=" + s.url}, stdin: "one\ntwo"}.run(t.Context()).
		want(t, 0, `"room":"news","epoch":"`, "")
	invocation{args: []string{"publish", "lobby", "--whole", "--type=binary", "--quiet", url}, stdin: "\x00\n\xff"}.run(t.Context()).
		want(t, 0, "", "")
	tailing.Wait()
	tailed.want(t, 0, "lobby 1 hello\nlobby 2 {\"a\":1}\nnews 1 one\nnews 2 two\nlobby 3 base64:AAr/\n", "")

	hubd(t, "health", url).want(t, 0, "ok\n", "")
	hubd(t, "health", "--ready", url).want(t, 0, "ok\n", "")
	hubd(t, "publish", "a/b", "x", url).want(t, 1, "", "hubd: not published: 400 Bad Request (invalid_room): ")
	hubd(t, "publish", "lobby", "{", "--type=json", url).want(t, 1, "", "(invalid_message)")
	invocation{args: []string{"publish", "lobby", url}, stdin: "fits\n" + strings.Repeat("x", 65<<10) + "\nnever"}.run(t.Context()).
		want(t, 1, "lobby 4 ", "hubd: line 2: not published: 413 Request Entity Too Large (message_too_large)")
	hubd(t, "tail", "a b", url).want(t, 1, "", "hubd: join a b: refused (invalid_room): ")
	hubd(t, "tail", "lobby", "--policy=reject-publish", url).want(t, 1, "", "refused (invalid_option)")
}

func TestServeSplitsAdministration(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format=json"}, nil, nil, io.Discard, writer)
		_ = writer.Close()
	}()
	log := logReader{t, bufio.NewScanner(reader)}
	admin := "http://" + log.until("listening for administration")["addr"].(string)
	public := "http://" + log.until("listening")["addr"].(string)
	go log.rest() // ends with the server
	for _, path := range []string{"/metrics", "/admin/stats", "/debug/pprof/"} {
		if code, _ := get(t, public+path); code != http.StatusNotFound {
			t.Errorf("%s is %d on the public listener, want 404", path, code)
		}
		if code, _ := get(t, admin+path); code != http.StatusOK {
			t.Errorf("%s is %d on the admin listener, want 200", path, code)
		}
	}
	if code, _ := get(t, admin+"/rooms/lobby"); code != http.StatusNotFound {
		t.Errorf("a room is %d on the admin listener, want 404", code)
	}
	if _, page := get(t, admin+"/metrics"); !strings.Contains(page, "hubd_build_info{") || !strings.Contains(page, "\ngo_goroutines ") || !strings.Contains(page, "\nprocess_open_fds ") {
		t.Errorf("the metrics lack those of the build, the runtime or the process:\n%s", page)
	}
	cancel()
	if got := <-status; got != 0 {
		t.Errorf("status %d, want 0", got)
	}
}

func TestServeAppliesFeeds(t *testing.T) {
	s := serve(t, "--config", file(t, exampleFeeds))
	if _, info := get(t, s.url+"/rooms/chat.x"); !strings.Contains(info, `"feed":"chat","policy":"disconnect"`) {
		t.Errorf("the room's feed is not that of the file: %s", info)
	}
	if _, info := get(t, s.url+"/rooms/other"); !strings.Contains(info, `"feed":"default","policy":"drop-newest"`) {
		t.Errorf("the room's feed is not the built-in one: %s", info)
	}
}

func TestServeCannotListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	hubd(t, "serve", "--addr", taken.Addr().String()).want(t, 1, "", "hubd: listen on --addr: listen tcp "+taken.Addr().String())
	hubd(t, "serve", "--addr", "127.0.0.1:0", "--admin-addr", taken.Addr().String()).want(t, 1, "", "hubd: listen on --admin-addr: ")
}

func TestServeDrains(t *testing.T) {
	s := serve(t)
	conn, _, err := websocket.Dial(t.Context(), s.url+"/rooms/lobby", &websocket.DialOptions{Subprotocols: []string{subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, got, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(got), `"joined"`) {
		t.Fatalf("read %s, %v; want to have joined", got, err)
	}
	hubd(t, "publish", "lobby", "last words", "--url", s.url).want(t, 0, "subscribers=1 ", "")
	s.cancel()
	if _, got, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(got), `"text":"last words"`) {
		t.Errorf("read %s, %v; want what was queued", got, err)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("closed with %v, want 1001", err)
	}
	s.stop(t)
	hubd(t, "health", "--url", s.url).want(t, 1, "", "nothing listens at")
}

// TestSignals needs a real process: the first signal drains, the second ends
// it at once although a connection does not go.
func TestSignals(t *testing.T) {
	cmd := process(t, "--addr=127.0.0.1:0", "--log-format=json", "--close-timeout=1h", "--drain-window=1h", "--write-timeout=1h")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := logReader{t, bufio.NewScanner(stderr)}
	addr := log.until("listening")["addr"].(string)
	stuck, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	fmt.Fprintf(stuck, "GET /rooms/lobby HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", addr)
	log.until("connection opened")
	for _, message := range []string{"draining", ""} {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if message != "" {
			log.until(message)
		}
	}
	log.rest()
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 1 {
		t.Errorf("status %d, want 1 (%v)", got, cmd.ProcessState)
	}
}

// TestSignalEndsOrderly: one signal, nobody connected.
func TestSignalEndsOrderly(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := process(t, "--addr=127.0.0.1:0", "--log-format=json")
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		log := logReader{t, bufio.NewScanner(stderr)}
		log.until("listening")
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		log.until("hubd ends")
		log.rest()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want status 0", signal, err)
		}
	}
}
