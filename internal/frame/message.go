package frame

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Kind is how a message was published, and so how it is shown.
type Kind uint8

// The kinds of message.
const (
	JSON   Kind = iota // valid JSON in valid UTF-8
	Text               // valid UTF-8
	Binary             // any bytes
)

// MaxKeyBytes is the longest conflation key.
const MaxKeyBytes = 128

// Why a message is refused. The texts are fixed and repeat nothing of it.
var (
	ErrUTF8 = errors.New("the message is not valid UTF-8; publish bytes as application/octet-stream")
	ErrJSON = errors.New("the message is not valid JSON; publish text as text/plain")
	ErrKey  = errors.New("a key is 1 to 128 bytes of UTF-8 without control characters")
)

// Message is what was published to a room. Data is not copied: whoever makes a
// message gives its bytes away.
type Message struct {
	Room Room
	Kind Kind
	Data []byte
	// Key is the conflation key; empty for none.
	Key string
}

// Validate checks Data against Kind, and Key. Text goes to browsers in text
// frames, and RFC 6455, section 8.1, has every one of them fail the connection
// over a single bad byte.
func (m *Message) Validate() error {
	if m.Kind != Binary && !utf8.Valid(m.Data) {
		return ErrUTF8
	}
	if m.Kind == JSON && !json.Valid(m.Data) {
		return ErrJSON
	}
	if len(m.Key) > MaxKeyBytes || !utf8.ValidString(m.Key) {
		return ErrKey
	}
	for i := range len(m.Key) {
		if m.Key[i] < 0x20 || m.Key[i] == 0x7f {
			return ErrKey
		}
	}
	return nil
}
