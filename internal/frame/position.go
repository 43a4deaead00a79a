package frame

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
)

// MaxSeq bounds sequence numbers, so that a JavaScript number holds each of
// them exactly.
const MaxSeq = 1<<53 - 1

// ErrPosition is what ParsePosition returns for everything malformed.
var ErrPosition = errors.New("a position is {epoch}:{seq}, for example 8kq2w3yd7mzna:41")

// Position is a place in a room's order: the Seq-th message of an Epoch.
type Position struct {
	Epoch string
	Seq   uint64
}

var epochText = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

const epochBytes = 8

// NewEpoch returns an epoch that no other numbering has: it is random, so
// neither a restart nor a clock set back repeats one.
func NewEpoch() string {
	var b [epochBytes]byte
	rand.Read(b[:]) //nolint:errcheck // never fails: crypto/rand aborts the process instead
	return epochText.EncodeToString(b[:])
}

// ParsePosition reads what String writes.
func ParsePosition(s string) (Position, error) {
	epoch, digits, ok := strings.Cut(s, ":")
	if !ok || epoch == "" || len(epoch) > 64 {
		return Position{}, ErrPosition
	}
	for i := range len(epoch) {
		if !('a' <= epoch[i] && epoch[i] <= 'z' || 'A' <= epoch[i] && epoch[i] <= 'Z' || '0' <= epoch[i] && epoch[i] <= '9') {
			return Position{}, ErrPosition
		}
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || seq > MaxSeq {
		return Position{}, ErrPosition
	}
	return Position{epoch, seq}, nil
}

// String returns the position as {epoch}:{seq}.
func (p Position) String() string { return p.Epoch + ":" + strconv.FormatUint(p.Seq, 10) }
