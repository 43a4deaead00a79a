package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// helloCase is one opening handshake, from RFC 6455, sections 4.1, 4.2 and 9.1,
// or RFC 7692, section 7.
type helloCase struct {
	section string
	name    string
	lines   []string // without Host
	status  int
	// head is a header that the answer must have, as "Name: value"; with no
	// value, must not have.
	head string
}

// The headers of a sound handshake.
var (
	helloLine = "GET /rooms/a HTTP/1.1"
	helloHead = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
)

// hello is a sound handshake but for some lines: those of the same names are
// replaced, "-Name" takes one away.
func hello(changes ...string) []string {
	line, out := helloLine, []string(nil)
	name := func(s string) string {
		n, _, _ := strings.Cut(strings.TrimPrefix(s, "-"), ":")
		return strings.ToLower(n)
	}
	gone := map[string]bool{}
	var more []string
	for _, c := range changes {
		switch {
		case strings.Contains(c, " HTTP/"):
			line = c
			continue
		case strings.HasPrefix(c, "+"):
			more = append(more, c[1:])
			continue
		case !strings.HasPrefix(c, "-"):
			more = append(more, c)
		}
		gone[name(c)] = true
	}
	out = append(out, line)
	for _, h := range helloHead {
		if !gone[name(h)] {
			out = append(out, h)
		}
	}
	return append(out, more...)
}

func TestCorpusHandshakes(t *testing.T) {
	for _, compression := range []bool{false, true} {
		cases := helloCases()
		if compression {
			cases = offerCases()
		}
		for i, c := range cases {
			t.Run(c.section+" "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					net := &pieces{memNet: newMemNet(1 << 20)}
					t.Cleanup(func() { time.Sleep(time.Second) }) // as in startFake
					n := startOn(t, hub.Config{}, server.Config{Compression: compression}, net, net.dial)
					n.patience = 0
					for _, d := range deliveries(uint64(i)) {
						net.next = d.next
						n.greet(t, c, d)
					}
				})
			})
		}
	}
}

func (n *node) greet(t *testing.T, c helloCase, d delivery) {
	t.Helper()
	w := n.connect()
	w.t = t
	begin := time.Now()
	text := strings.Join(append(c.lines, "Host: "+strings.TrimPrefix(n.url, "http://")), "\r\n") + "\r\n\r\n"
	if d.glued {
		text += string(closing(4000, "")(tongue{}))
	}
	w.write([]byte(text))
	resp := w.response()
	w.header = resp.Header
	if waited := time.Since(begin); waited != 0 {
		t.Errorf("%s: answered after %v", d.name, waited)
	}
	name, value, _ := strings.Cut(c.head, ": ")
	switch got := strings.Join(resp.Header.Values(name), ", "); {
	case resp.StatusCode != c.status:
		t.Fatalf("%s: %s, want %d", d.name, resp.Status, c.status)
	case name != "" && got != value:
		t.Errorf("%s: %s is %q, want %q", d.name, name, got, value)
	}
	if c.status == http.StatusSwitchingProtocols {
		if !d.glued {
			w.write(closing(4000, "")(tongue{}))
		}
		w.ended = true
		if e := w.end(); e.code != 4000 {
			t.Errorf("%s: closed with %d, want 4000", d.name, e.code)
		}
	}
	w.conn.Close()
	synctest.Wait()
	if v := n.value("hubd_connections"); v != 0 {
		t.Errorf("%s: %v connections after the end", d.name, v)
	}
}

func helloCases() []helloCase {
	const accept = "Sec-Websocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	all := []helloCase{
		{"4.2.2", "sound", hello(), 101, accept},
		{"4.2.2", "nothing negotiated", hello(), 101, "Sec-Websocket-Extensions"},
		{"4.2.2", "what is answered", hello(), 101, "Upgrade: websocket"},
		{"4.2.2", "no subprotocol", hello(), 101, "Sec-Websocket-Protocol"},
		{"4.2.2", "another key", hello("Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="), 101, "Sec-Websocket-Accept: HSmrc0sMlYUkAGmm5OPpG2HaGWk="},
		{"4.2.1", "names in lower case", []string{helloLine, "connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="}, 101, accept},
		{"4.2.1", "names in upper case", []string{helloLine, "CONNECTION: UPGRADE", "UPGRADE: WEBSOCKET", "SEC-WEBSOCKET-VERSION: 13", "SEC-WEBSOCKET-KEY: dGhlIHNhbXBsZSBub25jZQ=="}, 101, accept},
		{"4.2.1", "white space about values", hello("Connection:Upgrade", "Upgrade: \t websocket \t", "Sec-WebSocket-Version:13", "Sec-WebSocket-Key:   dGhlIHNhbXBsZSBub25jZQ==  "), 101, accept},
		{"4.2.1", "a list of connections", hello("Connection: keep-alive, x, UpGrAdE"), 101, accept},
		{"4.2.1", "a list of upgrades", hello("Upgrade: h2c, WebSocket"), 101, accept},
		{"4.2.1", "in any order", []string{helloLine, helloHead[3], helloHead[2], helloHead[1], helloHead[0]}, 101, accept},
		{"4.2.1", "headers it does not know", hello("Sec-WebSocket-Foo: bar", "X-Y: "+strings.Repeat("z", 4000)), 101, accept},
		{"4.1", "upgrade token only in Connection", hello("Upgrade: h2c"), 200, ""},
		{"4.2.1", "no Upgrade", hello("-Upgrade"), 200, ""},
		{"4.2.1", "no Connection", hello("-Connection"), 426, "Upgrade: websocket"},
		{"4.2.1", "Connection: close", hello("Connection: close"), 426, "Upgrade: websocket"},
		{"4.2.1", "Connection: Upgraded", hello("Connection: Upgraded"), 426, "Upgrade: websocket"},
		{"4.2.1", "no version", hello("-Sec-WebSocket-Version"), 400, "Sec-Websocket-Version: 13"},
		{"4.2.1", "no key", hello("-Sec-WebSocket-Key"), 400, ""},
		{"4.2.1", "an empty key", hello("Sec-WebSocket-Key:"), 400, ""},
		{"4.2.1", "a key of 15 bytes", hello("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j"), 400, ""},
		{"4.2.1", "a key of 17 bytes", hello("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWU="), 400, ""},
		{"4.2.1", "a key without padding", hello("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"), 400, ""},
		{"4.2.1", "a key that is no base64", hello("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j*Q=="), 400, ""},
		{"4.2.1", "a key for URLs", hello("Sec-WebSocket-Key: __hlIHNhbXBsZSBub25jZQ=="), 400, ""},
		{"11.3.1", "two keys", hello("+Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 400, ""},
		{"11.3.1", "two keys in one", hello("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==, dGhlIHNhbXBsZSBub25jZQ=="), 400, ""},
		{"11.3.5", "two versions", hello("+Sec-WebSocket-Version: 13"), 400, "Sec-Websocket-Version: 13"},
		{"11.3.5", "two versions that differ", hello("+Sec-WebSocket-Version: 8"), 400, "Sec-Websocket-Version: 13"},
		{"11.3.5", "two versions in one", hello("Sec-WebSocket-Version: 13, 8"), 400, "Sec-Websocket-Version: 13"},
		{"4.1", "HTTP/1.0", hello("GET /rooms/a HTTP/1.0"), 426, ""},
		{"4.1", "HTTP/0.9", []string{"GET /rooms/a"}, 400, ""},
		{"4.1", "HTTP/2.0", hello("GET /rooms/a HTTP/2.0"), 505, ""},
		{"4.1", "HTTP/1.2", hello("GET /rooms/a HTTP/1.2"), 101, accept},
		{"4.1", "the preface of HTTP/2", []string{"PRI * HTTP/2.0", "", "SM"}, 405, ""},
		{"4.2.1", "a body", hello("Content-Length: 4", "X: \r\n\r\nbody"), 400, ""},
		{"4.2.1", "a chunked body", hello("Transfer-Encoding: chunked"), 400, ""},
		{"4.2.1", "no body, said", hello("Content-Length: 0"), 101, accept},
		{"4.1", "a header line that is none", hello("no colon here"), 400, ""},
		{"4.1", "a header folded", hello("X-A: b\r\n c"), 101, accept},
		{"4.1", "a NUL in a header", hello("X-A: b\x00c"), 400, ""},
		{"4.1", "headers beyond all measure", hello("X-A: " + strings.Repeat("a", 40<<10)), 431, ""},
		{"4.1", "an absolute target", hello("GET http://127.0.0.1/rooms/a HTTP/1.1"), 101, accept},
		{"4.1", "a fragment in the target", hello("GET /rooms/a#b HTTP/1.1"), 400, ""},
		{"4.1", "a target of the authority form", hello("CONNECT 127.0.0.1:80 HTTP/1.1"), 404, ""},
		{"1.9", "the subprotocol, among others", hello("Sec-WebSocket-Protocol: a, hubd.v1.json, b"), 101, "Sec-Websocket-Protocol: hubd.v1.json"},
		{"11.3.4", "subprotocols in two lines", hello("Sec-WebSocket-Protocol: a", "+Sec-WebSocket-Protocol: hubd.v1.json"), 101, "Sec-Websocket-Protocol: hubd.v1.json"},
		{"11.3.4", "a subprotocol twice", hello("Sec-WebSocket-Protocol: hubd.v1.json, hubd.v1.json"), 101, "Sec-Websocket-Protocol: hubd.v1.json"},
		{"4.2.2", "unknown subprotocols", hello("Sec-WebSocket-Protocol: a, b"), 101, "Sec-Websocket-Protocol"},
		{"4.2.2", "an empty subprotocol", hello("Sec-WebSocket-Protocol:"), 101, "Sec-Websocket-Protocol"},
		{"9.1", "extensions nobody knows", hello("Sec-WebSocket-Extensions: a, b; c=d"), 101, "Sec-Websocket-Extensions"},
		{"9.1", "compression, which is off", hello(offerDeflate), 101, "Sec-Websocket-Extensions"},
		{"9.1", "malformed, compression off", hello("Sec-WebSocket-Extensions: ;"), 400, ""},
		{"10.2", "another origin", hello("Origin: http://example.com"), 403, ""},
		{"10.2", "no origin a browser has", hello("Origin: null"), 403, ""},
		{"10.2", "the same origin", hello("Origin: http://127.0.0.1:80"), 101, accept},
	}
	for _, v := range []string{"0", "1", "7", "8", "12", "14", "25", "013", "13.0", "+13", "255", "256", "1e1", "x", "\"13\""} {
		all = append(all, helloCase{"4.4", "version " + v, hello("Sec-WebSocket-Version: " + v), 400, "Sec-Websocket-Version: 13"})
	}
	for _, m := range []string{"POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "get", "BREW"} {
		all = append(all, helloCase{"4.1", "method " + m, hello(m + " /rooms/a HTTP/1.1"), 405, ""})
	}
	return all
}

// offerCases are offers of extensions where compression is on.
func offerCases() (all []helloCase) {
	const plain = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	for _, c := range []struct{ offer, answer string }{
		{"permessage-deflate", plain},
		{" \tpermessage-deflate \t", plain},
		{"permessage-deflate; client_max_window_bits", plain}, // as Chromium has it
		{"permessage-deflate;client_max_window_bits=15", plain},
		{"permessage-deflate; client_max_window_bits=8", plain},
		{`permessage-deflate; client_max_window_bits="10"`, plain},
		{`permessage-deflate; client_max_window_bits="1\0"`, plain},
		{"permessage-deflate ;  server_no_context_takeover ; client_no_context_takeover", plain},
		{"permessage-deflate; server_max_window_bits=15", plain + "; server_max_window_bits=15"},
		{"permessage-deflate; client_no_context_takeover; server_max_window_bits=15", plain + "; server_max_window_bits=15"},
		{"permessage-deflate; server_max_window_bits=10, permessage-deflate", plain}, // section 7.1.3
		{"permessage-deflate; x=1, a; b=c, permessage-deflate; client_max_window_bits", plain},
		{"permessage-deflate, permessage-deflate; server_max_window_bits=15", plain},
		{", ,permessage-deflate,", plain},
		{"", ""},
		{"permessage-bzip2", ""},
		{"x-webkit-deflate-frame", ""},
		{"permessage-deflate-frame", ""},
		{"permessage-deflate; server_max_window_bits=14", ""},
		{"permessage-deflate; server_max_window_bits=8", ""},
		{"permessage-deflate; server_max_window_bits", ""},
		{"permessage-deflate; server_max_window_bits=16", ""},
		{"permessage-deflate; server_max_window_bits=015", ""},
		{"permessage-deflate; client_max_window_bits=7", ""},
		{"permessage-deflate; client_max_window_bits=16", ""},
		{"permessage-deflate; client_max_window_bits=08", ""},
		{"permessage-deflate; client_max_window_bits=100", ""},
		{"permessage-deflate; client_max_window_bits=x", ""},
		{"permessage-deflate; server_no_context_takeover=1", ""},
		{"permessage-deflate; client_no_context_takeover=true", ""},
		{"permessage-deflate; unknown", ""},
		{"permessage-deflate; client_no_context_takeover; client_no_context_takeover", ""},
		{"permessage-deflate; client_max_window_bits=9; client_max_window_bits=9", ""},
		{"permessage-deflate; server_max_window_bits=15; server_max_window_bits=15", ""},
		{"permessage-deflate; server_no_context_takeover; unknown; server_no_context_takeover", ""},
	} {
		all = append(all, helloCase{"7692 7.1", fmt.Sprintf("%q", c.offer), hello("Sec-WebSocket-Extensions: " + c.offer), 101, strings.TrimSuffix("Sec-Websocket-Extensions: "+c.answer, ": ")})
	}
	for _, offer := range []string{
		";", "=", "permessage-deflate;", "permessage-deflate; ;", "permessage-deflate; =1", "permessage-deflate; a=", "permessage-deflate; a=,b", "permessage-deflate a",
		"permessage deflate", `permessage-deflate; a="`, `permessage-deflate; a="b`, `permessage-deflate; a=""`, `permessage-deflate; a="b c"`, `permessage-deflate; a="b"c`, `permessage-deflate; a="b\"`,
		"permessage-deflate; a=b=c", "(permessage-deflate)", "permessage-deflate; \xff", "permessage-deflate/1", `"permessage-deflate"`, "a, b c", "a;b,;c",
	} {
		all = append(all, helloCase{"9.1", fmt.Sprintf("malformed %q", offer), hello("Sec-WebSocket-Extensions: " + offer), 400, "Sec-Websocket-Extensions"})
	}
	return append(all,
		helloCase{"9.1", "offers in two lines", hello("Sec-WebSocket-Extensions: a", "+Sec-WebSocket-Extensions: permessage-deflate"), 101, "Sec-Websocket-Extensions: " + plain},
		helloCase{"9.1", "no offer", hello(), 101, "Sec-Websocket-Extensions"})
}
