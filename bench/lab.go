package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lab builds hubd and runs servers: each in a process of its own, on a loopback
// port of the system's choice, and never longer than a run.
type lab struct {
	// immutable
	dir  string // for the binary and for configurations
	hubd string // path of the binary
	self string // path of this program, which is also the peer servers
	log  io.Writer
}

// labOptions say where hubd comes from.
type labOptions struct {
	binary string    // use this one, if not ""
	source string    // the module to build it from otherwise
	log    io.Writer // progress
}

func newLab(ctx context.Context, o labOptions) (*lab, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "hubd-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, hubd: o.binary, self: self, log: o.log}
	if l.hubd != "" {
		l.hubd, err = filepath.Abs(l.hubd)
		return l, err
	}
	l.hubd = filepath.Join(dir, "hubd")
	build := exec.CommandContext(ctx, "go", "build", "-o", l.hubd, "./cmd/hubd")
	build.Dir = o.source
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("building hubd in %s: %w\n%s", o.source, err, out), l.close())
	}
	return l, nil
}

func (l *lab) close() error { return os.RemoveAll(l.dir) }

func (l *lab) say(format string, args ...any) { fmt.Fprintf(l.log, format+"\n", args...) }

// spec is a server to be started.
type spec struct {
	peer string // one of peers; "": hubd
	// binary is another hubd to run, "": the one under measurement.
	binary string
	// args are flags of hubd, config the text of its configuration file.
	args   []string
	config string
}

func (l *lab) command(ctx context.Context, sp spec) (*exec.Cmd, error) {
	if sp.peer != "" {
		return exec.CommandContext(ctx, l.self, "peer", sp.peer), nil
	}
	args := append([]string{"serve", "--addr", "127.0.0.1:0", "--log-format", "json"}, sp.args...)
	if sp.config != "" {
		path := filepath.Join(l.dir, "hubd.yaml")
		if err := os.WriteFile(path, []byte(sp.config), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config", path)
	}
	cmd := exec.CommandContext(ctx, orDefault(sp.binary, l.hubd), args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HUBD_") { // they would set flags
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd, nil
}

// with runs f beside a server that lives as long as f does.
func (l *lab) with(ctx context.Context, sp spec, f func(*server) error) error {
	s, err := l.start(ctx, sp)
	if err != nil {
		return err
	}
	err = f(s)
	died := s.stop()
	if err != nil && died {
		err = fmt.Errorf("%w; the server had ended, its last words:\n%s", err, strings.Join(s.tail, "\n"))
	}
	return err
}

// withAll runs f beside several servers.
func (l *lab) withAll(ctx context.Context, specs []spec, f func([]*server) error) error {
	var servers []*server
	var next func() error
	next = func() error {
		if len(servers) == len(specs) {
			return f(servers)
		}
		return l.with(ctx, specs[len(servers)], func(s *server) error {
			servers = append(servers, s)
			return next()
		})
	}
	return next()
}

// server is a running process.
type server struct {
	// immutable
	addr string // host and port
	pid  int
	cmd  *exec.Cmd
	http *http.Client

	ended chan struct{} // closed when the process's output has ended
	tail  []string      // its last lines; valid once ended is closed
}

const (
	startTimeout = 20 * time.Second
	tailLines    = 20
)

func (l *lab) start(ctx context.Context, sp spec) (*server, error) {
	cmd, err := l.command(ctx, sp)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	s := &server{
		cmd: cmd, pid: cmd.Process.Pid, ended: make(chan struct{}),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: time.Minute},
	}
	addr := make(chan string, 1)
	go s.follow(log, addr) // joined by stop
	select {
	case s.addr = <-addr:
		return s, nil
	case <-s.ended:
		err = errors.New("it ended")
	case <-time.After(startTimeout):
		err = errors.New("it did not say where it listens")
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.stop()
	return nil, fmt.Errorf("starting the server: %w\n%s", err, strings.Join(s.tail, "\n"))
}

// follow reads the log: the address, once, and then whatever comes, lest the
// server blocks on it.
func (s *server) follow(log io.Reader, addr chan<- string) {
	defer close(s.ended)
	lines := bufio.NewScanner(log)
	found := false
	for lines.Scan() {
		if !found {
			var line struct{ Msg, Addr string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				found = true
				addr <- line.Addr
			}
		}
		if len(s.tail) == tailLines {
			s.tail = append(s.tail[:0], s.tail[1:]...)
		}
		s.tail = append(s.tail, lines.Text())
	}
}

// stop ends the process, if it has not ended, and reports whether it had.
func (s *server) stop() (died bool) {
	select {
	case <-s.ended:
		died = true
	default:
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
	_ = s.cmd.Wait() // killed
	s.http.CloseIdleConnections()
	return died
}

// get returns the body of a successful answer.
func (s *server) get(ctx context.Context, path string) ([]byte, error) {
	return s.do(ctx, http.MethodGet, path, nil)
}

func (s *server) do(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{method, path, resp.StatusCode, string(answer)}
	}
	return answer, nil
}

// statusError is an answer that is no success.
type statusError struct {
	method, path string
	status       int
	body         string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: status %d: %.300s", e.method, e.path, e.status, e.body)
}

// workers runs f n times at once and returns what went wrong.
func workers(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
