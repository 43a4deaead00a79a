package server_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"hubd/internal/server"
)

const (
	rsv1 = 0x40
	rsv2 = 0x20
	rsv3 = 0x10

	// The limits of one WebSocket message, from the limit of 64 KiB on what is
	// published.
	rawLimit  = 64 << 10
	jsonLimit = 6*rawLimit + 4096
)

func TestCorpusLengths(t *testing.T) {
	runCorpus(t, slices.Concat(lengthCases(), oversizeCases()), server.Config{})
}
func TestCorpusMasks(t *testing.T) { runCorpus(t, maskCases(), server.Config{}) }
func TestCorpusBits(t *testing.T)  { runCorpus(t, bitCases(), server.Config{}) }
func TestCorpusFragments(t *testing.T) {
	runCorpus(t, slices.Concat(fragmentCases(), assemblyCases()), server.Config{})
}

func lengthCases() (all []protoCase) {
	add := func(name string, send []chunk, want []any) {
		all = append(all, protoCase{"5.2", name, send, want, ""})
	}
	for _, n := range []int{0, 1, 2, 124, 125, 126, 127, 128, 255, 256, 1000, 65534, 65535, 65536} {
		all = append(all, protoCase{"5.2", fmt.Sprint("text of ", n), says(sized(n)), gets(ofSize(n)), "raw"})
		if n > 64 {
			all = append(all, protoCase{"5.2", fmt.Sprint("command of ", n), says(sized(n)), gets(ofSize(n)), "json"})
		}
	}
	for _, n := range []int{0, 125, 126, 65535, 65536} {
		s := strings.Repeat("\x00\xff", n/2+1)[:n]
		add(fmt.Sprint("binary of ", n), says(bin(s)), gets([]byte(s)))
	}
	add("two texts", says(txt("a"), txt("b")), gets("a", "b"))
	add("no text at all", nil, nil)

	// The minimal number of bytes MUST be used.
	for _, c := range []struct{ n, form int }{{0, 16}, {1, 16}, {125, 16}, {0, 64}, {1, 64}, {125, 64}, {126, 64}, {1000, 64}, {65535, 64}} {
		s := strings.Repeat("x", c.n)
		name := fmt.Sprintf("%d in %d bits", c.n, c.form)
		add(name+" text", says(txt("before"), frameOf(opText, verbatim(s), inForm(c.form))), gets("before", fails(1002)))
		add(name+" binary", says(bin(s, inForm(c.form))), gets(fails(1002)))
		add(name+" continuation", says(txt("x", unfinished), control(opContinuation, s, inForm(c.form))), gets(fails(1002)))
		if c.n <= 125 {
			add(name+" ping", says(pingFrame(s, inForm(c.form))), gets(fails(1002)))
			add(name+" pong", says(pongOf(s, inForm(c.form))), gets(fails(1002)))
			add(name+" close", says(closes(s, inForm(c.form))), gets(fails(1002)))
		}
	}
	// The most significant bit MUST be 0.
	for _, n := range []uint64{1 << 63, 1<<63 | 5, math.MaxUint64, math.MaxUint64 - 13} {
		for _, op := range []byte{opText, opBinary, opPing, opClose} {
			add(fmt.Sprintf("length %#x of opcode %d", n, op), says(txt("before"), control(op, "hello", claiming(n))), gets("before", fails(1002)))
		}
		add(fmt.Sprintf("length %#x of a continuation", n), says(txt("a", unfinished), control(opContinuation, "hello", claiming(n))), gets(fails(1002)))
	}
	return all
}

// Beyond the limit a message is refused by its header, before it is sent
// (section 10.4).
func oversizeCases() (all []protoCase) {
	add := func(only, name string, send []chunk, want []any) {
		all = append(all, protoCase{"10.4", name, send, want, only})
	}
	for _, n := range []uint64{jsonLimit + 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 5, 1 << 40, 1 << 62, math.MaxInt64} {
		add("", fmt.Sprintf("text that says %#x", n), says(txt("before"), control(opText, "hello", claiming(n))), gets("before", fails(1009)))
		add("", fmt.Sprintf("binary that says %#x", n), says(control(opBinary, "hello", claiming(n))), gets(fails(1009)))
		add("", fmt.Sprintf("continuation that says %#x", n), says(txt("a", unfinished), control(opContinuation, "hello", claiming(n))), gets(fails(1009)))
	}
	for _, c := range []struct {
		only  string
		limit int
	}{{"raw", rawLimit}, {"json", jsonLimit}} {
		add(c.only, "the limit", says(sized(c.limit), txt("b")), gets(ofSize(c.limit), "b"))
		add(c.only, "the limit in fragments", says(evenly(c.limit, 7)), gets(ofSize(c.limit)))
		add(c.only, "the limit in fragments, with pings", says(between(evenly(c.limit, 7), pingFrame("p"))),
			gets(ofSize(c.limit), pong("p"), pong("p"), pong("p"), pong("p"), pong("p"), pong("p")))
		add(c.only, "the limit and an empty fragment", says(sized(c.limit, unfinished), control(opContinuation, "")), gets(ofSize(c.limit)))
		add(c.only, "one byte more", says(txt("before"), sized(c.limit+1)), gets("before", fails(1009)))
		add(c.only, "one byte more in fragments", says(evenly(c.limit+1, 7)), gets(fails(1009)))
		add(c.only, "one byte more behind a fragment", says(sized(c.limit, unfinished), control(opContinuation, "x")), gets(fails(1009)))
		add(c.only, "one byte more and no end", says(sized(c.limit, unfinished), control(opContinuation, "x", unfinished)), gets(fails(1009)))
		add(c.only, "half a message more", says(evenly(c.limit*3/2, 3)), gets(fails(1009)))
		add(c.only, "one byte more, of which little comes", says(firstBytes(100, sized(c.limit+1))), gets(fails(1009)))
	}
	add("raw", "binary of the limit", says(bin(strings.Repeat("\xff", rawLimit))), gets([]byte(strings.Repeat("\xff", rawLimit))))
	add("raw", "binary of one byte more", says(bin(strings.Repeat("\xff", rawLimit+1))), gets(fails(1009)))
	add("json", "a text of the limit", says(txt(strings.Repeat("x", rawLimit))), gets(strings.Repeat("x", rawLimit)))
	add("json", "a text beyond the limit is told", says(txt(strings.Repeat("x", rawLimit+1)), txt("b")), gets(refusal("message_too_large"), "b"))
	add("json", "a text of escapes", says(txt(strings.Repeat(`\u0001`, rawLimit))), gets(strings.Repeat("\x01", rawLimit)))
	add("json", "escapes beyond the limit", says(txt(strings.Repeat(`\u0001`, rawLimit+1)), txt("b")), gets(refusal("message_too_large"), "b"))
	return all
}

// Section 5.1: a client masks all frames. Section 5.3: how.
func maskCases() (all []protoCase) {
	add := func(section, name string, send []chunk, want []any) {
		all = append(all, protoCase{section, name, send, want, ""})
	}
	for _, op := range []byte{opContinuation, opText, opBinary, opClose, opPing, opPong} {
		for _, s := range []string{"", "hello"} {
			add("5.1", fmt.Sprintf("unmasked %d %q", op, s), says(txt("before"), control(op, s, unmasked)), gets("before", fails(1002)))
		}
	}
	add("5.1", "an unmasked fragment", says(txt("a", unfinished), control(opContinuation, "b", unmasked)), gets(fails(1002)))
	add("5.1", "an unmasked ping in a message", says(txt("a", unfinished), pingFrame("b", unmasked), control(opContinuation, "c")), gets(fails(1002)))
	add("5.1", "an unmasked close with a code", says(closing(1000, "", unmasked)), gets(fails(1002)))
	for _, key := range [][]byte{{0, 0, 0, 0}, {255, 255, 255, 255}, {0, 0, 0, 1}, {1, 0, 0, 0}, {0x80, 0x81, 0x82, 0x83}, []byte("hell")} {
		for _, s := range []string{"", "h", "hello", "hello, 8", "a text of thirty-three letters..."} {
			add("5.3", fmt.Sprintf("key % x of %q", key, s), says(txt(s, withKey(key...))), gets(s))
		}
		add("5.3", fmt.Sprintf("key % x of a ping", key), says(pingFrame("hello", withKey(key...))), gets(pong("hello")))
	}
	for n := range 18 {
		s := "abcdefghijklmnopqrstuvwxyz"[:n]
		add("5.3", fmt.Sprint("masked length ", n), says(txt(s)), gets(s))
		add("5.3", fmt.Sprint("masked fragments of ", n), says(cut(s+s+s, n, 2*n)), gets(s+s+s))
	}
	add("5.3", "a key a frame", says(txt("one", withKey(1, 2, 3, 4)), txt("two", withKey(5, 6, 7, 8))), gets("one", "two"))
	return all
}

// Section 5.2: reserved bits and opcodes.
func bitCases() (all []protoCase) {
	add := func(name string, send []chunk, want []any) {
		all = append(all, protoCase{"5.2", name, send, want, ""})
	}
	for bits := range 7 {
		r := byte(bits+1) << 4
		add(fmt.Sprintf("bits %#x of a text", r), says(txt("before"), txt("bad", rsv(r))), gets("before", fails(1002)))
		add(fmt.Sprintf("bits %#x of a binary", r), says(bin("bad", rsv(r))), gets(fails(1002)))
		add(fmt.Sprintf("bits %#x of an empty text", r), says(frameOf(opText, verbatim(""), rsv(r))), gets(fails(1002)))
		add(fmt.Sprintf("bits %#x of a first fragment", r), says(txt("bad", rsv(r), unfinished), control(opContinuation, "")), gets(fails(1002)))
		add(fmt.Sprintf("bits %#x of a continuation", r), says(txt("a", unfinished), control(opContinuation, "b", rsv(r))), gets(fails(1002)))
		add(fmt.Sprintf("bits %#x of a ping", r), says(pingFrame("bad", rsv(r))), gets(fails(1002)))
		add(fmt.Sprintf("bits %#x of a pong", r), says(pongOf("bad", rsv(r))), gets(fails(1002)))
		add(fmt.Sprintf("bits %#x of a close", r), says(closing(1000, "", rsv(r))), gets(fails(1002)))
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		add(fmt.Sprint("opcode ", op), says(txt("before"), control(op, "hello")), gets("before", fails(1002)))
		add(fmt.Sprint("empty opcode ", op), says(control(op, "")), gets(fails(1002)))
		add(fmt.Sprint("unfinished opcode ", op), says(control(op, "hello", unfinished), control(opContinuation, "!")), gets(fails(1002)))
		add(fmt.Sprint("opcode in a message ", op), says(txt("a", unfinished), control(op, "b"), control(opContinuation, "c")), gets(fails(1002)))
	}
	return all
}

// Section 5.4.
func fragmentCases() (all []protoCase) {
	add := func(name string, send []chunk, want []any) {
		all = append(all, protoCase{"5.4", name, send, want, ""})
	}
	end, more := control(opContinuation, ""), control(opContinuation, "", unfinished)
	add("two", says(cut("hello", 2)), gets("hello"))
	add("three", says(cut("hello", 1, 3)), gets("hello"))
	add("a letter each", says(cut("hello", 1, 2, 3, 4)), gets("hello"))
	add("an empty first", says(cut("hello", 0)), gets("hello"))
	add("an empty last", says(txt("hello", unfinished), end), gets("hello"))
	add("empties between", says(txt("hello", unfinished), more, more, more, end), gets("hello"))
	add("empties among", says(cut("hello", 2, 2, 2, 4, 4)), gets("hello"))
	add("two messages", says(cut("hello", 2), cut("world", 3), txt("!")), gets("hello", "world", "!"))
	add("binary", says(cutBinary("hello", 0, 2, 2)), gets([]byte("hello")))
	add("nothing", says(frameOf(opBinary, verbatim(""), unfinished), more, end), gets([]byte{}))
	add("1,024", says(evenly(2000, 1024)), gets(ofSize(2000)))
	add("1,024, most empty", says(txt("x", unfinished), manyOf(1022, more), end), gets("x"))
	add("1,024 twice", says(evenly(2000, 1024), evenly(2000, 1024)), gets(ofSize(2000), ofSize(2000)))
	add("1,025", says(evenly(2000, 1025)), gets(fails(1002)))
	add("1,025, all empty", says(frameOf(opText, verbatim(""), unfinished), manyOf(1023, more), end), gets(fails(1002)))
	add("without an end", says(frameOf(opText, verbatim(""), unfinished), manyOf(3000, more)), gets(fails(1002)))
	add("1,024 with 1,023 pings", says(between(evenly(2000, 1024), pongOf("x"))), gets(ofSize(2000)))

	add("a ping between", says(between(cut("hello", 2), pingFrame("p"))), gets("hello", pong("p")))
	add("a ping between each", says(between(cut("hello", 1, 2, 3, 4), pingFrame("p"))), gets("hello", pong("p"), pong("p"), pong("p"), pong("p")))
	add("pings and pongs between", says(between(cut("hello", 2, 4), pongOf("x"), pingFrame("1"), pongOf(""), pingFrame("2"))), gets("hello", pong("1"), pong("2"), pong("1"), pong("2")))
	add("a long ping between", says(between(cut("hello", 2), pingFrame(strings.Repeat("p", 125)))), gets("hello", pong(strings.Repeat("p", 125))))
	add("a ping before and after", says(pingFrame("1"), between(cut("hello", 2), pingFrame("2")), pingFrame("3")), gets("hello", pong("1"), pong("2"), pong("3")))
	add("a close between", says(txt("before"), between(cut("hello", 2), closing(1000, ""))), gets("before", echo(1000)))
	add("a close instead of the last", says(txt("a", unfinished), closing(1001, "")), gets(echo(1001)))

	add("continuation of nothing", says(control(opContinuation, "x")), gets(fails(1002)))
	add("continuation of nothing, empty", says(end), gets(fails(1002)))
	add("continuation of nothing, unfinished", says(more, end), gets(fails(1002)))
	add("continuation of a whole text", says(txt("a"), control(opContinuation, "b")), gets("a", fails(1002)))
	add("continuation of a finished message", says(cut("hello", 2), control(opContinuation, "b")), gets("hello", fails(1002)))
	add("continuation of a ping", says(pingFrame("a"), control(opContinuation, "b")), gets(pong("a"), fails(1002)))
	for _, op := range []byte{opText, opBinary} {
		add(fmt.Sprint("opcode ", op, " in a text"), says(txt("a", unfinished), control(op, "b")), gets(fails(1002)))
		add(fmt.Sprint("opcode ", op, " in a binary"), says(bin("a", unfinished), control(op, "b"), end), gets(fails(1002)))
		add(fmt.Sprint("opcode ", op, " begun in a text"), says(txt("a", unfinished), more, control(op, "", unfinished), end), gets(fails(1002)))
	}
	for _, op := range []byte{opClose, opPing, opPong} {
		add(fmt.Sprint("unfinished control ", op), says(control(op, "", unfinished), control(op, "")), gets(fails(1002)))
		add(fmt.Sprint("control in fragments ", op), says(control(op, "ab", unfinished), control(opContinuation, "cd")), gets(fails(1002)))
		add(fmt.Sprint("unfinished control in a message ", op), says(txt("a", unfinished), control(op, "", unfinished), end), gets(fails(1002)))
	}
	return all
}

func manyOf(n int, c chunk) []chunk { return slices.Repeat([]chunk{c}, n) }

// A message must come whole within ten seconds, and a stream may end anywhere.
func assemblyCases() (all []protoCase) {
	for _, c := range []struct {
		name string
		send []chunk
	}{
		{"a fragment and silence", says(txt("a", unfinished))},
		{"a header and silence", says(firstBytes(6, txt("a text")))},
		{"half a frame and silence", says(lacking(3, txt("a text")))},
		{"fragments, a ping and silence", says(txt("a", unfinished), control(opContinuation, "b", unfinished))},
		{"a header in a message and silence", says(txt("a", unfinished), firstBytes(1, control(opContinuation, "b")))},
	} {
		all = append(all, protoCase{"10.4", c.name, says(txt("before"), c.send), gets("before", after{10 * time.Second, 1002}), ""})
	}
	long := sized(70000)
	for _, c := range []struct {
		name string
		send []chunk
	}{
		{"at once", nil},
		{"after a byte", says(firstBytes(1, txt("a")))},
		{"in a mask", says(firstBytes(4, txt("a")))},
		{"in a length of 16 bits", says(firstBytes(3, sized(300)))},
		{"in a length of 64 bits", says(firstBytes(9, long))},
		{"behind a header", says(firstBytes(6, txt("a")))},
		{"in a text", says(lacking(1, txt("a")))},
		{"in a ping", says(lacking(1, pingFrame("a")))},
		{"in a close", says(lacking(1, closing(1000, "")))},
		{"behind a fragment", says(txt("a", unfinished))},
		{"in a fragment", says(lacking(1, txt("abc", unfinished)))},
	} {
		all = append(all, protoCase{"7.1.5", "the stream ends " + c.name, says(txt("before"), c.send), gets("before", hangUp{}), ""})
	}
	return all
}
