package server_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"hubd/internal/hub"
	"hubd/internal/server"
)

// TestProbe: a plain GET of /ws tells a page's client what its handshake was
// told, which the browser keeps from it.
func TestProbe(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{MaxConnections: 1})
	probe := func() (int, string, string) {
		t.Helper()
		resp := n.get("/ws")
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Retry-After"), string(b)
	}
	if status, _, body := probe(); status != http.StatusUpgradeRequired {
		t.Errorf("with room for a connection: %d %s", status, body)
	}
	c := n.json("/ws")
	c.send(`{"type":"ping","id":1}`)
	c.next()
	if status, retry, body := probe(); status != http.StatusServiceUnavailable || retry != "5" || !strings.Contains(body, `"over_capacity"`) {
		t.Errorf("at capacity: %d, Retry-After %q, %s", status, retry, body)
	}
	c.ws.Close(websocket.StatusNormalClosure, "")
}

// TestEventsTellJSON: in an event stream JSON is marked by a field that other
// readers ignore.
func TestEventsTellJSON(t *testing.T) {
	n := start(t, hub.Config{}, server.Config{})
	req, err := http.NewRequestWithContext(ctxFor(t), http.MethodGet, n.url+"/rooms/r", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		t.Helper()
		var event []string
		for lines.Scan() {
			if lines.Text() == "" {
				return strings.Join(event, "|")
			}
			if name, _, _ := strings.Cut(lines.Text(), ":"); name != "id" {
				event = append(event, lines.Text())
			}
		}
		t.Fatal("the stream ended: ", lines.Err())
		return ""
	}
	next() // joined
	for _, step := range []struct{ contentType, body, want string }{
		{"application/json", "{\"a\":\n1}", "event: message|kind: json|data: {\"a\":|data: 1}"},
		{"text/plain", `{"a":1}`, `event: message|data: {"a":1}`},
		{"application/octet-stream", "\x00", "event: binary|data: AA=="},
	} {
		n.post("r", step.contentType, step.body)
		if got := next(); got != step.want {
			t.Errorf("%s: %q, want %q", step.contentType, got, step.want)
		}
	}
}
