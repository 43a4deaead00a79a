package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// req sends one request on a connection of its own; lines are further headers.
func (n *node) req(method, target, body string, lines ...string) reply {
	n.t.Helper()
	lines = append([]string{method + " " + target + " HTTP/1.1", "Host: " + strings.TrimPrefix(n.url, "http://"), "Connection: close"}, lines...)
	if body != "" || method == http.MethodPost {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	w := n.connect()
	defer w.conn.Close()
	w.write([]byte(strings.Join(lines, "\r\n") + "\r\n\r\n" + body))
	if method == http.MethodHead {
		resp := w.response()
		return reply{resp.StatusCode, resp.Header, ""}
	}
	return w.reply()
}

// A room's name gets one verdict, at every door and in every spelling.
func TestRoomNames(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	socket := n.wireJSON("/ws")
	escape := func(s, format string) (out string) {
		for i := range len(s) {
			out += fmt.Sprintf(format, s[i])
		}
		return out
	}
	for _, name := range []string{
		"a", "Z9", "A.b_c~d:e@f-9", "...", "..a", ".", "..", "a b", "a/b", "a%b", "a+b", "a\\b", "a?b", "a#b", "a;b", "a*b", "a\x00b", "a\nb", "\u00e9", "a\xffb",
		"history", strings.Repeat("x", 128), strings.Repeat("x", 129),
	} {
		_, err := frame.ParseRoom(name)
		ok := err == nil
		spellings := []string{escape(name, "%%%02x"), escape(name, "%%%02X")}
		if ok {
			spellings = append(spellings, name, name[:1]+escape(name[1:], "%%%02x"))
		}
		for _, spelled := range spellings {
			if spelled == "." || spelled == ".." {
				continue
			}
			path := "/rooms/" + spelled
			for door, r := range map[string]reply{
				"info":      n.req("GET", path, ""),
				"HEAD":      n.req("HEAD", path, ""),
				"POST":      n.req("POST", path, "x"),
				"history":   n.req("GET", path+"/history", ""),
				"handshake": n.req("GET", path, "", "Upgrade: websocket"), // lacks all else
				"admin":     n.req("GET", "/admin"+path, ""),
			} {
				refused := r.status == 400 && (door == "HEAD" || strings.Contains(r.body, string(hub.InvalidRoom)))
				if refused == ok || door != "handshake" && door != "admin" && ok && r.status != 200 {
					t.Errorf("%s of %q as %q: %d %s", door, name, spelled, r.status, r.body)
				}
			}
			w := n.connect()
			w.write([]byte(n.handshake(path) + "\r\n\r\n"))
			if got := w.response().StatusCode; (got == 101) != ok || !ok && got != 400 {
				t.Errorf("handshake for %q as %q: %d", name, spelled, got)
			}
			w.conn.Close()
			stream := n.connect()
			stream.write([]byte("GET " + path + " HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"))
			if got := stream.response().StatusCode; (got == 200) != ok || !ok && got != 400 {
				t.Errorf("event stream of %q as %q: %d", name, spelled, got)
			}
			stream.conn.Close()
		}
		if quoted, err := json.Marshal(name); err == nil && !strings.Contains(name, "\xff") {
			a := socket.one(fmt.Sprintf(`{"type":"publish","id":1,"room":%s,"text":"x"}`, quoted))
			if (a.Type == "published") != ok || !ok && a.Code != string(hub.InvalidRoom) {
				t.Errorf("command for %q: %+v", name, a)
			}
		}
	}
	for _, path := range []string{"/rooms", "/rooms/", "/rooms//", "/rooms/a/b", "/rooms/a/", "/rooms//a", "/rooms/a/b/history", "/rooms//history", "/nothing", "/admin", "/admin/rooms/a/b", "/ws/", "/ws/a"} {
		for _, method := range []string{"GET", "POST"} {
			if r := n.req(method, path, ""); r.status != 404 && !(r.status == 405 && method == "POST") {
				t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
			} else if method == "GET" {
				r.isProblem(t, 404, hub.NotFound)
			}
		}
	}
}

// What a body is published as depends on its type, and is checked for it.
func TestContentTypes(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w := n.wireJSON("/rooms/a")
	w.answer()
	for contentType, want := range map[string]string{
		"":                                         "text",
		"text/plain":                               "text",
		"text/plain; charset=utf-8":                "text",
		"text/plain;charset=\"UTF-8\"":             "text",
		"text/plain; charset=us-ascii":             "text",
		"text/csv; header=present":                 "text",
		"TEXT/HTML":                                "text",
		"application/x-www-form-urlencoded":        "text",
		"application/json":                         "data",
		"application/json; charset=utf-8":          "data",
		"Application/JSON":                         "data",
		"application/octet-stream":                 "base64",
		"application/octet-stream; charset=latin1": "base64",
		"text/plain; charset=iso-8859-1":           "",
		"application/json; charset=utf-16":         "",
		"image/png":                                "",
		"application/xml":                          "",
		"multipart/form-data; boundary=x":          "",
		"application/json/x":                       "",
		"text":                                     "",
		";":                                        "",
		"text/plain; charset":                      "",
	} {
		var lines []string
		if contentType != "" {
			lines = append(lines, "Content-Type: "+contentType)
		}
		r := n.req("POST", "/rooms/a", "12", lines...)
		if want == "" {
			r.isProblem(t, 400, hub.InvalidMessage)
			continue
		}
		if r.status != 200 {
			t.Errorf("%q: %d %s", contentType, r.status, r.body)
			continue
		}
		a := w.answer()
		got := map[bool]string{true: "data"}[a.Data != nil] + map[bool]string{true: "text"}[a.Text != nil] + map[bool]string{true: "base64"}[a.Base64 != nil]
		if got != want {
			t.Errorf("%q was published as %s, want %s", contentType, got, want)
		}
	}
	w.ping() // what was refused reached nobody
}

func TestPublishByHTTP(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	w := n.wireJSON("/rooms/a")
	epoch := w.answer().Epoch
	r := n.req("POST", "/rooms/a", "")
	if want := fmt.Sprintf(`{"room":"a","epoch":"%s","seq":1,"subscribers":1,"queued":1,"dropped":0,"conflated":0,"disconnected":0}`+"\n", epoch); r.status != 200 || r.body != want {
		t.Errorf("%d %s, want %s", r.status, r.body, want)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if a := w.answer(); a.Text == nil || *a.Text != "" {
		t.Errorf("an empty body: %+v", a)
	}
	for _, c := range []struct {
		target, body string
		lines        []string
		code         hub.Code
	}{
		{"/rooms/a", "", []string{"Content-Type: application/json"}, hub.InvalidMessage},
		{"/rooms/a", "{", []string{"Content-Type: application/json"}, hub.InvalidMessage},
		{"/rooms/a", "1 2", []string{"Content-Type: application/json"}, hub.InvalidMessage},
		{"/rooms/a", "x", []string{"Hubd-Key: " + strings.Repeat("k", 129)}, hub.InvalidMessage},
		{"/rooms/a", "x", []string{"Hubd-Key: a\tb"}, hub.InvalidMessage},
		{"/rooms/a?key=" + strings.Repeat("k", 129), "x", nil, hub.InvalidMessage},
		{"/rooms/a?key=%00", "x", nil, hub.InvalidMessage},
		{"/rooms/a?key=%ff", "x", nil, hub.InvalidMessage},
		{"/rooms/a?key=%zz", "x", nil, hub.InvalidOption},
		{"/rooms/a?wait=5", "x", nil, hub.InvalidOption},
		{"/rooms/a?wait=-1s", "x", nil, hub.InvalidOption},
		{"/rooms/a?wait=soon", "x", nil, hub.InvalidOption},
		{"/rooms/a?wait=%zz", "x", nil, hub.InvalidOption},
	} {
		r := n.req("POST", c.target, c.body, c.lines...)
		r.isProblem(t, 400, c.code)
	}
	if got := n.value("hubd_publish_rejected_total", "reason", "invalid"); got != 13 {
		t.Errorf("%v refusals counted", got)
	}
	// The key conflates; the one in the query stands.
	n.req("POST", "/rooms/a", "1", "Hubd-Key: header")
	n.req("POST", "/rooms/a?key=query", "2", "Hubd-Key: header")
	n.req("POST", "/rooms/a?key=caf%C3%A9", "3")
	var history struct {
		Messages []struct {
			Seq  uint64
			Key  string
			Text *string
			Time time.Time
		}
	}
	if err := json.Unmarshal([]byte(n.req("GET", "/rooms/a/history", "").body), &history); err != nil {
		t.Fatal(err)
	}
	keys := ""
	for _, m := range history.Messages {
		keys += m.Key + " "
	}
	if keys != " header query café " {
		t.Errorf("keys %q", keys)
	}
}

// The answer to a publish counts what became of it, by what the queues did.
func TestPublishAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{}, 600)
		for _, query := range []string{"?policy=drop-newest", "?policy=drop-oldest", "?policy=keep-latest", "?policy=disconnect"} {
			n.wire("/rooms/a" + query + "&queue_messages=2")
		}
		ok := n.wire("/rooms/a")
		post := func() published { return n.post("a", "text/plain", strings.Repeat("x", 700)) }
		all := published{Room: "a", Epoch: n.epoch("a"), Status: 200, Subscribers: 5, Queued: 5}
		for seq := 1; seq <= 3; seq++ { // one in flight, two queued
			want := all
			want.Seq = uint64(seq)
			if got := post(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			synctest.Wait()
			ok.message()
		}
		want := published{Room: "a", Epoch: n.epoch("a"), Status: 200, Seq: 4, Subscribers: 5, Queued: 3, Dropped: 1 + 1 + 1, Conflated: 2, Disconnected: 1}
		if got := post(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		synctest.Wait()
		ok.message()
		want.Seq, want.Subscribers, want.Dropped, want.Conflated, want.Disconnected = 5, 4, 2, 0, 0
		if got := post(); got != want { // keep-latest has room for one
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Where the feed refuses publishes, a publisher waits for room as long as it
// says and no longer; a refusal says when to come back, and takes no number.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, rejecting, server.Config{WriteTimeout: time.Hour}, 600)
		w := n.wire("/rooms/a")
		n.publish("a", strings.Repeat("x", 1000))
		synctest.Wait()
		n.publish("a", "queued")
		for query, want := range map[string]time.Duration{
			"": 0, "?wait=": 0, "?wait=0": 0, "?wait=700ms": 700 * time.Millisecond, "?wait=1m": 5 * time.Second, "?wait=999h": 5 * time.Second,
		} {
			begin := time.Now()
			r := n.req("POST", "/rooms/a"+query, "refused")
			r.isProblem(t, 503, hub.Overflow)
			if got := time.Since(begin); got != want || r.header.Get("Retry-After") == "" {
				t.Errorf("%q: refused after %v, want %v; Retry-After %q", query, got, want, r.header.Get("Retry-After"))
			}
		}
		answered := make(chan published, 1)
		go func() { answered <- n.post("a?wait=5s", "text/plain", "in the end") }()
		time.Sleep(time.Second)
		begin := time.Now()
		w.message()
		if p := <-answered; p.Status != 200 || p.Seq != 3 || time.Since(begin) != 0 {
			t.Errorf("after %v: %+v", time.Since(begin), p)
		}
		w.expect("queued")
		w.expect("in the end")
		// A publisher that gives up while it waits publishes nothing.
		n.publish("a", strings.Repeat("x", 1000))
		synctest.Wait()
		n.publish("a", "queued")
		gone := n.connect()
		gone.write([]byte("POST /rooms/a?wait=5s HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\ngone"))
		synctest.Wait()
		gone.conn.Close()
		synctest.Wait()
		w.message()
		w.expect("queued")
		synctest.Wait()
		if p := n.publish("a", "next"); p.Position.Seq != 6 {
			t.Errorf("the next has seq %d", p.Position.Seq)
		}
		w.expect("next")
	})
}

// Looking at a room tells its settings and creates none.
func TestInfo(t *testing.T) {
	n := start(t, hub.Config{Feeds: []hub.Feed{{Name: "chat", Match: []string{"chat.*"}, Policy: queue.Disconnect, Queue: queue.Limits{Messages: 7, Bytes: 70_000}}}}, server.Config{})
	for path, want := range map[string]string{
		"/rooms/nobody": `{"room":"nobody","feed":"default","policy":"drop-newest","epoch":"","seq":0,"subscribers":0,"queue":{"messages":256,"bytes":1048576}}`,
		"/rooms/chat.a": `{"room":"chat.a","feed":"chat","policy":"disconnect","epoch":"","seq":0,"subscribers":0,"queue":{"messages":7,"bytes":70000}}`,
	} {
		r := n.req("GET", path, "")
		if r.status != 200 || r.body != want+"\n" || r.header.Get("Content-Type") != "application/json" || r.header.Get("Cache-Control") != "no-store" || r.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v %s", path, r.status, r.header, r.body)
		}
		head := n.req("HEAD", path, "")
		if head.status != 200 || head.header.Get("Content-Length") != fmt.Sprint(len(r.body)) {
			t.Errorf("HEAD %s: %d %v", path, head.status, head.header)
		}
	}
	if got := n.value("hubd_rooms"); got != 0 {
		t.Errorf("%v rooms", got)
	}
	n.wire("/rooms/chat.a?queue_messages=3")
	n.publish("chat.a", "x")
	want := fmt.Sprintf(`{"room":"chat.a","feed":"chat","policy":"disconnect","epoch":"%s","seq":1,"subscribers":1,"queue":{"messages":7,"bytes":70000}}`, n.epoch("chat.a"))
	if r := n.req("GET", "/rooms/chat.a", ""); r.body != want+"\n" {
		t.Errorf("%s", r.body)
	}
}

// A resource says which methods it takes, and answers HEAD wherever it answers
// GET.
func TestMethods(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	for path, methods := range map[string]string{
		"/rooms/a": "GET, HEAD, POST", "/rooms/a/history": "GET, HEAD", "/healthz": "GET, HEAD", "/readyz": "GET, HEAD", "/metrics": "GET, HEAD",
		"/admin/stats": "GET, HEAD", "/admin/rooms": "GET, HEAD", "/admin/subscribers": "GET, HEAD", "/admin/subscribers/x": "DELETE",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			r := n.req(method, path, "")
			takes := false
			for m := range strings.SplitSeq(methods, ", ") {
				takes = takes || m == method
			}
			switch {
			case takes && r.status != 200 && !(method == "DELETE" && r.status == 404):
				t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
			case !takes && method == "HEAD":
				if r.status != 405 {
					t.Errorf("HEAD %s: %d", path, r.status)
				}
			case !takes:
				if r.status != 405 || r.header.Get("Allow") != methods {
					t.Errorf("%s %s: %d, Allow %q, want %q", method, path, r.status, r.header.Get("Allow"), methods)
				}
				r.isProblem(t, 405, hub.InvalidOption)
			}
		}
		if r := n.req("BREW", path, ""); r.status != 405 && r.status != 501 || r.status == 405 && r.header.Get("Allow") == "" {
			t.Errorf("BREW %s: %d", path, r.status)
		}
	}
}

// Health is for the process, readiness for newcomers.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startFake(t, hub.Config{}, server.Config{}, 4096)
		stuck := n.wire("/rooms/a") // keeps the node draining: it does not close
		for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`} {
			if r := n.req("GET", path, ""); r.status != 200 || r.body != want+"\n" {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
		drained := make(chan struct{})
		go func() { n.drain(); close(drained) }()
		synctest.Wait()
		if r := n.req("GET", "/healthz", ""); r.status != 200 {
			t.Errorf("/healthz: %d %s", r.status, r.body)
		}
		for _, r := range []reply{
			n.req("GET", "/readyz", ""), n.req("POST", "/rooms/a", "x"), n.req("POST", "/rooms/b", "x"),
			n.request(n.handshake("/rooms/a") + "\r\n\r\n"), n.req("GET", "/rooms/a", "", "Accept: text/event-stream"),
		} {
			r.isProblem(t, 503, hub.Draining)
		}
		if got := n.value("hubd_publish_rejected_total", "reason", "draining"); got != 2 {
			t.Errorf("%v publishes", got)
		}
		if got := n.value("hubd_handshakes_rejected_total", "reason", "draining"); got != 2 {
			t.Errorf("%v handshakes", got)
		}
		if f, err := stuck.frame(); err != nil || f.op != opClose {
			t.Errorf("%v %v", f, err)
		}
		<-drained
	})
}
