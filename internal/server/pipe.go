package server

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// errPipeClosed is what a write gets after the close frame or a broken write.
var errPipeClosed = errors.New("nothing may be written any more")

// pipe is the connection under a WebSocket: the library reads from it and
// writes its control frames to it, and the connection's writer writes batches
// of whole data frames past the library. One mutex makes each write whole.
//
// A write that failed part-way has left half a frame on the wire, and a close
// frame ends the stream (RFC 6455, section 5.5.1): after either, nothing is
// written any more. The library cannot know about the writer's frames, nor the
// writer about the library's close; the pipe knows both.
//
// It does not embed the TCP connection: that would promote ReadFrom, past the
// mutex.
type pipe struct {
	// immutable
	raw     net.Conn
	tcp     *net.TCPConn // raw, where it is one; otherwise nil
	timeout time.Duration
	// onClose is called before the library answers the client's close frame,
	// outside the mutex, and decides the answer. It may wait for answers to
	// requests to be written first.
	onClose func(websocket.StatusCode) (websocket.StatusCode, string)

	// owned by the reader
	leftover []byte
	scan     frameScanner

	// deaf: nothing is read any more. Where frames are not in order, nobody
	// knows where the next one begins (RFC 6455, section 7.1.7).
	deaf atomic.Bool
	// verdict is set once the server has decided the close; until then the
	// library writes a close frame only to answer the client's.
	verdict atomic.Pointer[closing]
	// written counts bytes that the kernel took, as a sign of life.
	written atomic.Int64

	// mu is held across one write to the socket, which ends at the write
	// timeout or with the socket. Close and destroy do not take it: they must
	// be able to free a stuck write.
	mu        sync.Mutex
	closeSent bool
	broken    bool
	// deadline is the socket's write deadline, when a write that is stuck looks
	// whether it makes progress. It may be left from an earlier write: setting
	// one takes a twentieth of a small write's time.
	deadline time.Time
}

func newPipe(raw net.Conn, leftover []byte, timeout time.Duration, onClose func(websocket.StatusCode) (websocket.StatusCode, string)) *pipe {
	p := &pipe{raw: raw, leftover: leftover, timeout: timeout, onClose: onClose}
	p.tcp, _ = raw.(*net.TCPConn)
	return p
}

// errEnded is the end of what the client sends. It is not io.EOF, which the
// library takes for the end of a message that it has read a part of.
var errEnded = errors.New("the client's end is closed")

// Read serves what the client sent right behind its handshake first. It ends
// before a frame that is not as it must be.
func (p *pipe) Read(b []byte) (n int, err error) {
	if p.deaf.Load() {
		return 0, errPipeClosed
	}
	if len(p.leftover) > 0 {
		n = copy(b, p.leftover)
		p.leftover = p.leftover[n:]
		if len(p.leftover) == 0 {
			p.leftover = nil
		}
	} else if n, err = p.raw.Read(b); err == io.EOF {
		return n, errEnded
	} else if err != nil {
		return n, err
	}
	if n, err = p.scan.scan(b[:n]); err != nil {
		p.deaf.Store(true)
	}
	return n, err
}

// Write takes one control frame from the library. Anything else is refused:
// data frames do not go through the library here, and if an update of it were
// to split its control frames, this must fail loudly.
func (p *pipe) Write(b []byte) (int, error) {
	if !wholeControlFrame(b) {
		return 0, errors.New("server: the WebSocket library wrote something other than one whole control frame")
	}
	out := b
	isClose := b[0]&0x0f == opClose
	if isClose {
		out = closeFrame(p.lastWords(b))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.writeLocked(net.Buffers{out}); err != nil {
		return 0, err
	}
	p.closeSent = isClose
	return len(b), nil
}

// lastWords is what the close frame b must say. The library may be about to
// answer the client's while the server closes for reasons of its own.
func (p *pipe) lastWords(b []byte) (websocket.StatusCode, string) {
	if row := p.verdict.Load(); row != nil {
		return row.code, row.text
	}
	code := websocket.StatusNoStatusRcvd
	if len(b) >= 4 {
		code = websocket.StatusCode(binary.BigEndian.Uint16(b[2:4]))
	}
	return p.onClose(code)
}

const opClose = 8

func wholeControlFrame(b []byte) bool {
	return len(b) >= 2 && b[0]&0xf8 == 0x88 && int(b[1]) == len(b)-2 && b[1] <= 125
}

// closeFrame builds a close frame. Reasons of the library's own would repeat
// what the client sent.
func closeFrame(code websocket.StatusCode, text string) []byte {
	if code == websocket.StatusNoStatusRcvd {
		return []byte{0x80 | opClose, 0}
	}
	b := append(make([]byte, 0, 4+len(text)), 0x80|opClose, byte(2+len(text)))
	return append(binary.BigEndian.AppendUint16(b, uint16(code)), text...)
}

// writeFrames writes whole frames, and returns how many bytes the kernel took.
func (p *pipe) writeFrames(bufs net.Buffers) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writeLocked(bufs)
}

// progressLooks is how often in a write timeout a write that waits is tried
// again. It ends late by that share of the timeout, at most; and it goes on where
// the kernel has any room at all, while one that waits is told only when a good
// part is free, which a slow reader may take longer for than the timeout.
const progressLooks = 8

// progressLook is the longest time between two of them: pings take what was
// written for a sign of life, and a long write timeout must not hide it.
const progressLook = time.Second

func (p *pipe) writeLocked(bufs net.Buffers) (total int64, err error) {
	if p.closeSent || p.broken {
		return 0, errPipeClosed
	}
	now := time.Now()
	progress := now
	for {
		if look := min(p.timeout/progressLooks, progressLook); p.deadline.Sub(now) <= look/2 {
			p.deadline = now.Add(max(min(look, p.timeout-now.Sub(progress)), 1))
			if err := p.raw.SetWriteDeadline(p.deadline); err != nil {
				p.broken = true
				return total, err
			}
		}
		var n int64
		if len(bufs) == 1 {
			var k int
			k, err = p.raw.Write(bufs[0])
			bufs[0] = bufs[0][k:]
			n = int64(k)
		} else {
			n, err = bufs.WriteTo(p.raw)
		}
		total += n
		p.written.Add(n)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		now = time.Now()
		if n > 0 {
			progress = now
		}
		if now.Sub(progress) >= p.timeout {
			break
		}
	}
	p.broken = err != nil
	return total, err
}

// limitUnsent bounds what waits in the kernel; n below 0 leaves it unbounded.
func (p *pipe) limitUnsent(n int) error {
	if p.tcp == nil || n < 0 {
		return nil
	}
	return limitUnsent(p.tcp, n)
}

// unsent returns the bytes that wait in the kernel, 0 where that is not known.
func (p *pipe) unsent() int {
	if p.tcp == nil {
		return 0
	}
	return unsent(p.tcp)
}

// drain reads and throws away until the client's end closes. It is the reader of
// an event stream, whose client has nothing to say.
func (p *pipe) drain() error {
	var b [64]byte
	for {
		if _, err := p.raw.Read(b[:]); err != nil {
			return err
		}
	}
}

// closeWrite ends an event stream: what was written is still delivered.
func (p *pipe) closeWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeSent = true
	if half, ok := p.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only where the stream has ended otherwise
	}
}

// Close ends what is sent, and the reading, but leaves what was sent to the
// kernel: a socket that is closed while input waits in it, or before its last
// bytes are acknowledged, may reset the connection, and a reset can take the
// close frame away from a client that has not read it yet. Where the kind of
// connection has no such half-close, this is destroy.
func (p *pipe) Close() error {
	if c, ok := p.raw.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		return p.raw.SetReadDeadline(time.Unix(1, 0))
	}
	return p.destroy()
}

// linger waits, after Close, until the socket is destroyed or the client has
// closed its end, and reports whether it has. It comes after the reader.
func (p *pipe) linger() bool {
	p.mu.Lock()
	broken := p.broken
	p.mu.Unlock()
	if broken || p.raw.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	var scrap [512]byte
	for {
		if _, err := p.raw.Read(scrap[:]); err != nil {
			return err == io.EOF
		}
	}
}

// destroy closes the socket at once, freeing a write that is stuck in it. What
// the client has not acknowledged is thrown away with a reset.
func (p *pipe) destroy() error {
	if p.tcp != nil && unacked(p.tcp) > 0 {
		_ = p.tcp.SetLinger(0) // fails only on a closed socket
	}
	return p.raw.Close()
}

// The rest of net.Conn, for the library's sake.

func (p *pipe) LocalAddr() net.Addr                { return p.raw.LocalAddr() }
func (p *pipe) RemoteAddr() net.Addr               { return p.raw.RemoteAddr() }
func (p *pipe) SetDeadline(t time.Time) error      { return p.raw.SetDeadline(t) }
func (p *pipe) SetReadDeadline(t time.Time) error  { return p.raw.SetReadDeadline(t) }
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.raw.SetWriteDeadline(t) }
