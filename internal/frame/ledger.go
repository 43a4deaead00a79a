package frame

import "sync/atomic"

// Ledger counts the frames that are retained and the encodings made. One ledger
// serves one hub; all methods may be called concurrently.
type Ledger struct {
	bytes   atomic.Int64
	encoded [NumEncodings]atomic.Uint64
}

// Retained returns the bytes of all distinct frames that somebody holds:
// payloads and the encodings made of them, each once, whoever shares them.
func (l *Ledger) Retained() int64 { return l.bytes.Load() }

// Encoded returns how many encodings were made so far, by Encoding.
func (l *Ledger) Encoded() [NumEncodings]uint64 {
	var n [NumEncodings]uint64
	for i := range n {
		n[i] = l.encoded[i].Load()
	}
	return n
}
