package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hubd/internal/auth"
	"hubd/internal/hub"
	"hubd/internal/server"
)

const tokenSecret = "thirty-two bytes and more, for these tests only"

// guarded makes sc one that asks for tokens with the secret.
func guarded(t *testing.T, sc server.Config, leeway time.Duration) server.Config {
	t.Helper()
	v, err := auth.New(auth.Config{HMACSecret: []byte(tokenSecret), Leeway: leeway})
	if err != nil {
		t.Fatal(err)
	}
	sc.Auth = v
	return sc
}

// grant is what a token of a test says.
type grant struct {
	sub           string
	join, publish []string
	admin         bool
	nbf, iat, exp time.Duration // from now; exp 0: an hour; the others 0: left out
	key           string        // "": tokenSecret
}

func (g grant) token(t testing.TB) string {
	t.Helper()
	now := time.Now()
	at := func(d time.Duration) float64 { return float64(now.Add(d).UnixNano()) / 1e9 }
	if g.exp == 0 {
		g.exp = time.Hour
	}
	if g.sub == "" {
		g.sub = "alice"
	}
	if g.key == "" {
		g.key = tokenSecret
	}
	c := jwt.MapClaims{"sub": g.sub, "exp": at(g.exp), "hubd": map[string]any{"join": g.join, "publish": g.publish, "admin": g.admin}}
	for name, d := range map[string]time.Duration{"nbf": g.nbf, "iat": g.iat} {
		if d != 0 {
			c[name] = at(d)
		}
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(g.key))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// everything is a grant of all there is.
var everything = grant{join: []string{"*"}, publish: []string{"*"}, admin: true}

func bearer(token string) string { return "Authorization: Bearer " + token }

// channel is a way for a token to travel.
type channel struct {
	name string
	with func(path, token string) (path2 string, lines []string)
}

var channels = []channel{
	{"header", func(path, token string) (string, []string) { return path, []string{bearer(token)} }},
	{"subprotocol", func(path, token string) (string, []string) {
		return path, []string{"Sec-WebSocket-Protocol: " + server.Protocol + ", hubd.token." + token}
	}},
	{"query", func(path, token string) (string, []string) {
		sign := "?"
		if strings.Contains(path, "?") {
			sign = "&"
		}
		return path + sign + "access_token=" + token, nil
	}},
}

// way is one way into the hub: a request that does something.
type way struct {
	name    string
	method  string
	path    string
	lines   []string
	upgrade bool
	needs   string // join, publish, admin or nothing
	good    int    // the status of one who may
}

var ways = []way{
	{"raw", "GET", "/rooms/chat.a", nil, true, "join", 101},
	{"JSON", "GET", "/rooms/chat.a", []string{"Sec-WebSocket-Protocol: " + server.Protocol}, true, "join", 101},
	{"escaped room", "GET", "/rooms/chat%2Ea", nil, true, "join", 101},
	{"events", "GET", "/rooms/chat.a", []string{"Accept: text/event-stream"}, false, "join", 200},
	{"information", "GET", "/rooms/chat.a", nil, false, "join", 200},
	{"information, HEAD", "HEAD", "/rooms/chat.a", nil, false, "join", 200},
	{"history", "GET", "/rooms/chat.a/history", nil, false, "join", 200},
	{"publish", "POST", "/rooms/chat.a", []string{"Content-Length: 1"}, false, "publish", 200},
	{"/ws", "GET", "/ws", []string{"Sec-WebSocket-Protocol: " + server.Protocol}, true, "", 101},
	{"/ws, asked", "GET", "/ws", nil, false, "", 426},
	{"statistics", "GET", "/admin/stats", nil, false, "admin", 200},
	{"rooms", "GET", "/admin/rooms", nil, false, "admin", 200},
	{"one room", "GET", "/admin/rooms/nobody.in.it", nil, false, "admin", 404},
	{"subscribers", "GET", "/admin/subscribers", nil, false, "admin", 200},
	{"kick", "DELETE", "/admin/subscribers/x", nil, false, "admin", 404},
	{"profiles", "GET", "/debug/pprof/", nil, false, "admin", 200},
	{"a profile", "GET", "/debug/pprof/goroutine?debug=1", nil, false, "admin", 200},
	{"command line", "GET", "/debug/pprof/cmdline", nil, false, "admin", 200},
}

// request is w's request, with a token in a channel, if there is one.
func (w way) request(n *node, c *channel, token string) string {
	path, lines := w.path, w.lines
	if c != nil {
		p, more := c.with(path, token)
		path = p
		if c.name == "subprotocol" { // in place of the one without
			lines = nil
			for _, line := range w.lines {
				if !strings.HasPrefix(line, "Sec-WebSocket-Protocol") {
					lines = append(lines, line)
				}
			}
		}
		lines = append(append([]string(nil), lines...), more...)
	}
	head := []string{w.method + " " + path + " HTTP/1.1", "Host: " + strings.TrimPrefix(n.url, "http://")}
	if w.upgrade {
		head = strings.Split(n.handshake(path), "\r\n")
	}
	text := strings.Join(append(head, lines...), "\r\n") + "\r\n\r\n"
	if w.method == "POST" {
		text += "x"
	}
	return text
}

// verdict is what becomes of a token.
type verdict struct {
	name   string
	tokens []string // how many there are is how often it is sent
	status int      // 0: w.good
	code   hub.Code
}

// TestTokens: every token, in every channel, at every door.
func TestTokens(t *testing.T) {
	n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
	good := everything.token(t)
	bad := []verdict{
		{"none", nil, 401, hub.Unauthorized},
		{"empty", []string{""}, 401, hub.Unauthorized},
		{"nonsense", []string{"nonsense"}, 401, hub.Unauthorized},
		{"another key", []string{grant{join: []string{"*"}, publish: []string{"*"}, admin: true, key: "another key"}.token(t)}, 401, hub.Unauthorized},
		{"expired", []string{grant{join: []string{"*"}, publish: []string{"*"}, admin: true, exp: -40 * time.Second}.token(t)}, 401, hub.Unauthorized},
		{"not valid yet", []string{grant{join: []string{"*"}, publish: []string{"*"}, admin: true, nbf: 40 * time.Second}.token(t)}, 401, hub.Unauthorized},
		{"cut", []string{good[:len(good)-3]}, 401, hub.Unauthorized},
		{"unsigned", []string{strings.Join(strings.Split(good, ".")[:2], ".") + "."}, 401, hub.Unauthorized},
		{"two", []string{good, grant{join: []string{"*"}}.token(t)}, 401, hub.Unauthorized},
		{"no grant", []string{grant{}.token(t)}, 403, hub.Forbidden},
		{"other rooms", []string{grant{join: []string{"chat", "chat.?b"}, publish: []string{"news.*"}}.token(t)}, 403, hub.Forbidden},
	}
	tried, bypasses := 0, 0
	for _, w := range ways {
		for _, c := range channels {
			for _, v := range bad {
				tried++
				status := v.status
				if w.needs == "" && (v.code == hub.Forbidden || v.name == "none") {
					status = w.good
				}
				text := w.request(n, nil, "")
				for i, token := range v.tokens {
					if i == 0 {
						text = w.request(n, &c, token)
					} else {
						text = strings.Replace(text, "Host:", bearer(token)+"\r\nHost:", 1)
					}
				}
				if c.name == "header" && len(v.tokens) == 2 { // two headers
					text = strings.Replace(text, "Host:", bearer(v.tokens[0])+"\r\nHost:", 1)
				}
				r := n.ask(text)
				if status >= 400 && r.status < 400 {
					bypasses++
				}
				checkAnswer(t, w.name+", "+c.name+", "+v.name, w, r, status, v.code)
			}
			tried++
			for name, g := range map[string]grant{
				"all": everything, "within the leeway": {join: []string{"*"}, publish: []string{"*"}, admin: true, exp: -20 * time.Second},
				"join":    {join: []string{"chat.*"}},
				"publish": {publish: []string{"x", "chat.a"}}, "admin": {admin: true},
			} {
				status, code := 403, hub.Forbidden
				if name == "all" || name == "within the leeway" || name == w.needs || w.needs == "" {
					status = w.good
				}
				checkAnswer(t, w.name+", "+c.name+", granted "+name, w, n.ask(w.request(n, &c, g.token(t))), status, code)
			}
		}
	}
	t.Logf("bypasses %d of %d", bypasses, tried)
	n.await("all to be gone", func() bool { return n.value("hubd_connections") == 0 })
}

// ask sends a request and returns the answer's head, and its body unless it has
// no end.
func (n *node) ask(text string) reply {
	n.t.Helper()
	w := n.connect()
	defer w.conn.Close()
	w.write([]byte(text))
	resp := w.response()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if !strings.HasPrefix(text, "HEAD") && resp.StatusCode != 101 && resp.Header.Get("Content-Type") != "text/event-stream" {
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			n.t.Fatal(err)
		}
		r.body = string(b)
	}
	return r
}

func checkAnswer(t *testing.T, name string, w way, r reply, status int, code hub.Code) {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: %d %s, want %d", name, r.status, r.body, status)
		return
	}
	challenge := r.header.Get("WWW-Authenticate")
	switch status {
	case 401, 403:
		if w.method != "HEAD" {
			r.isProblem(t, status, code)
		}
		want := map[int]string{401: `Bearer realm="hubd"`, 403: `Bearer realm="hubd", error="insufficient_scope"`}[status]
		if !strings.HasPrefix(challenge, want) {
			t.Errorf("%s: challenge %q, want %q", name, challenge, want)
		}
	default:
		if challenge != "" {
			t.Errorf("%s: challenge %q with status %d", name, challenge, status)
		}
	}
}

// TestTokenCounts: each refusal is counted once, for what it was.
func TestTokenCounts(t *testing.T) {
	n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
	nobody, reader := grant{}.token(t), grant{join: []string{"a"}}.token(t)
	for _, w := range ways[:8] {
		n.ask(w.request(n, nil, ""))
		n.ask(w.request(n, &channels[0], nobody))
	}
	n.ask(ways[8].request(n, &channels[0], "x"))
	n.ask(ways[9].request(n, &channels[0], "x")) // no handshake
	for name, want := range map[string]float64{"unauthorized": 5, "forbidden": 4} {
		n.wants(want, "hubd_handshakes_rejected_total", "reason", name)
		n.wants(1, "hubd_publish_rejected_total", "reason", name)
	}
	// Connections that are open, and may not publish.
	raw := n.wire("/rooms/a", bearer(reader))
	raw.say("x")
	raw.closes(4003)
	js := n.wireJSON("/rooms/a", bearer(reader))
	js.answer()
	js.say(`{"type":"publish","id":1,"room":"a","text":"x"}`, `{"type":"join","id":2,"room":"b"}`, `{"type":"publish","room":"b","text":"x"}`)
	for id := range uint64(3) {
		a := js.answer()
		if a.Type != "error" || a.Code != "forbidden" || id < 2 && (a.ID == nil || *a.ID != id+1) || id == 2 && a.ID != nil {
			t.Errorf("answer %+v", a)
		}
	}
	n.wants(4, "hubd_publish_rejected_total", "reason", "forbidden")
	n.wants(1, "hubd_connections_closed_total", "reason", "forbidden")
	js.say(`{"type":"auth","id":3,"token":"x"}`)
	js.closes(4001)
	n.gauge(0, "hubd_connections")
	n.wants(1, "hubd_connections_closed_total", "reason", "unauthorized")
	n.wants(0, "hubd_messages_published_total")
}

// TestSubprotocolPair: the answer never names the token.
func TestSubprotocolPair(t *testing.T) {
	n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
	token := everything.token(t)
	for offer, want := range map[string]string{
		server.Protocol + ", hubd.token." + token:     server.Protocol,
		"hubd.token." + token + "," + server.Protocol: server.Protocol,
		"other, hubd.token." + token:                  "",
	} {
		w := n.wire("/rooms/a", "Sec-WebSocket-Protocol: "+offer)
		if got := w.header.Values("Sec-WebSocket-Protocol"); strings.Join(got, ",") != want {
			t.Errorf("answered with %q, want %q", got, want)
		}
		w.conn.Close()
	}
	two := n.wire("/ws", "Sec-WebSocket-Protocol: "+server.Protocol, "Sec-WebSocket-Protocol: hubd.token."+token)
	two.say(`{"type":"join","id":1,"room":"a"}`)
	if a := two.answer(); a.Type != "joined" {
		t.Errorf("%+v", a)
	}
	two.conn.Close()
	n.gauge(0, "hubd_connections")
}

// TestOtherCredentials: those of other schemes are somebody else's, such as a
// proxy's, and are no token.
func TestOtherCredentials(t *testing.T) {
	n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
	token := everything.token(t)
	host := "Host: " + strings.TrimPrefix(n.url, "http://") + "\r\n"
	for _, test := range []struct {
		line, query string
		status      int
	}{
		{"Authorization: Basic dTpw", "", 401},
		{"Authorization: Basic dTpw", "?access_token=" + token, 200},
		{"authorization: bearer   " + token, "", 200},
		{bearer(token), "?access_token=" + token, 200}, // the same twice
		{bearer(token) + "\r\n" + bearer(token), "", 200},
		{"Cookie: access_token=" + token, "", 401},
		{"X-Forwarded-Authorization: Bearer " + token, "", 401},
		{"Authorization: " + token, "", 401},
		{"Authorization: Token " + token, "", 401},
		{"X: y", "?token=" + token, 401},
		{"X: y", "?access_token=" + token + "&access_token=" + token, 200},
		{"X: y", "?access_token=" + token + "&access_token=", 401},
	} {
		if r := n.ask("GET /rooms/a" + test.query + " HTTP/1.1\r\n" + host + test.line + "\r\n\r\n"); r.status != test.status {
			t.Errorf("%.30s with %.30s: %d, want %d", test.line, test.query, r.status, test.status)
		}
	}
}

// TestOpenIsOpen: where nobody asks for tokens, they change nothing.
func TestOpenIsOpen(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{Open: true})
	for _, w := range ways {
		for i := range channels {
			if r := n.ask(w.request(n, &channels[i], "nonsense")); r.status != w.good {
				t.Errorf("%s, %s: %d %s, want %d", w.name, channels[i].name, r.status, r.body, w.good)
			}
		}
	}
	w := n.wireJSON("/ws")
	w.say(`{"type":"auth","id":1,"token":"x"}`, `{"type":"join","id":2,"room":"a"}`)
	if a := w.answer(); a.Type != "error" || a.Code != "invalid_option" {
		t.Errorf("%+v", a)
	}
	if a := w.answer(); a.Type != "joined" {
		t.Errorf("%+v", a)
	}
	w.conn.Close()
	n.gauge(0, "hubd_connections")
}

// TestFirstCommand: a connection on /ws without a token may show it within five
// seconds, and nothing else.
func TestFirstCommand(t *testing.T) {
	begin := func(n *node) *wire { return n.wireJSON("/ws") }
	t.Run("in time", func(t *testing.T) {
		bubble(t, hub.Config{}, guarded(t, server.Config{}, 0), func(t *testing.T, n *node) {
			w := begin(n)
			w.say(`{"type":"join","id":1,"room":"a"}`, `{"type":"publish","id":2,"room":"a","text":"x"}`, `{"type":"leave","id":3,"room":"a"}`, `{"type":"ping","id":4}`)
			for _, want := range []string{"unauthorized", "unauthorized", "not_joined", ""} {
				if a := w.answer(); a.Code != want {
					t.Errorf("before the token: %+v, want %q", a, want)
				}
			}
			time.Sleep(4900 * time.Millisecond)
			token := everything.token(t)
			w.say(`{"type":"auth","id":5,"token":"`+token+`"}`, `{"type":"join","id":6,"room":"a"}`)
			if a := w.answer(); a.Type != "authenticated" || *a.ID != 5 || a.Expires != time.Now().Add(time.Hour).Unix() {
				t.Errorf("%+v", a)
			}
			if a := w.answer(); a.Type != "joined" {
				t.Errorf("%+v", a)
			}
			time.Sleep(10 * time.Second)
			w.say(`{"type":"publish","id":7,"room":"a","text":"` + strings.Repeat("x", 60_000) + `"}`)
			// The message may be on its way before the answer is there.
			if a, b := w.answer().Type, w.answer().Type; a+b != "publishedmessage" && a+b != "messagepublished" {
				t.Errorf("%s, then %s", a, b)
			}
			w.conn.Close()
			rest()
			n.wants(1, "hubd_publish_rejected_total", "reason", "unauthorized")
		})
	})
	for name, test := range map[string]struct {
		say  string
		code int
		took time.Duration
	}{
		"nothing":         {"", 4001, 5 * time.Second},
		"something else":  {`{"type":"join","id":1,"room":"a"}`, 4001, 5 * time.Second},
		"a bad token":     {`{"type":"auth","id":1,"token":"x"}`, 4001, 0},
		"no token":        {`{"type":"auth","id":1}`, 4001, 0},
		"an expired one":  {`{"type":"auth","id":1,"token":"EXPIRED"}`, 4001, 0},
		"a large message": {`{"type":"auth","id":1,"token":"` + strings.Repeat("x", 20_000) + `"}`, 1009, 0},
		"broken JSON":     {`{"type":"auth","token":"`, 4001, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hub.Config{}, guarded(t, server.Config{}, 0), func(t *testing.T, n *node) {
				origin := time.Now()
				w := begin(n)
				if test.say != "" {
					said := sent{op: opText, payload: []byte(strings.Replace(test.say, "EXPIRED", grant{exp: -time.Hour}.token(t), 1))}
					// The network's buffer is smaller than the large one, which is
					// refused before it is written whole.
					go func() { _ = w.tryWrite(said.bytes()) }()
				}
				e := w.end()
				if took := time.Since(origin); e.code != test.code || took != test.took {
					t.Errorf("closed with %d after %v, want %d after %v", e.code, took, test.code, test.took)
				}
				if len(e.messages) > 1 || len(e.messages) == 1 && !strings.Contains(e.messages[0], `"type":"error"`) {
					t.Errorf("answered %q", e.messages)
				}
				if answered := len(e.messages) == 1; answered != (test.say != "" && test.code == 4001) {
					t.Errorf("answered %q", e.messages)
				}
				rest()
				n.wants(0, "hubd_connections")
			})
		})
	}
}

// The rest is about tokens that run out while the connection is open. The
// leeway is a second, and a publisher with a token of its own says something ten
// times a second.
const testLeeway = time.Second

// chatter publishes the numbers from 1 to room a for that long, at ten a second.
func chatter(n *node, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		n.publish("a", "x")
	}
}

func TestExpiry(t *testing.T) {
	five := grant{join: []string{"*"}, publish: []string{"a"}, exp: 5 * time.Second}
	t.Run("JSON", func(t *testing.T) {
		bubble(t, hub.Config{}, guarded(t, server.Config{}, testLeeway), func(t *testing.T, n *node) {
			origin := time.Now()
			w := n.wireJSON("/rooms/a", bearer(five.token(t)))
			go chatter(n, 10*time.Second)
			e := w.end()
			if took := time.Since(origin); e.code != 4001 || took != 5*time.Second+testLeeway {
				t.Errorf("closed with %d after %v", e.code, took)
			}
			if got := len(e.messages); got < 60 || got > 62 { // joined, and one every 100 ms
				t.Errorf("%d messages", got)
			}
			time.Sleep(5 * time.Second)
			n.wants(1, "hubd_connections_closed_total", "reason", "unauthorized")
		})
	})
	t.Run("raw", func(t *testing.T) {
		bubble(t, hub.Config{}, guarded(t, server.Config{}, testLeeway), func(t *testing.T, n *node) {
			origin := time.Now()
			w := n.wire("/rooms/a", bearer(five.token(t)))
			if e := w.end(); e.code != 4001 || time.Since(origin) != 5*time.Second+testLeeway {
				t.Errorf("closed with %d after %v", e.code, time.Since(origin))
			}
		})
	})
	t.Run("events", func(t *testing.T) {
		bubble(t, hub.Config{}, guarded(t, server.Config{}, testLeeway), func(t *testing.T, n *node) {
			origin := time.Now()
			s := openStream(t, n.http, n.url+"/rooms/a?access_token="+five.token(t), "")
			s.event()
			go chatter(n, 10*time.Second)
			events := 0
			for {
				if _, err := s.next(); err != nil {
					break
				}
				events++
			}
			// The network in memory cannot end one direction alone.
			if took := time.Since(origin); took != 5*time.Second+testLeeway+server.DefaultCloseTimeout || events < 59 || events > 61 {
				t.Errorf("ended after %v and %d events", took, events)
			}
			s.resp.Body.Close()
			time.Sleep(5 * time.Second)
			n.wants(1, "hubd_connections_closed_total", "reason", "unauthorized")
		})
	})
	t.Run("a stalled one", func(t *testing.T) {
		bubble(t, hub.Config{}, guarded(t, server.Config{}, testLeeway), func(t *testing.T, n *node) {
			w := n.wireJSON("/rooms/a", bearer(five.token(t)))
			w.answer()
			n.publish("a", strings.Repeat("x", 5000)) // more than the network holds
			n.publish("a", "y")
			time.Sleep(5*time.Second + testLeeway + server.DefaultCloseTimeout)
			rest()
			n.wants(0, "hubd_connections")
			n.wants(1, "hubd_close_outcome_total", "outcome", "deadline")
			n.wants(0, "hubd_frames_sent_total")
		})
	})
	t.Run("a publish after it", func(t *testing.T) {
		bubble(t, hub.Config{}, guarded(t, server.Config{}, testLeeway), func(t *testing.T, n *node) {
			token := five.token(t)
			post := way{method: "POST", path: "/rooms/a", lines: []string{"Content-Length: 1", "Connection: close"}}
			for _, step := range []struct {
				at     time.Duration
				status int
			}{{0, 200}, {5500 * time.Millisecond, 200}, {7 * time.Second, 401}} {
				time.Sleep(step.at)
				if r := n.ask(post.request(n, &channels[0], token)); r.status != step.status {
					t.Errorf("%v later: %d %s, want %d", step.at, r.status, r.body, step.status)
				}
			}
			n.wants(2, "hubd_messages_published_total")
			time.Sleep(time.Second)
		})
	})
}

// TestRefresh: another token of the same subject, in time, and nothing is lost
// or doubled.
func TestRefresh(t *testing.T) {
	bubble(t, hub.Config{}, guarded(t, server.Config{}, testLeeway), func(t *testing.T, n *node) {
		origin := time.Now()
		g := grant{join: []string{"a"}, publish: []string{"a"}, exp: 5 * time.Second}
		w := n.wireJSON("/rooms/a", bearer(g.token(t)))
		go chatter(n, 11*time.Second)
		heard := make(chan ending, 1)
		go func() { heard <- w.end() }()
		time.Sleep(4 * time.Second)
		w.say(`{"type":"auth","id":1,"token":"` + g.token(t) + `"}`)
		time.Sleep(4 * time.Second) // what the first token had is over
		w.say(`{"type":"publish","id":2,"room":"a","text":"still here"}`)
		e := <-heard
		if took := time.Since(origin); e.code != 4001 || took != 9*time.Second+testLeeway {
			t.Errorf("closed with %d after %v", e.code, took)
		}
		var seq uint64
		var others []string
		for _, text := range e.messages {
			a, err := parseAnswer(text)
			if err != nil {
				t.Fatal(err)
			}
			if a.Type != "message" {
				others = append(others, a.Type)
				continue
			}
			if seq++; a.Seq != seq {
				t.Fatalf("seq %d after %d", a.Seq, seq-1)
			}
		}
		if got := strings.Join(others, " "); got != "joined authenticated published" || seq < 100 {
			t.Errorf("%s and %d messages", got, seq)
		}
		time.Sleep(2 * time.Second)
	})
}

// TestRefreshRefused: the token of another, or a bad one, is answered and ends
// the connection; nothing of what it grants is granted.
func TestRefreshRefused(t *testing.T) {
	for name, token := range map[string]func(t *testing.T) string{
		"of another": func(t *testing.T) string {
			return grant{sub: "bob", join: []string{"*"}, publish: []string{"*"}}.token(t)
		},
		"expired":     func(t *testing.T) string { return grant{exp: -time.Minute}.token(t) },
		"of a forger": func(t *testing.T) string { return grant{key: "x"}.token(t) },
		"none":        func(*testing.T) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hub.Config{}, guarded(t, server.Config{}, 0), func(t *testing.T, n *node) {
				w := n.wireJSON("/rooms/a", bearer(grant{join: []string{"a"}}.token(t)))
				w.answer()
				w.say(`{"type":"auth","id":1,"token":"`+token(t)+`"}`, `{"type":"publish","id":2,"room":"a","text":"x"}`, `{"type":"join","id":3,"room":"b"}`)
				e := w.closes(4001)
				if len(e.messages) == 0 {
					t.Fatal("no answer")
				}
				if a, err := parseAnswer(e.messages[0]); err != nil || a.Type != "error" || *a.ID != 1 || a.Code != "unauthorized" {
					t.Errorf("%q", e.messages)
				}
				for _, text := range e.messages[1:] {
					if !strings.Contains(text, `"type":"error"`) {
						t.Errorf("after a bad token: %s", text)
					}
				}
				rest()
				n.wants(0, "hubd_messages_published_total")
				n.wants(1, "hubd_connections_closed_total", "reason", "unauthorized")
			})
		})
	}
}

// TestWithdrawal: a room that the new token does not grant is left with a
// notice, and publishing goes by the new token; other rooms go on.
func TestWithdrawal(t *testing.T) {
	bubble(t, hub.Config{}, guarded(t, server.Config{}, 0), func(t *testing.T, n *node) {
		w := n.wireJSON("/rooms/a", bearer(grant{join: []string{"?"}, publish: []string{"?"}}.token(t)))
		w.answer()
		w.say(`{"type":"join","id":1,"room":"b"}`, `{"type":"join","id":2,"room":"c"}`)
		w.answer()
		w.answer()
		w.say(`{"type":"auth","id":3,"token":"` + grant{join: []string{"b"}, publish: []string{"a"}}.token(t) + `"}`)
		if a := w.answer(); a.Type != "authenticated" || *a.ID != 3 {
			t.Errorf("%+v", a)
		}
		for _, room := range []string{"a", "c"} {
			if a := w.answer(); a.Type != "left" || a.ID != nil || a.Room != room {
				t.Errorf("%+v, want a notice of %s without an id", a, room)
			}
		}
		for _, room := range []string{"a", "b", "c"} {
			n.publish(room, "x")
		}
		rest()
		w.say(`{"type":"leave","id":4,"room":"a"}`, `{"type":"join","id":5,"room":"a"}`,
			`{"type":"publish","id":6,"room":"b","text":"x"}`, `{"type":"publish","id":7,"room":"a","text":"x"}`, `{"type":"leave","id":8,"room":"b"}`)
		got := map[string]int{}
		for range 6 {
			a := w.answer()
			got[a.Type+" "+a.Room+a.Code]++
		}
		for _, want := range []string{"message b", "error not_joined", "published a", "left b"} {
			if got[want] != 1 {
				t.Errorf("no %q in %v", want, got)
			}
		}
		if got["error forbidden"] != 2 {
			t.Errorf("%v", got)
		}
		w.conn.Close()
		rest()
	})
}

// TestClock: the leeway covers clocks that differ; a clock that is set while a
// connection is open makes its token last neither longer nor shorter.
func TestClock(t *testing.T) {
	t.Run("differs", func(t *testing.T) {
		n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
		for _, test := range []struct {
			claim string
			g     grant
			ok    bool
		}{
			{"nbf", grant{nbf: 20 * time.Second}, true}, {"nbf", grant{nbf: 40 * time.Second}, false},
			{"iat", grant{iat: 20 * time.Second}, true}, {"iat", grant{iat: 40 * time.Second}, false},
			{"exp", grant{exp: -20 * time.Second}, true}, {"exp", grant{exp: -40 * time.Second}, false},
		} {
			test.g.join = []string{"a"}
			r := n.ask(ways[4].request(n, &channels[0], test.g.token(t)))
			r.body = strings.TrimSpace(r.body)
			if !test.ok {
				r.isProblem(t, 401, hub.Unauthorized)
			}
			named := strings.Contains(r.body, `"detail":"`+test.claim+`: `)
			if forbidden := r.status == 403; forbidden != test.ok || named == test.ok {
				t.Errorf("%+v: %d %s", test.g, r.status, r.body)
			}
		}
	})
	for _, jump := range []time.Duration{-5 * time.Second, -time.Hour, 5 * time.Second, time.Hour} {
		t.Run(fmt.Sprint("set by ", jump), func(t *testing.T) {
			var mu sync.Mutex
			var offset time.Duration
			sc := guarded(t, server.Config{Now: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Round(0).Add(offset) // without a monotonic reading
			}}, testLeeway)
			bubble(t, hub.Config{}, sc, func(t *testing.T, n *node) {
				origin := time.Now()
				w := n.wireJSON("/rooms/a", bearer(grant{join: []string{"a"}, exp: 10 * time.Second}.token(t)))
				w.answer()
				time.Sleep(2 * time.Second)
				mu.Lock()
				offset = jump
				mu.Unlock()
				w.say(`{"type":"ping","id":1}`)
				if a := w.answer(); a.Type != "pong" {
					t.Errorf("%+v", a)
				}
				if e := w.end(); e.code != 4001 || time.Since(origin) != 10*time.Second+testLeeway {
					t.Errorf("closed with %d after %v", e.code, time.Since(origin))
				}
			})
		})
	}
}

// issuer is a key set that changes.
type issuer struct {
	mu      sync.Mutex
	set     string
	fetches int
}

func (i *issuer) publish(keys map[string]*ecdsa.PrivateKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := []map[string]string{}
	for id, k := range keys {
		point, _ := k.PublicKey.Bytes()
		list = append(list, map[string]string{
			"kty": "EC", "crv": "P-256", "kid": id,
			"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
		})
	}
	b, _ := json.Marshal(map[string]any{"keys": list})
	i.set = string(b)
}

func (i *issuer) RoundTrip(*http.Request) (*http.Response, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := httptest.NewRecorder()
	i.fetches++
	if i.set == "" {
		w.WriteHeader(http.StatusBadGateway)
	}
	_, _ = io.WriteString(w, i.set)
	return w.Result(), nil
}

// TestKeySet: a hub without keys is up and not ready, and turns nobody away for
// good; with them, the first token of a new key waits for it, at a handshake and
// in a command.
func TestKeySet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]*ecdsa.PrivateKey{}
		for _, id := range []string{"1", "2", "3"} {
			k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			keys[id] = k
		}
		token := func(id string) string {
			tok := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"sub": "a", "exp": time.Now().Add(time.Hour).Unix(), "hubd": map[string]any{"join": []string{"a"}}})
			tok.Header["kid"] = id
			s, err := tok.SignedString(keys[id])
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		i := &issuer{}
		v, err := auth.New(auth.Config{JWKSURL: "https://issuer.example/", Client: &http.Client{Transport: i}})
		if err != nil {
			t.Fatal(err)
		}
		n := startFake(t, hub.Config{}, server.Config{Auth: v}, 1<<20)
		t.Cleanup(v.Close)
		rest()
		ready := way{method: "GET", path: "/readyz", lines: []string{"Connection: close"}}
		info := way{method: "GET", path: "/rooms/a", lines: []string{"Connection: close"}}
		n.ask(ready.request(n, nil, "")).isProblem(t, 503, hub.OverCapacity)
		r := n.ask(info.request(n, &channels[0], token("1")))
		r.isProblem(t, 503, hub.OverCapacity)
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		n.ask(info.request(n, &channels[0], "x")).isProblem(t, 401, hub.Unauthorized)
		w := n.wireJSON("/ws")
		w.say(`{"type":"auth","id":1,"token":"` + token("1") + `"}`)
		w.closes(1013) // it is not the token's fault

		i.publish(map[string]*ecdsa.PrivateKey{"1": keys["1"]})
		time.Sleep(11 * time.Second)
		rest()
		if r := n.ask(ready.request(n, nil, "")); r.status != 200 {
			t.Errorf("not ready: %d %s", r.status, r.body)
		}
		if r := n.ask(info.request(n, &channels[0], token("1"))); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
		time.Sleep(11 * time.Second)
		i.publish(map[string]*ecdsa.PrivateKey{"1": keys["1"], "2": keys["2"]})
		if r := n.ask(info.request(n, &channels[0], token("2"))); r.status != 200 {
			t.Errorf("the first token of a new key: %d %s", r.status, r.body)
		}
		// The next fetch is due in ten seconds: nobody waits for it.
		i.publish(keys)
		before := time.Now()
		n.ask(info.request(n, &channels[0], token("3"))).isProblem(t, 401, hub.Unauthorized)
		if waited := time.Since(before); waited != 0 {
			t.Errorf("waited %v", waited)
		}
		time.Sleep(11 * time.Second)
		rest()
		w = n.wireJSON("/ws")
		w.say(`{"type":"auth","id":1,"token":"` + token("3") + `"}`)
		if a := w.answer(); a.Type != "authenticated" {
			t.Errorf("%+v", a)
		}
		w.conn.Close()
		rest()
	})
}

// TestIdempotencyKeysAreOnesOwn: nobody can take another's key, nor get the
// answer that was another's.
func TestIdempotencyKeysAreOnesOwn(t *testing.T) {
	n := start(t, hub.Config{}, guarded(t, server.Config{}, 0))
	post := func(sub, body string) published {
		t.Helper()
		req, err := http.NewRequestWithContext(ctxFor(t), http.MethodPost, n.url+"/rooms/a", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+grant{sub: sub, publish: []string{"a"}}.token(t))
		req.Header.Set("Idempotency-Key", "1")
		resp, err := n.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return decode[published](t, resp, func(p *published) { p.Status = resp.StatusCode })
	}
	for _, step := range []struct {
		sub, body string
		status    int
		seq       uint64
	}{{"alice", "x", 200, 1}, {"bob", "x", 200, 2}, {"bob", "y", 409, 0}, {"alice", "x", 200, 1}, {"bob", "x", 200, 2}} {
		if p := post(step.sub, step.body); p.Status != step.status || p.Seq != step.seq {
			t.Errorf("%+v: %+v", step, p)
		}
	}
}
