package server_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// size is how much of something a load test takes: little by default, what the
// case asks for with the build tag soak.
func size(little, full int) int {
	if soak {
		return full
	}
	return little
}

// await waits for what has no event of its own to wait on. It looks every few
// milliseconds, so that looking costs those who work nothing; in fake time less
// often, as nothing else may be going on.
func (n *node) await(what string, ok func() bool) {
	n.t.Helper()
	every := 2 * time.Millisecond
	if n.patience == 0 {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			n.t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

// gauge waits until a metric has that value.
func (n *node) gauge(want float64, name string, labels ...string) {
	n.t.Helper()
	n.await(fmt.Sprint(name, labels, " = ", want), func() bool { return n.value(name, labels...) == want })
}

// wants fails the test unless a metric has that value.
func (n *node) wants(want float64, name string, labels ...string) {
	n.t.Helper()
	if got := n.value(name, labels...); got != want {
		n.t.Errorf("%s%v is %v, want %v", name, labels, got, want)
	}
}

// narrowBuffer is the receive buffer of a client that is to hold up its writer
// soon. Set before the connection is made, it bounds the window.
const narrowBuffer = 4 << 10

// narrow opens path over TCP with a receive buffer of 4 KiB. Nothing is read
// ahead, so that a client that stops reading is stalled at once.
func (n *node) narrow(path string, lines ...string) *wire {
	n.t.Helper()
	w, err := n.tryNarrow(path, lines...)
	if err != nil {
		n.t.Fatalf("%s: %v", path, err)
	}
	n.t.Cleanup(func() { w.conn.Close() })
	return w
}

// narrowJSON does the same in hubd.v1.json.
func (n *node) narrowJSON(path string, lines ...string) *wire {
	n.t.Helper()
	return n.narrow(path, append(lines, asJSON)...)
}

// What a client is: raw, in hubd.v1.json, or an event stream.
const (
	asRaw    = "X-Nothing: in particular"
	asJSON   = "Sec-WebSocket-Protocol: " + server.Protocol
	asEvents = "Accept: text/event-stream"
)

// tryNarrow is for goroutines that may not fail the test, and for clients too
// many to be kept until its end: whoever gets one closes it.
func (n *node) tryNarrow(path string, lines ...string) (*wire, error) {
	w, err := n.tryConnect()
	if err != nil {
		return nil, err
	}
	request := n.handshake(path, lines...)
	if slices.Contains(lines, asEvents) {
		request = "GET " + path + " HTTP/1.1\r\nHost: " + strings.TrimPrefix(n.url, "http://") + "\r\n" + asEvents
	}
	if err := w.tryWrite([]byte(request + "\r\n\r\n")); err != nil {
		return nil, errors.Join(err, w.conn.Close())
	}
	resp, err := http.ReadResponse(w.br, nil)
	if err != nil {
		return nil, errors.Join(err, w.conn.Close())
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && !slices.Contains(lines, asEvents) {
		return nil, errors.Join(errors.New(resp.Status), w.conn.Close())
	}
	w.header = resp.Header
	return w, nil
}

// tryConnect opens a connection with a narrow buffer, and sends nothing.
func (n *node) tryConnect() (*wire, error) {
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, narrowBuffer)
		}); e != nil {
			return e
		}
		return err
	}}
	conn, err := d.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		return nil, err
	}
	w := &wire{t: n.t, conn: conn, br: bufio.NewReaderSize(conn, 16), node: n}
	w.renew()
	return w, nil
}

// abort breaks the connection: the server's end gets a reset.
func (w *wire) abort() {
	if c, ok := w.conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // a closed one is reset already
	}
	w.conn.Close()
}

// halfClose says that nothing more will be sent, and goes on reading.
func (w *wire) halfClose() {
	w.t.Helper()
	if err := w.conn.(*net.TCPConn).CloseWrite(); err != nil {
		w.t.Errorf("half-close: %v", err)
	}
}

// renew gives the client its patience once more: tests at full size outlast it.
func (w *wire) renew() {
	if w.node.patience > 0 {
		_ = w.conn.SetDeadline(time.Now().Add(w.node.patience)) // a closed connection is found out by its use
	}
}

// tryFrame is the next frame, for goroutines that may not fail the test.
func (w *wire) tryFrame() (op byte, payload []byte, err error) {
	w.renew()
	var h [2]byte
	if _, err := io.ReadFull(w.br, h[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(h[1])
	var more [8]byte
	switch n {
	case 126:
		_, err = io.ReadFull(w.br, more[6:])
		n = binary.BigEndian.Uint64(more[:])
	case 127:
		_, err = io.ReadFull(w.br, more[:])
		n = binary.BigEndian.Uint64(more[:])
	}
	switch {
	case err != nil:
		return 0, nil, err
	case h[0]&0xf0 != 0x80 || n > 1<<24:
		return 0, nil, fmt.Errorf("frame header % x % x", h, more)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(w.br, payload)
	return h[0] & 0x0f, payload, err
}

// tryData is the next text or binary frame. Pings and a close are answered; the
// end is io.EOF.
func (w *wire) tryData() (op byte, payload []byte, err error) {
	for {
		op, payload, err := w.tryFrame()
		if err != nil {
			return op, nil, err
		}
		switch op {
		case opText, opBinary:
			return op, payload, nil
		case opPing:
			if err := w.tryWrite(sent{op: opPong, payload: payload}.bytes()); err != nil {
				return op, nil, err
			}
		case opPong:
		case opClose:
			_ = w.tryWrite(sent{op: opClose, payload: payload}.bytes()) // the end in any case
			return op, nil, io.EOF
		default:
			return op, nil, fmt.Errorf("opcode %d", op)
		}
	}
}

// tryMessage is the next message.
func (w *wire) tryMessage() ([]byte, error) {
	_, payload, err := w.tryData()
	return payload, err
}

// bare returns the configuration of a hub without history, so that what is
// retained is what is queued, and rooms vanish with their last subscriber.
func bare(feeds ...hub.Feed) hub.Config {
	feeds = hub.Config{Feeds: feeds}.WithDefaults().Feeds
	for i := range feeds {
		feeds[i].History = &hub.HistoryLimits{}
	}
	return hub.Config{Feeds: feeds}
}

// everywhere is one feed for all rooms.
func everywhere(p queue.Policy, l queue.Limits) hub.Feed {
	return hub.Feed{Name: "default", Match: []string{"*"}, Policy: p, Queue: l}
}

// lenient are timings that end no client of a test that is to live.
func lenient(sc server.Config) server.Config {
	for _, d := range []*time.Duration{&sc.WriteTimeout, &sc.PingInterval, &sc.PongTimeout} {
		if *d == 0 {
			*d = time.Hour
		}
	}
	return sc
}

// subscriber is one subscription as /admin shows it.
type subscriber struct {
	ID, Room, Transport, Policy string
	Queued                      struct{ Messages, Bytes int }
	OldestMS                    int64 `json:"oldest_ms"`
	Sent, Dropped               int
	UnsentBytes                 int `json:"unsent_bytes"`
	Remote                      string
}

// subscribers lists the subscriptions, the largest queue first.
func (n *node) subscribers() []subscriber {
	n.t.Helper()
	return decode[struct{ Subscribers []subscriber }](n.t, n.get("/admin/subscribers?sort=queued&limit=100000")).Subscribers
}

// joined waits until the room has so many subscribers: a raw client is told of
// nothing.
func (n *node) joined(room string, want int) {
	n.t.Helper()
	n.await(fmt.Sprint(want, " subscribers in ", room), func() bool { return n.count(room) == want })
}

// count is the number of subscribers that the room shows.
func (n *node) count(room string) int {
	n.t.Helper()
	return decode[struct{ Subscribers int }](n.t, n.get("/rooms/"+room)).Subscribers
}

// status is the status of a GET, and the Retry-After that came with it.
func (n *node) status(path string) (code int, retryAfter string) {
	n.t.Helper()
	resp := n.get(path)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// sequel is a message of that size which carries its number.
func sequel(i, bytes int) string {
	s := fmt.Sprintf("%08d ", i)
	return s + strings.Repeat("x", max(0, bytes-len(s)))
}

// numberOf is the number of such a message.
func numberOf(payload []byte) (int, error) {
	return strconv.Atoi(string(payload[:min(8, len(payload))]))
}

// footprint is what a process must have no more of after a round than before.
type footprint struct{ goroutines, descriptors int }

func footprintNow(t *testing.T) footprint {
	t.Helper()
	f := footprint{goroutines: runtime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.descriptors = len(fds)
	}
	return f
}

// backTo waits until the footprint is no larger than that.
func (n *node) backTo(base footprint) {
	n.t.Helper()
	n.http.CloseIdleConnections()
	n.await(fmt.Sprintf("goroutines and descriptors to come down to %+v", base), func() bool {
		now := footprintNow(n.t)
		return now.goroutines <= base.goroutines && now.descriptors <= base.descriptors
	})
}

// heap is the memory in use, after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held is free only after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// quantile is a nearest-rank quantile; it sorts d.
func quantile(d []time.Duration, permille int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[(len(d)*permille+999)/1000-1]
}

// logged returns the log's lines that have that message.
func (n *node) logged(message string) []string {
	var lines []string
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, `msg="`+message+`"`) || strings.Contains(line, "msg="+message+" ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// field is the value of a logged line's attribute.
func field(line, name string) string {
	_, rest, found := strings.Cut(line, " "+name+"=")
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// publishes posts a text, which must be accepted.
func (n *node) publishes(room, body string) published {
	n.t.Helper()
	p := n.post(room, "text/plain", body)
	if p.Status != http.StatusOK {
		n.t.Fatalf("publishing to %s: %+v", room, p)
	}
	return p
}

// clogged publishes to the room until its one slow subscriber loses something,
// or the feed refuses: from then on the queue is full and the writer stuck.
func (n *node) clogged(room string) (published int) {
	n.t.Helper()
	for {
		p := n.post(room, "text/plain", sequel(published, 1024))
		switch {
		case p.Status == http.StatusServiceUnavailable && p.Code == string(hub.Overflow):
			return published
		case p.Status != http.StatusOK:
			n.t.Fatalf("publishing to %s: %+v", room, p)
		}
		published++
		if p.Dropped+p.Conflated > 0 {
			return published
		}
	}
}

// stuck publishes messages of that size until the writer of the one subscriber
// is stuck, not merely late: message after message is lost and none is sent.
func (n *node) stuck(room string, bytes int) subscriber {
	n.t.Helper()
	still := 0
	n.await("the writer to be stuck", func() bool {
		before, lost := n.subscribers()[0], 0
		for i := range 50 {
			lost += n.publishes(room, sequel(i, bytes)).Dropped
		}
		if still++; lost < 50 || n.subscribers()[0].Sent != before.Sent {
			still = 0 // it was only late
		}
		return still == 20
	})
	return n.subscribers()[0]
}
