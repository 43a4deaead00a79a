package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// fleet is many subscribers served by one goroutine: whoever calls poll. Only
// stop may be called from elsewhere, through what the caller's condition reads.
//
// Sockets are used by their descriptors. A goroutine for each would cost the
// generator a wake-up and a second, empty read for every message.
type fleet struct {
	// onFrame is called for each text and binary frame, and for no other.
	onFrame func(*subscriber, frame)
	// onGone is called once when a subscriber's connection has ended without
	// its doing; nil: that is an error of poll.
	onGone func(*subscriber)

	all    []*subscriber
	epoll  int
	events []unix.EpollEvent
	buffer []byte
	emit   func(frame)
	now    *subscriber // whose frames emit gets
	failed error       // found by emit
}

// subscriber is one connection.
type subscriber struct {
	fd    int
	port  int // local
	stuck bool
	gone  bool
	dec   decoder

	// got counts the text and binary frames.
	got uint64
}

const readBytes = 256 << 10

func newFleet(onFrame func(*subscriber, frame)) (*fleet, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	f := &fleet{onFrame: onFrame, epoll: epoll, events: make([]unix.EpollEvent, 256), buffer: make([]byte, readBytes)}
	f.emit = f.received
	return f, nil
}

// stuckReceiveBuffer is SO_RCVBUF of subscribers that never read: small, so
// that what they do not read stays with the server.
const stuckReceiveBuffer = 4 << 10

// join adds a subscriber.
func (f *fleet) join(ctx context.Context, o dialOptions) (*subscriber, error) {
	return f.add(ctx, o, unix.EPOLLIN)
}

// joinStuck adds a subscriber that never reads.
func (f *fleet) joinStuck(ctx context.Context, o dialOptions) (*subscriber, error) {
	o.receiveBuffer = stuckReceiveBuffer
	return f.add(ctx, o, 0) // errors and hang-ups are reported all the same
}

// joinAll adds n subscribers.
func (f *fleet) joinAll(ctx context.Context, n int, o dialOptions) error {
	for range n {
		if _, err := f.join(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) add(ctx context.Context, o dialOptions, events uint32) (*subscriber, error) {
	conn, leftover, err := dial(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &subscriber{port: conn.LocalAddr().(*net.TCPAddr).Port, stuck: events == 0}
	s.fd, err = detach(conn)
	if err != nil {
		return nil, err
	}
	f.all = append(f.all, s)
	event := unix.EpollEvent{Events: events, Fd: int32(len(f.all) - 1)} // the index, not the descriptor
	if err := unix.EpollCtl(f.epoll, unix.EPOLL_CTL_ADD, s.fd, &event); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	f.now = s
	return s, errors.Join(s.dec.feed(leftover, f.emit), f.failed)
}

// detach takes the socket away from Go's poller.
func detach(conn *net.TCPConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, errors.Join(err, conn.Close())
	}
	var inner error
	err = raw.Control(func(old uintptr) {
		fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	return fd, errors.Join(err, inner, conn.Close())
}

// received is given each frame of f.now.
func (f *fleet) received(fr frame) {
	switch fr.op {
	case opText, opBinary:
		f.now.got++
		f.onFrame(f.now, fr)
	case opPing:
		f.failed = f.now.send(opPong, fr.lead)
	}
}

// send writes one frame. The socket's buffer is assumed to have room: what
// subscribers here send is little.
func (s *subscriber) send(op byte, payload []byte) error {
	var scratch [2048]byte
	b := appendFrame(scratch[:0], op, payload)
	n, err := unix.Write(s.fd, b)
	if err != nil {
		return fmt.Errorf("a subscriber sending %d bytes: %w", len(b), err)
	}
	if n != len(b) {
		return fmt.Errorf("a subscriber sending %d bytes: the socket took %d", len(b), n)
	}
	return nil
}

// poll waits for something to arrive, at most for the timeout, and reads each
// socket that is readable once.
func (f *fleet) poll(timeout time.Duration) error {
	n, err := unix.EpollWait(f.epoll, f.events, int(timeout.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, e := range f.events[:n] {
		s := f.all[e.Fd]
		if s.gone {
			continue
		}
		if e.Events&unix.EPOLLIN == 0 || s.stuck {
			if err := f.lose(s, nil); err != nil {
				return err
			}
			continue
		}
		if err := f.read(s); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) read(s *subscriber) error {
	n, err := unix.Read(s.fd, f.buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case n <= 0:
		return f.lose(s, err)
	}
	f.now = s
	return errors.Join(s.dec.feed(f.buffer[:n], f.emit), f.failed)
}

func (f *fleet) lose(s *subscriber, cause error) error {
	s.gone = true
	_ = unix.EpollCtl(f.epoll, unix.EPOLL_CTL_DEL, s.fd, nil) // closing does it as well
	if f.onGone == nil {
		return fmt.Errorf("a subscriber's connection ended (%v)", cause)
	}
	f.onGone(s)
	return nil
}

// run polls until done reports true; it is asked at least every 20 ms.
func (f *fleet) run(done func() bool) error {
	for !done() {
		if err := f.poll(20 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// close ends all connections with a reset: a closed pair would stay in
// TIME_WAIT and use up the ports of many runs.
func (f *fleet) close() error {
	var errs []error
	for _, s := range f.all {
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		errs = append(errs, unix.Close(s.fd))
	}
	return errors.Join(append(errs, unix.Close(f.epoll))...)
}
