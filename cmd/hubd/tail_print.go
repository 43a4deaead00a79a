package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// printer prints frames and remembers how far each room has come.
type printer struct {
	out      io.Writer
	json     bool
	messages int // printed so far
	rooms    map[string]*place
}

// place is a position in a room: that of the last message that was printed or
// that the server counted from.
type place struct {
	epoch string
	seq   uint64
}

func newPrinter(out io.Writer, json bool) *printer {
	return &printer{out: out, json: json, rooms: make(map[string]*place)}
}

// parsePlace reads a position as users write it.
func parsePlace(text string) (place, error) {
	epoch, digits, ok := strings.Cut(text, ":")
	seq, err := strconv.ParseUint(digits, 10, 64)
	if !ok || epoch == "" || err != nil {
		return place{}, fmt.Errorf("--after %q is no position; write EPOCH:SEQ, as \"hubd tail --json\" shows them in \"joined\"", text)
	}
	return place{epoch, seq}, nil
}

func (at place) String() string { return at.epoch + ":" + strconv.FormatUint(at.seq, 10) }

// position is where to go on in a room, empty for its present.
func (p *printer) position(room string) string {
	if at := p.rooms[room]; at != nil {
		return at.String()
	}
	return ""
}

// print prints a frame, of which text is the original.
func (p *printer) print(frame *serverFrame, text []byte) error {
	lines := p.lines(frame)
	switch frame.Type {
	case "joined":
		p.moveTo(frame)
	case "message":
		p.messages++
		if at := p.rooms[frame.Room]; at != nil {
			at.seq = max(at.seq, frame.Seq)
		}
	}
	if p.json {
		lines = oneLine(text)
	}
	if lines == "" {
		return nil
	}
	_, err := io.WriteString(p.out, lines+"\n")
	return err
}

// moveTo takes over where the server counts from. Where it replays, the
// messages themselves tell.
func (p *printer) moveTo(frame *serverFrame) {
	if frame.Resumed != nil && *frame.Resumed {
		return
	}
	p.rooms[frame.Room] = &place{frame.Epoch, frame.Seq}
}

// lines is what a frame looks like to a person, empty where there is nothing
// to see.
func (p *printer) lines(frame *serverFrame) string {
	room := printable(frame.Room)
	switch frame.Type {
	case "message":
		return fmt.Sprintf("%s %d %s", room, frame.Seq, content(frame))
	case "gap":
		line := fmt.Sprintf("%s gap lost=%d reason=%s after=%d", room, frame.Lost, printable(frame.Reason), frame.After)
		if frame.Before > 0 {
			line += fmt.Sprintf(" before=%d", frame.Before)
		}
		return line
	case "joined":
		before, resumed := p.rooms[frame.Room], frame.Resumed != nil && *frame.Resumed
		if before == nil || resumed || *before == (place{frame.Epoch, frame.Seq}) {
			return ""
		}
		return fmt.Sprintf("%s gap lost=unknown reason=not-resumed after=%s now=%s:%d", room,
			printable(p.position(frame.Room)), printable(frame.Epoch), frame.Seq)
	}
	return ""
}

// content is a message in one line.
func content(frame *serverFrame) string {
	switch {
	case frame.Text != nil:
		return printable(*frame.Text)
	case frame.Base64 != nil:
		return "base64:" + printable(*frame.Base64)
	default:
		return printable(oneLine(frame.Data))
	}
}

// oneLine is JSON without the line breaks that its author may have put between
// its tokens; within strings there are none.
func oneLine(text []byte) string {
	if !bytes.ContainsAny(text, "\n\r") {
		return string(text)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return string(text)
	}
	return b.String()
}
