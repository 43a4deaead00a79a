package frame

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"sync"
)

// Encoding is a form in which a frame is sent.
type Encoding uint8

// The encodings. The deflated ones are for connections that negotiated
// permessage-deflate (RFC 7692) without context takeover by the server, so that
// the same compressed bytes serve all of them.
const (
	EncodingRaw  Encoding = iota // WebSocket: the payload as published
	EncodingJSON                 // WebSocket: the hubd.v1.json envelope
	EncodingSSE                  // Server-Sent Events
	EncodingRawDeflate
	EncodingJSONDeflate
	NumEncodings = iota
)

var encodingNames = [NumEncodings]string{"raw", "json", "sse", "raw_deflate", "json_deflate"}

// String returns the encoding's name in metrics.
func (e Encoding) String() string { return encodingNames[e] }

// Encodings returns the names of all encodings in order.
func Encodings() []string { return encodingNames[:] }

func (e Encoding) deflated() bool { return e >= EncodingRawDeflate }

func (e Encoding) plain() Encoding {
	if e == EncodingJSONDeflate {
		return EncodingJSON
	}
	return EncodingRaw
}

// Deflated returns the form of e for a connection that negotiated compression.
func (e Encoding) Deflated() Encoding {
	if e == EncodingJSON {
		return EncodingJSONDeflate
	}
	return EncodingRawDeflate
}

// Opcode is a WebSocket opcode (RFC 6455, section 5.2).
type Opcode byte

// The opcodes that a server sends itself.
const (
	OpText   Opcode = 1
	OpBinary Opcode = 2
	OpPing   Opcode = 9
	OpPong   Opcode = 10
)

const (
	finBit  = 0x80
	rsv1Bit = 0x40
	// maxHeader is the longest header of an unmasked frame.
	maxHeader = 10
)

// AppendHeader appends the header of one whole, unmasked frame with a payload
// of n bytes (RFC 6455, section 5.2).
func AppendHeader(dst []byte, op Opcode, n int) []byte {
	dst = append(dst, finBit|byte(op))
	switch {
	case n < 126:
		return append(dst, byte(n))
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 127), uint64(n))
	}
}

// Append appends one whole, unmasked frame.
func Append(dst []byte, op Opcode, payload []byte) []byte {
	return append(AppendHeader(dst, op, len(payload)), payload...)
}

func (f *Frame) plain(e Encoding) []byte {
	switch e {
	case EncodingRaw:
		op := OpText
		if f.msg.Kind == Binary {
			op = OpBinary
		}
		return Append(make([]byte, 0, maxHeader+len(f.msg.Data)), op, f.msg.Data)
	case EncodingJSON:
		return f.envelope()
	case EncodingSSE:
		return f.event()
	}
	panic("frame: no encoder for " + e.String())
}

// envelope is the hubd.v1.json form. Room names need no escaping, and JSON
// payloads go in byte for byte: a number or a duplicate key that this program
// cannot hold is none of its business.
func (f *Frame) envelope() []byte {
	body := make([]byte, 0, 96+len(f.msg.Data)*4/3)
	body = append(body, `{"type":"message","room":"`...)
	body = append(body, f.msg.Room.name...)
	body = append(body, `","seq":`...)
	body = strconv.AppendUint(body, f.pos.Seq, 10)
	switch f.msg.Kind {
	case JSON:
		body = append(body, `,"data":`...)
		body = append(body, f.msg.Data...)
	case Text:
		body = append(body, `,"text":`...)
		body = appendString(body, f.msg.Data)
	case Binary:
		body = append(body, `,"base64":"`...)
		body = base64.StdEncoding.AppendEncode(body, f.msg.Data)
		body = append(body, '"')
	}
	body = append(body, '}')
	return Append(make([]byte, 0, maxHeader+len(body)), OpText, body)
}

// event is the Server-Sent Events form (HTML standard, section 9.2). A line of
// data cannot hold a line end, so text is split at each of the three there are,
// and the reader joins the lines with \n.
func (f *Frame) event() []byte {
	b := make([]byte, 0, 64+len(f.msg.Data)*4/3)
	name := "message"
	if f.msg.Kind == Binary {
		name = "binary"
	}
	b = append(b, "event: "...)
	b = append(b, name...)
	b = append(b, "\nid: "...)
	b = append(b, f.pos.String()...)
	if f.msg.Kind == JSON {
		// A field that the standard tells readers to ignore: it lets those that
		// look tell JSON from text, as they can over WebSocket.
		b = append(b, "\nkind: json"...)
	}
	if f.msg.Kind == Binary {
		b = append(b, "\ndata: "...)
		b = base64.StdEncoding.AppendEncode(b, f.msg.Data)
		return append(b, "\n\n"...)
	}
	for rest, more := f.msg.Data, true; more; {
		var line []byte
		line, rest, more = cutLine(rest)
		b = append(b, "\ndata: "...)
		b = append(b, line...)
	}
	return append(b, "\n\n"...)
}

// cutLine cuts b at its first line end: \r\n, \n or \r.
func cutLine(b []byte) (line, rest []byte, more bool) {
	i := bytes.IndexAny(b, "\r\n")
	if i < 0 {
		return b, nil, false
	}
	rest = b[i+1:]
	if b[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return b[:i], rest, true
}

// appendString appends s, which is valid UTF-8, as a JSON string.
func appendString(dst, s []byte) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(s)); err != nil {
		panic(err) // a string always encodes into a buffer
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// deflateFrom is the size of a plain frame below which compression costs more
// than it saves.
const deflateFrom = 256

var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// deflateFrame compresses a whole plain frame (RFC 7692, section 7.2.1: flush,
// and take the four bytes 00 00 ff ff off the end).
func deflateFrame(plain []byte) []byte {
	op, payload := Opcode(plain[0]&0x0f), Payload(plain)
	var b bytes.Buffer
	w := deflaters.Get().(*flate.Writer)
	w.Reset(&b)
	_, err := w.Write(payload)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	deflaters.Put(w)
	out := Append(make([]byte, 0, maxHeader+b.Len()), op, bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff}))
	out[0] |= rsv1Bit
	return out
}

// Payload returns what follows the header of a whole, unmasked frame.
func Payload(encoded []byte) []byte {
	switch encoded[1] {
	case 126:
		return encoded[4:]
	case 127:
		return encoded[10:]
	}
	return encoded[2:]
}
