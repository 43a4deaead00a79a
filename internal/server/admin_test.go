package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// exactly decodes JSON that has these fields and no others.
func exactly[T any](t *testing.T, r reply) (v T) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil || r.status != 200 || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s: %v", r.status, r.header, r.body, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if json.Unmarshal([]byte(r.body), &want) != nil || json.Unmarshal(b, &got) != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("fields are missing:\n%s\n%s", r.body, b)
	}
	return v
}

type limitsView struct {
	Messages int `json:"messages"`
	Bytes    int `json:"bytes"`
}

type subscriberView struct {
	ID          string     `json:"id"`
	Room        string     `json:"room"`
	Transport   string     `json:"transport"`
	Policy      string     `json:"policy"`
	Queued      limitsView `json:"queued"`
	Limit       limitsView `json:"limit"`
	OldestMS    int64      `json:"oldest_ms"`
	Sent        uint64     `json:"sent"`
	Dropped     uint64     `json:"dropped"`
	UnsentBytes int        `json:"unsent_bytes"`
	Remote      string     `json:"remote"`
	Since       time.Time  `json:"since"`
}

type adminRoomView struct {
	Room          string           `json:"room"`
	Feed          string           `json:"feed"`
	Policy        string           `json:"policy"`
	Epoch         string           `json:"epoch"`
	Seq           uint64           `json:"seq"`
	Subscribers   int              `json:"subscribers"`
	Queue         limitsView       `json:"queue"`
	Queued        limitsView       `json:"queued"`
	Dropped       uint64           `json:"dropped"`
	Subscriptions []subscriberView `json:"subscriptions,omitempty"`
}

type subscribersView struct {
	Subscribers []subscriberView `json:"subscribers"`
}

// backlog is a hub whose subscribers are stuck, each with a backlog of its own:
// in a, three queued of 700 bytes since the first second; in b, two queued and
// two lost, since the third; in c, one event stream with nothing.
func backlog(t *testing.T) *node {
	t.Helper()
	n := startFake(t, hub.Config{Feeds: []hub.Feed{{Name: "chat", Match: []string{"b"}, Policy: queue.DropOldest}}}, server.Config{WriteTimeout: time.Hour, PingInterval: time.Hour}, 600)
	text := strings.Repeat("x", 700)
	n.wire("/rooms/a")
	w := n.wireJSON("/rooms/b?queue_messages=2")
	w.answer()
	stream := n.connect()
	stream.write([]byte("GET /rooms/c HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"))
	if resp := stream.response(); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	for range 4 {
		n.publish("a", text)
		synctest.Wait() // the first is in flight
	}
	time.Sleep(2 * time.Second)
	for range 5 {
		n.publish("b", text)
		synctest.Wait()
	}
	time.Sleep(time.Second)
	return n
}

func TestAdminSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := backlog(t)
		rooms := func(query string) (names string) {
			for _, s := range exactly[subscribersView](t, n.req("GET", "/admin/subscribers"+query, "")).Subscribers {
				names += s.Room
			}
			return names
		}
		for query, want := range map[string]string{
			"": "abc", "?sort=queued": "abc", "?sort=": "abc", "?sort=dropped": "bac", "?sort=oldest": "abc", "?limit=1": "a", "?sort=dropped&limit=2": "ba", "?limit=1000000": "abc",
		} {
			if got := rooms(query); got != want {
				t.Errorf("%q: %s, want %s", query, got, want)
			}
		}
		for _, query := range []string{"?sort=name", "?limit=0", "?limit=-1", "?limit=x", "?limit=99999999999999999999"} {
			r := n.req("GET", "/admin/subscribers"+query, "")
			r.isProblem(t, 400, hub.InvalidOption)
		}
		all := exactly[subscribersView](t, n.req("GET", "/admin/subscribers", "")).Subscribers
		for i, want := range []subscriberView{
			{Room: "a", Transport: "websocket", Policy: "drop-newest", Queued: limitsView{3, 2100}, Limit: limitsView{256, 1 << 20}, OldestMS: 3000},
			{Room: "b", Transport: "websocket", Policy: "drop-oldest", Queued: limitsView{2, 1400}, Limit: limitsView{2, 1 << 20}, OldestMS: 1000, Dropped: 2},
			{Room: "c", Transport: "sse", Policy: "drop-newest", Limit: limitsView{256, 1 << 20}},
		} {
			got := all[i]
			if got.ID == "" || got.Remote == "" || time.Since(got.Since) != 3*time.Second {
				t.Errorf("%+v", got)
			}
			got.ID, got.Remote, got.Since = "", "", time.Time{}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
}

func TestAdminRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := backlog(t)
		type view struct {
			Rooms []adminRoomView `json:"rooms"`
		}
		want := []adminRoomView{
			{"a", "default", "drop-newest", n.epoch("a"), 4, 1, limitsView{256, 1 << 20}, limitsView{3, 2100}, 0, nil},
			{"b", "chat", "drop-oldest", n.epoch("b"), 5, 1, limitsView{256, 1 << 20}, limitsView{2, 1400}, 2, nil},
			{"c", "default", "drop-newest", n.epoch("c"), 0, 1, limitsView{256, 1 << 20}, limitsView{}, 0, nil},
		}
		if got := exactly[view](t, n.req("GET", "/admin/rooms", "")).Rooms; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := exactly[view](t, n.req("GET", "/admin/rooms?limit=2", "")).Rooms; fmt.Sprint(got) != fmt.Sprint(want[:2]) {
			t.Errorf("%v, want %v", got, want[:2])
		}
		r := n.req("GET", "/admin/rooms?limit=0", "")
		r.isProblem(t, 400, hub.InvalidOption)
		detail := exactly[adminRoomView](t, n.req("GET", "/admin/rooms/%62", ""))
		if len(detail.Subscriptions) != 1 || detail.Subscriptions[0].Room != "b" {
			t.Errorf("%+v", detail)
		}
		detail.Subscriptions = nil
		if fmt.Sprint(detail) != fmt.Sprint(want[1]) {
			t.Errorf("%v, want %v", detail, want[1])
		}
		r = n.req("GET", "/admin/rooms/nobody", "")
		r.isProblem(t, 404, hub.NotFound)
		r = n.req("GET", "/admin/rooms/a%20b", "")
		r.isProblem(t, 400, hub.InvalidRoom)
	})
}

// The stats add up as the metrics do.
func TestAdminStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := backlog(t)
		type quantiles struct{ P50, P90, P99, P999, Max int }
		type stats struct {
			Version       string         `json:"version"`
			UptimeS       int            `json:"uptime_s"`
			Connections   map[string]int `json:"connections"`
			Rooms         int            `json:"rooms"`
			Subscriptions int            `json:"subscriptions"`
			Published     int            `json:"published"`
			Offered       int            `json:"offered"`
			Sent          int            `json:"sent"`
			Dropped       map[string]int `json:"dropped"`
			Queued        limitsView     `json:"queued"`
			InFlight      int            `json:"in_flight"`
			RetainedBytes int            `json:"retained_bytes"`
			OldestMS      int            `json:"oldest_ms"`
			Depth         struct{ Messages, Bytes quantiles }
			Draining      bool `json:"draining"`
		}
		var got stats
		if err := json.Unmarshal([]byte(n.req("GET", "/admin/stats", "").body), &got); err != nil {
			t.Fatal(err)
		}
		if got.RetainedBytes != int(n.value("hubd_retained_bytes")) {
			t.Errorf("%d bytes retained", got.RetainedBytes)
		}
		want := stats{
			UptimeS: 3, Connections: map[string]int{"websocket": 2, "sse": 1}, Rooms: 3, Subscriptions: 3,
			Published: 9, Offered: 9, Sent: 0, Dropped: map[string]int{"overflow": 2, "conflated": 0, "expired": 0, "budget": 0, "closed": 0},
			Queued: limitsView{5, 3500}, InFlight: 2, RetainedBytes: got.RetainedBytes, OldestMS: 3000,
		}
		want.Depth.Messages, want.Depth.Bytes = quantiles{2, 3, 3, 3, 3}, quantiles{1400, 2100, 2100, 2100, 2100}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v,\nwant %+v", got, want)
		}
		if got.Offered != got.Sent+got.Queued.Messages+got.InFlight+got.Dropped["overflow"] {
			t.Errorf("not conserved: %+v", got)
		}
	})
}

// A kick ends the connection that the subscription belongs to, with all its
// rooms, and nobody else.
func TestKick(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	other := n.wireJSON("/rooms/a")
	other.answer()
	w := n.wireJSON("/rooms/b")
	w.answer()
	w.one(`{"type":"join","id":1,"room":"c"}`)
	stream := n.connect()
	stream.write([]byte("GET /rooms/d HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"))
	stream.response()
	n.eventually("all to be in", func() bool { return n.value("hubd_subscriptions") == 4 })
	n.publish("b", "last")
	n.kickAll("c")
	if e := w.closes(4009); len(e.messages) != 1 || !strings.Contains(e.messages[0], "last") {
		t.Errorf("%q", e.messages)
	}
	n.kickAll("d")
	n.eventually("two connections' end", func() bool { return n.value("hubd_connections") == 1 })
	if got := n.value("hubd_connections_closed_total", "reason", "kicked"); got != 2 {
		t.Errorf("%v kicked", got)
	}
	for _, id := range []string{"nobody", "..", "%20", "a%2Fb"} {
		n.kick(id, 404)
	}
	n.publish("a", "x")
	if a := other.answer(); *a.Text != "x" {
		t.Errorf("%+v", a)
	}
}

// With a listener of their own, what is for operators is there only.
func TestSplitAdmin(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{SplitAdmin: true})
	both, operator, public := []string{"/healthz", "/readyz"}, []string{"/metrics", "/admin/stats", "/admin/rooms", "/admin/subscribers", "/debug/pprof/", "/debug/pprof/cmdline"}, []string{"/rooms/a", "/"}
	for _, path := range slices.Concat(both, operator, public) {
		if got := n.req("GET", path, "").status; (got == 200) == slices.Contains(operator, path) {
			t.Errorf("%s in public: %d", path, got)
		}
		rec := httptest.NewRecorder()
		n.srv.AdminHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if (rec.Code == 200) == slices.Contains(public, path) {
			t.Errorf("%s among the operators': %d", path, rec.Code)
		}
	}
}
