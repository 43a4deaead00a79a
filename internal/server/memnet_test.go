package server_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memNet is a network in memory, for tests that need its buffers to be of a
// known size or its time to be fake: all waiting in it is on channels, so it is
// at home in a synctest bubble.
type memNet struct {
	// buffer is what each direction of a connection holds before a write
	// blocks.
	buffer int
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newMemNet(buffer int) *memNet {
	return &memNet{buffer: buffer, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (m *memNet) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memNet) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

type memAddr struct{}

func (memAddr) Network() string { return "mem" }
func (memAddr) String() string  { return "127.0.0.1:80" }

func (m *memNet) Addr() net.Addr { return memAddr{} }

func (m *memNet) dial(ctx context.Context) (net.Conn, error) {
	up, down := newHalf(m.buffer), newHalf(m.buffer)
	client := &memConn{in: down, out: up, closed: make(chan struct{})}
	server := &memConn{in: up, out: down, closed: make(chan struct{})}
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// half is one direction of a connection.
type half struct {
	mu     sync.Mutex
	limit  int
	data   []byte
	ended  bool          // nothing will be written any more
	broken bool          // nothing will be read any more
	change chan struct{} // closed at each change
}

func newHalf(limit int) *half { return &half{limit: limit, change: make(chan struct{})} }

func (h *half) changedLocked() {
	close(h.change)
	h.change = make(chan struct{})
}

// wait runs try under the lock until it reports done, the deadline passes or
// the local end is closed.
func (h *half) wait(d *memDeadline, closed <-chan struct{}, try func() bool) error {
	for {
		select {
		case <-closed:
			return net.ErrClosed
		case <-d.passed():
			return os.ErrDeadlineExceeded
		default:
		}
		h.mu.Lock()
		done := try()
		change := h.change // after try, which may have changed something
		h.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-change:
		case <-d.passed():
		case <-closed:
		}
	}
}

// memConn is one end of a connection.
type memConn struct {
	in, out     *half
	read, write memDeadline
	once        sync.Once
	closed      chan struct{}
}

func (c *memConn) Read(b []byte) (n int, err error) {
	ended := false
	err = c.in.wait(&c.read, c.closed, func() bool {
		n = copy(b, c.in.data)
		if n > 0 {
			c.in.data = c.in.data[n:]
			c.in.changedLocked()
		}
		ended = n == 0 && c.in.ended
		return n > 0 || ended || len(b) == 0
	})
	if ended {
		err = io.EOF
	}
	return n, err
}

func (c *memConn) Write(b []byte) (n int, err error) {
	broken := false
	err = c.out.wait(&c.write, c.closed, func() bool {
		broken = c.out.broken
		if k := min(len(b)-n, c.out.limit-len(c.out.data)); k > 0 && !broken {
			c.out.data = append(c.out.data, b[n:n+k]...)
			n += k
			c.out.changedLocked()
		}
		return broken || n == len(b)
	})
	if broken {
		err = &net.OpError{Op: "write", Net: "mem", Err: os.ErrClosed}
	}
	return n, err
}

// Close ends both directions: the other end can read what was written.
func (c *memConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.out.set(func(h *half) { h.ended = true })
		c.in.set(func(h *half) { h.broken = true })
	})
	return nil
}

func (h *half) set(f func(*half)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
	h.changedLocked()
}

func (c *memConn) LocalAddr() net.Addr  { return memAddr{} }
func (c *memConn) RemoteAddr() net.Addr { return memAddr{} }

func (c *memConn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// memDeadline is a deadline that can be waited for.
type memDeadline struct {
	mu    sync.Mutex
	timer *time.Timer
	sets  int           // so far: a timer of an earlier one is void
	past  chan struct{} // closed when the deadline has passed
}

func (d *memDeadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	// Whoever waits holds the old channel; it must see an earlier deadline.
	if d.past != nil {
		select {
		case <-d.past:
			d.past = nil
		default:
		}
	}
	if d.past == nil {
		d.past = make(chan struct{})
	}
	d.sets++
	past, set := d.past, d.sets
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		close(past)
	default:
		d.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.sets == set {
				close(past)
			}
		})
	}
}

func (d *memDeadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.past == nil {
		d.past = make(chan struct{})
	}
	return d.past
}
