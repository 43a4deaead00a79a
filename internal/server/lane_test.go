package server

import (
	"bytes"
	"testing"
)

// The lane is bounded in answers and in bytes, whichever comes first, and
// neither bound counts what was taken.
func TestLaneBounds(t *testing.T) {
	for size, want := range map[int]int{1: laneAnswers, 100: laneAnswers, 1 << 10: laneBytes >> 10, laneBytes: 1, laneBytes + 1: 0} {
		var l lane
		for range 2 {
			n := 0
			for l.push(make([]byte, size)) {
				n++
			}
			if n != want {
				t.Errorf("%d answers of %d bytes, want %d", n, size, want)
			}
			if encoded, _ := l.take(); len(encoded) != n*size {
				t.Errorf("took %d bytes of %d", len(encoded), n*size)
			}
		}
	}
}

// Pings and pongs of our own need no room in it, and come out whole.
func TestLaneControl(t *testing.T) {
	var l lane
	for l.push([]byte("x")) {
	}
	l.ping()
	l.pong = []byte{0x8a, 1, 'p'}
	encoded, pings := l.take()
	want := append(bytes.Repeat([]byte("x"), laneAnswers), 0x89, 0, 0x8a, 1, 'p')
	if !pings || !bytes.Equal(encoded, want) {
		t.Errorf("took %d bytes and pings %v", len(encoded), pings)
	}
	if encoded, pings := l.take(); pings || len(encoded) != 0 {
		t.Errorf("took %d bytes and pings %v again", len(encoded), pings)
	}
}

// A wake that comes while the writer is at work makes it look again. The moment
// between its last look and its end is too short to hit from outside.
func TestWakeOfABusyWriter(t *testing.T) {
	var c conn
	c.writing.Store(writerBusy)
	for range 2 {
		c.Wake()
		if got := c.writing.Load(); got != writerAgain {
			t.Errorf("state %d after a wake", got)
		}
	}
}
