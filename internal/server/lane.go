package server

import "hubd/internal/frame"

// The lane's bounds: a client that has this many answers coming and reads none
// of them is asking for memory.
const (
	laneAnswers = 1024
	laneBytes   = 256 << 10
)

// lane holds a connection's control answers, encoded, until the writer takes
// them. It is guarded by conn.mu.
type lane struct {
	buf     []byte
	answers int
	// pong answers the latest ping; earlier ones need no answer of their own
	// (RFC 6455, section 5.5.3), so a flood of pings takes no memory.
	pong []byte
	// pings: a ping of our own is in buf.
	pings bool
}

// push adds an answer, or reports false where the lane is full.
func (l *lane) push(encoded []byte) bool {
	if l.answers >= laneAnswers || len(l.buf)+len(encoded) > laneBytes {
		return false
	}
	l.answers++
	l.buf = append(l.buf, encoded...)
	return true
}

// ping adds a ping frame of our own.
func (l *lane) ping() {
	l.buf = frame.Append(l.buf, frame.OpPing, nil)
	l.pings = true
}

// take empties the lane.
func (l *lane) take() (encoded []byte, pings bool) {
	encoded, pings = l.buf, l.pings
	if l.pong != nil {
		encoded = append(encoded, l.pong...)
	}
	*l = lane{}
	return encoded, pings
}
