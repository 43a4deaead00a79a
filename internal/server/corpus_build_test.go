package server_test

import (
	"encoding/binary"
	"slices"
)

// fragment is one frame, right or wrong, of the corpus.
type fragment struct {
	b0 byte // FIN, RSV1 to RSV3, opcode
	// form is the length's encoding in bits: 7, 16, 64, or 0 for the shortest.
	form int
	// claim is the length that the header tells instead of the real one.
	claim    uint64
	lies     bool
	key      [4]byte
	unmasked bool
	payload  []byte
}

// someKey is a mask whose bytes all differ.
var someKey = [4]byte{0x37, 0xfa, 0x21, 0x3d}

func (f fragment) bytes() []byte {
	n := uint64(len(f.payload))
	if f.lies {
		n = f.claim
	}
	form, masked := f.form, byte(0x80)
	if f.unmasked {
		masked = 0
	}
	if form == 0 {
		switch {
		case n < 126:
			form = 7
		case n < 1<<16:
			form = 16
		default:
			form = 64
		}
	}
	b := []byte{f.b0}
	switch form {
	case 7:
		b = append(b, masked|byte(n))
	case 16:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	case 64:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), n)
	}
	if f.unmasked {
		return append(b, f.payload...)
	}
	b = append(b, f.key[:]...)
	for i, c := range f.payload {
		b = append(b, c^f.key[i%4])
	}
	return b
}

// change alters a frame.
type change func(*fragment)

func withKey(k ...byte) change        { return func(f *fragment) { f.key = [4]byte(k) } }
func inForm(bits int) change          { return func(f *fragment) { f.form = bits } }
func rsv(bits byte) change            { return func(f *fragment) { f.b0 |= bits } }
func unmasked(f *fragment)            { f.unmasked = true }
func unfinished(f *fragment)          { f.b0 &^= 0x80 }
func claiming(n uint64) change        { return func(f *fragment) { f.claim, f.lies = n, true } }
func headless(b ...byte) chunk        { return func(tongue) []byte { return b } }
func firstBytes(n int, c chunk) chunk { return func(g tongue) []byte { return c(g)[:n] } }
func lacking(n int, c chunk) chunk {
	return func(g tongue) []byte { b := c(g); return b[:len(b)-n] }
}

// one is a frame with a payload of the dialect's.
func frameOf(op byte, payload func(tongue) []byte, changes ...change) chunk {
	return func(g tongue) []byte {
		f := fragment{b0: 0x80 | op, key: someKey, payload: payload(g)}
		for _, c := range changes {
			c(&f)
		}
		return f.bytes()
	}
}

// verbatim is a payload that is the same in all dialects.
func verbatim(s string) func(tongue) []byte { return func(tongue) []byte { return []byte(s) } }

// txt is a whole message that publishes s.
func txt(s string, changes ...change) chunk {
	return frameOf(opText, func(g tongue) []byte { return g.payload(s) }, changes...)
}

// sized is a whole message of n bytes.
func sized(n int, changes ...change) chunk {
	return frameOf(opText, func(g tongue) []byte { return sizedPayload(n, g) }, changes...)
}

// bin is a whole binary message.
func bin(s string, changes ...change) chunk { return frameOf(opBinary, verbatim(s), changes...) }

func pingFrame(s string, changes ...change) chunk  { return frameOf(opPing, verbatim(s), changes...) }
func pongOf(s string, changes ...change) chunk     { return frameOf(opPong, verbatim(s), changes...) }
func closes(s string, changes ...change) chunk     { return frameOf(opClose, verbatim(s), changes...) }
func control(op byte, s string, c ...change) chunk { return frameOf(op, verbatim(s), c...) }

// closing is a close frame with a code.
func closing(code int, reason string, changes ...change) chunk {
	return closes(string(closePayload(code, reason)), changes...)
}

// cut is a text message in fragments; cuts are offsets in s.
func cut(s string, cuts ...int) []chunk {
	return pieceByPiece(opText, len(cuts)+1, func(g tongue) ([]byte, []int) {
		at := slices.Clone(cuts)
		for i := range at {
			at[i] += g.offset()
		}
		return g.payload(s), at
	})
}

// cutBinary is a binary message in fragments.
func cutBinary(s string, cuts ...int) []chunk {
	return pieceByPiece(opBinary, len(cuts)+1, func(tongue) ([]byte, []int) { return []byte(s), cuts })
}

// evenly is a text message of n bytes in so many fragments of about one size.
func evenly(n, fragments int) []chunk {
	return pieceByPiece(opText, fragments, func(g tongue) ([]byte, []int) {
		b := sizedPayload(n, g)
		at := make([]int, fragments-1)
		for i := range at {
			at[i] = (i + 1) * len(b) / fragments
		}
		return b, at
	})
}

func pieceByPiece(op byte, n int, payload func(tongue) ([]byte, []int)) (all []chunk) {
	for i := range n {
		all = append(all, func(g tongue) []byte {
			b, cuts := payload(g)
			from, to := 0, len(b)
			f := fragment{b0: 0x80 | op, key: [4]byte{byte(i), 0xfa, byte(i >> 8), 0x3d}}
			if i > 0 {
				from, f.b0 = cuts[i-1], 0x80
			}
			if i < n-1 {
				to, f.b0 = cuts[i], f.b0&^0x80
			}
			f.payload = b[from:to]
			return f.bytes()
		})
	}
	return all
}

// between puts chunks behind each of the fragments but the last.
func between(fragments []chunk, what ...chunk) (all []chunk) {
	for i, f := range fragments {
		all = append(all, f)
		if i < len(fragments)-1 {
			all = append(all, what...)
		}
	}
	return all
}
