package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// member is the life of one random subscriber.
func (r *churnRun) member(ctx context.Context, rng *rand.Rand) error {
	m := churnMember{rng: rng, reads: rng.IntN(4) != 0, pongs: rng.IntN(8) != 0}
	o := dialOptions{addr: r.server.addr, path: "/rooms/" + churnRoom(rng) + "?gaps=on"}
	if rng.IntN(2) == 0 {
		o.path += "&policy=" + churnPolicies[rng.IntN(len(churnPolicies))]
	}
	if rng.IntN(4) == 0 {
		o.path += fmt.Sprintf("&queue_messages=%d&queue_bytes=%d", 1+rng.IntN(8), 1+rng.IntN(2*churnMaxMessage))
	}
	switch rng.IntN(8) {
	case 0, 1:
		o.json, o.path = true, "/ws"
	case 2, 3:
		o.json = true
	case 4:
		o.sse = true
	}
	if !m.reads || rng.IntN(4) == 0 {
		o.receiveBuffer = stuckReceiveBuffer
	}
	if o.path != "/ws" && rng.IntN(3) == 0 {
		after, err := r.somePosition(ctx, o.path, rng)
		if err != nil {
			return err
		}
		o.path += "&after=" + url.QueryEscape(after)
		r.resumed.Add(1)
	}
	conn, leftover, err := dial(ctx, o)
	if err != nil {
		return err
	}
	r.joined.Add(1)
	m.conn, m.json, m.sse = conn, o.json, o.sse
	// Whatever happens on the connection is part of the game: being evicted,
	// kicked or timed out ends it early.
	m.live(ctx, leftover)
	return m.end()
}

// somePosition returns a position of the room to resume from, or, if there is
// no such room now, one of another epoch.
func (r *churnRun) somePosition(ctx context.Context, path string, rng *rand.Rand) (string, error) {
	path, _, _ = strings.Cut(path, "?")
	answer, err := r.server.get(ctx, path)
	if err != nil {
		return "", err
	}
	var room struct {
		Epoch string
		Seq   uint64
	}
	if err := json.Unmarshal(answer, &room); err != nil {
		return "", fmt.Errorf("description of a room: %w", err)
	}
	if room.Epoch == "" {
		room.Epoch = "gone"
	}
	return fmt.Sprintf("%s:%d", room.Epoch, room.Seq-min(room.Seq, rng.Uint64N(60))), nil
}

// churnMember is one connection.
type churnMember struct {
	// immutable
	rng   *rand.Rand
	conn  *net.TCPConn
	json  bool
	sse   bool // nothing can be sent, and what comes is not looked at
	reads bool
	pongs bool

	dec  decoder
	dead bool
}

// live spends some time in the room: a few stretches of reading or of doing
// nothing, and between them things that clients do.
func (m *churnMember) live(ctx context.Context, leftover []byte) {
	m.feed(leftover)
	// Some outlast the write timeout.
	stretch := time.Duration(1+m.rng.IntN(200)) * time.Millisecond
	if m.rng.IntN(8) == 0 {
		stretch = 800 * time.Millisecond
	}
	for range 1 + m.rng.IntN(4) {
		if m.dead || ctx.Err() != nil {
			return
		}
		m.act()
		if m.reads {
			m.read(ctx, stretch)
		} else if pause(ctx, stretch) != nil {
			return
		}
	}
}

// read reads for so long; one in four slowly.
func (m *churnMember) read(ctx context.Context, d time.Duration) {
	until := time.Now().Add(d)
	size, wait := 64<<10, time.Duration(0)
	if m.rng.IntN(4) == 0 {
		size, wait = 512, 2*time.Millisecond
	}
	buffer := make([]byte, size)
	for !m.dead && time.Now().Before(until) {
		if m.conn.SetReadDeadline(until) != nil {
			m.dead = true
			return
		}
		n, err := m.conn.Read(buffer)
		m.feed(buffer[:n])
		if err != nil {
			m.dead = m.dead || !errors.Is(err, os.ErrDeadlineExceeded)
			return
		}
		if wait > 0 && pause(ctx, wait) != nil {
			return
		}
	}
}

func (m *churnMember) feed(b []byte) {
	if m.sse {
		return
	}
	err := m.dec.feed(b, func(fr frame) {
		switch fr.op {
		case opPing:
			if m.pongs {
				m.send(opPong, fr.lead)
			}
		case opClose:
			m.send(opClose, fr.lead)
			m.dead = true
		}
	})
	m.dead = m.dead || err != nil
}

func (m *churnMember) send(op byte, payload []byte) {
	// A stuck server side must not hold the run up.
	err := m.conn.SetWriteDeadline(time.Now().Add(time.Second))
	if err == nil {
		_, err = m.conn.Write(appendFrame(nil, op, payload))
	}
	m.dead = m.dead || err != nil
}

// act sends something: a message on a raw connection, a command on a JSON one.
func (m *churnMember) act() {
	switch n := m.rng.IntN(8); {
	case m.sse:
	case n == 0:
		m.send(opPing, []byte("hello"))
	case !m.json && n < 3:
		m.send(opBinary, make([]byte, m.rng.IntN(churnMaxMessage+1)))
	case m.json && n < 4:
		m.command(`{"type":"join","id":1,"room":%q,"policy":%q}`, churnRoom(m.rng), churnPolicies[m.rng.IntN(len(churnPolicies))])
	case m.json && n < 5:
		m.command(`{"type":"leave","id":2,"room":%q}`, churnRoom(m.rng))
	case m.json && n < 6:
		m.command(`{"type":"publish","id":3,"room":%q,"text":"churn","key":"k"}`, churnRoom(m.rng))
	}
}

func (m *churnMember) command(format string, args ...any) {
	m.send(opText, fmt.Appendf(nil, format, args...))
}

// end ends the connection in one of the ways that clients have.
func (m *churnMember) end() error {
	way := m.rng.IntN(5)
	if m.sse {
		way = 1 + way%2*2
	}
	switch way {
	case 0: // as the protocol has it
		m.send(opClose, []byte{0x03, 0xe8})
	case 1: // nothing more to say, and still there for a moment
		_ = m.conn.CloseWrite() // it may be gone
	case 2: // against the protocol: a frame that is not masked
		_, _ = m.conn.Write([]byte{0x81, 0x00}) // it may be gone
	case 3: // the network is gone
		_ = m.conn.SetLinger(0) // it may be gone
	}
	return m.conn.Close()
}
