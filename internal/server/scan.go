package server

import (
	"encoding/binary"
	"errors"
)

// maxFragments bounds the frames of one message.
const maxFragments = 1024

var errFragments = errors.New("a message has too many fragments")

// frameScanner follows the frame headers in a client's byte stream, to judge
// what the WebSocket library does not: the number of fragments of a message.
// It is a filter only; all else about frames is the library's. The zero
// scanner is at the start of a stream.
type frameScanner struct {
	header    [14]byte
	have      int    // bytes of header so far
	skip      uint64 // payload bytes still to come
	fragments int    // of the message under way
}

// scan looks at the next bytes of the stream. Its first error stands: nothing
// that comes after has a meaning any more.
func (s *frameScanner) scan(b []byte) error {
	if s.fragments > maxFragments {
		return errFragments
	}
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, uint64(len(b)))
			s.skip -= n
			b = b[n:]
			continue
		}
		s.header[s.have] = b[0]
		s.have++
		b = b[1:]
		if s.have < 2 || s.have < s.headerLen() {
			continue
		}
		if err := s.frame(); err != nil {
			return err
		}
		s.have = 0
	}
	return nil
}

func (s *frameScanner) headerLen() int {
	n := 2
	switch s.header[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if s.header[1]&0x80 != 0 {
		n += 4
	}
	return n
}

// frame judges the header that is complete.
func (s *frameScanner) frame() error {
	switch n := s.header[1] & 0x7f; n {
	case 126:
		s.skip = uint64(binary.BigEndian.Uint16(s.header[2:]))
	case 127:
		s.skip = binary.BigEndian.Uint64(s.header[2:])
	default:
		s.skip = uint64(n)
	}
	opcode, fin := s.header[0]&0x0f, s.header[0]&0x80 != 0
	if opcode >= opClose {
		return nil // a control frame may stand between fragments
	}
	s.fragments++
	if s.fragments > maxFragments {
		return errFragments
	}
	if fin {
		s.fragments = 0
	}
	return nil
}
