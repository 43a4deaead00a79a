package server_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hubd/internal/server"
)

const offerDeflate = "Sec-WebSocket-Extensions: permessage-deflate"

// Frames that are not compressed mean the same where compression was
// negotiated; compressed ones mean something only there.
func TestCorpusDeflate(t *testing.T) {
	runCorpus(t, deflateCases(), server.Config{Compression: true}, offerDeflate)
}

func TestCorpusPlainWithDeflate(t *testing.T) {
	all := slices.Concat(maskCases(), fragmentCases(), controlCases())
	runCorpus(t, all, server.Config{Compression: true}, offerDeflate)
}

// Not offered, or not taken up: a set RSV1 is an error (RFC 6455, section 5.2).
func TestCorpusNoDeflate(t *testing.T) {
	cases := []protoCase{
		{"5.2", "a compressed text", says(txt("before"), deflated("Hello")), gets("before", fails(1002)), ""},
		{"5.2", "an empty one", says(frameOf(opText, verbatim("\x00"), rsv(rsv1))), gets(fails(1002)), ""},
	}
	t.Run("off", func(t *testing.T) { runCorpus(t, cases, server.Config{}, offerDeflate) })
	t.Run("not offered", func(t *testing.T) { runCorpus(t, cases, server.Config{Compression: true}) })
	t.Run("declined", func(t *testing.T) {
		runCorpus(t, cases, server.Config{Compression: true}, offerDeflate+"; server_max_window_bits=9")
	})
}

// deflate is a message's payload as RFC 7692, section 7.2.1, makes it.
func deflate(level int, s []byte) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		panic(err)
	}
	w.Write(s)
	w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff"))
}

func deflatedPayload(s string, level int) func(tongue) []byte {
	return func(g tongue) []byte { return deflate(level, g.payload(s)) }
}

// deflated is a compressed message that publishes s.
func deflated(s string, changes ...change) chunk {
	return frameOf(opText, deflatedPayload(s, flate.BestSpeed), slices.Insert(changes, 0, rsv(rsv1))...)
}

// deflatedSized is a compressed message of n bytes before compression.
func deflatedSized(n, level int) chunk {
	return frameOf(opText, func(g tongue) []byte { return deflate(level, sizedPayload(n, g)) }, rsv(rsv1))
}

// deflatedCut is a compressed message in so many fragments of about one size.
func deflatedCut(s string, fragments int) []chunk {
	all := pieceByPiece(opText, fragments, func(g tongue) ([]byte, []int) {
		b := deflatedPayload(s, flate.BestCompression)(g)
		at := make([]int, fragments-1)
		for i := range at {
			at[i] = (i + 1) * len(b) / fragments
		}
		return b, at
	})
	plain := all[0]
	all[0] = func(g tongue) []byte { b := plain(g); b[0] |= rsv1; return b }
	return all
}

// inflating is a compressed message, as it is given, of which raw is tried only.
func inflating(payload string, changes ...change) chunk {
	return frameOf(opText, verbatim(payload), slices.Insert(changes, 0, rsv(rsv1))...)
}

func deflateCases() (all []protoCase) {
	only := ""
	bomb := zeros(8 << 20)
	add := func(section, name string, send []chunk, want []any) {
		all = append(all, protoCase{"7692 " + section, name, send, want, only})
	}
	for _, s := range []string{"", "Hello", "κόσμε", strings.Repeat("round and round ", 500)} {
		for _, level := range []int{flate.NoCompression, flate.HuffmanOnly, flate.BestSpeed, flate.BestCompression} {
			add("6.1", fmt.Sprintf("%.10q at level %d", s, level), says(frameOf(opText, deflatedPayload(s, level), rsv(rsv1))), gets(s))
		}
	}
	add("6", "compressed and not", says(deflated("a"), txt("b"), deflated("c"), pingFrame("p"), txt("d")), gets("a", "b", "c", "d", pong("p")))
	add("6.1", "in two", says(deflatedCut("Hello", 2)), gets("Hello"))
	add("6.1", "in ten", says(deflatedCut("Hello, hello, hello", 10)), gets("Hello, hello, hello"))
	add("6.1", "in forty, some empty", says(deflatedCut("a", 40)), gets("a"))
	add("6.1", "in two, with a ping", says(between(deflatedCut("Hello", 2), pingFrame("p"))), gets("Hello", pong("p")))
	add("6.1", "an empty end", says(deflated("Hello", unfinished), control(opContinuation, "")), gets("Hello"))
	add("6.1", "an empty beginning", says(frameOf(opText, verbatim(""), unfinished, rsv(rsv1)),
		frameOf(opContinuation, deflatedPayload("Hello", flate.BestSpeed))), gets("Hello"))
	add("6.1", "a close within", says(between(deflatedCut("Hello", 2), closing(1000, ""))), gets(echo(1000)))
	add("6.1", "the next one is not compressed", says(deflatedCut("Hello", 3), cut("Hello", 2)), gets("Hello", "Hello"))
	add("6.1", "RSV1 on a continuation", says(txt("a", unfinished), control(opContinuation, "b", rsv(rsv1))), gets(fails(1002)))
	add("6.1", "RSV1 on the second", says(deflated("a", unfinished), control(opContinuation, "", rsv(rsv1))), gets(fails(1002)))
	for _, op := range []byte{opPing, opPong, opClose} {
		add("6.1", fmt.Sprint("RSV1 on control ", op), says(txt("before"), control(op, "", rsv(rsv1))), gets("before", fails(1002)))
		add("6.1", fmt.Sprint("RSV1 on control in a message ", op), says(deflated("a", unfinished), control(op, "", rsv(rsv1))), gets(fails(1002)))
	}
	for _, r := range []byte{rsv2, rsv3, rsv2 | rsv3, rsv1 | rsv2, rsv1 | rsv3, rsv1 | rsv2 | rsv3} {
		add("5", fmt.Sprintf("bits %#x", r), says(txt("before"), frameOf(opText, deflatedPayload("a", flate.BestSpeed), rsv(r))), gets("before", fails(1002)))
	}
	for _, op := range []byte{3, 7} {
		add("5", fmt.Sprint("RSV1 on opcode ", op), says(control(op, "", rsv(rsv1))), gets(fails(1002)))
	}

	// How far it may inflate.
	for _, c := range []struct {
		dialect string
		limit   int
	}{{"raw", rawLimit}, {"json", jsonLimit}} {
		only = c.dialect
		for _, level := range []int{flate.NoCompression, flate.BestSpeed} {
			add("8", fmt.Sprint("the limit at level ", level), says(deflatedSized(c.limit, level), txt("b")), gets(ofSize(c.limit), "b"))
			add("8", fmt.Sprint("one byte more at level ", level), says(txt("before"), deflatedSized(c.limit+1, level)), gets("before", fails(1009)))
		}
		add("8", "a bomb", says(txt("before"), bomb), gets("before", fails(1009)))
		add("8", "a bomb and a ping", says(bomb, pingFrame("p")), gets(fails(1009)))
		add("8", "a bomb that says what it is", says(control(opText, "", rsv(rsv1), claiming(1<<32))), gets(fails(1009)))
		add("8", "nothing, at length", says(frameOf(opText, verbatim(strings.Repeat("\x00\x00\x00\xff\xff", c.limit/4)), rsv(rsv1))), gets(fails(1009)))
	}
	only = "raw"
	noise := make([]byte, rawLimit)
	r := rand.New(rand.NewPCG(7, 692))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for _, level := range []int{flate.NoCompression, flate.HuffmanOnly, flate.BestSpeed, flate.BestCompression} {
		add("8", fmt.Sprint("noise of the limit at level ", level), says(frameOf(opBinary, verbatim(string(deflate(level, noise))), rsv(rsv1))), gets(noise))
	}
	add("6", "RSV1 not set on compressed data", says(control(opBinary, "\xf2\x48\xcd\xc9\xc9\x07\x00")), gets([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00")))
	return append(all, streamCases()...)
}

// zeros is a message of n zeros.
func zeros(n int) chunk {
	payload := deflate(flate.BestCompression, make([]byte, n))
	return frameOf(opText, verbatim(string(payload)), rsv(rsv1))
}

// streamCases are DEFLATE streams byte by byte, those of section 7.2.3 first.
func streamCases() (all []protoCase) {
	add := func(section, name string, send []chunk, want []any) {
		all = append(all, protoCase{"7692 " + section, name, send, want, "raw"})
	}
	const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00"
	add("7.2.3.1", "one block", says(inflating(hello)), gets("Hello"))
	add("7.2.3.1", "in two", says(inflating(hello[:3], unfinished), control(opContinuation, hello[3:])), gets("Hello"))
	add("7.2.3.1", "twice", says(inflating(hello), inflating(hello)), gets("Hello", "Hello"))
	add("7.2.3.3", "stored", says(inflating("\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00")), gets("Hello"))
	add("7.2.3.5", "two blocks", says(inflating("\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00")), gets("Hello"))
	add("7.2.3.6", "empty", says(inflating("\x00"), txt("next")), gets("", "next"))
	add("7.2.3.6", "no byte", says(inflating(""), txt("next")), gets("", "next"))
	add("7.2.3.6", "no byte in three", says(inflating("", unfinished), control(opContinuation, "", unfinished), control(opContinuation, "")), gets(""))
	add("7.2.3.4", "final", says(inflating("\xf3\x48\xcd\xc9\xc9\x07\x00\x00")), gets("Hello"))
	add("7.2.3.4", "final, and others behind it", says(inflating("\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), txt("plain"), inflating(hello), inflating(hello)), gets("Hello", "plain", "Hello", "Hello"))
	add("7.2.3.4", "final in fragments", says(inflating("\xf3\x48\xcd\xc9\xc9\x07\x00", unfinished), control(opContinuation, "\x00"), inflating(hello)), gets("Hello", "Hello"))
	// The answer to the handshake says that no context is taken over.
	add("7.2.3.2", "of the context before", says(inflating(hello), inflating("\xf2\x00\x11\x00\x00")), gets("Hello", fails(1002)))

	add("7.2.2", "a block of the reserved type", says(txt("before"), inflating("\x06\x00\x00")), gets("before", fails(1002)))
	add("7.2.2", "stored with a wrong check", says(inflating("\x00\x05\x00\xfa\xfe\x48\x65\x6c\x6c\x6f\x00")), gets(fails(1002)))
	add("7.2.2", "too far back", says(inflating("\xf2\x00\x11\x00\x00")), gets(fails(1002)))
	add("7.2.2", "rubbish", says(inflating("\xff\xff\xff\xff\xff\xff\xff\xff")), gets(fails(1002)))
	add("7.2.2", "dynamic with impossible codes", says(inflating("\x04\xe0\x81\x08\x00\x00\x00\x00\x20\x7f\xeb\x0b\x00\x00")), gets(fails(1002)))
	add("7.2.2", "text, not compressed at all", says(inflating("just some text")), gets(fails(1002)))
	for i := 1; i < len(hello)-1; i++ {
		add("7.2.2", fmt.Sprint("cut short at ", i), says(txt("before"), inflating(hello[:i])), gets("before", fails(1002)))
	}
	stored := "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f"
	for _, i := range []int{2, 3, 4, 5, 7, 8, 9} { // at 6 the four bytes that every receiver adds make it whole
		add("7.2.2", fmt.Sprint("stored, cut short at ", i), says(inflating(stored[:i])), gets(fails(1002)))
	}
	add("7.2.2", "text that is no UTF-8", says(txt("before"), deflated("a\xffb")), gets("before", fails(1007)))
	add("7.2.2", "text that is no UTF-8, in fragments", says(deflatedCut("\xed\xa0\x80", 3)), gets(fails(1007)))
	add("7.2.2", "binary that is no UTF-8", says(frameOf(opBinary, deflatedPayload("\xff", flate.BestSpeed), rsv(rsv1))), gets([]byte("\xff")))
	return all
}
