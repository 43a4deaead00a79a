package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// keepBytes is how much of a payload the decoder shows: a stamp, or the type of
// a JSON frame. Control frames are shown whole.
const (
	keepBytes  = 32
	maxControl = 125
)

// frame is one frame from the server.
type frame struct {
	op   byte
	size int
	// lead is the beginning of the payload: min(size, keepBytes) bytes, all of
	// a control frame's. It is valid until emit returns.
	lead []byte
}

// decoder cuts a server's byte stream into frames. It copies nothing but what
// is split between two reads.
type decoder struct {
	partial []byte // header and lead of a frame that is not all here
	rest    int    // bytes of the current payload still to be passed over
	current frame  // where rest > 0
}

// feed takes the next bytes of the stream and emits each frame that they
// complete.
func (d *decoder) feed(b []byte, emit func(frame)) error {
	for len(b) > 0 {
		if d.rest > 0 {
			n := min(d.rest, len(b))
			d.rest -= n
			b = b[n:]
			if d.rest == 0 {
				emit(d.current)
			}
			continue
		}
		source := b
		if len(d.partial) > 0 {
			d.partial = append(d.partial, b[0]) // rare, and short
			source = d.partial
		}
		f, used, err := parseFrame(source)
		switch {
		case err != nil:
			return err
		case len(d.partial) > 0:
			b = b[1:]
			if used == 0 {
				continue
			}
			d.partial = d.partial[:0] // f.lead stays readable
		case used == 0:
			d.partial = append(d.partial, b...)
			return nil
		default:
			b = b[used:]
		}
		d.rest = f.size - len(f.lead)
		n := min(d.rest, len(b))
		d.rest -= n
		b = b[n:]
		if d.rest == 0 {
			emit(f)
			continue
		}
		d.current = f
		d.current.lead = append([]byte(nil), f.lead...)
	}
	return nil
}

var errFrame = errors.New("the server sent a frame that is not allowed, or that no test here asks for")

// parseFrame returns the frame that b begins with, and how many bytes header
// and lead take: 0 if they are not all there.
func parseFrame(b []byte) (f frame, used int, err error) {
	if len(b) < 2 {
		return f, 0, nil
	}
	// Whole, unmasked and without extensions.
	if b[0]&0xf0 != 0x80 || b[1]&0x80 != 0 {
		return f, 0, errFrame
	}
	f.op = b[0] & 0x0f
	header := 2
	switch size := int(b[1]); size {
	case 126:
		header = 4
		if len(b) < header {
			return f, 0, nil
		}
		f.size = int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		header = 10
		if len(b) < header {
			return f, 0, nil
		}
		f.size = int(binary.BigEndian.Uint64(b[2:]) & (1<<32 - 1))
	default:
		f.size = size
	}
	keep := min(f.size, keepBytes)
	if f.op >= opClose {
		if f.size > maxControl {
			return f, 0, errFrame
		}
		keep = f.size
	}
	if len(b) < header+keep {
		return f, 0, nil
	}
	f.lead = b[header : header+keep]
	return f, header + keep, nil
}

// appendFrame appends a client's frame. Clients must mask; a key of zeros is a
// key like any other, and costs the generator nothing.
func appendFrame(b []byte, op byte, payload []byte) []byte {
	b = append(b, 0x80|op)
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, 0x80|126)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b = append(b, 0x80|127)
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = append(b, 0, 0, 0, 0)
	return append(b, payload...)
}

// Every measured message begins with a stamp: its number and when it was
// published, by clock.
const stampBytes = 16

func putStamp(payload []byte, number uint64, at time.Duration) {
	binary.LittleEndian.PutUint64(payload, number)
	binary.LittleEndian.PutUint64(payload[8:], uint64(at))
}

func readStamp(lead []byte) (number uint64, at time.Duration) {
	return binary.LittleEndian.Uint64(lead), time.Duration(binary.LittleEndian.Uint64(lead[8:]))
}

var clockStart = time.Now()

// clock is the monotonic time that stamps carry.
func clock() time.Duration { return time.Since(clockStart) }

// dialOptions say how to join.
type dialOptions struct {
	addr string
	path string // such as /rooms/bench?policy=keep-latest
	json bool   // subprotocol hubd.v1.json
	sse  bool   // Server-Sent Events in place of WebSocket
	// receiveBuffer is SO_RCVBUF in bytes, set before connecting; 0: the
	// system's default.
	receiveBuffer int
}

const handshakeTimeout = 30 * time.Second

// dial connects and upgrades. leftover is what the server sent right behind its
// answer.
func dial(ctx context.Context, o dialOptions) (conn *net.TCPConn, leftover []byte, err error) {
	d := net.Dialer{Timeout: handshakeTimeout}
	if o.receiveBuffer > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			var inner error
			err := raw.Control(func(fd uintptr) {
				inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, o.receiveBuffer)
			})
			return errors.Join(err, inner)
		}
	}
	c, err := d.DialContext(ctx, "tcp", o.addr)
	if err != nil {
		return nil, nil, err
	}
	leftover, err = handshake(c, o)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("joining %s: %w", o.path, err), c.Close())
	}
	return c.(*net.TCPConn), leftover, nil
}

// handshake asks for the upgrade, or for the stream of events. The key may be
// any; what the server makes of it is for conformance tests to judge.
func handshake(c net.Conn, o dialOptions) (leftover []byte, err error) {
	headers, success := "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "101"
	switch {
	case o.sse:
		headers, success = "Accept: text/event-stream\r\n", "200"
	case o.json:
		headers += "Sec-WebSocket-Protocol: hubd.v1.json\r\n"
	}
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", o.path, o.addr, headers); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(c, 1024)
	status, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 "+success) {
		rest, _ := io.ReadAll(io.LimitReader(r, 600)) // to show it
		return nil, fmt.Errorf("not accepted: %s%s", status, rest)
	}
	for line := status; line != "\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
	}
	leftover = make([]byte, r.Buffered())
	if _, err := io.ReadFull(r, leftover); err != nil {
		return nil, err
	}
	return leftover, c.SetDeadline(time.Time{})
}
