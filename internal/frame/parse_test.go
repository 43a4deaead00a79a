package frame_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"hubd/internal/frame"
)

var roomName = regexp.MustCompile(`\A[A-Za-z0-9._~:@-]{1,128}\z`)

// A name is one by the contract's words, needs no escaping where it is used
// unescaped, and comes back as it went in.
func FuzzRoom(f *testing.F) {
	for _, s := range []string{"", ".", "..", "...", "a", "A.b_c~d:e@f-9", "a/b", "a b", "\u00e9", "a\x00", "%61", "a%2fb",
		strings.Repeat("x", 128), strings.Repeat("x", 129), "\xff", "a\n", "*", "?", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := frame.ParseRoom(s)
		if want := roomName.MatchString(s) && s != "." && s != ".."; want != (err == nil) {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil {
			if err != frame.ErrRoom || r != (frame.Room{}) {
				t.Fatalf("%q: %v, %v", s, r, err)
			}
			return
		}
		if r.String() != s {
			t.Fatalf("%q became %q", s, r)
		}
		if b, err := json.Marshal(s); err != nil || string(b) != `"`+s+`"` {
			t.Fatalf("%q needs escaping in JSON: %s", s, b)
		}
		if b, err := json.Marshal(r); err != nil || string(b) != `"`+s+`"` {
			t.Fatalf("%q is %s in JSON", s, b)
		}
		// As one path segment, whatever is resolved against it.
		u, err := url.Parse("http://h/rooms/" + s)
		if err != nil || u.Path != "/rooms/"+s || u.RawPath != "" || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q does not survive in a URL: %v, %v", s, u, err)
		}
	})
}

var position = regexp.MustCompile(`\A([A-Za-z0-9]{1,64}):([0-9]+)\z`)

// A position is read back as it was written, and nothing else is one.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", ":", "a:", ":1", "a:1", "a:0", "a:01", "a:+1", "a:-1", "a:1 ", " a:1", "a:1:2", "a:9007199254740991",
		"a:9007199254740992", "a:18446744073709551616", "a-b:1", "a:1_0", "a:0x1", "a:\u0661", strings.Repeat("e", 65) + ":1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := frame.ParsePosition(s)
		m := position.FindStringSubmatch(s)
		valid := false
		if m != nil {
			n, err := strconv.ParseUint(m[2], 10, 64)
			valid = err == nil && n < 1<<53
		}
		if valid != (err == nil) {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil {
			if err != frame.ErrPosition || p != (frame.Position{}) {
				t.Fatalf("%q: %v, %v", s, p, err)
			}
			return
		}
		if again, err := frame.ParsePosition(p.String()); err != nil || again != p {
			t.Fatalf("%q is %v, is written %q and read as %v, %v", s, p, p, again, err)
		}
	})
}

func TestEpochs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		e := frame.NewEpoch()
		if seen[e] {
			t.Fatalf("epoch %q came twice", e)
		}
		seen[e] = true
		if p, err := frame.ParsePosition(frame.Position{Epoch: e, Seq: 7}.String()); err != nil || p.Epoch != e || p.Seq != 7 {
			t.Fatalf("epoch %q does not come back: %v, %v", e, p, err)
		}
	}
}
