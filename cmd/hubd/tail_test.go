package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
)

// peer is the server's end of a connection in a script.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	r    *http.Request
}

// expect reads a command and compares it.
func (p peer) expect(want string) {
	_, got, err := p.conn.Read(p.t.Context())
	if err != nil || string(got) != want {
		p.t.Errorf("got the command %s, %v\nwant %s", got, err, want)
	}
}

func (p peer) send(frames ...string) {
	for _, frame := range frames {
		if err := p.conn.Write(p.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
			p.t.Errorf("send %s: %v", frame, err)
		}
	}
}

// leaves waits for the client's close frame.
func (p peer) leaves() {
	_, _, err := p.conn.Read(p.t.Context())
	if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		p.t.Errorf("the client left with %v, want 1000", err)
	}
}

func (p peer) close(code websocket.StatusCode, reason string) { _ = p.conn.Close(code, reason) }

func message(room string, seq int, text string) string {
	return fmt.Sprintf(`{"type":"message","room":%q,"seq":%d,"text":%q}`, room, seq, text)
}

func joined(room, epoch string, seq int, more string) string {
	return fmt.Sprintf(`{"type":"joined","id":1,"room":%q,"epoch":%q,"seq":%d,"policy":"drop-newest","queue":{"messages":256,"bytes":1048576}%s}`, room, epoch, seq, more)
}

// scripted is a server that follows a script for each connection in turn, and
// returns its URL. All scripts must have run by the end of the test.
func scripted(t *testing.T, scripts ...func(peer)) string {
	t.Helper()
	var next atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(next.Add(1)) - 1
		if i >= len(scripts) {
			t.Errorf("connection %d is one too many", i+1)
			http.NotFound(w, r)
			return
		}
		if r.URL.Path != "/ws" {
			t.Errorf("connected to %s", r.URL.Path)
		}
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer conn.CloseNow()
		scripts[i](peer{t, conn, r})
	}))
	t.Cleanup(func() {
		server.Close()
		if n := int(next.Load()); n != len(scripts) {
			t.Errorf("%d connections, want %d", n, len(scripts))
		}
	})
	return server.URL
}

func TestTailPrints(t *testing.T) {
	url := scripted(t, func(p peer) {
		if got := p.r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("authorization %q", got)
		}
		p.expect(`{"type":"join","id":1,"room":"a","policy":"keep-latest","queue_messages":5,"queue_bytes":2048}`)
		p.expect(`{"type":"join","id":2,"room":"b","policy":"keep-latest","queue_messages":5,"queue_bytes":2048}`)
		p.send(joined("a", "e", 7, ""), message("a", 8, "hello"), message("a", 9, "two\nlines"),
			`{"type":"gap","room":"a","after":9,"before":945,"lost":935,"reason":"overflow"}`,
			"{\"type\":\"message\",\"room\":\"a\",\"seq\":945,\"data\":{\"x\":\n[1, \"\\u001b\"]}}",
			`{"type":"message","room":"b","seq":3,"base64":"AAE="}`,
			`{"type":"gap","room":"b","after":3,"before":0,"lost":1,"reason":"expired"}`,
			`{"type":"left","room":"b"}`, `{"type":"news of a later version"}`,
			message("a", 946, ""))
		p.leaves()
	})
	invocation{
		args: []string{"tail", "a", "b", "--count", "5", "--policy", "keep-latest", "--queue-messages=5", "--queue-bytes=2KiB", "--url", url},
		env:  []string{"HUBD_TOKEN=secret"},
	}.run(t.Context()).want(t, 0, `a 8 hello
a 9 "two\nlines"
a gap lost=935 reason=overflow after=9 before=945
a 945 {"x":[1,"\u001b"]}
b 3 base64:AAE=
b gap lost=1 reason=expired after=3
a 946 
`, "hubd: joined a at 7 (drop-newest, queue of 256 messages and 1MiB)\nhubd: the server ended following b\n")
}

func TestTailJSON(t *testing.T) {
	frames := []string{
		joined("a", "e", 7, ""),
		`{"type":"gap","room":"a","after":7,"before":9,"lost":1,"reason":"overflow"}`,
		`{"type":"message","room":"a","seq":9,"data":{"x": 1}}`,
	}
	url := scripted(t, func(p peer) {
		p.expect(`{"type":"join","id":1,"room":"a"}`)
		p.send(frames...)
		p.send("{\"type\":\"message\",\"room\":\"a\",\"seq\":10,\"data\":[\n1\n]}")
		p.leaves()
	})
	want := strings.Join(frames, "\n") + "\n" + `{"type":"message","room":"a","seq":10,"data":[1]}` + "\n"
	got := hubd(t, "tail", "a", "--json", "-n2", "--url", url)
	got.want(t, 0, want, "joined a at 7")
}

func TestTailResumes(t *testing.T) {
	url := scripted(t,
		func(p peer) {
			p.expect(`{"type":"join","id":1,"room":"a"}`)
			p.send(joined("a", "e", 7, ""), message("a", 8, "x"))
			p.close(1001, "draining")
		},
		func(p peer) {
			p.expect(`{"type":"join","id":1,"room":"a","after":"e:8"}`)
			p.send(joined("a", "e", 9, `,"resumed":true,"replayed":1`), message("a", 9, "y"))
			p.close(4008, "slow consumer")
		},
		func(p peer) { // another node, which numbers anew
			p.expect(`{"type":"join","id":1,"room":"a","after":"e:9"}`)
			p.send(joined("a", "f", 2, `,"resumed":false`), message("a", 3, "z"))
			_ = p.conn.CloseNow()
		},
		func(p peer) { // nothing happened meanwhile
			p.expect(`{"type":"join","id":1,"room":"a","after":"f:3"}`)
			p.send(joined("a", "f", 3, `,"resumed":false`), message("a", 4, "end"))
			p.leaves()
		},
	)
	got := hubd(t, "tail", "a", "-n4", "--url", url)
	got.want(t, 0, `a 8 x
a 9 y
a gap lost=unknown reason=not-resumed after=e:9 now=f:2
a 3 z
a 4 end
`, "hubd: closed by the server: 1001 draining; connecting again in ")
	for _, want := range []string{"closed by the server: 4008 slow consumer; connecting again", "connection lost"} {
		got.want(t, 0, got.stdout, want)
	}
}

func TestTailBeginsAfter(t *testing.T) {
	url := scripted(t, func(p peer) {
		p.expect(`{"type":"join","id":1,"room":"a","after":"e:41"}`)
		p.send(joined("a", "e", 44, `,"resumed":true,"replayed":3`), message("a", 42, "x"))
		p.leaves()
	})
	hubd(t, "tail", "a", "--after", "e:41", "-n1", "--url", url).want(t, 0, "a 42 x\n", "joined a at 44")
}

func TestTailDoesNotComeBack(t *testing.T) {
	join := func(p peer) {
		p.expect(`{"type":"join","id":1,"room":"a"}`)
		p.send(joined("a", "e", 7, ""))
	}
	for _, test := range []struct {
		name   string
		args   []string
		script func(peer)
		want   string
	}{
		{"unauthorized", nil, func(p peer) { join(p); p.close(4001, "token expired") }, "hubd: closed by the server: 4001 token expired\n"},
		{"forbidden", nil, func(p peer) { join(p); p.close(4003, "forbidden") }, "hubd: closed by the server: 4003 forbidden\n"},
		{"told not to", []string{"--no-reconnect"}, func(p peer) { join(p); p.close(1001, "draining") }, "hubd: closed by the server: 1001 draining\n"},
		{"never joined", nil, func(p peer) { p.close(1013, "over capacity") }, "hubd: closed by the server: 1013 over capacity\n"},
		{"refused", nil, func(p peer) {
			join(p)
			p.send(`{"type":"error","id":1,"code":"invalid_option","message":"no such"}`)
		}, "hubd: join a: refused (invalid_option): no such\n"},
		{"no frame of ours", nil, func(p peer) { join(p); p.send("hello"); p.close(1000, "") }, "is not of the protocol hubd.v1.json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := scripted(t, test.script)
			args := append([]string{"tail", "a", "--url", url}, test.args...)
			if test.name == "no frame of ours" {
				args = append(args, "--no-reconnect")
			}
			hubd(t, args...).want(t, 1, "", test.want)
		})
	}
}

func TestTailNotConnected(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
		want   string
	}{
		{401, `{"code":"unauthorized","detail":"a token is needed"}`, "hubd: not connected: 401 Unauthorized (unauthorized): a token is needed; try again in 3s\n"},
		{503, `{"code":"draining","detail":"going"}`, "hubd: not connected: 503 Service Unavailable (draining): going; try again in 3s\n"},
		{200, `<h1>welcome`, "hubd: not connected: 200 OK: <h1>welcome; try again in 3s\n"},
	} {
		server, _ := answering(t, test.status, "application/problem+json", test.body)
		hubd(t, "tail", "a", "--url", server.URL).want(t, 1, "", test.want)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err == nil {
			_ = conn.CloseNow()
		}
	}))
	defer plain.Close()
	hubd(t, "tail", "a", "--url", plain.URL).want(t, 1, "", "does not speak hubd.v1.json; is it a hubd?")
	plain.Close()
	hubd(t, "tail", "a", "--url", plain.URL).want(t, 1, "", "nothing listens at "+plain.URL)
}

// trigger is an output that calls hit once a text has been written to it.
type trigger struct {
	text string
	hit  func()
	told strings.Builder
}

func (w *trigger) Write(b []byte) (int, error) {
	w.told.Write(b)
	if w.hit != nil && strings.Contains(w.told.String(), w.text) {
		w.hit()
		w.hit = nil
	}
	return len(b), nil
}

// TestTailInterrupted: the command ends well whatever it is doing.
func TestTailInterrupted(t *testing.T) {
	join := func(p peer) {
		p.expect(`{"type":"join","id":1,"room":"a"}`)
		p.send(joined("a", "e", 7, ""))
	}
	for _, test := range []struct {
		name   string
		at     string // the notice at which it is interrupted
		script func(p peer, ended <-chan struct{})
	}{
		{"following", "joined a", func(p peer, _ <-chan struct{}) { join(p); p.leaves() }},
		{"waiting to connect again", "connecting again", func(p peer, _ <-chan struct{}) { join(p); p.close(1001, "draining") }},
		{"the server is stuck", "joined a", func(p peer, ended <-chan struct{}) {
			join(p)
			<-ended // until then the close frame gets no answer
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			stderr := &trigger{text: test.at, hit: cancel}
			ended := make(chan struct{})
			url := scripted(t, func(p peer) { test.script(p, ended) })
			if status := run(ctx, []string{"tail", "a", "--url", url}, nil, nil, io.Discard, stderr); status != 0 {
				t.Errorf("status %d, want 0\n%s", status, stderr.told.String())
			}
			close(ended)
		})
	}
}

func TestFinal(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&refusal{status: 401}, true},
		{&refusal{status: 404}, true},
		{&refusal{status: 429}, false},
		{&refusal{status: 503}, false},
		{fmt.Errorf("not connected: %w", &refusal{status: 403}), true},
		{&joinError{code: "invalid_room"}, true},
		{&joinError{code: "draining"}, false},
		{&closedError{websocket.CloseError{Code: 4001}}, true},
		{&closedError{websocket.CloseError{Code: 4009}}, false},
		{&outputError{io.ErrClosedPipe}, true},
		{io.ErrUnexpectedEOF, false},
	} {
		if got := final(test.err); got != test.want {
			t.Errorf("final(%v) = %t, want %t", test.err, got, test.want)
		}
	}
}

func TestTailOutputFails(t *testing.T) {
	url := scripted(t, func(p peer) {
		p.expect(`{"type":"join","id":1,"room":"a"}`)
		p.send(joined("a", "e", 7, ""), message("a", 8, "x"))
		p.leaves()
	})
	var notices strings.Builder
	status := run(t.Context(), []string{"tail", "a", "--url", url}, nil, nil, failingWriter{}, &notices)
	outcome{status: status, stderr: notices.String()}.want(t, 1, "", "hubd: print: io: read/write on closed pipe\n")
}

// FuzzReceive: whatever a server sends, what is printed of a frame is one line
// without control characters.
func FuzzReceive(f *testing.F) {
	for _, frame := range []string{
		joined("a", "e", 7, ""), message("a", 8, "x\x1b"),
		`{"type":"gap","room":"a\u009b","after":9,"before":945,"lost":935,"reason":"\n"}`,
		`{"type":"message","room":"a","seq":1,"data":{"x":"\u001b"}}`,
	} {
		f.Add([]byte(frame))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var frame serverFrame
		if json.Unmarshal(text, &frame) != nil {
			return
		}
		var out strings.Builder
		p := newPrinter(&out, false)
		p.rooms["a"] = &place{"e", 1}
		for range 2 {
			if err := p.print(&frame, text); err != nil {
				t.Fatal(err)
			}
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if printable(line) != line {
				t.Fatalf("printed %q", line)
			}
		}
	})
}
