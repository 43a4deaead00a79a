package server

import (
	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// dialect is how a connection is talked to.
type dialect uint8

const (
	dialectRaw    dialect = iota // WebSocket without a subprotocol: messages only
	dialectJSON                  // WebSocket, hubd.v1.json
	dialectEvents                // Server-Sent Events
)

// encoding is the form of the frames, where nothing is compressed.
func (d dialect) encoding() frame.Encoding {
	return [...]frame.Encoding{frame.EncodingRaw, frame.EncodingJSON, frame.EncodingSSE}[d]
}

// transport is the index in Transports.
func (d dialect) transport() int {
	if d == dialectEvents {
		return 1
	}
	return 0
}

type joinedFrame struct {
	Type     string       `json:"type"`
	ID       requestID    `json:"id,omitempty"`
	Room     string       `json:"room"`
	Epoch    string       `json:"epoch"`
	Seq      uint64       `json:"seq"`
	Policy   queue.Policy `json:"policy"`
	Queue    queueLimits  `json:"queue"`
	Resumed  *bool        `json:"resumed,omitempty"`
	Replayed *int         `json:"replayed,omitempty"`
	Snapshot int          `json:"snapshot,omitempty"`
}

// joined returns the first frame of a room, ready for the socket; nil in a
// dialect that has none.
func (d dialect) joined(cmd joinCommand, sub *hub.Subscription) []byte {
	if d == dialectRaw {
		return nil
	}
	pos := sub.Joined()
	f := joinedFrame{
		Type: "joined", ID: cmd.ID, Room: cmd.Room.String(), Epoch: pos.Epoch, Seq: pos.Seq,
		Policy: sub.Policy(), Queue: queueLimits(sub.Limits()), Snapshot: sub.Snapshot(),
	}
	if cmd.After != nil {
		replayed, resumed := sub.Resumed()
		f.Resumed, f.Replayed = &resumed, &replayed
	}
	if d == dialectEvents {
		// The id is where a reader that comes back now must go on: what is
		// replayed brings ids of its own.
		start := frame.Position{Epoch: pos.Epoch, Seq: sub.Start()}
		return event("joined", start.String(), marshal(f))
	}
	return frame.Append(nil, frame.OpText, marshal(f))
}

// gap returns the notice of a loss, ready for the socket.
func (d dialect) gap(room frame.Room, after, before uint64, g queue.Gap) []byte {
	notice := marshal(struct {
		Type   string `json:"type"`
		Room   string `json:"room"`
		After  uint64 `json:"after"`
		Before uint64 `json:"before"`
		Lost   int    `json:"lost"`
		Reason string `json:"reason"`
	}{"gap", room.String(), after, before, g.Lost, g.Reason.String()})
	if d == dialectEvents {
		return event("gap", "", notice)
	}
	return frame.Append(nil, frame.OpText, notice)
}

// event encodes a control event, whose data is one line.
func event(name, id string, data []byte) []byte {
	b := append([]byte("event: "), name...)
	if id != "" {
		b = append(append(b, "\nid: "...), id...)
	}
	b = append(append(b, "\ndata: "...), data...)
	return append(b, "\n\n"...)
}
