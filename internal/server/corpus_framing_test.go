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
		all = append(all, protoCase{"5.2", fmt.Sprint("text of ", n), send(sized(n)), want(ofSize(n)), "raw"})
		if n > 64 {
			all = append(all, protoCase{"5.2", fmt.Sprint("command of ", n), send(sized(n)), want(ofSize(n)), "json"})
		}
	}
	for _, n := range []int{0, 125, 126, 65535, 65536} {
		s := strings.Repeat("\x00\xff", n/2+1)[:n]
		add(fmt.Sprint("binary of ", n), send(bin(s)), want([]byte(s)))
	}
	add("two texts", send(txt("a"), txt("b")), want("a", "b"))
	add("no text at all", nil, nil)

	// The minimal number of bytes MUST be used.
	for _, c := range []struct{ n, form int }{{0, 16}, {1, 16}, {125, 16}, {0, 64}, {1, 64}, {125, 64}, {126, 64}, {1000, 64}, {65535, 64}} {
		s := strings.Repeat("x", c.n)
		name := fmt.Sprintf("%d in %d bits", c.n, c.form)
		add(name+" text", send(txt("before"), one(opText, verbatim(s), form(c.form))), want("before", fails(1002)))
		add(name+" binary", send(bin(s, form(c.form))), want(fails(1002)))
		add(name+" continuation", send(txt("x", unfinished), control(opContinuation, s, form(c.form))), want(fails(1002)))
		if c.n <= 125 {
			add(name+" ping", send(ping(s, form(c.form))), want(fails(1002)))
			add(name+" pong", send(pongOf(s, form(c.form))), want(fails(1002)))
			add(name+" close", send(closes(s, form(c.form))), want(fails(1002)))
		}
	}
	// The most significant bit MUST be 0.
	for _, n := range []uint64{1 << 63, 1<<63 | 5, math.MaxUint64, math.MaxUint64 - 13} {
		for _, op := range []byte{opText, opBinary, opPing, opClose} {
			add(fmt.Sprintf("length %#x of opcode %d", n, op), send(txt("before"), control(op, "hello", claiming(n))), want("before", fails(1002)))
		}
		add(fmt.Sprintf("length %#x of a continuation", n), send(txt("a", unfinished), control(opContinuation, "hello", claiming(n))), want(fails(1002)))
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
		add("", fmt.Sprintf("text that says %#x", n), send(txt("before"), control(opText, "hello", claiming(n))), want("before", fails(1009)))
		add("", fmt.Sprintf("binary that says %#x", n), send(control(opBinary, "hello", claiming(n))), want(fails(1009)))
		add("", fmt.Sprintf("continuation that says %#x", n), send(txt("a", unfinished), control(opContinuation, "hello", claiming(n))), want(fails(1009)))
	}
	for _, c := range []struct {
		only  string
		limit int
	}{{"raw", rawLimit}, {"json", jsonLimit}} {
		add(c.only, "the limit", send(sized(c.limit), txt("b")), want(ofSize(c.limit), "b"))
		add(c.only, "the limit in fragments", send(evenly(c.limit, 7)), want(ofSize(c.limit)))
		add(c.only, "the limit in fragments, with pings", send(between(evenly(c.limit, 7), ping("p"))),
			want(ofSize(c.limit), pong("p"), pong("p"), pong("p"), pong("p"), pong("p"), pong("p")))
		add(c.only, "the limit and an empty fragment", send(sized(c.limit, unfinished), control(opContinuation, "")), want(ofSize(c.limit)))
		add(c.only, "one byte more", send(txt("before"), sized(c.limit+1)), want("before", fails(1009)))
		add(c.only, "one byte more in fragments", send(evenly(c.limit+1, 7)), want(fails(1009)))
		add(c.only, "one byte more behind a fragment", send(sized(c.limit, unfinished), control(opContinuation, "x")), want(fails(1009)))
		add(c.only, "one byte more and no end", send(sized(c.limit, unfinished), control(opContinuation, "x", unfinished)), want(fails(1009)))
		add(c.only, "half a message more", send(evenly(c.limit*3/2, 3)), want(fails(1009)))
		add(c.only, "one byte more, of which little comes", send(first(100, sized(c.limit+1))), want(fails(1009)))
	}
	add("raw", "binary of the limit", send(bin(strings.Repeat("\xff", rawLimit))), want([]byte(strings.Repeat("\xff", rawLimit))))
	add("raw", "binary of one byte more", send(bin(strings.Repeat("\xff", rawLimit+1))), want(fails(1009)))
	add("json", "a text of the limit", send(txt(strings.Repeat("x", rawLimit))), want(strings.Repeat("x", rawLimit)))
	add("json", "a text beyond the limit is told", send(txt(strings.Repeat("x", rawLimit+1)), txt("b")), want(refusal("message_too_large"), "b"))
	add("json", "a text of escapes", send(txt(strings.Repeat(`\u0001`, rawLimit))), want(strings.Repeat("\x01", rawLimit)))
	add("json", "escapes beyond the limit", send(txt(strings.Repeat(`\u0001`, rawLimit+1)), txt("b")), want(refusal("message_too_large"), "b"))
	return all
}

// Section 5.1: a client masks all frames. Section 5.3: how.
func maskCases() (all []protoCase) {
	add := func(section, name string, send []chunk, want []any) {
		all = append(all, protoCase{section, name, send, want, ""})
	}
	for _, op := range []byte{opContinuation, opText, opBinary, opClose, opPing, opPong} {
		for _, s := range []string{"", "hello"} {
			add("5.1", fmt.Sprintf("unmasked %d %q", op, s), send(txt("before"), control(op, s, unmasked)), want("before", fails(1002)))
		}
	}
	add("5.1", "an unmasked fragment", send(txt("a", unfinished), control(opContinuation, "b", unmasked)), want(fails(1002)))
	add("5.1", "an unmasked ping in a message", send(txt("a", unfinished), ping("b", unmasked), control(opContinuation, "c")), want(fails(1002)))
	add("5.1", "an unmasked close with a code", send(closing(1000, "", unmasked)), want(fails(1002)))
	for _, key := range [][]byte{{0, 0, 0, 0}, {255, 255, 255, 255}, {0, 0, 0, 1}, {1, 0, 0, 0}, {0x80, 0x81, 0x82, 0x83}, []byte("hell")} {
		for _, s := range []string{"", "h", "hello", "hello, 8", "a text of thirty-three letters..."} {
			add("5.3", fmt.Sprintf("key % x of %q", key, s), send(txt(s, withKey(key...))), want(s))
		}
		add("5.3", fmt.Sprintf("key % x of a ping", key), send(ping("hello", withKey(key...))), want(pong("hello")))
	}
	for n := range 18 {
		s := "abcdefghijklmnopqrstuvwxyz"[:n]
		add("5.3", fmt.Sprint("masked length ", n), send(txt(s)), want(s))
		add("5.3", fmt.Sprint("masked fragments of ", n), send(cut(s+s+s, n, 2*n)), want(s+s+s))
	}
	add("5.3", "a key a frame", send(txt("one", withKey(1, 2, 3, 4)), txt("two", withKey(5, 6, 7, 8))), want("one", "two"))
	return all
}

// Section 5.2: reserved bits and opcodes.
func bitCases() (all []protoCase) {
	add := func(name string, send []chunk, want []any) {
		all = append(all, protoCase{"5.2", name, send, want, ""})
	}
	for bits := range 7 {
		r := byte(bits+1) << 4
		add(fmt.Sprintf("bits %#x of a text", r), send(txt("before"), txt("bad", rsv(r))), want("before", fails(1002)))
		add(fmt.Sprintf("bits %#x of a binary", r), send(bin("bad", rsv(r))), want(fails(1002)))
		add(fmt.Sprintf("bits %#x of an empty text", r), send(one(opText, verbatim(""), rsv(r))), want(fails(1002)))
		add(fmt.Sprintf("bits %#x of a first fragment", r), send(txt("bad", rsv(r), unfinished), control(opContinuation, "")), want(fails(1002)))
		add(fmt.Sprintf("bits %#x of a continuation", r), send(txt("a", unfinished), control(opContinuation, "b", rsv(r))), want(fails(1002)))
		add(fmt.Sprintf("bits %#x of a ping", r), send(ping("bad", rsv(r))), want(fails(1002)))
		add(fmt.Sprintf("bits %#x of a pong", r), send(pongOf("bad", rsv(r))), want(fails(1002)))
		add(fmt.Sprintf("bits %#x of a close", r), send(closing(1000, "", rsv(r))), want(fails(1002)))
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		add(fmt.Sprint("opcode ", op), send(txt("before"), control(op, "hello")), want("before", fails(1002)))
		add(fmt.Sprint("empty opcode ", op), send(control(op, "")), want(fails(1002)))
		add(fmt.Sprint("unfinished opcode ", op), send(control(op, "hello", unfinished), control(opContinuation, "!")), want(fails(1002)))
		add(fmt.Sprint("opcode in a message ", op), send(txt("a", unfinished), control(op, "b"), control(opContinuation, "c")), want(fails(1002)))
	}
	return all
}

// Section 5.4.
func fragmentCases() (all []protoCase) {
	add := func(name string, send []chunk, want []any) {
		all = append(all, protoCase{"5.4", name, send, want, ""})
	}
	end, more := control(opContinuation, ""), control(opContinuation, "", unfinished)
	add("two", send(cut("hello", 2)), want("hello"))
	add("three", send(cut("hello", 1, 3)), want("hello"))
	add("a letter each", send(cut("hello", 1, 2, 3, 4)), want("hello"))
	add("an empty first", send(cut("hello", 0)), want("hello"))
	add("an empty last", send(txt("hello", unfinished), end), want("hello"))
	add("empties between", send(txt("hello", unfinished), more, more, more, end), want("hello"))
	add("empties among", send(cut("hello", 2, 2, 2, 4, 4)), want("hello"))
	add("two messages", send(cut("hello", 2), cut("world", 3), txt("!")), want("hello", "world", "!"))
	add("binary", send(cutBinary("hello", 0, 2, 2)), want([]byte("hello")))
	add("nothing", send(one(opBinary, verbatim(""), unfinished), more, end), want([]byte{}))
	add("1,024", send(evenly(2000, 1024)), want(ofSize(2000)))
	add("1,024, most empty", send(txt("x", unfinished), again(1022, more), end), want("x"))
	add("1,024 twice", send(evenly(2000, 1024), evenly(2000, 1024)), want(ofSize(2000), ofSize(2000)))
	add("1,025", send(evenly(2000, 1025)), want(fails(1002)))
	add("1,025, all empty", send(one(opText, verbatim(""), unfinished), again(1023, more), end), want(fails(1002)))
	add("without an end", send(one(opText, verbatim(""), unfinished), again(3000, more)), want(fails(1002)))
	add("1,024 with 1,023 pings", send(between(evenly(2000, 1024), pongOf("x"))), want(ofSize(2000)))

	add("a ping between", send(between(cut("hello", 2), ping("p"))), want("hello", pong("p")))
	add("a ping between each", send(between(cut("hello", 1, 2, 3, 4), ping("p"))), want("hello", pong("p"), pong("p"), pong("p"), pong("p")))
	add("pings and pongs between", send(between(cut("hello", 2, 4), pongOf("x"), ping("1"), pongOf(""), ping("2"))), want("hello", pong("1"), pong("2"), pong("1"), pong("2")))
	add("a long ping between", send(between(cut("hello", 2), ping(strings.Repeat("p", 125)))), want("hello", pong(strings.Repeat("p", 125))))
	add("a ping before and after", send(ping("1"), between(cut("hello", 2), ping("2")), ping("3")), want("hello", pong("1"), pong("2"), pong("3")))
	add("a close between", send(txt("before"), between(cut("hello", 2), closing(1000, ""))), want("before", echo(1000)))
	add("a close instead of the last", send(txt("a", unfinished), closing(1001, "")), want(echo(1001)))

	add("continuation of nothing", send(control(opContinuation, "x")), want(fails(1002)))
	add("continuation of nothing, empty", send(end), want(fails(1002)))
	add("continuation of nothing, unfinished", send(more, end), want(fails(1002)))
	add("continuation of a whole text", send(txt("a"), control(opContinuation, "b")), want("a", fails(1002)))
	add("continuation of a finished message", send(cut("hello", 2), control(opContinuation, "b")), want("hello", fails(1002)))
	add("continuation of a ping", send(ping("a"), control(opContinuation, "b")), want(pong("a"), fails(1002)))
	for _, op := range []byte{opText, opBinary} {
		add(fmt.Sprint("opcode ", op, " in a text"), send(txt("a", unfinished), control(op, "b")), want(fails(1002)))
		add(fmt.Sprint("opcode ", op, " in a binary"), send(bin("a", unfinished), control(op, "b"), end), want(fails(1002)))
		add(fmt.Sprint("opcode ", op, " begun in a text"), send(txt("a", unfinished), more, control(op, "", unfinished), end), want(fails(1002)))
	}
	for _, op := range []byte{opClose, opPing, opPong} {
		add(fmt.Sprint("unfinished control ", op), send(control(op, "", unfinished), control(op, "")), want(fails(1002)))
		add(fmt.Sprint("control in fragments ", op), send(control(op, "ab", unfinished), control(opContinuation, "cd")), want(fails(1002)))
		add(fmt.Sprint("unfinished control in a message ", op), send(txt("a", unfinished), control(op, "", unfinished), end), want(fails(1002)))
	}
	return all
}

func again(n int, c chunk) []chunk { return slices.Repeat([]chunk{c}, n) }

// A message must come whole within ten seconds, and a stream may end anywhere.
func assemblyCases() (all []protoCase) {
	for _, c := range []struct {
		name string
		send []chunk
	}{
		{"a fragment and silence", send(txt("a", unfinished))},
		{"a header and silence", send(first(6, txt("a text")))},
		{"half a frame and silence", send(short(3, txt("a text")))},
		{"fragments, a ping and silence", send(txt("a", unfinished), control(opContinuation, "b", unfinished))},
		{"a header in a message and silence", send(txt("a", unfinished), first(1, control(opContinuation, "b")))},
	} {
		all = append(all, protoCase{"10.4", c.name, send(txt("before"), c.send), want("before", after{10 * time.Second, 1002}), ""})
	}
	long := sized(70000)
	for _, c := range []struct {
		name string
		send []chunk
	}{
		{"at once", nil},
		{"after a byte", send(first(1, txt("a")))},
		{"in a mask", send(first(4, txt("a")))},
		{"in a length of 16 bits", send(first(3, sized(300)))},
		{"in a length of 64 bits", send(first(9, long))},
		{"behind a header", send(first(6, txt("a")))},
		{"in a text", send(short(1, txt("a")))},
		{"in a ping", send(short(1, ping("a")))},
		{"in a close", send(short(1, closing(1000, "")))},
		{"behind a fragment", send(txt("a", unfinished))},
		{"in a fragment", send(short(1, txt("abc", unfinished)))},
	} {
		all = append(all, protoCase{"7.1.5", "the stream ends " + c.name, send(txt("before"), c.send), want("before", hangUp{}), ""})
	}
	return all
}
