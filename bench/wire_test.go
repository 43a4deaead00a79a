package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// serverFrame is a frame as servers send it: not masked.
func serverFrame(op byte, payload []byte) []byte {
	b := []byte{0x80 | op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

func TestDecoderFindsFramesHoweverTheStreamIsCut(t *testing.T) {
	var stream []byte
	var want []string
	for i, n := range []int{0, 1, 31, 32, 33, 125, 126, 127, 200, 65535, 65536, 3} {
		payload := bytes.Repeat([]byte{byte('a' + i)}, n)
		op := byte(opText + i%2)
		stream = append(stream, serverFrame(op, payload)...)
		want = append(want, fmt.Sprintf("%d %d %s", op, n, payload[:min(n, keepBytes)]))
		if n <= maxControl {
			stream = append(stream, serverFrame(opPing, payload)...)
			want = append(want, fmt.Sprintf("%d %d %s", opPing, n, payload))
		}
	}
	for _, cut := range []int{1, 2, 3, 7, 33, 64, 129, 1000, 70_000, len(stream)} {
		var d decoder
		var got []string
		for from := 0; from < len(stream); from += cut {
			// The buffer is reused between reads, as the fleet's is.
			chunk := bytes.Clone(stream[from:min(from+cut, len(stream))])
			if err := d.feed(chunk, func(f frame) { got = append(got, fmt.Sprintf("%d %d %s", f.op, f.size, f.lead)) }); err != nil {
				t.Fatal(err)
			}
			clear(chunk)
		}
		if len(got) != len(want) {
			t.Fatalf("cut every %d: %d frames, want %d", cut, len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("cut every %d: frame %d is %.60q, want %.60q", cut, i, got[i], want[i])
			}
		}
	}
}

func TestDecoderRefusesWhatNoServerSends(t *testing.T) {
	for name, b := range map[string][]byte{
		"masked":             {0x81, 0x80, 0, 0, 0, 0},
		"fragment":           {0x01, 0x00},
		"reserved bits":      {0xc1, 0x00},
		"long control frame": {0x89, 126, 0, 126},
	} {
		var d decoder
		if err := d.feed(b, func(frame) { t.Errorf("%s: emitted", name) }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClientFramesAreMasked(t *testing.T) {
	for _, n := range []int{0, 125, 126, 65535, 65536} {
		payload := bytes.Repeat([]byte("x"), n)
		b := appendFrame(nil, opBinary, payload)
		header := len(b) - n
		if b[0] != 0x82 || b[1]&0x80 == 0 {
			t.Errorf("%d bytes: header % x lacks the final or the mask bit", n, b[:2])
		}
		// Without mask bit and key it is a server's frame.
		plain := append([]byte{b[0], b[1] &^ 0x80}, b[2:header-4]...)
		if want := serverFrame(opBinary, nil); n == 0 && !bytes.Equal(plain, want) {
			t.Errorf("header % x, want % x", plain, want)
		}
		f, _, err := parseFrame(append(plain, payload...))
		if err != nil || f.size != n {
			t.Errorf("%d bytes: read back as %d (%v)", n, f.size, err)
		}
	}
}

func TestStampSurvives(t *testing.T) {
	payload := make([]byte, 64)
	putStamp(payload, 1<<40+5, 90*time.Second)
	if n, at := readStamp(payload); n != 1<<40+5 || at != 90*time.Second {
		t.Errorf("stamp reads %d, %v", n, at)
	}
}
