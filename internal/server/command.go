package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// requestID is the id of a client's request: a JSON integer, or "" for none.
type requestID string

// UnmarshalJSON takes integers that JavaScript holds exactly.
func (id *requestID) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil || n > frame.MaxSeq {
		return errors.New("an id is an integer from 0 to 2^53-1")
	}
	*id = requestID(b)
	return nil
}

// MarshalJSON writes the number.
func (id requestID) MarshalJSON() ([]byte, error) { return []byte(id), nil }

// command is one text message of a client in hubd.v1.json.
type command struct {
	Type          string          `json:"type"`
	ID            requestID       `json:"id"`
	Room          string          `json:"room"`
	Policy        string          `json:"policy"`
	QueueMessages *int            `json:"queue_messages"`
	QueueBytes    *int            `json:"queue_bytes"`
	After         *string         `json:"after"`
	Gaps          *bool           `json:"gaps"`
	Data          json.RawMessage `json:"data"`
	Text          json.RawMessage `json:"text"`
	Base64        *string         `json:"base64"`
	Key           string          `json:"key"`
	Token         string          `json:"token"`
}

// parseCommand returns the command, or a refusal whose text repeats nothing of
// what came: it may hold a token.
func parseCommand(data []byte) (command, *hub.Error) {
	var cmd command
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(&cmd)
	// Not dec.More: it takes a closing bracket for the end.
	if err == nil && len(bytes.Trim(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return command{}, &hub.Error{Code: hub.InvalidMessage, Detail: "one command a message"}
	}
	if err == nil {
		return cmd, nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || !json.Valid(data) {
		return command{}, &hub.Error{Code: hub.InvalidMessage, Detail: "a command is one JSON object"}
	}
	// It is JSON with a wrong field; the answer still carries its id.
	var only struct {
		ID requestID `json:"id"`
	}
	if json.Unmarshal(data, &only) != nil {
		return command{}, &hub.Error{Code: hub.InvalidOption, Detail: "a command is an object, and its id an integer from 0 to 2^53-1"}
	}
	return command{ID: only.ID}, &hub.Error{Code: hub.InvalidOption,
		Detail: "a field of the command is unknown or of the wrong type; fields are type, id, room, policy, queue_messages, queue_bytes, after, gaps, data, text, base64, key, token"}
}

// handleCommand gives every request with an id exactly one answer.
func (c *conn) handleCommand(data []byte) {
	cmd, refusal := parseCommand(data)
	if refusal != nil {
		c.refuse(cmd.ID, refusal)
		return
	}
	switch cmd.Type {
	case "ping":
		c.answer(marshal(simpleAnswer{Type: "pong", ID: cmd.ID}))
		return
	case "auth":
		c.authenticate(cmd.ID, cmd.Token)
		return
	case "join", "leave", "publish":
	default:
		c.refuse(cmd.ID, &hub.Error{Code: hub.InvalidOption, Detail: "type is one of join, leave, publish, auth, ping"})
		return
	}
	room, err := frame.ParseRoom(cmd.Room)
	if err != nil {
		c.refuse(cmd.ID, &hub.Error{Code: hub.InvalidRoom, Detail: err.Error()})
		return
	}
	switch cmd.Type {
	case "join":
		join, err := cmd.join(room)
		if err != nil {
			c.refuse(cmd.ID, err)
			return
		}
		_ = c.join(join) // it has been answered
	case "leave":
		c.leave(cmd.ID, room)
	case "publish":
		c.publishCommand(cmd, room)
	}
}

func (c *conn) publishCommand(cmd command, room frame.Room) {
	var m frame.Message
	err := c.permit.publish(room)
	if err == nil {
		m, err = cmd.message(room)
	}
	var p hub.Published
	if err == nil {
		p, err = c.srv.cfg.Hub.Publish(context.Background(), hub.PublishRequest{Message: m})
	}
	if err != nil {
		c.srv.rejectPublish(hub.CodeOf(err))
		c.refuse(cmd.ID, err)
		return
	}
	if cmd.ID != "" {
		c.answer(marshal(simpleAnswer{Type: "published", ID: cmd.ID, Room: room.String(), Seq: p.Position.Seq}))
	}
}

// message returns what the command publishes.
func (cmd *command) message(room frame.Room) (frame.Message, error) {
	m := frame.Message{Room: room, Key: cmd.Key}
	invalid := func(detail string) (frame.Message, error) {
		return frame.Message{}, &hub.Error{Code: hub.InvalidMessage, Detail: detail}
	}
	switch {
	case cmd.Data != nil && cmd.Text == nil && cmd.Base64 == nil:
		m.Kind, m.Data = frame.JSON, cmd.Data
	case cmd.Text != nil && cmd.Data == nil && cmd.Base64 == nil:
		var s string
		if err := json.Unmarshal(cmd.Text, &s); err != nil || cmd.Text[0] != '"' {
			return invalid("text is a string")
		}
		if loneSurrogate(cmd.Text) {
			return invalid("text has half a surrogate pair, which is no character")
		}
		m.Kind, m.Data = frame.Text, []byte(s)
	case cmd.Base64 != nil && cmd.Data == nil && cmd.Text == nil:
		b, err := base64.StdEncoding.DecodeString(*cmd.Base64)
		if err != nil {
			return invalid("base64 is not valid: use the standard alphabet, with padding (RFC 4648, section 4)")
		}
		m.Kind, m.Data = frame.Binary, b
	default:
		return invalid("publish exactly one of data, text and base64")
	}
	return m, nil
}

// loneSurrogate reports whether a JSON string has an escape for half of a
// surrogate pair. Decoding would replace it, and the subscribers would get
// something else than was published.
func loneSurrogate(raw []byte) bool {
	high := false // the escape just before was a high surrogate
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		i++
		if raw[i] != 'u' {
			if high {
				return true
			}
			continue
		}
		v, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
		if err != nil {
			return false // not reached: the string has been decoded before
		}
		i += 4
		low := 0xdc00 <= v && v < 0xe000
		if high != low {
			return true
		}
		high = 0xd800 <= v && v < 0xdc00
	}
	return high
}

// joinCommand is a join, from a command or from a URL's query.
type joinCommand struct {
	ID      requestID
	Room    frame.Room
	Options hub.Options
	Gaps    bool
	// After is the position to resume from; nil for none.
	After *frame.Position
}

func (cmd *command) join(room frame.Room) (joinCommand, error) {
	j := joinCommand{ID: cmd.ID, Room: room, Gaps: cmd.Gaps == nil || *cmd.Gaps}
	if cmd.Policy != "" {
		if err := j.setPolicy(cmd.Policy); err != nil {
			return j, err
		}
	}
	for _, limit := range []struct {
		asked *int
		to    *int
	}{{cmd.QueueMessages, &j.Options.Queue.Messages}, {cmd.QueueBytes, &j.Options.Queue.Bytes}} {
		if limit.asked == nil {
			continue
		}
		if *limit.asked < 1 {
			return j, errQueueLimit
		}
		*limit.to = *limit.asked
	}
	if cmd.After != nil {
		return j, j.setAfter(*cmd.After)
	}
	return j, nil
}

var errQueueLimit = &hub.Error{Code: hub.InvalidOption, Detail: "queue_messages and queue_bytes are positive whole numbers"}

func (j *joinCommand) setPolicy(s string) error {
	p, err := queue.ParsePolicy(s)
	if err != nil {
		return &hub.Error{Code: hub.InvalidOption, Detail: "policy is one of " + strings.Join(queue.PolicyNames(), ", ")}
	}
	j.Options.Policy = &p
	return nil
}

func (j *joinCommand) setAfter(s string) error {
	pos, err := frame.ParsePosition(s)
	if err != nil {
		return &hub.Error{Code: hub.InvalidPosition, Detail: err.Error()}
	}
	j.After = &pos
	return nil
}

// simpleAnswer is a control frame of few fields.
type simpleAnswer struct {
	Type string    `json:"type"`
	ID   requestID `json:"id,omitempty"`
	Room string    `json:"room,omitempty"`
	Seq  uint64    `json:"seq,omitempty"`
}

type queueLimits struct {
	Messages int `json:"messages"`
	Bytes    int `json:"bytes"`
}

func leftAnswer(id requestID, room frame.Room) []byte {
	return marshal(simpleAnswer{Type: "left", ID: id, Room: room.String()})
}

func errorAnswer(id requestID, err error) []byte {
	code, detail := hub.Code("error"), "the request failed"
	var e *hub.Error
	if errors.As(err, &e) {
		code, detail = e.Code, e.Detail
	}
	return marshal(struct {
		Type    string    `json:"type"`
		ID      requestID `json:"id,omitempty"`
		Code    hub.Code  `json:"code"`
		Message string    `json:"message"`
	}{"error", id, code, detail})
}

// marshal encodes answers, which are plain structs.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
