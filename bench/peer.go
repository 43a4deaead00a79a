package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
)

// The peers are servers that do what a raw room of hubd does, and no more: a
// message that a subscriber sends goes to all, the sender included, and one
// that a subscriber's queue has no room for is dropped. Without an upgrade they
// say how many subscribers there are. They have no metrics,
// limits, policies or timeouts beyond what their library's examples show.
var peers = map[string]func(net.Listener) error{
	// One goroutine and one channel a connection, one Conn.Write a message:
	// the ordinary way. Without a timeout on the write, to its advantage.
	"conn-write": func(ln net.Listener) error { return http.Serve(ln, &peerHub{accept: acceptCoder(0)}) },
	// The same as the library's chat example has it.
	"conn-write-timeout": func(ln net.Listener) error {
		return http.Serve(ln, &peerHub{accept: acceptCoder(5 * time.Second)})
	},
	// As in gorilla's chat example, one WebSocket message for each.
	"gorilla": func(ln net.Listener) error { return http.Serve(ln, &peerHub{accept: acceptGorilla}) },
	// The least that a fan-out can cost: see peer_floor.go.
	"floor": serveFloor,
}

func peerNames() []string { return slices.Sorted(maps.Keys(peers)) }

// servePeer serves the peer of that name until the process is ended, and says
// where in the way hubd does.
func servePeer(name string, log io.Writer) error {
	serve, ok := peers[name]
	if !ok {
		return fmt.Errorf("there is no peer %q; there are %v", name, peerNames())
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(log).Encode(map[string]string{"msg": "listening", "addr": ln.Addr().String()}); err != nil {
		return err
	}
	return serve(ln)
}

// peerQueue is the capacity of a subscriber's channel: hubd's default limit.
const peerQueue = 256

// peerInfo is as much of hubd's description of a room as is asked for here.
const peerInfo = `{"subscribers":%d}`

// peerHub is the one room of a peer.
type peerHub struct {
	// immutable
	accept func(http.ResponseWriter, *http.Request) (peerConn, error)

	// mu guards queues; it is held while a message is offered to all.
	mu     sync.Mutex
	queues map[chan []byte]struct{}
}

// peerConn is a library's connection.
type peerConn interface {
	read() ([]byte, error)
	write([]byte) error
	close() error
}

func (h *peerHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		h.mu.Lock()
		n := len(h.queues)
		h.mu.Unlock()
		fmt.Fprintf(w, peerInfo, n)
		return
	}
	c, err := h.accept(w, r)
	if err != nil {
		return // the library has answered
	}
	queue := make(chan []byte, peerQueue)
	h.mu.Lock()
	if h.queues == nil {
		h.queues = map[chan []byte]struct{}{}
	}
	h.queues[queue] = struct{}{}
	h.mu.Unlock()
	var writer sync.WaitGroup
	writer.Go(func() {
		for message := range queue {
			if c.write(message) != nil {
				_ = c.close() // so that the read below fails
			}
		}
	})
	for {
		message, err := c.read()
		if err != nil {
			break
		}
		h.broadcast(message)
	}
	h.mu.Lock()
	delete(h.queues, queue)
	close(queue) // nobody sends but under mu, and to those in the map
	h.mu.Unlock()
	_ = c.close() // the read has failed
	writer.Wait()
}

func (h *peerHub) broadcast(message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for queue := range h.queues {
		select {
		case queue <- message:
		default:
		}
	}
}

// coderConn is a connection of coder/websocket.
type coderConn struct {
	*websocket.Conn
	timeout time.Duration // of a write, 0: none
}

func acceptCoder(timeout time.Duration) func(http.ResponseWriter, *http.Request) (peerConn, error) {
	return func(w http.ResponseWriter, r *http.Request) (peerConn, error) {
		c, err := websocket.Accept(w, r, nil)
		return coderConn{c, timeout}, err
	}
}

func (c coderConn) read() ([]byte, error) {
	_, message, err := c.Read(context.Background())
	return message, err
}

func (c coderConn) write(message []byte) error {
	ctx := context.Background()
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	return c.Write(ctx, websocket.MessageBinary, message)
}

func (c coderConn) close() error { return c.CloseNow() }

// gorillaConn is a connection of gorilla/websocket.
type gorillaConn struct{ *gorilla.Conn }

// The sizes are the chat example's.
var upgrader = gorilla.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024}

const gorillaWriteWait = 10 * time.Second

func acceptGorilla(w http.ResponseWriter, r *http.Request) (peerConn, error) {
	c, err := upgrader.Upgrade(w, r, nil)
	return gorillaConn{c}, err
}

func (c gorillaConn) read() ([]byte, error) {
	_, message, err := c.ReadMessage()
	return message, err
}

func (c gorillaConn) write(message []byte) error {
	return errors.Join(
		c.SetWriteDeadline(time.Now().Add(gorillaWriteWait)),
		c.WriteMessage(gorilla.BinaryMessage, message))
}

func (c gorillaConn) close() error { return c.Close() }
