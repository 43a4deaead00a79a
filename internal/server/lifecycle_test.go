package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// A client that is told of the end and neither answers nor goes is no clean
// end, although there was room for all it was sent.
func TestAMuteClientIsDestroyed(t *testing.T) {
	n := start(t, bare(), lenient(server.Config{CloseTimeout: 50 * time.Millisecond}))
	for i, line := range []string{"X-Nothing: in particular", "Sec-WebSocket-Protocol: " + server.Protocol, "Accept: text/event-stream"} {
		w := n.connect()
		request := n.handshake("/rooms/lobby", line)
		if i == 2 {
			request = "GET /rooms/lobby HTTP/1.1\r\nHost: 127.0.0.1\r\n" + line
		}
		w.write([]byte(request + "\r\n\r\n"))
		n.joined("lobby", 1)
		n.kick(n.subscribers()[0].ID, http.StatusNoContent)
		n.gauge(0, "hubd_connections")
		n.wants(float64(i+1), "hubd_close_outcome_total", "outcome", "deadline")
	}
	n.wants(3, "hubd_connections_closed_total", "reason", "kicked")
}

// Who has seen the answer to its handshake is in the room and counted: a raw
// client is told so by nothing else.
func TestTheHandshakesAnswerComesAfterTheJoin(t *testing.T) {
	n := start(t, bare(), lenient(server.Config{}))
	var all sync.WaitGroup
	for c := range 4 {
		all.Go(func() {
			name := fmt.Sprint("room-", c)
			room, err := frame.ParseRoom(name)
			if err != nil {
				t.Error(err)
				return
			}
			for range size(50, 5000) {
				w, err := n.tryNarrow("/rooms/" + name)
				if err != nil {
					t.Error(err)
					return
				}
				p, err := n.hub.Publish(t.Context(), hub.PublishRequest{Message: frame.Message{Room: room, Kind: frame.Text, Data: []byte("x")}})
				conns, _ := connections(n.reg)
				if err != nil || p.Subscribers == 0 || conns < 1 {
					t.Errorf("published right after the handshake: %+v, %v; %v connections", p, err, conns)
				}
				w.abort()
			}
		})
	}
	all.Wait()
}

// Connections end in every way there is, in rounds. After each, nothing of them
// is left.
func TestEveryEndLeavesNothing(t *testing.T) {
	each, rounds := size(15, 800), 4
	// A collection would close what was forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := start(t, bare(everywhere(queue.DropOldest, queue.Limits{Messages: 8})), lenient(server.Config{CloseTimeout: 50 * time.Millisecond, MaxConnections: 100_000}))
	n.publishes("warm", "x")
	n.http.CloseIdleConnections()
	base := footprintNow(t)
	first := int64(0)
	for round := range rounds {
		for name, end := range ends {
			n.endAll(name, each, end)
		}
		for name, end := range streamEnds {
			n.endAll("stream-"+name, each, end)
		}
		n.backTo(base)
		if now := heap(); round == 0 {
			first = now
		} else if now > first+first/5+mib {
			t.Errorf("the heap was %d bytes after the first round and is %d after round %d", first, now, round+1)
		}
	}
	n.wants(float64(rounds*(len(ends)+len(streamEnds))*each), "hubd_connections_closed_total")
	n.wants(0, "hubd_connections_closed_total", "reason", "error")
}

// endAll lets so many clients join and go in one way.
func (n *node) endAll(name string, clients int, end func(*wire) error) {
	n.t.Helper()
	kinds := []string{asRaw, asJSON}
	if strings.HasPrefix(name, "stream-") {
		kinds = []string{asEvents}
	}
	all := make([]*wire, clients)
	for i := range all {
		w, err := n.tryNarrow("/rooms/"+name, kinds[i%len(kinds)])
		if err != nil {
			n.t.Fatal(err)
		}
		all[i] = w
	}
	n.joined(name, clients)
	if strings.Contains(name, "full") {
		for i := range 40 {
			n.publishes(name, sequel(i, 16<<10))
		}
	}
	var going sync.WaitGroup
	for _, w := range all {
		going.Go(func() {
			if err := end(w); err != nil {
				n.t.Errorf("%s: %v", name, err)
			}
			w.conn.Close()
		})
	}
	going.Wait()
	n.gauge(0, "hubd_connections")
	n.wants(0, "hubd_rooms")
	n.wants(0, "hubd_retained_bytes")
}

// streamEnds are the ways in which the client of an event stream goes.
var streamEnds = map[string]func(w *wire) error{
	"reset":           func(w *wire) error { w.abort(); return nil },
	"closed":          func(w *wire) error { return w.conn.Close() },
	"full-and-reset":  func(w *wire) error { w.abort(); return nil },
	"full-and-closed": func(w *wire) error { return w.conn.Close() },
	"half-close": func(w *wire) error {
		if err := w.conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, w.conn)
		return err
	},
}

// ends are the ways in which a WebSocket client goes.
var ends = map[string]func(w *wire) error{
	"clean": func(w *wire) error {
		return w.until(sent{op: opClose, payload: closePayload(1000, "")}.bytes())
	},
	"reset": func(w *wire) error { w.abort(); return nil },
	"half-close": func(w *wire) error {
		if err := w.conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		return w.until(nil)
	},
	"mid-frame": func(w *wire) error {
		frame := text(`{"type":"ping","id":1,"token":"%0200d"}`, 7).bytes()
		_, err := w.conn.Write(frame[:len(frame)/2])
		return err
	},
	"mid-header": func(w *wire) error {
		_, err := w.conn.Write([]byte{0x81})
		w.abort()
		return err
	},
	"mid-message": func(w *wire) error {
		f := text(`{"type":"ping",`)
		f.more = true
		return w.tryWrite(f.bytes())
	},
	"full-and-reset":  func(w *wire) error { w.abort(); return nil },
	"full-and-closed": func(w *wire) error { return w.conn.Close() },
	"full-and-polite": func(w *wire) error { return w.tryWrite(sent{op: opClose, payload: closePayload(1000, "")}.bytes()) },
	"nothing":         func(w *wire) error { return w.conn.Close() },
	"unmasked":        func(w *wire) error { return w.until([]byte{0x81, 0x02, 'h', 'i'}) },
}

// until sends and then reads to the end.
func (w *wire) until(last []byte) error {
	if len(last) > 0 {
		if err := w.tryWrite(last); err != nil {
			return err
		}
	}
	for {
		switch _, err := w.tryMessage(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading to the end: %w", err)
		}
	}
}
