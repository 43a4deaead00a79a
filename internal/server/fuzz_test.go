package server

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"hubd/internal/frame"
	"hubd/internal/hub"
)

// naiveScan walks a whole stream at once. It returns where the header ends that
// opens one fragment too many, or -1.
func naiveScan(b []byte) int {
	fragments := 0
	for at := 0; ; {
		if len(b)-at < 2 {
			return -1
		}
		fin, op, masked, n := b[at]&0x80 != 0, b[at]&0x0f, b[at+1]&0x80 != 0, uint64(b[at+1]&0x7f)
		header := map[bool]int{true: 2 + 4, false: 2}[masked]
		switch n {
		case 126:
			if header += 2; len(b)-at < header {
				return -1
			}
			n = uint64(binary.BigEndian.Uint16(b[at+2:]))
		case 127:
			if header += 8; len(b)-at < header {
				return -1
			}
			n = binary.BigEndian.Uint64(b[at+2:])
		}
		if len(b)-at < header {
			return -1
		}
		at += header
		if op < 8 {
			if fragments++; fragments > maxFragments {
				return at
			}
			if fin {
				fragments = 0
			}
		}
		if n > uint64(len(b)-at) {
			return -1
		}
		at += int(n)
	}
}

// The scanner says the same however the stream is cut up, and lets no message
// have more fragments than a scanner sees that looks for nothing else.
func FuzzScan(f *testing.F) {
	f.Add([]byte{}, byte(1), uint16(0))
	f.Add([]byte{0x81, 0x85, 1, 2, 3, 4, 'h', 'e', 'l', 'l', 'o'}, byte(3), uint16(0))
	f.Add([]byte{0x01, 0x80, 1, 2, 3, 4, 0x89, 0x80, 1, 2, 3, 4, 0x80, 0x00}, byte(1), uint16(1))
	f.Add([]byte{0x02, 0xfe, 0, 126}, byte(2), uint16(1030))
	f.Add([]byte{0x01, 0x80, 1, 2, 3, 4}, byte(7), uint16(1025))
	f.Add([]byte{0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, byte(5), uint16(3))
	f.Add([]byte{0x88, 0x82, 1, 2, 3, 4, 0x03 ^ 1, 0xe8 ^ 2}, byte(2), uint16(0))
	f.Fuzz(func(t *testing.T, unit []byte, cut byte, times uint16) {
		// Repeated, so that a short input can have many fragments.
		stream := []byte(strings.Repeat(string(unit), 1+int(times)%1100))
		if len(stream) > 1<<16 {
			return
		}
		inPieces := func(size int) (good int, err error) {
			s := frameScanner{limit: 1 << 12, deflate: cut%2 == 0}
			for good < len(stream) && err == nil {
				var n int
				n, err = s.scan(stream[good:min(good+size, len(stream))])
				good += n
			}
			return good, err
		}
		good, err := inPieces(len(stream) + 1)
		for _, size := range []int{1, 1 + int(cut)} {
			// Of a close frame that is refused whole, more or less may be let by.
			if g, e := inPieces(size); g != good && err == nil || !errors.Is(e, err) {
				t.Fatalf("in pieces of %d: %d, %v; whole: %d, %v", size, g, e, good, err)
			}
		}
		if at := naiveScan(stream); at >= 0 && (err == nil || good > at) {
			t.Fatalf("too many fragments after %d bytes; it was %d, %v", at, good, err)
		}
	})
}

// A command is taken or refused, with its id wherever one can be made out, and
// a refusal repeats nothing of what came.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		`{"type":"join","id":1,"room":"lobby","policy":"keep-latest","after":"8kq2:41","queue_messages":5,"queue_bytes":6,"gaps":false}`,
		`{"type":"leave","id":2,"room":"lobby"}`, `{"type":"publish","id":3,"room":"a","text":"\ud83d\ude00\ud800"}`,
		`{"type":"publish","data":{"a":[1]},"key":"k"}`, `{"type":"publish","base64":"wyg="}`, `{"type":"auth","id":4,"token":"t"}`,
		`{"type":"ping","id":9007199254740992}`, `{"ID":1}`, `{}`, `null`, `[]`, `{"type":"ping"}}`, "\xff", `{"text":"\`, `{"text":"\u12"}`, `{"id":1,"id":"x"}`,
	} {
		f.Add([]byte(s))
	}
	room, err := frame.ParseRoom("r")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cmd, refusal := parseCommand(data)
		if n, ok := idOf(data); ok && cmd.ID != n {
			t.Fatalf("id %q, want %q", cmd.ID, n)
		}
		if refusal != nil {
			check(t, refusal)
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is no JSON", data)
		}
		if _, err := cmd.join(room); err != nil {
			check(t, err)
		}
		m, err := cmd.message(room)
		if err != nil {
			check(t, err)
			return
		}
		if m.Kind == frame.Text && utf8.Valid(data) {
			if !utf8.Valid(m.Data) {
				t.Fatalf("text %q", m.Data)
			}
			// Nothing was replaced: the text reads back as itself.
			var again string
			b, err := json.Marshal(string(m.Data))
			if err != nil || json.Unmarshal(b, &again) != nil || again != string(m.Data) {
				t.Fatalf("%q reads back as %q, %v", m.Data, again, err)
			}
			if strings.Contains(string(m.Data), "\ufffd") && !strings.Contains(string(data), "\ufffd") && !strings.Contains(strings.ToLower(string(data)), `\ufffd`) {
				t.Fatalf("%q became %q", data, m.Data)
			}
		}
	})
}

// idOf is the id of a command, read without its type: of an object whose last
// "id" is an integer that JavaScript holds. Other spellings of the name are
// left alone.
func idOf(data []byte) (requestID, bool) {
	var o map[string]json.RawMessage
	if json.Unmarshal(data, &o) != nil {
		return "", false
	}
	for name := range o {
		if name != "id" && strings.EqualFold(name, "id") {
			return "", false
		}
	}
	var n uint64
	if raw, ok := o["id"]; !ok || strings.Count(string(data), `id"`) != 1 || json.Unmarshal(raw, &n) != nil || n > frame.MaxSeq || string(raw) == "null" {
		return "", false
	}
	return requestID(o["id"]), true
}

func check(t *testing.T, err error) {
	t.Helper()
	var e *hub.Error
	if !errors.As(err, &e) || e.Code == "" || e.Detail == "" || len(e.Detail) > 300 {
		t.Fatalf("refused with %v", err)
	}
	if b := errorAnswer("1", err); !json.Valid(b) {
		t.Fatalf("answer %q", b)
	}
}

// A room's name gets the same verdict in a URL, in any percent-encoding, as
// anywhere else; and what is not one segment is no room at all.
func FuzzRoomPath(f *testing.F) {
	for _, s := range []string{"lobby", "a b", "..", ".", "a/b", "\u00e9", "a%62", "%", "~:@-", "", "history", "a\x00", "\xff", "\"/"} {
		f.Add(s, uint64(0))
		f.Add(s, ^uint64(0))
	}
	f.Fuzz(func(t *testing.T, name string, escape uint64) {
		const hex = "0123456789abcdefABCDEF"
		var b strings.Builder
		for i := range len(name) {
			c := name[i]
			if plain := strings.IndexByte("%?#/", c) < 0 && c > 0x20 && c < 0x7f; plain && escape>>(i%64)&1 == 0 {
				b.WriteByte(c)
				continue
			}
			lower := escape>>((i+7)%64)&1 == 0
			b.WriteByte('%')
			for _, nibble := range []byte{c >> 4, c & 15} {
				if !lower && nibble > 9 {
					nibble += 6
				}
				b.WriteByte(hex[nibble])
			}
		}
		u, err := url.ParseRequestURI("/rooms/" + b.String())
		if err != nil {
			return // net/http refuses it before we see it
		}
		got, ok, err := roomOf(escapedPath(u), "/rooms/")
		if ok != (name != "") {
			t.Fatalf("%q: shape %v", name, ok)
		}
		want, wantErr := frame.ParseRoom(name)
		if ok && (got != want || (err == nil) != (wantErr == nil)) {
			t.Fatalf("%q as %q: %v, %v; want %v, %v", name, b.String(), got, err, want, wantErr)
		}
	})
}
