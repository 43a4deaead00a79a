package server_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// ask sends a command and returns all that came in answer to it: what comes
// before the answer to a ping that was sent behind it.
func (w *wire) ask(command string) (answers []answer) {
	w.t.Helper()
	const last = 4_242_424_242
	w.say(command, fmt.Sprintf(`{"type":"ping","id":%d}`, last))
	for {
		a := w.answer()
		if a.ID != nil && *a.ID == last {
			return answers
		}
		answers = append(answers, a)
	}
}

// one is ask where exactly one answer is wanted.
func (w *wire) one(command string) answer {
	w.t.Helper()
	answers := w.ask(command)
	if len(answers) != 1 {
		w.t.Fatalf("%.200s: %d answers, want one: %+v", command, len(answers), answers)
	}
	return answers[0]
}

// Every request with an id gets exactly one answer, with that id, whatever is
// wrong with it, and the connection lives on.
func TestCommandErrors(t *testing.T) {
	const limit = 2000
	n := start(t, hub.Config{MaxMessageBytes: limit, Feeds: []hub.Feed{
		{Name: "strict", Match: []string{"strict.*"}, Policy: queue.DropOldest, Allow: []queue.Policy{queue.KeepLatest}},
	}}, server.Config{})
	w := n.wireJSON("/ws")
	pub := func(rest string) string { return `{"type":"publish","id":7,"room":"a",` + rest + `}` }
	join := func(rest string) string { return `{"type":"join","id":7,"room":"a",` + rest + `}` }
	long := strings.Repeat("x", limit+1)
	for _, c := range []struct {
		command string
		code    hub.Code
	}{
		{`{"type":"sing","id":7}`, hub.InvalidOption},
		{`{"id":7}`, hub.InvalidOption},
		{`{"type":"","id":7}`, hub.InvalidOption},
		{`{"type":"Ping","id":7}`, hub.InvalidOption},
		{`{"type":5,"id":7}`, hub.InvalidOption},
		{`{"type":["ping"],"id":7}`, hub.InvalidOption},
		{`{"type":"ping","id":7,"extra":1}`, hub.InvalidOption},
		{`{"extra":{"a":[1,{"b":null}]},"type":"ping","id":7}`, hub.InvalidOption},
		{`{"type":"auth","id":7,"token":"x"}`, hub.InvalidOption},
		{`{"type":"auth","id":7,"token":5}`, hub.InvalidOption},

		{`{"type":"join","id":7}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":null}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":""}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":".."}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":"a b"}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":"a/b"}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":"a%20b"}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":"\u00e9"}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":"` + strings.Repeat("x", 129) + `"}`, hub.InvalidRoom},
		{`{"type":"join","id":7,"room":5}`, hub.InvalidOption},
		{`{"type":"join","id":7,"room":["a"]}`, hub.InvalidOption},
		{`{"type":"leave","id":7}`, hub.InvalidRoom},
		{`{"type":"leave","id":7,"room":"a b"}`, hub.InvalidRoom},
		{`{"type":"publish","id":7,"text":"x"}`, hub.InvalidRoom},
		{`{"type":"publish","id":7,"room":"a b","text":"x"}`, hub.InvalidRoom},

		{join(`"policy":"drop"`), hub.InvalidOption},
		{join(`"policy":"Drop-Newest"`), hub.InvalidOption},
		{join(`"policy":5`), hub.InvalidOption},
		{join(`"policy":"reject-publish"`), hub.InvalidOption},
		{`{"type":"join","id":7,"room":"strict.a","policy":"drop-newest"}`, hub.InvalidOption},
		{`{"type":"join","id":7,"room":"strict.a","policy":"disconnect"}`, hub.InvalidOption},
		{join(`"queue_messages":0`), hub.InvalidOption},
		{join(`"queue_messages":-1`), hub.InvalidOption},
		{join(`"queue_messages":1.5`), hub.InvalidOption},
		{join(`"queue_messages":"5"`), hub.InvalidOption},
		{join(`"queue_messages":true`), hub.InvalidOption},
		{join(`"queue_bytes":0`), hub.InvalidOption},
		{join(`"queue_bytes":-9223372036854775808`), hub.InvalidOption},
		{join(`"queue_bytes":1e99`), hub.InvalidOption},
		{join(`"queue_bytes":99999999999999999999`), hub.InvalidOption},
		{join(`"gaps":"off"`), hub.InvalidOption},
		{join(`"gaps":0`), hub.InvalidOption},
		{join(`"after":5`), hub.InvalidOption},
		{join(`"after":""`), hub.InvalidPosition},
		{join(`"after":"41"`), hub.InvalidPosition},
		{join(`"after":":41"`), hub.InvalidPosition},
		{join(`"after":"e:-1"`), hub.InvalidPosition},
		{join(`"after":"e:9007199254740992"`), hub.InvalidPosition},

		{`{"type":"leave","id":7,"room":"a"}`, hub.NotJoined},

		{`{"type":"publish","id":7,"room":"a"}`, hub.InvalidMessage},
		{pub(`"data":1,"text":"x"`), hub.InvalidMessage},
		{pub(`"data":1,"base64":""`), hub.InvalidMessage},
		{pub(`"text":"","base64":""`), hub.InvalidMessage},
		{pub(`"data":null,"text":"","base64":""`), hub.InvalidMessage},
		{pub(`"text":5`), hub.InvalidMessage},
		{pub(`"text":null`), hub.InvalidMessage},
		{pub(`"text":["x"]`), hub.InvalidMessage},
		{pub(`"base64":5`), hub.InvalidOption},
		{pub(`"base64":null`), hub.InvalidMessage},
		{pub(`"base64":"!"`), hub.InvalidMessage},
		{pub(`"base64":"YQ"`), hub.InvalidMessage},
		{pub(`"base64":"_-8="`), hub.InvalidMessage},
		{pub(`"base64":"YQ==YQ=="`), hub.InvalidMessage},
		{pub(`"text":"\ud800"`), hub.InvalidMessage},
		{pub(`"text":"\udc00"`), hub.InvalidMessage},
		{pub(`"text":"a\ud800b"`), hub.InvalidMessage},
		{pub(`"text":"\ud800\ud800\udc00"`), hub.InvalidMessage},
		{pub(`"text":"\udc00\ud800"`), hub.InvalidMessage},
		{pub(`"text":"\ud800\n"`), hub.InvalidMessage},
		{pub(`"text":"\ud800\u0061"`), hub.InvalidMessage},
		{pub(`"text":"\\\ud800\\udc00"`), hub.InvalidMessage},
		{pub(`"text":"x","key":"` + strings.Repeat("k", 129) + `"`), hub.InvalidMessage},
		{pub(`"text":"x","key":"\u0000"`), hub.InvalidMessage},
		{pub(`"text":"x","key":"\n"`), hub.InvalidMessage},
		{pub(`"text":"x","key":5`), hub.InvalidOption},
		{pub(`"text":"` + long + `"`), hub.MessageTooLarge},
		{pub(`"data":"` + long + `"`), hub.MessageTooLarge},
		{pub(`"base64":"` + base64.StdEncoding.EncodeToString([]byte(long)) + `"`), hub.MessageTooLarge},
	} {
		a := w.one(c.command)
		if a.Type != "error" || a.ID == nil || *a.ID != 7 || a.Code != string(c.code) || a.Message == "" {
			t.Errorf("%.200s: %+v, want the error %s", c.command, a, c.code)
		}
		if strings.Contains(c.command, `"token":"x"`) && strings.Contains(a.Message, "x\"") {
			t.Errorf("the answer repeats the token: %q", a.Message)
		}
	}
	if got := n.value("hubd_messages_published_total"); got != 0 {
		t.Errorf("%v messages published", got)
	}
	if got := n.value("hubd_publish_rejected_total", "reason", "too_large"); got != 3 {
		t.Errorf("%v counted as too large", got)
	}
	if got := n.value("hubd_subscriptions"); got != 0 {
		t.Errorf("%v subscriptions", got)
	}
}

// What is no command at all is answered without an id, once.
func TestNoCommand(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w := n.wireJSON("/ws")
	for _, text := range []string{
		``, ` `, `hello`, `{`, `{"type":"ping","id":1`, `[]`, `[{"type":"ping","id":1}]`, `1`, `null`, `"ping"`, `{}`, `{"id":null}`,
		`{"type":"ping","id":1}{"type":"ping","id":2}`, `{"type":"ping","id":1} 1`, `{"type":"ping","id":1}}`, `{"type":"ping","id":1}]`,
		`{"type":"ping","id":1},`, `{'type':'ping'}`, "\ufeff" + `{"type":"ping","id":1}`, `{"type":"ping",}`,
		strings.Repeat(`{"type":`, 11_000), strings.Repeat(`[`, 11_000),
		// ids that JavaScript does not hold, or that are none
		`{"type":"ping","id":-1}`, `{"type":"ping","id":1.5}`, `{"type":"ping","id":1e2}`, `{"type":"ping","id":"1"}`, `{"type":"ping","id":true}`,
		`{"type":"ping","id":9007199254740992}`, `{"type":"ping","id":99999999999999999999}`, `{"type":"ping","id":{}}`, `{"type":"ping","id":01}`,
	} {
		a := w.one(text)
		if a.Type != "error" || a.ID != nil || a.Code != string(hub.InvalidMessage) && a.Code != string(hub.InvalidOption) {
			t.Errorf("%.60q: %+v", text, a)
		}
	}
}

// The answers, to the letter, to what is right.
func TestCommandAnswers(t *testing.T) {
	n := start(t, hub.Config{MaxMessageBytes: 3000, Feeds: []hub.Feed{
		{Name: "small", Match: []string{"small.*"}, Policy: queue.Disconnect, Queue: queue.Limits{Messages: 10, Bytes: 5000}},
	}}, server.Config{})
	w := n.wireJSON("/ws")
	w.say(`{"type":"ping","id":5}`)
	w.expect(`{"type":"pong","id":5}`)
	w.say(`{"type":"ping"}`)
	w.expect(`{"type":"pong"}`)
	w.say(`{"id":0,"type":"ping"}`)
	w.expect(`{"type":"pong","id":0}`)
	w.say(` { "id" : 9007199254740991 , "type" : "ping" } `)
	w.expect(`{"type":"pong","id":9007199254740991}`)
	w.say(`{"id":1,"type":"ping","id":2}`)
	w.expect(`{"type":"pong","id":2}`)

	epoch := func(room string) string {
		t.Helper()
		type info struct{ Epoch string }
		return decode[info](t, n.get("/rooms/"+room)).Epoch
	}
	w.say(`{"type":"join","id":1,"room":"a"}`)
	joined := w.text()
	if want := fmt.Sprintf(`{"type":"joined","id":1,"room":"a","epoch":"%s","seq":0,"policy":"drop-newest","queue":{"messages":256,"bytes":1048576}}`, epoch("a")); joined != want {
		t.Errorf("got %s, want %s", joined, want)
	}
	w.say(`{"type":"join","id":2,"room":"small.a","queue_messages":99999,"queue_bytes":4000}`)
	if got, want := w.text(), fmt.Sprintf(`{"type":"joined","id":2,"room":"small.a","epoch":"%s","seq":0,"policy":"disconnect","queue":{"messages":10,"bytes":4000}}`, epoch("small.a")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.say(`{"type":"join","room":"small.b","policy":"drop-oldest","queue_messages":3,"queue_bytes":9000,"gaps":false}`)
	if got, want := w.text(), fmt.Sprintf(`{"type":"joined","room":"small.b","epoch":"%s","seq":0,"policy":"drop-oldest","queue":{"messages":3,"bytes":5000}}`, epoch("small.b")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a := w.one(`{"type":"join","id":3,"room":"a"}`); a.Code != string(hub.AlreadyJoined) || *a.ID != 3 {
		t.Errorf("joined twice: %+v", a)
	}
	w.say(`{"type":"leave","id":4,"room":"small.a"}`)
	w.expect(`{"type":"left","id":4,"room":"small.a"}`)
	if a := w.one(`{"type":"leave","id":5,"room":"small.a"}`); a.Code != string(hub.NotJoined) {
		t.Errorf("left twice: %+v", a)
	}
	w.say(`{"type":"leave","room":"small.b"}`)
	w.expect(`{"type":"left","room":"small.b"}`)

	// A publisher in the room gets its own; the answer may come before or after.
	other := n.wireJSON("/rooms/a")
	other.answer()
	for i, publish := range []struct{ field, delivered string }{
		{`"data":{"any":[1, 2.50 ,"x"]}`, `"data":{"any":[1, 2.50 ,"x"]}`},
		{`"data":null`, `"data":null`},
		{`"data":  "s"`, `"data":"s"`},
		{`"text":""`, `"text":""`},
		{`"text":"caf\u00e9 \ud83d\ude00 \\ud800 \"<&>\" \u0000"`, `"text":"café 😀 \\ud800 \"<&>\" \u0000"`},
		{`"base64":"wyg="`, `"base64":"wyg="`},
		{`"base64":""`, `"base64":""`},
		{`"text":"keyed","key":"k"`, `"text":"keyed"`},
		{`"text":"keyed","key":""`, `"text":"keyed"`},
		{`"text":"` + strings.Repeat("x", 3000) + `"`, `"text":"` + strings.Repeat("x", 3000) + `"`},
		{`"text":"` + strings.Repeat(`\u0001`, 3000) + `"`, `"text":"` + strings.Repeat(`\u0001`, 3000) + `"`},
	} {
		w.say(fmt.Sprintf(`{"type":"publish","id":%d,"room":"a",%s}`, 100+i, publish.field))
		message := fmt.Sprintf(`{"type":"message","room":"a","seq":%d,%s}`, i+1, publish.delivered)
		published := fmt.Sprintf(`{"type":"published","id":%d,"room":"a","seq":%d}`, 100+i, i+1)
		first, second := w.text(), w.text()
		if !(first == message && second == published || first == published && second == message) {
			t.Errorf("%s: got\n%s\n%s\nwant\n%s\n%s", publish.field, first, second, message, published)
		}
		other.expect(message)
	}
	// Without an id there is no answer, in a room that one is not in either.
	if got := w.ask(`{"type":"publish","room":"elsewhere","text":"x"}`); len(got) != 0 {
		t.Errorf("answers to a publish without an id: %+v", got)
	}
	if a := w.one(`{"type":"publish","room":"elsewhere","text":5}`); a.Type != "error" || a.ID != nil {
		t.Errorf("a refusal without an id: %+v", a)
	}
	w.say(`{"type":"publish","id":9,"room":"elsewhere","text":"x"}`)
	w.expect(`{"type":"published","id":9,"room":"elsewhere","seq":2}`)
}

// The join of a URL is the join of a command.
func TestJoinByURL(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	for query, command := range map[string]string{
		"":                                      "",
		"?policy=drop-oldest":                   `,"policy":"drop-oldest"`,
		"?policy=keep-latest&queue_messages=5":  `,"policy":"keep-latest","queue_messages":5`,
		"?queue_bytes=70000&queue_messages=300": `,"queue_bytes":70000,"queue_messages":300`,
		"?gaps=off":                             `,"gaps":false`,
		"?gaps=false":                           `,"gaps":false`,
		"?gaps=on":                              `,"gaps":true`,
		"?after=nobody:5":                       `,"after":"nobody:5"`,
		"?after=nobody%3A5&other=x":             `,"after":"nobody:5"`,
	} {
		byURL := n.wireJSON("/rooms/a" + query)
		ws := n.wireJSON("/ws")
		ws.say(`{"type":"join","room":"a"` + command + `}`)
		if a, b := byURL.text(), ws.text(); a != b {
			t.Errorf("%s: %s\nas a command: %s", query, a, b)
		}
		byURL.conn.Close()
		ws.conn.Close()
	}
}

// A position that is well-formed is never an error. One that cannot be resumed
// from says so, with the current one.
func TestAfter(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	n.wire("/rooms/a")
	n.publishN("a", 3)
	type info struct{ Epoch string }
	epoch := decode[info](t, n.get("/rooms/a")).Epoch
	w := n.wireJSON("/ws")
	for _, c := range []struct {
		after    string
		resumed  bool
		replayed int
	}{
		{epoch + ":3", true, 0}, {epoch + ":1", true, 2}, {epoch + ":0", true, 3},
		{epoch + ":4", false, 0}, {epoch + ":9007199254740991", false, 0}, {"another:3", false, 0}, {"another:0", false, 0}, {"x:000", false, 0},
	} {
		w.say(`{"type":"join","room":"a","after":"` + c.after + `"}`)
		a := w.answer()
		if a.Type != "joined" || a.Resumed == nil || a.Replayed == nil || *a.Resumed != c.resumed || *a.Replayed != c.replayed || a.Seq != 3 || a.Epoch != epoch {
			t.Errorf("after %s: %+v", c.after, a)
		}
		for i := range c.replayed {
			if a := w.answer(); a.Type != "message" || a.Seq != uint64(3-c.replayed+i+1) {
				t.Errorf("replayed: %+v", a)
			}
		}
		if a := w.one(`{"type":"leave","room":"a"}`); a.Type != "left" {
			t.Errorf("%+v", a)
		}
	}
}

// A connection is in so many rooms at most; each one left makes room for
// another.
func TestRoomsPerConnection(t *testing.T) {
	for limit, sc := range map[int]server.Config{server.DefaultMaxRoomsPerConnection: {}, 2: {MaxRoomsPerConnection: 2}} {
		n := start(t, hub.Config{}, sc)
		w := n.wireJSON("/rooms/r0") // counts
		w.answer()
		for i := 1; i < limit; i++ {
			if a := w.one(fmt.Sprintf(`{"type":"join","id":%d,"room":"r%d"}`, i, i)); a.Type != "joined" {
				t.Fatalf("room %d: %+v", i+1, a)
			}
		}
		for range 2 {
			if a := w.one(`{"type":"join","id":99,"room":"more"}`); a.Code != string(hub.TooManyRooms) || *a.ID != 99 {
				t.Errorf("room %d: %+v", limit+1, a)
			}
		}
		if got := n.value("hubd_subscriptions"); got != float64(limit) {
			t.Errorf("%v subscriptions", got)
		}
		w.one(`{"type":"leave","room":"r1"}`)
		if a := w.one(`{"type":"join","id":99,"room":"more"}`); a.Type != "joined" {
			t.Errorf("after leaving one: %+v", a)
		}
	}
}

// JSON that this program could not hold itself comes out of every door as it
// went in.
func TestJSONIsByteIdentical(t *testing.T) {
	const tricky = `{"n":9007199254740993,"s":"<&>` + "\u2028" + `","d":1.0,"k":1,"k":2}`
	n := start(t, hub.Config{}, server.Config{})
	for i, payload := range []string{tricky, ` [1e400, -0.0, "\u0061\ud800" ]` + "\t", `"` + strings.Repeat(`\/`, 200) + `"`} {
		room := fmt.Sprintf("r%d", i)
		raw, js := n.wire("/rooms/"+room), n.wireJSON("/rooms/"+room)
		js.answer()
		envelope := func(seq int, payload string) string {
			return fmt.Sprintf(`{"type":"message","room":"%s","seq":%d,"data":%s}`, room, seq, payload)
		}
		if p := n.post(room, "application/json", payload); p.Status != 200 {
			t.Fatalf("%+v", p)
		}
		raw.expect(payload)
		js.expect(envelope(1, payload))
		// White space around a value is JSON's, not the value's.
		trimmed := strings.TrimSpace(payload)
		js.say(`{"type":"publish","room":"` + room + `","data":` + payload + `}`)
		raw.expect(trimmed)
		js.expect(envelope(2, trimmed))
		raw.say(payload) // as text
		raw.expect(payload)
		if a := js.answer(); a.Text == nil || *a.Text != payload {
			t.Errorf("as text: %+v", a)
		}
		events := openStream(t, n.http, n.url+"/rooms/"+room+"?after="+n.epoch(room)+":0", "")
		events.event() // joined
		for _, want := range []string{payload, trimmed, payload} {
			if e := events.event(); !strings.Contains(e, "\ndata: "+want+"\n") {
				t.Errorf("event %q, want %q", e, want)
			}
		}
		again := n.wireJSON("/rooms/" + room + "?after=" + n.epoch(room) + ":0")
		again.answer()
		again.expect(envelope(1, payload))
		again.expect(envelope(2, trimmed))
	}
}

// epoch is the room's.
func (n *node) epoch(room string) string {
	n.t.Helper()
	r, err := frame.ParseRoom(room)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.hub.Info(r).Position.Epoch
}

// A raw subscriber gets payloads and nothing else, of the type that they were
// published as.
func TestRaw(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w, other := n.wire("/rooms/a"), n.wire("/rooms/a")
	for _, m := range []struct {
		op   byte
		data string
	}{
		{opText, ""}, {opBinary, ""}, {opText, "{not json"}, {opText, "\u2028\x00"}, {opBinary, "\xc3\x28\xff"}, {opText, `{"type":"ping","id":1}`},
		{opText, strings.Repeat("é", 1000)},
	} {
		w.send(sent{op: m.op, payload: []byte(m.data)})
		for _, r := range []*wire{w, other} {
			if f := r.message(); f.op != m.op || string(f.payload) != m.data {
				t.Errorf("sent %d %q, got %d %q", m.op, m.data, f.op, f.payload)
			}
		}
	}
	for contentType, op := range map[string]byte{"application/json": opText, "text/plain": opText, "application/octet-stream": opBinary} {
		n.post("a", contentType, "12")
		if f := other.message(); f.op != op || string(f.payload) != "12" {
			t.Errorf("%s: %d %q", contentType, f.op, f.payload)
		}
	}
	// JSON in an envelope is checked as JSON, whoever published it.
	js := n.wireJSON("/rooms/a?after=" + n.epoch("a") + ":0")
	for js.answer().Type != "joined" {
	}
	for i := range 10 {
		var any map[string]any
		if err := json.Unmarshal(js.message().payload, &any); err != nil || any["type"] != "message" || any["seq"] != float64(i+1) {
			t.Errorf("%v %v", any, err)
		}
	}
}
