package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// speed is a number of bytes a second, 0 for no limit.
type speed int

func parseSpeed(text string) (speed, error) {
	n, err := parseSize(strings.TrimSuffix(text, "/s"))
	if err != nil || n < 1 {
		return 0, errors.New("write bytes a second like 2048 or 64KiB")
	}
	return speed(n), nil
}

// receiveBuffer is how much the kernel may take for a reader of this speed: a
// quarter of a second's worth, as far as kernels go along. With its default
// the kernel would read on its own for megabytes, and nothing would be slow.
func (s speed) receiveBuffer() int { return min(max(int(s)/4, 4<<10), 16<<10) }

// dialFunc makes a connection.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns a dial function whose connections have a receive buffer that
// suits the speed. It must be set before connecting: the window that TCP
// announces follows from it.
func dialer(s speed) dialFunc {
	var d net.Dialer
	if s > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) { failed = setReceiveBuffer(fd, s.receiveBuffer()) })
			return errors.Join(err, failed)
		}
	}
	return d.DialContext
}

// measuredConn counts what is read and, once told to, paces it.
type measuredConn struct {
	net.Conn
	speed speed
	read  atomic.Int64
	paced atomic.Bool

	// owned by the reader
	next time.Time // when the bytes read so far have had their time

	closing sync.Once
	closed  chan struct{}
}

func newMeasuredConn(conn net.Conn, s speed) *measuredConn {
	return &measuredConn{Conn: conn, speed: s, closed: make(chan struct{})}
}

// pace begins the slow reading. It is for after the handshake, which is not
// what should be slow.
func (c *measuredConn) pace() { c.paced.Store(c.speed > 0) }

// total is the number of bytes read.
func (c *measuredConn) total() int64 { return c.read.Load() }

func (c *measuredConn) Read(b []byte) (int, error) {
	paced := c.paced.Load()
	if paced {
		if err := c.wait(); err != nil {
			return 0, err
		}
		// Small bites: the rate holds over each twentieth of a second.
		b = b[:min(len(b), max(int(c.speed)/20, 1))]
	}
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	if paced {
		// Time spent waiting for data is no credit for a burst later.
		if now := time.Now(); c.next.Before(now) {
			c.next = now
		}
		c.next = c.next.Add(time.Duration(n) * time.Second / time.Duration(c.speed))
	}
	return n, err
}

func (c *measuredConn) wait() error {
	timer := time.NewTimer(time.Until(c.next))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *measuredConn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
