package server

import (
	"math/rand/v2"
	"time"

	"hubd/internal/frame"
)

// pinger keeps a connection's pings. It is guarded by conn.mu.
type pinger struct {
	timer *time.Timer
	// waiting: a ping is in the lane or on the wire, unanswered.
	waiting bool
	// onWire: it has been written; then written is what the pipe had written.
	onWire  bool
	written int64
}

// jitter returns a time between three quarters of d and d: clients that came
// together are not pinged together.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

func (c *conn) startPing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ping.timer = time.AfterFunc(jitter(c.pingInterval()), c.pingDue)
}

func (c *conn) pingInterval() time.Duration {
	if c.dialect == dialectEvents {
		return min(c.srv.cfg.PingInterval, eventsKeepAlive)
	}
	return c.srv.cfg.PingInterval
}

func (c *conn) stopPing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ping.timer.Stop()
}

// pingDue is the timer: time for a ping, or too late for a pong. A subscriber
// that reads slowly finds the ping behind the data, so as long as it takes data
// the pong may be late; a quiet or a stuck one has no such excuse.
func (c *conn) pingDue() {
	c.mu.Lock()
	dead := false
	switch written := c.pipe.written.Load(); {
	case c.cause != causeNone:
	case c.dialect == dialectEvents:
		c.lane.push(keepAliveComment) // a full lane is no silence
		c.ping.timer.Reset(jitter(c.pingInterval()))
	case !c.ping.waiting:
		c.ping.waiting = true
		c.lane.ping()
	case !c.ping.onWire: // pinged will set the timer again
	case written != c.ping.written:
		c.ping.written = written
		c.ping.timer.Reset(c.srv.cfg.PongTimeout)
	default:
		dead = true
	}
	c.mu.Unlock()
	if dead {
		c.end(causePingTimeout)
	}
	c.Wake()
}

// pinged is called by the writer when the ping has been written.
func (c *conn) pinged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ping.waiting && c.cause == causeNone {
		c.ping.onWire, c.ping.written = true, c.pipe.written.Load()
		c.ping.timer.Reset(c.srv.cfg.PongTimeout)
	}
}

// pong is called when a pong has come.
func (c *conn) pong() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ping.waiting && c.cause == causeNone {
		c.ping.waiting, c.ping.onWire = false, false
		c.ping.timer.Reset(jitter(c.pingInterval()))
	}
}

// pingedBy answers the client's ping. The payload is the library's: it is
// copied.
func (c *conn) pingedBy(payload []byte) {
	c.mu.Lock()
	c.lane.pong = frame.Append(nil, frame.OpPong, payload)
	c.mu.Unlock()
	c.Wake()
}
