package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answering is a server that gives every request the same answer, and the
// last request it got.
func answering(t *testing.T, status int, contentType, body string) (*httptest.Server, *http.Request) {
	t.Helper()
	last := new(http.Request)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		*last = *r
		last.Body = io.NopCloser(strings.NewReader(string(text)))
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server, last
}

const receiptJSON = `{"room":"lobby","epoch":"e","seq":45,"subscribers":120,"queued":117,"dropped":2,"conflated":0,"disconnected":1}`

func TestPublishRequest(t *testing.T) {
	server, last := answering(t, http.StatusOK, "application/json", receiptJSON)
	invocation{
		args: []string{"publish", "a:b@c", "-", "--key", "k&1", "--wait", "700ms", "--type", "json", "--url", server.URL + "/hub/"},
		env:  []string{"HUBD_TOKEN=secret"},
	}.run(t.Context()).want(t, 0, "lobby 45 subscribers=120 queued=117 dropped=2 disconnected=1\n", "")
	if got, want := last.URL.String(), "/hub/rooms/a:b@c?key=k%261&wait=700ms"; got != want {
		t.Errorf("requested %s, want %s", got, want)
	}
	if got := last.Header.Get("Authorization"); got != "Bearer secret" {
		t.Errorf("authorization %q", got)
	}
	if got := last.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("type %q", got)
	}
	if body, _ := io.ReadAll(last.Body); string(body) != "-" {
		t.Errorf("body %q", body)
	}
}

func TestPublishRoomIsOneSegment(t *testing.T) {
	server, last := answering(t, http.StatusOK, "application/json", receiptJSON)
	for room, want := range map[string]string{"a/b": "/rooms/a%2Fb", "a b?#%": "/rooms/a%20b%3F%23%25", "..": "/rooms/.."} {
		hubd(t, "publish", room, "x", "--url", server.URL).want(t, 0, "lobby 45", "")
		if got := last.RequestURI; got != want {
			t.Errorf("room %q: requested %s, want %s", room, got, want)
		}
	}
}

func TestPublishRefused(t *testing.T) {
	for _, test := range []struct {
		name, contentType, body string
		status                  int
		want                    string
	}{
		{
			"problem", "application/problem+json", `{"title":"x","status":503,"code":"overflow","detail":"2 queues are full"}`, 503,
			"hubd: not published: 503 Service Unavailable (overflow): 2 queues are full; try again in 3s\n",
		},
		{"a proxy's page", "text/html", "<h1>502</h1>\nmore", 502, "not published: 502 Bad Gateway: <h1>502</h1>; try again in 3s\n"},
		{"commands for the terminal", "application/problem+json", `{"code":"x","detail":"\u001b[2J"}`, 400, `(x): "\x1b[2J"`},
		{"no body", "text/plain", "", 404, "not published: 404 Not Found; try again in 3s\n"},
		{"no hubd", "text/html", "<p>welcome", 200, "is not that of a hubd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, _ := answering(t, test.status, test.contentType, test.body)
			hubd(t, "publish", "lobby", "x", "--url", server.URL).want(t, 1, "", test.want)
		})
	}
}

func TestHealth(t *testing.T) {
	server, last := answering(t, http.StatusOK, "text/plain", "ok")
	hubd(t, "health", "--url", server.URL).want(t, 0, "ok\n", "")
	if last.URL.Path != "/healthz" {
		t.Errorf("asked %s", last.URL.Path)
	}
	// In the server's own container its address is known.
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	for _, addr := range []string{"0.0.0.0:" + port, ":" + port, "127.0.0.1:" + port, "[::]:" + port} {
		invocation{args: []string{"health"}, env: []string{"HUBD_ADDR=" + addr}}.run(t.Context()).want(t, 0, "ok\n", "")
	}
	draining, last := answering(t, http.StatusServiceUnavailable, "application/problem+json", `{"code":"draining","detail":"going"}`)
	hubd(t, "health", "--ready", "--url", draining.URL).want(t, 1, "", "/readyz answered 503 Service Unavailable (draining): going")
	if last.URL.Path != "/readyz" {
		t.Errorf("asked %s", last.URL.Path)
	}
}
