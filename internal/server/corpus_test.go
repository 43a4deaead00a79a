package server_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// The corpus is what RFC 6455 and RFC 7692 say about a client's bytes, case by
// case, and what the server must make of them: what is published, and how the
// connection ends. Each case is run in both dialects, over a network in memory
// in fake time, where a hang is a deadlock that is found and a wait is seen on
// the clock; its bytes are read whole, one by one and in random pieces, behind
// the handshake and glued to it; and once over a real socket.

var corpusSplits = flag.Int("corpus.splits", 2, "random splits of each case of the corpus")

// tongue is a dialect as a client speaks it, in a room.
type tongue struct {
	json bool
	room string
}

func (g tongue) String() string {
	if g.json {
		return "json"
	}
	return "raw"
}

// chunk is a part of what a client sends.
type chunk func(tongue) []byte

// protoCase is one conversation. What the client sends ends with a close frame
// of 1000 unless want says how the connection ends.
type protoCase struct {
	section string // of RFC 6455, or "7692 " and the section of RFC 7692
	name    string
	send    []chunk
	// want lists what is published, as texts and binaries; the pongs, of which
	// earlier ones may be missing; the refusals that only JSON has; and how the
	// connection ends: echo, fails, after or hangUp.
	want []any
	only string // the dialect, where it makes sense in one only
}

func says(chunks ...any) (all []chunk) {
	for _, c := range chunks {
		switch c := c.(type) {
		case chunk:
			all = append(all, c)
		case []chunk:
			all = append(all, c...)
		default:
			panic(fmt.Sprintf("%T is nothing to send", c))
		}
	}
	return all
}

func gets(what ...any) []any { return what }

// What may be wanted, beside string and []byte.
type (
	// ofSize is the text of sized.
	ofSize int
	pong   string
	// refusal is the code of an error frame.
	refusal string
	// echo is the code with which the server answers the client's close.
	echo int
	// fails is the code with which the server fails the connection.
	fails int
	// after is fails, once so much time has passed.
	after struct {
		wait time.Duration
		code int
	}
	// hangUp: the client ends the stream without a close frame.
	hangUp struct{}
)

// delivery is how the client's bytes reach the server.
type delivery struct {
	name  string
	glued bool // frames are sent behind the handshake, without waiting for its answer
	next  func() int
}

func deliveries(seed uint64) []delivery {
	all := []delivery{{name: "whole"}, {name: "glued", glued: true}, {name: "bytes", next: func() int { return 1 }}}
	for i := range *corpusSplits {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all = append(all, delivery{fmt.Sprintf("split %d", i), i%2 == 0, func() int { return 1 + r.IntN(1<<r.IntN(11)) }})
	}
	return all
}

// pieces is a network whose server reads what comes in pieces.
type pieces struct {
	*memNet
	next func() int
}

func (p *pieces) Accept() (net.Conn, error) {
	c, err := p.memNet.Accept()
	if err != nil {
		return nil, err
	}
	return &pieceConn{c.(*memConn), p.next, 0}, nil
}

type pieceConn struct {
	*memConn
	next func() int // nil: whole
	read int
}

// CloseWrite ends what this end sends, as TCP can.
func (c *pieceConn) CloseWrite() error {
	c.out.set(func(h *half) { h.ended = true })
	return nil
}

// Read hands out small pieces. Far into a long message they grow: there is
// nothing left to find by reading it in bytes.
func (c *pieceConn) Read(b []byte) (int, error) {
	n := len(b)
	if c.next != nil {
		n = c.next()
	}
	if c.read > 1<<10 {
		n *= 128
	}
	got, err := c.memConn.Read(b[:min(n, len(b))])
	c.read += got
	return got, err
}

func runCorpus(t *testing.T, cases []protoCase, sc server.Config, lines ...string) {
	t.Helper()
	t.Run("socket", func(t *testing.T) {
		n := &talker{node: start(t, hub.Config{}, sc)}
		for i, c := range cases {
			if slices.ContainsFunc(c.want, func(w any) bool { _, slow := w.(after); return slow }) {
				continue // in fake time only
			}
			for _, g := range c.tongues() {
				g.room = fmt.Sprintf("%v%d", g, i)
				n.converse(t, c, g, delivery{name: "socket"}, lines)
			}
		}
		n.compareTallies(t)
	})
	for i, c := range cases {
		t.Run(c.section+" "+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := &pieces{memNet: newMemNet(4 << 20)}
				t.Cleanup(func() { time.Sleep(time.Second) }) // as in startFake
				n := &talker{node: startOn(t, hub.Config{}, sc, net, net.dial)}
				n.patience = 0
				for k, d := range deliveries(uint64(i)) {
					net.next = d.next
					for _, g := range c.tongues() {
						g.room = fmt.Sprintf("%v%d", g, k)
						n.converse(t, c, g, d, lines)
					}
				}
				n.compareTallies(t)
			})
		})
	}
}

// tongues are the dialects in which the case makes sense.
func (c protoCase) tongues() (all []tongue) {
	for _, g := range []tongue{{json: false}, {json: true}} {
		if c.only == "" || c.only == g.String() {
			all = append(all, g)
		}
	}
	return all
}
