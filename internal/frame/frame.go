package frame

import (
	"sync"
	"sync/atomic"
)

// Frame is a message with its position, and its encodings, shared by all who
// send it. All methods may be called concurrently by holders.
type Frame struct {
	// immutable
	msg    Message
	pos    Position
	ledger *Ledger

	refs  atomic.Int64
	table [NumEncodings]atomic.Pointer[[]byte]

	// encode makes sure of one encoding each; nothing but encoding is done
	// under it.
	encode sync.Mutex
	// size is what the ledger was told of this frame; guarded by encode.
	size int64
}

// New returns a frame of m at p, held once, by the caller. m must be valid.
func New(l *Ledger, m Message, p Position) *Frame {
	f := &Frame{msg: m, pos: p, ledger: l, size: int64(len(m.Data))}
	f.refs.Store(1)
	l.bytes.Add(f.size)
	return f
}

// Retain adds n holders. The caller holds the frame already.
func (f *Frame) Retain(n int) { f.refs.Add(int64(n)) }

// Release takes n holders away. A holder that has released must not touch the
// frame again.
func (f *Frame) Release(n int) {
	switch left := f.refs.Add(-int64(n)); {
	case left == 0:
		f.ledger.bytes.Add(-f.size)
	case left < 0:
		panic("frame: released more often than held")
	}
}

// Seq returns the frame's place in its room.
func (f *Frame) Seq() uint64 { return f.pos.Seq }

// Size returns the bytes of the payload.
func (f *Frame) Size() int { return len(f.msg.Data) }

// Message returns what was published. Its bytes are shared.
func (f *Frame) Message() Message { return f.msg }

// Key returns the conflation key.
func (f *Frame) Key() string { return f.msg.Key }

// Bytes returns the frame in encoding e, ready for the socket, header included.
// It encodes on first use; afterwards it is one atomic load. The bytes are
// shared: nobody may write to them.
func (f *Frame) Bytes(e Encoding) []byte {
	if b := f.table[e].Load(); b != nil {
		return *b
	}
	if e.deflated() {
		return f.deflated(e)
	}
	return f.memo(e, func() []byte { return f.plain(e) })
}

func (f *Frame) deflated(e Encoding) []byte {
	plain := f.Bytes(e.plain())
	if len(plain) < deflateFrom {
		return plain
	}
	return f.memo(e, func() []byte { return deflateFrame(plain) })
}

// memo returns the encoding e, made by encode if nobody has made it before.
func (f *Frame) memo(e Encoding, encode func() []byte) []byte {
	f.encode.Lock()
	defer f.encode.Unlock()
	if b := f.table[e].Load(); b != nil {
		return *b
	}
	b := encode()
	f.table[e].Store(&b)
	f.size += int64(len(b))
	f.ledger.bytes.Add(int64(len(b)))
	f.ledger.encoded[e].Add(1)
	return b
}
