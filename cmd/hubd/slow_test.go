package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

func TestSpeed(t *testing.T) {
	for text, want := range map[string]speed{"1": 1, "2KiB": 2048, "64KiB/s": 65536, "100/s": 100} {
		if got, err := parseSpeed(text); err != nil || got != want {
			t.Errorf("parseSpeed(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for s, want := range map[speed]int{1: 4 << 10, 16 << 10: 4 << 10, 32 << 10: 8 << 10, 1 << 20: 16 << 10} {
		if got := s.receiveBuffer(); got != want {
			t.Errorf("receive buffer at %d B/s is %d, want %d", s, got, want)
		}
	}
}

// TestPacedReading: over any time, no more is read than the speed allows, and
// waiting for data earns no burst.
func TestPacedReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn := newMeasuredConn(near, 1000)
		defer conn.Close()
		go func() {
			defer far.Close()
			_, _ = far.Write(bytes.Repeat([]byte("h"), 500)) // the handshake
			_, _ = far.Write(bytes.Repeat([]byte("x"), 3000))
			<-time.After(time.Minute)
			_, _ = far.Write(bytes.Repeat([]byte("y"), 2000))
		}()
		start := time.Now()
		read := func(n int) {
			t.Helper()
			if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		at := func(what string, want time.Duration) {
			t.Helper()
			// A bite of a twentieth of a second is read ahead.
			if got := time.Since(start); got < want-50*time.Millisecond || got > want {
				t.Errorf("%s after %v, want %v", what, got, want)
			}
		}
		read(500)
		at("handshake", 0)
		conn.pace()
		read(3000)
		at("3000 bytes", 3*time.Second)
		read(2000)
		at("2000 more", 64*time.Second+950*time.Millisecond)
		if got := conn.total(); got != 5500 {
			t.Errorf("counted %d bytes, want 5500", got)
		}
	})
}

// TestPacedReadingEnds: closing ends a read that waits for its turn.
func TestPacedReadingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn := newMeasuredConn(near, 1)
		conn.pace()
		go func() { _, _ = far.Write([]byte("xy")) }()
		start := time.Now()
		if _, err := conn.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 8))
			ended <- err
		}()
		synctest.Wait()
		_ = conn.Close()
		if err := <-ended; err == nil {
			t.Error("the read ended without an error")
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it took %v", waited)
		}
	})
}

// pipeListener is a network in memory, of pipes. Each client has an address.
type pipeListener struct {
	conns   chan net.Conn
	closed  chan struct{}
	clients atomic.Int32
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { close(l.closed); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1000 + int(l.clients.Add(1))}
	near, far := net.Pipe()
	select {
	case l.conns <- &pipeConn{far, l.Addr(), client}:
		return &pipeConn{near, client, l.Addr()}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeConn struct {
	net.Conn
	local, remote net.Addr
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.local }
func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

// TestVanishedServer: a connection that brings nothing, and no answer to a
// ping, is given up; one that answers is kept for as long as it likes.
func TestVanishedServer(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers bool
		want    time.Duration
	}{
		{"silent", false, quiet + signOfLife},
		{"quiet but there", true, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { vanish(t, test.answers, test.want) })
		})
	}
}

func vanish(t *testing.T, answers bool, want time.Duration) {
	listener := newPipeListener()
	hour, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			Subprotocols:   []string{subprotocol},
			OnPingReceived: func(context.Context, []byte) bool { return answers },
		})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		for {
			if _, _, err := conn.Read(context.Background()); err != nil {
				return
			}
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	var notices strings.Builder
	base, err := parseServerURL(defaultURL)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{
		command: &tailCommand{Rooms: []string{"a"}},
		server:  base,
		notices: &notices,
		printer: newPrinter(io.Discard, false),
		dial:    listener.dial,
	}
	start := time.Now()
	s := &session{follower: f}
	_ = s.run(hour)
	// The goodbye to a server that is away takes its time as well.
	if got := time.Since(start); got < want || got > want+farewell {
		t.Errorf("given up after %v, want %v", got, want)
	}
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
