package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"hubd/internal/frame"
	"hubd/internal/hub"
)

// assemblyTimeout bounds the time from a message's first frame to its last.
const assemblyTimeout = 10 * time.Second

var readBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keepBuffer is the largest read buffer that goes back to the pool.
const keepBuffer = 128 << 10

// read is the reader. It never waits for output: what it has to say goes into
// the lane. After the cause is set it goes on reading, and throws away what it
// reads, because the close handshake needs the client's answer.
func (c *conn) read() {
	defer close(c.readerDone)
	if c.ws == nil {
		c.readErr = c.pipe.drain()
		c.end(causeClient)
		return
	}
	for {
		if err := c.readMessage(); err != nil {
			c.readErr = err
			cause := causeOfReadError(err)
			if cause != causeClient {
				c.pipe.deaf.Store(true)
			}
			if cause == causeTooBig {
				c.srv.rejectPublish(hub.MessageTooLarge) // nothing else is that large
			}
			_ = c.pipe.SetReadDeadline(time.Time{}) // the close handshake reads on
			c.end(cause)
			return
		}
	}
}

// readMessage reads and handles one message. A cancellable context would cost
// the library a goroutine a frame; deadlines on the socket cost nothing.
func (c *conn) readMessage() error {
	typ, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return err
	}
	if err := c.pipe.SetReadDeadline(time.Now().Add(assemblyTimeout)); err != nil {
		return err
	}
	compressed := c.deflate && c.pipe.scan.next()
	buf := readBuffers.Get().(*bytes.Buffer)
	defer freeBuffer(buf)
	bound := c.limit
	if compressed {
		bound = deflatedLimit(bound)
	}
	if _, err := buf.ReadFrom(io.LimitReader(r, bound+1)); err != nil {
		return err
	}
	if int64(buf.Len()) > bound {
		return errTooBig
	}
	if err := c.pipe.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if compressed {
		plain := readBuffers.Get().(*bytes.Buffer)
		defer freeBuffer(plain)
		if err := inflate(plain, buf, c.limit); err != nil {
			return err
		}
		buf = plain
	}
	if c.ended() == causeNone {
		c.handle(typ, buf.Bytes())
	}
	return nil
}

func freeBuffer(b *bytes.Buffer) {
	if b.Cap() <= keepBuffer {
		b.Reset()
		readBuffers.Put(b)
	}
}

// causeOfReadError tells a connection that broke from a client that broke the
// protocol. The library has no names for most of the latter.
func causeOfReadError(err error) Cause {
	var network *net.OpError
	var bad *violation
	switch {
	case errors.As(err, &bad):
		return bad.cause
	case errors.Is(err, os.ErrDeadlineExceeded):
		return causeProtocol
	case websocket.CloseStatus(err) != -1, errors.Is(err, errEnded), errors.Is(err, errPipeClosed), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed), errors.As(err, &network):
		return causeClient
	}
	return causeProtocol
}

// handle is given one message of the client's. It may not keep data.
func (c *conn) handle(typ websocket.MessageType, data []byte) {
	if typ == websocket.MessageText && !utf8.Valid(data) {
		c.srv.rejectPublish(hub.InvalidMessage)
		c.end(causeUTF8) // RFC 6455, section 8.1
		return
	}
	if c.dialect == dialectRaw {
		c.handleRaw(typ, data)
		return
	}
	if typ != websocket.MessageText {
		c.end(causeUnsupported)
		return
	}
	c.handleCommand(data)
}

// handleRaw publishes what a raw client sent to its one room. It has no frames
// to be refused in; a refusal ends the connection rather than pass in silence.
func (c *conn) handleRaw(typ websocket.MessageType, data []byte) {
	kind := frame.Text
	if typ == websocket.MessageBinary {
		kind = frame.Binary
	}
	err := c.permit.publish(c.rawRoom)
	if err == nil {
		_, err = c.srv.cfg.Hub.Publish(context.Background(), hub.PublishRequest{
			Message: frame.Message{Room: c.rawRoom, Kind: kind, Data: bytes.Clone(data)},
		})
	}
	if err != nil {
		c.srv.rejectPublish(hub.CodeOf(err))
		c.end(causeOfRefusal(err))
	}
}

// causeOfRefusal ends a connection that cannot be told of a refusal otherwise.
func causeOfRefusal(err error) Cause {
	switch hub.CodeOf(err) {
	case hub.Unauthorized:
		return causeUnauthorized
	case hub.Forbidden:
		return causeForbidden
	case hub.Draining:
		return causeDrain
	case hub.Overflow, hub.OverCapacity, hub.TooManyRooms:
		return causeOverCapacity
	}
	return causeError
}
