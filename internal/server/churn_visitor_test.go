package server_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// errEnded is how a visit ends that the server has ended: the visitor was
// kicked, too slow or timed out, all of which happen here.
var errEnded = errors.New("the connection has ended")

// visitor is one connection in the churn.
type visitor struct {
	*churn
	wire      *wire
	rng       *rand.Rand
	kind      string
	room      string // of the URL
	rooms     map[string]*seen
	left      map[string]string // where it was when it left
	after     string            // of the join under way
	publisher int
	requests  int
}

// seen is what a visitor knows of a room that it is in.
type seen struct {
	epoch string
	last  uint64
	told  int    // lost after last, as told already
	next  uint64 // what the latest gap said comes next; 0: nothing
	exact bool   // what is missing and not told was lost without a word
	order map[int]int
}

// visit comes and goes until all is over.
func (c *churn) visit(rng *rand.Rand) {
	for !c.isOver() {
		c.visits.Add(1)
		v := &visitor{churn: c, rng: rng, rooms: map[string]*seen{}, left: map[string]string{}, publisher: 1000 + rng.IntN(1<<30),
			kind: []string{asRaw, asJSON, asJSON, asEvents}[rng.IntN(4)]}
		path := "/ws"
		if v.kind != asJSON || rng.IntN(2) == 0 {
			v.room = c.anyRoom(rng)
			query := url.Values{}
			for name, value := range v.options() {
				query.Set(name, fmt.Sprint(value))
			}
			path = "/rooms/" + v.room + "?" + query.Encode()
		}
		w, err := c.tryNarrow(path, v.kind)
		var broken *net.OpError
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken) {
			continue // cut off at once, before it could be answered
		}
		if err != nil {
			c.t.Errorf("%s: %v", path, err)
			return
		}
		v.wire = w
		// Who is cut off with half a frame on the way sees just that.
		if err := v.stay(); err != nil && !errors.Is(err, errEnded) && !errors.Is(err, io.ErrUnexpectedEOF) {
			c.t.Errorf("%s %s: %v", path, v.kind, err)
		}
		v.leave()
	}
}

// options asks for something or nothing.
func (v *visitor) options() map[string]any {
	o := map[string]any{}
	if v.rng.IntN(2) == 0 {
		o["policy"] = queue.PolicyNames()[v.rng.IntN(int(queue.RejectPublish))]
	}
	if v.rng.IntN(2) == 0 {
		o["queue_messages"] = 1 + v.rng.IntN(20)
	}
	if v.rng.IntN(4) == 0 {
		o["queue_bytes"] = 1 + v.rng.IntN(8000)
	}
	return o
}

// stay is the visitor's time on the connection: it reads as fast as it can,
// slowly, or not at all.
func (v *visitor) stay() error {
	pace := v.rng.IntN(4)
	switch {
	case pace == 0: // stuck
		if v.kind == asJSON {
			_, _ = v.send("join", map[string]any{"room": v.anyRoom(v.rng)})
		}
		v.wait(v.rng.IntN(20))
		return nil
	case v.kind == asEvents:
		return v.follow()
	}
	for range 1 + v.rng.IntN(12) {
		var err error
		if v.kind == asRaw {
			err = v.exchange()
		} else {
			err = v.request()
		}
		if err != nil || v.isOver() {
			return err
		}
		if pace == 1 {
			v.wait(1 + v.rng.IntN(3))
		}
	}
	return nil
}

// leave ends the connection in one way or another.
func (v *visitor) leave() {
	switch v.rng.IntN(4) {
	case 0:
		v.wire.abort()
	case 1:
		_ = v.wire.tryWrite(sent{op: opClose, payload: closePayload(1000, "")}.bytes()) // it may have ended
	case 2:
		_ = v.wire.tryWrite([]byte{0x81, 0xfe, 0x10}) // the beginning of a header
	}
	v.wire.conn.Close()
}

// follow reads an event stream while others publish.
func (v *visitor) follow() error {
	read := make(chan error, 1)
	go func() { read <- v.events() }()
	v.wait(1 + v.rng.IntN(20))
	v.wire.conn.Close()
	return <-read
}

// events reads an event stream until it breaks, and checks that positions rise.
func (v *visitor) events() error {
	var last frame.Position
	for {
		line, err := v.wire.br.ReadString('\n')
		if err != nil {
			return nil // what is left of a line that was cut is none
		}
		id, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "id: ")
		if !found {
			continue
		}
		p, err := frame.ParsePosition(id)
		if err != nil || last.Epoch != "" && (p.Epoch != last.Epoch || p.Seq <= last.Seq) {
			return fmt.Errorf("id %s after %v", id, last)
		}
		last = p
		v.read.Add(1)
	}
}

// exchange is a raw client's look at what there is: a ping, and what comes
// before its pong.
func (v *visitor) exchange() error {
	s := v.rooms[v.room]
	if s == nil {
		s = &seen{order: map[int]int{}}
		v.rooms[v.room] = s
	}
	v.requests++
	if v.rng.IntN(4) == 0 {
		_ = v.wire.tryWrite(sent{op: opBinary, payload: []byte(body(v.rng, v.publisher, v.requests))}.bytes()) // the ping will tell
	}
	if err := v.wire.tryWrite(sent{op: opPing, payload: []byte(strconv.Itoa(v.requests))}.bytes()); err != nil {
		return errEnded
	}
	for {
		op, payload, err := v.wire.tryFrame()
		switch {
		case err != nil || op == opClose:
			return errEnded
		case op == opPong && string(payload) == strconv.Itoa(v.requests):
			return nil
		case op == opPong:
			return fmt.Errorf("a pong with %q", payload)
		case op == opPing:
			if v.wire.tryWrite(sent{op: opPong, payload: payload}.bytes()) != nil {
				return errEnded
			}
			continue
		}
		if err := s.inOrder(payload); err != nil {
			return err
		}
		v.read.Add(1)
	}
}

// inOrder checks that each publisher's messages come in its order.
func (s *seen) inOrder(payload []byte) error {
	var m struct{ P, K int }
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("message %.50q: %w", payload, err)
	}
	if before, ok := s.order[m.P]; ok && m.K <= before {
		return fmt.Errorf("message %d of publisher %d came after its %d", m.K, m.P, before)
	}
	s.order[m.P] = m.K
	return nil
}

// send sends a command, with an id that it returns.
func (v *visitor) send(kind string, fields map[string]any) (id uint64, err error) {
	v.requests++
	fields["type"], fields["id"] = kind, v.requests
	b, err := json.Marshal(fields)
	if err != nil {
		return 0, err
	}
	if v.wire.tryWrite(sent{op: opText, payload: b}.bytes()) != nil {
		return 0, errEnded
	}
	return uint64(v.requests), nil
}

// request sends a command of some kind and reads up to its answer.
func (v *visitor) request() error {
	room := v.anyRoom(v.rng)
	v.after = ""
	var id uint64
	var err error
	switch v.rng.IntN(6) {
	case 0, 1:
		id, err = v.send("ping", map[string]any{})
	case 2:
		id, err = v.send("publish", map[string]any{"room": room, "text": body(v.rng, v.publisher, v.requests)})
	case 3:
		for in := range v.rooms {
			room = in
		}
		id, err = v.send("leave", map[string]any{"room": room})
	default:
		fields := v.options()
		fields["room"] = room
		if at := v.left[room]; at != "" && v.rooms[room] == nil && v.rng.IntN(2) == 0 {
			v.after = at
			fields["after"] = at
		}
		id, err = v.send("join", fields)
	}
	if err != nil {
		return err
	}
	for {
		_, payload, err := v.wire.tryData()
		if err != nil {
			return errEnded
		}
		var f visitorFrame
		if err := json.Unmarshal(payload, &f); err != nil {
			return fmt.Errorf("frame %.100q: %w", payload, err)
		}
		if f.ID != nil && *f.ID != id {
			return fmt.Errorf("an answer to request %d while %d is under way: %.200s", *f.ID, id, payload)
		}
		if err := v.see(f); err != nil {
			return fmt.Errorf("frame %.200s: %w", payload, err)
		}
		if f.ID != nil {
			return nil
		}
	}
}

// visitorFrame is what a visitor reads of a frame in hubd.v1.json.
type visitorFrame struct {
	Type, Room, Epoch, Policy, Code string
	ID                              *uint64
	Seq, After, Before              uint64
	Lost                            int
	Resumed                         bool
	Data                            json.RawMessage
	Text, Base64                    *string
}

// see checks one frame against all that came before.
func (v *visitor) see(f visitorFrame) error {
	s := v.rooms[f.Room]
	switch f.Type {
	case "joined":
		if s != nil {
			return errors.New("it was joined already")
		}
		v.rooms[f.Room] = v.joinedAt(f)
		return nil
	case "pong", "published":
		return nil
	case "error":
		switch hub.Code(f.Code) {
		case hub.AlreadyJoined, hub.NotJoined, hub.Overflow:
			return nil
		}
		return errors.New("an error that nothing here deserves")
	}
	if s == nil {
		return errors.New("it is of a room that was not joined")
	}
	switch f.Type {
	case "left":
		v.left[f.Room] = frame.Position{Epoch: s.epoch, Seq: s.last}.String()
		delete(v.rooms, f.Room)
		return nil
	case "gap":
		v.lost.Add(int64(f.Lost))
		s.told += f.Lost
		s.next = f.Before
		if f.Lost < 1 || s.exact && f.After != s.last {
			return fmt.Errorf("a gap after %d", s.last)
		}
		return nil
	case "message":
		v.read.Add(1)
		return s.message(f)
	}
	return errors.New("a frame of no known type")
}

// joinedAt is what is known of a room on joining it.
func (v *visitor) joinedAt(f visitorFrame) *seen {
	s := &seen{epoch: f.Epoch, last: f.Seq, exact: true, order: map[int]int{}}
	switch {
	case f.Resumed:
		p, err := frame.ParsePosition(v.after)
		if err != nil || p.Epoch != f.Epoch || p.Seq > f.Seq {
			v.t.Errorf("resumed %q, and joined %+v", v.after, f)
		}
		s.last = p.Seq
	case f.Policy == queue.KeepLatest.String() && strings.HasPrefix(f.Room, f.Policy):
		s.last, s.exact = 0, false // the latest values come first
	}
	return s
}

// message checks a message's place.
func (s *seen) message(f visitorFrame) error {
	hole := int(f.Seq - s.last - 1)
	switch {
	case f.Seq <= s.last:
		return fmt.Errorf("it comes after %d", s.last)
	case s.next != 0 && f.Seq != s.next:
		return fmt.Errorf("the gap before said that %d comes next", s.next)
	case s.told > hole, s.exact && s.told != hole:
		return fmt.Errorf("it comes after %d and %d were told to be lost", s.last, s.told)
	}
	s.last, s.told, s.next = f.Seq, 0, 0
	switch {
	case f.Text != nil:
		return s.inOrder([]byte(*f.Text))
	case f.Base64 != nil:
		b, err := base64.StdEncoding.DecodeString(*f.Base64)
		if err != nil {
			return err
		}
		return s.inOrder(b)
	}
	return s.inOrder(f.Data)
}
