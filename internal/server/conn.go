package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"hubd/internal/frame"
	"hubd/internal/hub"
)

// conn is one connection of a subscriber. It owns a reader, which lives as long as
// the connection; a writer, which lives only while there is something to write
// (pump.go); the control lane; the socket; and a timer each for pings and for
// the close.
//
// It ends once: end sets the cause and starts the close timeout, the writer
// sees the cause when its write in progress is over, and finishes. Whatever the
// peer does, the close timeout destroys the socket, which frees every write and
// read that is stuck in it.
type conn struct {
	// immutable
	srv      *Server
	id       string
	ws       *websocket.Conn // nil for an event stream
	pipe     *pipe
	dialect  dialect
	deflate  bool       // permessage-deflate was negotiated
	rawRoom  frame.Room // the one room of a raw connection
	encoding frame.Encoding
	remote   string
	since    time.Time
	// readerDone is closed when the reader has returned; readErr is set before.
	readerDone chan struct{}
	readErr    error
	// answered is closed when all answers have been written that ever will be.
	// The library answers a close frame by itself, on the reader; it waits for
	// this, within the close timeout, or its close frame would overtake them.
	answered chan struct{}

	// writing is the state of the writer: writerIdle and so on.
	writing atomic.Int32

	// mu guards what reader, writer and timers share. Only slices and maps are
	// touched under it.
	mu    sync.Mutex
	cause Cause
	lane  lane
	// members is replaced, never changed: the writer reads it without mu.
	members  []*member
	joins    int // made so far, for the subscriptions' ids
	closeDue *time.Timer
	expiry   *time.Timer // for the token; nil in open mode
	ping     pinger
	overdue  bool          // the close timeout has destroyed the socket
	eviction *hub.Eviction // what the queue looked like whose overflow ended this

	// owned by the reader, and by start before that runs
	permit permit

	// owned by the writer
	next int // the member whose turn it is

	// owned by the reader
	limit int64 // of a message
}

// member is one room of a connection.
type member struct {
	sub  *hub.Subscription
	gaps bool // tell this subscriber what it missed

	// last is the sequence of the frame sent last, or the position of joining;
	// owned by the writer.
	last uint64
}

// end decides that the connection ends, and why. The first cause stands; it
// returns that. It returns at once and may be called from anywhere.
func (c *conn) end(cause Cause) Cause {
	c.mu.Lock()
	if c.cause == causeNone {
		c.cause = cause
		c.closeDue = time.AfterFunc(c.srv.cfg.CloseTimeout, c.destroy)
	}
	cause = c.cause
	c.mu.Unlock()
	c.Wake()
	return cause
}

// closedByClient is told of the client's close frame, which the library is about
// to answer. It returns the answer, once all answers to requests are out.
func (c *conn) closedByClient(code websocket.StatusCode) (websocket.StatusCode, string) {
	first := c.end(causeClient)
	<-c.answered
	row := closeTable[first]
	if first == causeClient {
		return code, row.text // its code comes back to it
	}
	return row.code, row.text
}

// destroy is the close timeout.
func (c *conn) destroy() {
	c.mu.Lock()
	c.overdue = true
	c.mu.Unlock()
	_ = c.pipe.destroy() // it may be closed already
}

// isOverdue reports whether the close timeout has destroyed the socket.
func (c *conn) isOverdue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overdue
}

// Evicted implements hub.Owner.
func (c *conn) Evicted(e hub.Eviction) {
	c.mu.Lock()
	if c.cause == causeNone {
		c.eviction = &e
	}
	c.mu.Unlock()
	c.end(causeSlowConsumer)
}

// logEviction is left to the writer's end: the publisher has no time for it.
func (c *conn) logEviction() {
	c.mu.Lock()
	e := c.eviction
	c.mu.Unlock()
	if e == nil {
		return
	}
	sub := e.Subscription
	c.srv.cfg.Logger.Warn("slow consumer", "conn", c.id, "remote", c.remote, "subscriber", sub.ID(), "room", sub.Room().String(),
		"policy", sub.Policy().String(), "queued_messages", e.Depth.Messages, "queued_bytes", e.Depth.Bytes, "oldest", e.Oldest)
}

// ended returns the cause, or causeNone while the connection goes on.
func (c *conn) ended() Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// answer puts a control answer into the lane.
func (c *conn) answer(payload []byte) {
	encoded := frame.Append(nil, frame.OpText, payload)
	c.mu.Lock()
	ok := c.lane.push(encoded)
	c.mu.Unlock()
	c.sendLane(ok)
}

// sendLane wakes the writer for the lane, or gives up on a client that asks and
// does not read.
func (c *conn) sendLane(ok bool) {
	if !ok {
		c.end(causeSlowConsumer)
		return
	}
	c.Wake()
}

// join joins a room, or answers and returns why not. The answer enters the lane
// in the same step in which the writer gets to know of the subscription, so it
// is the room's first frame.
func (c *conn) join(cmd joinCommand) error {
	c.mu.Lock()
	err := c.permit.join(cmd.Room)
	if err == nil {
		err = c.mayJoinLocked(cmd.Room)
	}
	c.joins++
	id := c.id + "-" + strconv.Itoa(c.joins)
	c.mu.Unlock()
	var sub *hub.Subscription
	if err == nil {
		sub, err = c.srv.cfg.Hub.Join(hub.JoinRequest{Room: cmd.Room, Options: cmd.Options, After: cmd.After, Owner: c, ID: id})
	}
	if err != nil {
		c.refuse(cmd.ID, err)
		return err
	}
	c.mu.Lock()
	live, ok := c.cause == causeNone, true
	if live {
		c.members = append(slices.Clone(c.members), &member{sub: sub, gaps: cmd.Gaps, last: sub.Start()})
		if answer := c.dialect.joined(cmd, sub); answer != nil {
			ok = c.lane.push(answer)
		}
	}
	c.mu.Unlock()
	if !live {
		sub.Leave() // the connection ended meanwhile; nobody else knows of sub
		return nil
	}
	c.sendLane(ok)
	return nil
}

// mayJoinLocked returns nil, or why the room may not be joined. Only the reader
// joins, so what it finds still holds when the join is made.
func (c *conn) mayJoinLocked(room frame.Room) error {
	if c.memberLocked(room) != nil {
		return &hub.Error{Code: hub.AlreadyJoined, Detail: "this connection is in that room already"}
	}
	if limit := c.srv.cfg.MaxRoomsPerConnection; len(c.members) >= limit {
		return &hub.Error{Code: hub.TooManyRooms, Detail: "a connection is in at most " + strconv.Itoa(limit) + " rooms"}
	}
	return nil
}

func (c *conn) memberLocked(room frame.Room) *member {
	for _, m := range c.members {
		if m.sub.Room() == room {
			return m
		}
	}
	return nil
}

// leave leaves a room. Frames taken before are on their way ahead of the
// answer; none comes after it.
func (c *conn) leave(id requestID, room frame.Room) {
	c.mu.Lock()
	m := c.memberLocked(room)
	c.mu.Unlock()
	if m == nil {
		c.refuse(id, &hub.Error{Code: hub.NotJoined, Detail: "this connection is not in that room"})
		return
	}
	c.leaveMember(id, m)
}

// leaveMember leaves a room and says so; without an id it is a notice.
func (c *conn) leaveMember(id requestID, m *member) {
	m.sub.Leave()
	c.mu.Lock()
	c.members = slices.DeleteFunc(slices.Clone(c.members), func(o *member) bool { return o == m })
	ok := c.lane.push(frame.Append(nil, frame.OpText, leftAnswer(id, m.sub.Room())))
	c.mu.Unlock()
	c.sendLane(ok)
}

// finish closes the connection. It runs on the writer, last of all.
func (c *conn) finish(cause Cause) {
	c.stopPing()
	c.stopExpiry()
	c.logEviction()
	for _, m := range c.memberships() {
		m.sub.Leave()
	}
	c.flushLane()
	close(c.answered)
	row := closeTable[cause]
	clean := c.goodbye(row)
	c.closeDue.Stop()
	_ = c.pipe.destroy() // it may be closed already
	outcome := outcomeReset
	switch {
	case clean:
		outcome = outcomeClean
	case c.isOverdue():
		outcome = outcomeDeadline
	}
	c.srv.closed(c, row, outcome)
}

// goodbye says why, and waits for the client's end of it: the close handshake,
// or the end of an event stream, which has no word for the reason. The close
// timeout ends the wait. It reports whether both sides were heard.
func (c *conn) goodbye(row closing) (clean bool) {
	if c.ws == nil {
		c.pipe.closeWrite()
		<-c.readerDone
		return errors.Is(c.readErr, io.EOF)
	}
	c.pipe.verdict.Store(&row)
	err := c.ws.Close(row.code, row.text)
	// To the library, a socket that is destroyed in the midst of its handshake
	// is one that is closed, as wanted.
	shaken := err == nil && !c.isOverdue()
	<-c.readerDone
	ended := c.pipe.linger()
	if shaken || websocket.CloseStatus(err) != -1 || websocket.CloseStatus(c.readErr) != -1 {
		return true
	}
	// After a bad frame nobody knows where the next one begins, the client's
	// close frame included; it may have closed its end all the same.
	return ended && causeOfReadError(c.readErr) != causeClient
}

// memberships returns the members of now.
func (c *conn) memberships() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members
}

// refuse answers a request with an error.
func (c *conn) refuse(id requestID, err error) {
	if c.dialect == dialectJSON {
		c.answer(errorAnswer(id, err))
	}
	var e *hub.Error
	if !errors.As(err, &e) {
		c.srv.cfg.Logger.ErrorContext(context.Background(), "request failed", "conn", c.id, "error", err)
	}
}
