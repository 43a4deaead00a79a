package server

import (
	"encoding/binary"
	"unicode/utf8"
)

// maxFragments bounds the frames of one message.
const maxFragments = 1024

// violation is what a client's frames are failed for.
type violation struct {
	cause Cause
	text  string
}

func (v *violation) Error() string { return v.text }

// The sections are of RFC 6455.
var (
	errUnmasked  = &violation{causeProtocol, "a frame of a client's is not masked"}                   // 5.1
	errReserved  = &violation{causeProtocol, "a frame has a reserved bit or opcode"}                  // 5.2
	errLength    = &violation{causeProtocol, "a frame's length is not in its shortest form"}          // 5.2
	errOrder     = &violation{causeProtocol, "a fragment is not of the message under way"}            // 5.4
	errControl   = &violation{causeProtocol, "a control frame is longer than 125 bytes or in pieces"} // 5.5
	errClose     = &violation{causeProtocol, "a close frame has no valid code"}                       // 7.4
	errCloseText = &violation{causeUTF8, "a close frame's reason is not UTF-8"}                       // 5.5.1, 8.1
	errFragments = &violation{causeProtocol, "a message has too many fragments"}                      // 10.4
	errTooBig    = &violation{causeTooBig, "a message is too large"}                                  // 10.4
)

// frameScanner judges the frames in a client's byte stream before the WebSocket
// library sees them. The library lets some pass that it must not: it knows no
// bound on fragments, takes lengths in any form, lets the reason of a close be
// any bytes, tells a message that is too large only once all that is allowed of
// it has come, and after some bad frames sends no close frame. What a text
// message holds is not judged here, nor how far a compressed one inflates.
//
// The library knows nothing of compression: the scanner takes the bit that marks
// a compressed message (RFC 7692, section 6) out of the stream, and keeps it for
// the reader.
type frameScanner struct {
	// limit is the largest message, as it comes.
	limit uint64
	// deflate: permessage-deflate was negotiated.
	deflate bool

	header    [14]byte
	have      int    // bytes of header so far
	skip      uint64 // payload bytes still to come
	fragments int    // of the message under way
	size      uint64 // of the message under way
	allowed   uint64 // size may reach this
	// compressed tells of each message that the library has not begun whether
	// it is compressed.
	compressed []bool
	// closing holds what has come of a close frame's payload, while inClose.
	inClose bool
	closing []byte
}

// maxAhead is more messages than the library's buffer holds.
const maxAhead = readBufferBytes

// next reports whether the message that the library has begun is compressed.
func (s *frameScanner) next() bool {
	if len(s.compressed) == 0 {
		return false
	}
	is := s.compressed[0]
	s.compressed = append(s.compressed[:0], s.compressed[1:]...)
	return is
}

// scan judges the next bytes of the stream, and changes them where a message is
// compressed. It returns how many of them come before the first that must not be
// read, and why.
func (s *frameScanner) scan(b []byte) (good int, err error) {
	for good < len(b) {
		if s.skip > 0 {
			n := int(min(s.skip, uint64(len(b)-good)))
			if err := s.payload(b[good : good+n]); err != nil {
				return good, err
			}
			good += n
			continue
		}
		s.header[s.have] = b[good]
		if s.have == 0 && s.deflate && compresses(b[good]) {
			b[good] &^= rsv1Bit
		}
		s.have++
		if s.have >= 2 && s.have == s.headerLen() {
			s.have = 0
			if err := s.frame(); err != nil {
				return good, err
			}
		}
		good++
	}
	return good, nil
}

// payload is the next part of a frame's payload, which does not end before it.
func (s *frameScanner) payload(b []byte) error {
	s.skip -= uint64(len(b))
	if !s.inClose {
		return nil
	}
	s.closing = append(s.closing, b...)
	if s.skip > 0 {
		return nil
	}
	s.inClose = false
	mask := s.header[2:6] // no control frame has a longer header
	for i := range s.closing {
		s.closing[i] ^= mask[i%4]
	}
	return judgeClose(s.closing)
}

// judgeClose judges what a close frame carries, if it carries anything.
func judgeClose(payload []byte) error {
	if len(payload) < 2 {
		return errClose
	}
	switch code := binary.BigEndian.Uint16(payload); {
	case 1000 <= code && code <= 1003, 1007 <= code && code <= 1014, 3000 <= code && code <= 4999:
	default: // not defined, or not for the wire
		return errClose
	}
	if !utf8.Valid(payload[2:]) {
		return errCloseText
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

const (
	finBit, rsv1Bit, rsvBits = 0x80, 0x40, 0x70
	opContinuation           = 0
	opBinary                 = 2
	opPong                   = 10
)

// compresses reports whether a frame that begins with b begins a compressed
// message.
func compresses(b byte) bool {
	opcode := b & 0x0f
	return b&rsvBits == rsv1Bit && opcode != opContinuation && opcode <= opBinary
}

// frame judges the header that is complete.
func (s *frameScanner) frame() error {
	n, shortest := uint64(s.header[1]&0x7f), uint64(0)
	switch n {
	case 126:
		n, shortest = uint64(binary.BigEndian.Uint16(s.header[2:])), 126
	case 127:
		n, shortest = binary.BigEndian.Uint64(s.header[2:]), 1<<16
	}
	s.skip = n
	fin, rsv, opcode := s.header[0]&finBit != 0, s.header[0]&rsvBits, s.header[0]&0x0f
	control := opcode >= opClose
	compressed := s.deflate && compresses(s.header[0])
	switch {
	case s.header[1]&0x80 == 0:
		return errUnmasked
	case rsv != 0 && !compressed, opcode > opPong, opcode > opBinary && !control:
		return errReserved
	case n < shortest, n >= 1<<63:
		return errLength
	case control && (n > 125 || !fin):
		return errControl
	case opcode == opClose:
		s.inClose, s.closing = n > 0, s.closing[:0]
		return nil
	case control: // it may stand between fragments
		return nil
	case (opcode == opContinuation) != (s.fragments > 0):
		return errOrder
	}
	return s.fragment(n, fin, compressed)
}

// fragment counts a frame of a message's.
func (s *frameScanner) fragment(n uint64, fin, compressed bool) error {
	if s.fragments == 0 {
		s.size, s.allowed = 0, s.limit
		if compressed {
			s.allowed = uint64(deflatedLimit(int64(s.limit)))
		}
		if s.deflate && len(s.compressed) < maxAhead {
			s.compressed = append(s.compressed, compressed)
		}
	}
	s.fragments++
	s.size += n // below 1<<63, and so is what was allowed before
	switch {
	case s.fragments > maxFragments:
		return errFragments
	case s.size > s.allowed:
		return errTooBig
	case fin:
		s.fragments = 0
	}
	return nil
}
