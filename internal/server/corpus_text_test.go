package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hubd/internal/server"
)

func TestCorpusControl(t *testing.T) {
	runCorpus(t, slices.Concat(controlCases(), closeCases()), server.Config{})
}
func TestCorpusText(t *testing.T)    { runCorpus(t, utf8Cases(), server.Config{}) }
func TestCorpusDialect(t *testing.T) { runCorpus(t, dialectCases(), server.Config{}) }

// Sections 5.5.2 and 5.5.3.
func controlCases() (all []protoCase) {
	add := func(section, name string, send []chunk, want []any) {
		all = append(all, protoCase{section, name, send, want, ""})
	}
	for _, n := range []int{0, 1, 2, 3, 4, 124, 125} {
		s := strings.Repeat("\x00\xffp", 50)[:n]
		add("5.5.2", fmt.Sprint("ping of ", n), says(pingFrame(s)), gets(pong(s)))
		add("5.5.3", fmt.Sprint("pong of ", n), says(pongOf(s), txt("a")), gets("a"))
	}
	for _, n := range []int{126, 127, 200, 65535, 65536} {
		s := strings.Repeat("p", n)
		add("5.5", fmt.Sprint("ping of ", n), says(txt("before"), pingFrame(s)), gets("before", fails(1002)))
		add("5.5", fmt.Sprint("pong of ", n), says(pongOf(s)), gets(fails(1002)))
		add("5.5", fmt.Sprint("ping in a message of ", n), says(txt("a", unfinished), pingFrame(s), control(opContinuation, "b")), gets(fails(1002)))
	}
	var flood []chunk
	var pongs []any
	for i := range 300 {
		flood = append(flood, pingFrame(fmt.Sprint(i)))
		pongs = append(pongs, pong(fmt.Sprint(i)))
	}
	add("5.5.3", "300 pings", flood, pongs)
	add("5.5.2", "a ping, a text, a ping", says(pingFrame("1"), txt("a"), pingFrame("2")), gets("a", pong("1"), pong("2")))
	add("5.5.2", "a ping behind the close", says(closing(1000, ""), pingFrame("1")), gets(echo(1000)))
	add("5.5.3", "a pong nobody asked for", says(pongOf("x"), pongOf(""), pingFrame("1")), gets(pong("1")))
	add("5.5.2", "a ping that is no UTF-8", says(pingFrame("\xff\xfe\x80")), gets(pong("\xff\xfe\x80")))
	return all
}

// Sections 5.5.1 and 7.4.
func closeCases() (all []protoCase) {
	add := func(section, name string, send []chunk, want []any) {
		all = append(all, protoCase{section, name, send, want, ""})
	}
	add("5.5.1", "empty", says(closes("")), gets(echo(1005)))
	add("5.5.1", "one byte", says(closes("\x03")), gets(fails(1002)))
	add("5.5.1", "one byte in a message", says(txt("a", unfinished), closes("\x03")), gets(fails(1002)))
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3001, 3999, 4000, 4001, 4003, 4007, 4008, 4009, 4500, 4999} {
		add("7.4.1", fmt.Sprint("code ", code), says(txt("before"), closing(code, "")), gets("before", echo(code)))
		add("7.4.1", fmt.Sprint("code with reason ", code), says(closing(code, "gone fishing")), gets(echo(code)))
	}
	for _, code := range []int{0, 1, 500, 999, 1004, 1005, 1006, 1015, 1016, 1099, 1100, 2000, 2999, 5000, 9999, 32768, 65535} {
		add("7.4.2", fmt.Sprint("code ", code), says(txt("before"), closing(code, "")), gets("before", fails(1002)))
		add("7.4.2", fmt.Sprint("code with reason ", code), says(closing(code, "gone fishing")), gets(fails(1002)))
	}
	for _, s := range []string{"κόσμε", "\u00df\u6c34\U0001f600", "\ufeffBOM", "\uffff", "\U0010ffff", "\x00", strings.Repeat("r", 122), strings.Repeat("r", 123), strings.Repeat("\u00e9", 61)} {
		add("7.1.6", fmt.Sprintf("reason %.20q of %d", s, len(s)), says(closing(1000, s)), gets(echo(1000)))
	}
	for _, s := range []string{"\xff", "\x80", "ok\xc3", "\xc3(", "\xce\xba\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf", strings.Repeat("r", 122) + "\xe2"} {
		add("8.1", fmt.Sprintf("reason %.20q of %d", s, len(s)), says(txt("before"), closing(4000, s)), gets("before", fails(1007)))
	}
	for _, n := range []int{124, 125, 200} {
		add("5.5", fmt.Sprint("reason of ", n), says(closing(1000, strings.Repeat("r", n))), gets(fails(1002)))
	}
	add("5.5.1", "two closes", says(closing(1000, ""), closing(1001, "")), gets(echo(1000)))
	add("5.5.1", "a text behind it", says(closing(1000, ""), txt("late")), gets(echo(1000)))
	add("5.5.1", "rubbish behind it", says(closing(4000, ""), headless(0xff, 0xff, 0xff, 0xff, 0xff, 0xff)), gets(echo(4000)))
	add("5.5.1", "half a frame behind it", says(closing(4000, ""), firstBytes(3, sized(300))), gets(echo(4000)))
	add("5.5.1", "a fragment behind it", says(closing(4000, ""), txt("late", unfinished)), gets(echo(4000)))
	add("5.5.1", "texts before it", says(txt("a"), txt("b"), txt("c"), closing(1000, "")), gets("a", "b", "c", echo(1000)))
	add("5.5.1", "behind a bad frame", says(control(3, ""), closing(1000, "")), gets(fails(1002)))
	return all
}

// Section 8.1: text is UTF-8 as a whole message, wherever it is cut.
func utf8Cases() (all []protoCase) {
	valid := []string{
		"κόσμε", "Hello-\u00b5@\u00df\u00f6\u00e4\u00fc\u00e0\u00e1-UTF-8!!", "\x7f", "\u0080", "\u07ff", "\u0800", "\u0fff", "\u1000", "\ucfff", "\ud000", "\ud7ff",
		"\ue000", "\ufffd", "\ufffe", "\uffff", "\ufeff", "\U00010000", "\U0001f600", "\U0003ffff", "\U00040000", "\U000fffff", "\U00100000", "\U0010fffe", "\U0010ffff", "\u0301\u0301",
	}
	invalid := []string{
		"\x80", "\xbf", "\x80\xbf\x80", "\xc0", "\xc0\x80", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xc3\xc3\xa9", "\xc2(", "\xe0\x80\x80", "\xe0\x80\xaf", "\xe0\x9f\xbf",
		"\xe2\x82", "\xe2(\xa1", "\xe2\x82(", "\xed\xa0\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbf\xbf", "\xed\xa0\x80\xed\xb0\x80", "\xef\xbf", "\xf0\x80\x80\x80", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf",
		"\xf0\x9f\x98", "\xf0\x9f", "\xf0", "\xf0(\x8c\xbc", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf7\xbf\xbf\xbf", "\xf8\x88\x80\x80\x80", "\xfb\xbf\xbf\xbf\xbf", "\xfc\x84\x80\x80\x80\x80", "\xfd\xbf\xbf\xbf\xbf\xbf",
		"\xfe", "\xff", "\xfe\xfe\xff\xff",
	}
	everywhere := func(s string) (cuts []int) {
		for i := range len(s) + 1 {
			cuts = append(cuts, i)
		}
		return cuts
	}
	for _, s := range valid {
		name := fmt.Sprintf("%+q", s)
		all = append(all,
			protoCase{"8.1", "valid " + name, says(txt("<"+s+">"), txt(s)), gets("<"+s+">", s), ""},
			protoCase{"8.1", "valid in pieces " + name, says(cut(s, everywhere(s)...)), gets(s), ""},
			protoCase{"8.1", "valid in pieces with pings " + name, says(between(cut("<"+s+">", everywhere(s)...), pongOf("\xff"))), gets("<" + s + ">"), ""})
	}
	for _, s := range invalid {
		name := fmt.Sprintf("%+q", s)
		all = append(all,
			protoCase{"8.1", "invalid " + name, says(txt("before"), txt(s)), gets("before", fails(1007)), ""},
			protoCase{"8.1", "invalid at the start " + name, says(txt(s + " and more")), gets(fails(1007)), ""},
			protoCase{"8.1", "invalid at the end " + name, says(txt("κόσμε " + s)), gets(fails(1007)), ""},
			protoCase{"8.1", "invalid in pieces " + name, says(cut("a"+s+"z", everywhere(s)...)), gets(fails(1007)), ""},
			protoCase{"5.6", "binary " + name, says(bin(s)), gets([]byte(s)), ""})
	}
	whole := "\xce\xba\xcf\x8c\xcf\x83\xf0\x9f\x98\x80"
	for i := range len(whole) + 1 {
		all = append(all, protoCase{"8.1", fmt.Sprint("cut at ", i), says(cut(whole, i), txt("next")), gets(whole, "next"), ""})
	}
	return append(all,
		protoCase{"8.1", "half a rune in each of two messages", says(txt("\xc3"), txt("\xa9")), gets(fails(1007)), ""},
		protoCase{"8.1", "a rune over a message and a ping", says(between(cut("\xc3\xa9", 1), pingFrame("\xa9"))), gets("\u00e9", pong("\xa9")), ""},
		protoCase{"8.1", "a long text with one bad byte at its end", says(txt(strings.Repeat("x", 60000) + "\xff")), gets(fails(1007)), ""},
	)
}

// What the dialects make of sound frames: the contract's words, not the RFC's.
func dialectCases() (all []protoCase) {
	json := func(name, payload string, want ...any) {
		all = append(all, protoCase{"json", name, says(frameOf(opText, verbatim(payload)), txt("next")), append(want, "next"), "json"})
	}
	json("empty", "", refusal("invalid_message"))
	json("white space", " \r\n\t", refusal("invalid_message"))
	json("no JSON", "hello", refusal("invalid_message"))
	json("half a command", `{"type":"ping"`, refusal("invalid_message"))
	json("two commands", `{"type":"ping"}{"type":"ping"}`, refusal("invalid_message"))
	json("an array", `[{"type":"ping"}]`, refusal("invalid_option"))
	json("null", `null`, refusal("invalid_option"))
	json("a number", `17`, refusal("invalid_option"))
	json("an unknown field", `{"type":"ping","x":1}`, refusal("invalid_option"))
	json("an unknown type", `{"type":"shout"}`, refusal("invalid_option"))
	json("no type", `{}`, refusal("invalid_option"))
	json("a NUL", "{\"type\":\"ping\"\x00}", refusal("invalid_message"))
	json("a deep one", strings.Repeat("[", 20000), refusal("invalid_message"))
	json("a byte order mark", "\ufeff{\"type\":\"ping\"}", refusal("invalid_message"))
	json("half a surrogate pair", `{"type":"publish","room":"r","text":"\ud800"}`, refusal("invalid_message"))
	json("an id that is a string", `{"type":"ping","id":"1"}`, refusal("invalid_option"))
	json("an id of 2^53", `{"type":"ping","id":9007199254740992}`, refusal("invalid_option"))
	all = append(all,
		protoCase{"json", "a binary message", says(txt("before"), bin("{}")), gets("before", []byte("{}")), "json"},
		protoCase{"json", "an empty binary message", says(bin("")), gets([]byte("")), "json"},
		protoCase{"json", "a binary message in pieces", says(cutBinary("{}", 1)), gets([]byte("{}")), "json"},
		protoCase{"raw", "an empty text", says(txt(""), txt("")), gets("", ""), "raw"},
		protoCase{"raw", "a text that looks like a command", says(txt(`{"type":"leave","room":"r"}`)), gets(`{"type":"leave","room":"r"}`), "raw"},
		protoCase{"raw", "control characters", says(txt("\x00\x01\x1f\x7f\r\n")), gets("\x00\x01\x1f\x7f\r\n"), "raw"},
	)
	return all
}
