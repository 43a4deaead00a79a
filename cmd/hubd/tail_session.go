package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	subprotocol = "hubd.v1.json"
	dialTimeout = 10 * time.Second
	// quiet is how long a connection may bring nothing before it is asked for a
	// sign of life, which must come within signOfLife.
	quiet      = 30 * time.Second
	signOfLife = 15 * time.Second
	// farewell is how long our close frame may wait for the server's.
	farewell = time.Second
	// maxFrame bounds one frame of the server's.
	maxFrame = 256 << 20
)

// serverFrame is a frame from the server, of any type.
type serverFrame struct {
	Type     string          `json:"type"`
	ID       int             `json:"id"`
	Room     string          `json:"room"`
	Epoch    string          `json:"epoch"`
	Seq      uint64          `json:"seq"`
	Policy   string          `json:"policy"`
	Queue    queueLimits     `json:"queue"`
	Resumed  *bool           `json:"resumed"`
	Replayed int             `json:"replayed"`
	Snapshot int             `json:"snapshot"`
	Data     json.RawMessage `json:"data"`
	Text     *string         `json:"text"`
	Base64   *string         `json:"base64"`
	After    uint64          `json:"after"`
	Before   uint64          `json:"before"`
	Lost     uint64          `json:"lost"`
	Reason   string          `json:"reason"`
	Code     string          `json:"code"`
	Message  string          `json:"message"`
}

type queueLimits struct {
	Messages int `json:"messages"`
	Bytes    int `json:"bytes"`
}

// join is the command that follows a room.
type join struct {
	Type          string `json:"type"`
	ID            int    `json:"id"`
	Room          string `json:"room"`
	Policy        string `json:"policy,omitempty"`
	QueueMessages int    `json:"queue_messages,omitempty"`
	QueueBytes    int    `json:"queue_bytes,omitempty"`
	After         string `json:"after,omitempty"`
}

// joinError is the server's refusal of a command.
type joinError struct{ room, code, message string }

func (e *joinError) Error() string {
	return fmt.Sprintf("join %s: refused (%s): %s", printable(e.room), printable(e.code), printable(e.message))
}

// passing tells whether the same join may succeed later.
func (e *joinError) passing() bool {
	switch e.code {
	case "draining", "over_capacity", "rate_limited", "broker_unavailable":
		return true
	}
	return false
}

// session is one connection of a follower. All but watch and the goodbye runs
// on the caller's goroutine.
type session struct {
	follower *follower
	conn     *websocket.Conn
	raw      *measuredConn // below conn
	joined   int           // rooms joined over this connection
}

// run connects, joins and prints until the connection ends, with the reason,
// or until ctx ends or enough messages have come, with nil.
func (s *session) run(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.conn.CloseNow()

	var helpers sync.WaitGroup
	defer helpers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	helpers.Go(func() { s.watch(ctx) })
	helpers.Go(func() {
		<-ctx.Done()
		s.goodbye()
	})

	if err := s.join(ctx); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	for {
		_, text, err := s.conn.Read(context.WithoutCancel(ctx))
		if err != nil {
			return s.lost(err)
		}
		if done, err := s.receive(text); done || err != nil {
			return err
		}
	}
}

func (s *session) connect(ctx context.Context) error {
	f := s.follower
	header := make(http.Header)
	f.command.authorize(header)
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := f.dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			s.raw = newMeasuredConn(conn, f.command.Slow)
			return s.raw, nil
		},
	}
	conn, response, err := websocket.Dial(ctx, f.endpoint(), &websocket.DialOptions{ //nolint:bodyclose // the library reads and closes it
		HTTPClient:   &http.Client{Transport: transport, Timeout: dialTimeout},
		HTTPHeader:   header,
		Subprotocols: []string{subprotocol},
	})
	switch {
	case err != nil && response != nil && response.StatusCode != http.StatusSwitchingProtocols:
		return fmt.Errorf("not connected: %w", refusalOf(response))
	case err != nil:
		return unreachable(f.server, err)
	case conn.Subprotocol() != subprotocol:
		_ = conn.CloseNow()
		return fmt.Errorf("%s does not speak %s; is it a hubd?", f.server.Redacted(), subprotocol)
	}
	conn.SetReadLimit(maxFrame)
	s.conn = conn
	s.raw.pace()
	return nil
}

// join asks for every room, behind the last position known of it.
func (s *session) join(ctx context.Context) error {
	c := s.follower.command
	for i, room := range c.Rooms {
		command, err := json.Marshal(join{
			Type:          "join",
			ID:            i + 1,
			Room:          room,
			Policy:        string(c.Policy),
			QueueMessages: int(c.QueueMessages),
			QueueBytes:    int(c.QueueBytes),
			After:         s.follower.printer.position(room),
		})
		if err != nil {
			return err
		}
		if err := s.conn.Write(ctx, websocket.MessageText, command); err != nil {
			return err
		}
	}
	return nil
}

// receive handles one frame. It reports whether enough messages have come.
func (s *session) receive(text []byte) (done bool, err error) {
	f := s.follower
	var frame serverFrame
	if err := json.Unmarshal(text, &frame); err != nil {
		return false, fmt.Errorf("a frame is not of the protocol %s: %w", subprotocol, err)
	}
	if frame.Type == "error" {
		rejected := &joinError{code: frame.Code, message: frame.Message, room: "?"}
		if i := frame.ID - 1; i >= 0 && i < len(f.command.Rooms) {
			rejected.room = f.command.Rooms[i]
		}
		return false, rejected
	}
	if err := f.printer.print(&frame, text); err != nil {
		return false, &outputError{err}
	}
	switch frame.Type {
	case "joined":
		s.joined++
		f.notice("joined %s at %d (%s, queue of %d messages and %s)", printable(frame.Room), frame.Seq,
			printable(frame.Policy), frame.Queue.Messages, formatSize(frame.Queue.Bytes))
	case "left":
		f.notice("the server ended following %s", printable(frame.Room))
	}
	return f.command.Count > 0 && f.printer.messages >= int(f.command.Count), nil
}

// lost words the end of a connection.
func (s *session) lost(err error) error {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		return &closedError{closed}
	case errors.Is(err, io.EOF):
		return errors.New("connection lost")
	}
	return fmt.Errorf("connection lost: %w", err)
}

// closedError is the server's close frame.
type closedError struct{ websocket.CloseError }

func (e *closedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed by the server: %d", e.Code)
	}
	return fmt.Sprintf("closed by the server: %d %s", e.Code, printable(e.Reason))
}

func (e *closedError) Unwrap() error { return e.CloseError }

// outputError is a failure to print.
type outputError struct{ err error }

func (e *outputError) Error() string { return fmt.Sprintf("print: %v", e.err) }
func (e *outputError) Unwrap() error { return e.err }

// watch ends a connection whose other end has vanished without a word, which
// shows by nothing coming any more, not even an answer.
func (s *session) watch(ctx context.Context) {
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	for before := s.raw.total(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if now := s.raw.total(); now != before {
			before = now
			continue
		}
		ping, cancel := context.WithTimeout(ctx, signOfLife)
		err := s.conn.Ping(ping)
		cancel()
		if err != nil && ctx.Err() == nil {
			_ = s.raw.Close()
			return
		}
	}
}

// goodbye closes the connection in an orderly way, within the time for it.
func (s *session) goodbye() {
	cut := time.AfterFunc(farewell, func() { _ = s.raw.Close() })
	defer cut.Stop()
	_ = s.conn.Close(websocket.StatusNormalClosure, "")
}
