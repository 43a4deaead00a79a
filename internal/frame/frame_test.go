package frame_test

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"hubd/internal/frame"
)

// wire is one WebSocket frame as it came off the wire.
type wire struct {
	op      byte
	rsv1    bool
	payload []byte
}

// parseOne reads exactly one whole server frame, as strictly as RFC 6455,
// section 5.2, lets a client be. It shares nothing with the encoder.
func parseOne(b []byte) (wire, error) {
	if len(b) < 2 {
		return wire{}, fmt.Errorf("%d bytes are no frame", len(b))
	}
	switch {
	case b[0]&0x80 == 0:
		return wire{}, fmt.Errorf("a fragment")
	case b[0]&0x30 != 0:
		return wire{}, fmt.Errorf("reserved bits %x", b[0])
	case b[1]&0x80 != 0:
		return wire{}, fmt.Errorf("a server frame is masked")
	}
	w := wire{op: b[0] & 0x0f, rsv1: b[0]&0x40 != 0}
	n, header := uint64(b[1]), 2
	switch b[1] {
	case 126:
		n, header = uint64(binary.BigEndian.Uint16(b[2:])), 4
		if n < 126 {
			return wire{}, fmt.Errorf("length %d in 16 bits", n)
		}
	case 127:
		n, header = binary.BigEndian.Uint64(b[2:]), 10
		if n < 1<<16 {
			return wire{}, fmt.Errorf("length %d in 64 bits", n)
		}
	}
	if uint64(len(b)-header) != n {
		return wire{}, fmt.Errorf("header says %d bytes, %d follow", n, len(b)-header)
	}
	w.payload = b[header:]
	if w.op >= 8 && n > 125 {
		return wire{}, fmt.Errorf("a control frame of %d bytes", n)
	}
	if w.op == 1 && !w.rsv1 && !utf8.Valid(w.payload) {
		return wire{}, fmt.Errorf("text that is not UTF-8")
	}
	return w, nil
}

func mustParse(t *testing.T, b []byte) wire {
	t.Helper()
	w, err := parseOne(b)
	if err != nil {
		t.Fatalf("%v in % x", err, b[:min(len(b), 40)])
	}
	return w
}

// inflate is what a client does that negotiated server_no_context_takeover:
// each message is inflated by itself.
func inflate(t *testing.T, deflated []byte) []byte {
	t.Helper()
	r := flate.NewReader(io.MultiReader(bytes.NewReader(deflated), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("inflating: %v", err)
	}
	return out
}

func room(t testing.TB, name string) frame.Room {
	t.Helper()
	r, err := frame.ParseRoom(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// messages covers each kind, and each payload that is awkward to encode.
func messages(t testing.TB) []frame.Message {
	lobby := room(t, "lobby")
	all := []frame.Message{
		{Room: lobby, Kind: frame.JSON, Data: []byte(`{"n":9007199254740993,"s":"<&>` + "\u2028" + `","d":1.0,"k":1,"k":2}`)},
		{Room: lobby, Kind: frame.JSON, Data: []byte(` [ 1 , "\ud800" , 1e400 ] `)},
		{Room: lobby, Kind: frame.Text, Data: []byte{}},
		{Room: lobby, Kind: frame.Binary, Data: []byte{}},
		{Room: lobby, Kind: frame.Text, Data: []byte("\x00\x1f\"\\\u2028\u2029</script>\u00e9\U0001f600\ufffd\x7f")},
		{Room: lobby, Kind: frame.Binary, Data: []byte{0xc3, 0x28, 0xed, 0xa0, 0x80, 0, 0xff}},
		{Room: room(t, strings.Repeat("~", frame.MaxRoomBytes)), Kind: frame.Text, Data: []byte("x"), Key: "k"},
	}
	for _, n := range []int{1, 124, 125, 126, 127, 255, 256, 257, 65534, 65535, 65536, 65537} {
		all = append(all, frame.Message{Room: lobby, Kind: frame.Binary, Data: bytes.Repeat([]byte{byte(n)}, n)})
	}
	return all
}

// envelope is what a hubd.v1.json client may rely on, in any order of fields.
type envelope struct {
	Type, Room string
	Seq        uint64
	Data       json.RawMessage
	Text       *string
	Base64     *string
}

func TestEncodings(t *testing.T) {
	for _, m := range messages(t) {
		t.Run(fmt.Sprintf("kind %d, %d bytes", m.Kind, len(m.Data)), func(t *testing.T) {
			var ledger frame.Ledger
			f := frame.New(&ledger, m, frame.Position{Epoch: "e", Seq: frame.MaxSeq})
			raw := mustParse(t, f.Bytes(frame.EncodingRaw))
			if want := map[bool]byte{true: 2, false: 1}[m.Kind == frame.Binary]; raw.op != want || raw.rsv1 || !bytes.Equal(raw.payload, m.Data) {
				t.Errorf("raw: opcode %d, %q", raw.op, raw.payload)
			}
			js := mustParse(t, f.Bytes(frame.EncodingJSON))
			checkEnvelope(t, js, m)
			for plain, e := range map[frame.Encoding]frame.Encoding{
				frame.EncodingRaw: frame.EncodingRawDeflate, frame.EncodingJSON: frame.EncodingJSONDeflate,
			} {
				if plain.Deflated() != e {
					t.Errorf("%v deflated is %v", plain, plain.Deflated())
				}
				want, got := mustParse(t, f.Bytes(plain)), mustParse(t, f.Bytes(e))
				payload := got.payload
				if got.rsv1 {
					payload = inflate(t, got.payload)
				}
				if got.op != want.op || !bytes.Equal(payload, want.payload) {
					t.Errorf("%v: opcode %d, %d bytes that are others", e, got.op, len(payload))
				}
				if small := len(f.Bytes(plain)) < 256; small == got.rsv1 {
					t.Errorf("%v: compressed %v at %d bytes", e, got.rsv1, len(f.Bytes(plain)))
				}
			}
		})
	}
}

func checkEnvelope(t *testing.T, js wire, m frame.Message) {
	t.Helper()
	var e envelope
	dec := json.NewDecoder(bytes.NewReader(js.payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		t.Fatalf("envelope %q: %v", js.payload, err)
	}
	if js.op != 1 || js.rsv1 || e.Type != "message" || e.Room != m.Room.String() || e.Seq != frame.MaxSeq {
		t.Errorf("envelope: opcode %d, %+v", js.op, e)
	}
	var got []byte
	switch m.Kind {
	case frame.JSON:
		// Byte for byte, white space around it included.
		if !bytes.Contains(js.payload, append([]byte(`"data":`), m.Data...)) {
			t.Errorf("data was changed: %q", js.payload)
		}
		return
	case frame.Text:
		if e.Text == nil || e.Data != nil || e.Base64 != nil {
			t.Fatalf("not text: %q", js.payload)
		}
		got = []byte(*e.Text)
	case frame.Binary:
		if e.Base64 == nil || e.Data != nil || e.Text != nil {
			t.Fatalf("not base64: %q", js.payload)
		}
		var err error
		if got, err = base64.StdEncoding.Strict().DecodeString(*e.Base64); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, m.Data) {
		t.Errorf("envelope holds %q, not %q", got, m.Data)
	}
}

func TestHeader(t *testing.T) {
	for n, header := range map[int]int{0: 2, 1: 2, 125: 2, 126: 4, 65535: 4, 65536: 10, 1 << 20: 10} {
		b := frame.Append(nil, frame.OpBinary, make([]byte, n))
		if w := mustParse(t, b); len(b) != header+n || w.op != 2 || len(w.payload) != n {
			t.Errorf("%d bytes: header of %d, want %d", n, len(b)-n, header)
		}
		if got := frame.Payload(b); len(got) != n {
			t.Errorf("Payload of %d bytes is %d bytes", n, len(got))
		}
	}
	if b := frame.Append([]byte("kept"), frame.OpPing, nil); string(b) != "kept\x89\x00" {
		t.Errorf("appended: % x", b)
	}
}

// Whoever comes first encodes; all others get the very same bytes.
func TestEncodedOnce(t *testing.T) {
	var ledger frame.Ledger
	const frames, readers = 20, 8
	for range frames {
		f := frame.New(&ledger, frame.Message{Room: room(t, "a"), Kind: frame.Text, Data: bytes.Repeat([]byte("text "), 100)}, frame.Position{Epoch: "e", Seq: 1})
		encodings := []frame.Encoding{frame.EncodingRaw, frame.EncodingJSON, frame.EncodingRawDeflate, frame.EncodingJSONDeflate}
		var mu sync.Mutex
		first := map[frame.Encoding]*byte{}
		var wg sync.WaitGroup
		for range readers {
			order := rand.Perm(len(encodings))
			wg.Go(func() {
				for _, i := range order {
					b := f.Bytes(encodings[i])
					mu.Lock()
					if first[encodings[i]] == nil {
						first[encodings[i]] = &b[0]
					}
					if first[encodings[i]] != &b[0] {
						t.Errorf("%v was encoded again", encodings[i])
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	got := ledger.Encoded()
	want := [frame.NumEncodings]uint64{frames, frames, 0, frames, frames}
	if got != want {
		t.Errorf("encodings made: %v, want %v", got, want)
	}
}

// A frame that is too small to be worth compressing serves those who
// negotiated compression as it is, and nothing is made for them.
func TestSmallFramesAreNotDeflated(t *testing.T) {
	var ledger frame.Ledger
	f := frame.New(&ledger, frame.Message{Room: room(t, "a"), Kind: frame.Text, Data: []byte("short")}, frame.Position{Epoch: "e", Seq: 1})
	if a, b := f.Bytes(frame.EncodingRawDeflate), f.Bytes(frame.EncodingRaw); &a[0] != &b[0] {
		t.Error("two forms of a small frame")
	}
	if got := ledger.Encoded()[frame.EncodingRawDeflate]; got != 0 {
		t.Errorf("%d deflated", got)
	}
}

// What is retained is counted while anybody holds the frame, whoever lets go
// last, and returns to nothing.
func TestLedger(t *testing.T) {
	var ledger frame.Ledger
	const holders = 50
	f := frame.New(&ledger, frame.Message{Room: room(t, "a"), Kind: frame.Binary, Data: make([]byte, 1000)}, frame.Position{Epoch: "e", Seq: 1})
	if got := ledger.Retained(); got != 1000 {
		t.Errorf("retained %d before any encoding, want the payload", got)
	}
	raw := int64(len(f.Bytes(frame.EncodingRaw)))
	if got := ledger.Retained(); got != 1000+raw {
		t.Errorf("retained %d, want payload and one encoding, %d", got, 1000+raw)
	}
	f.Retain(holders)
	var wg sync.WaitGroup
	for i := range holders {
		wg.Go(func() {
			f.Bytes(frame.Encoding(i % 2))
			f.Release(1)
		})
	}
	wg.Wait()
	if got, want := ledger.Retained(), 1000+raw+int64(len(f.Bytes(frame.EncodingJSON))); got != want {
		t.Errorf("retained %d while held, want %d", got, want)
	}
	f.Release(1)
	if got := ledger.Retained(); got != 0 {
		t.Errorf("retained %d after the last holder", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("releasing what nobody holds went unnoticed")
		}
	}()
	f.Release(1)
}

func TestEncodingNames(t *testing.T) {
	if got := frame.Encodings(); !slices.Equal(got, []string{"raw", "json", "sse", "raw_deflate", "json_deflate"}) {
		t.Errorf("%q", got)
	}
	for i, name := range frame.Encodings() {
		if got := frame.Encoding(i).String(); got != name {
			t.Errorf("encoding %d is %q, want %q", i, got, name)
		}
	}
}

func TestValidate(t *testing.T) {
	bad := map[string]string{
		"overlong": "\xc0\xaf", "surrogate": "\xed\xa0\x80", "cut": "\xf0\x9f\x98", "alone": "\xc3\x28", "too high": "\xf4\x90\x80\x80",
	}
	for name, text := range bad {
		for _, kind := range []frame.Kind{frame.Text, frame.JSON} {
			m := frame.Message{Kind: kind, Data: []byte(`"` + text + `"`)}
			if err := m.Validate(); err != frame.ErrUTF8 {
				t.Errorf("%s as kind %d: %v", name, kind, err)
			}
		}
		m := frame.Message{Kind: frame.Binary, Data: []byte(text)}
		if err := m.Validate(); err != nil {
			t.Errorf("%s as binary: %v", name, err)
		}
	}
	for _, text := range []string{"", " ", "{", "1 2", "nul", "'a'", "\ufeff1", `{"a":1,}`, "01", "NaN"} {
		m := frame.Message{Kind: frame.JSON, Data: []byte(text)}
		if err := m.Validate(); err != frame.ErrJSON {
			t.Errorf("JSON %q: %v", text, err)
		}
	}
	for key, want := range map[string]error{
		"": nil, "a": nil, strings.Repeat("k", 128): nil, "\u00e9 \u2028": nil,
		strings.Repeat("k", 129): frame.ErrKey, "a\x00": frame.ErrKey, "\x7f": frame.ErrKey, "\n": frame.ErrKey, "\xff": frame.ErrKey,
	} {
		m := frame.Message{Kind: frame.Binary, Key: key}
		if err := m.Validate(); err != want {
			t.Errorf("key %q: %v, want %v", key, err, want)
		}
	}
}
