package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"hubd/internal/auth"
	"hubd/internal/frame"
	"hubd/internal/hub"
)

// Protocol is the WebSocket subprotocol of the JSON frames.
const Protocol = "hubd.v1.json"

// handshakeReason is a label of hubd_handshakes_rejected_total.
type handshakeReason uint8

const (
	handshakeInvalid handshakeReason = iota
	handshakeUnauthorized
	handshakeForbidden
	handshakeOrigin
	handshakeHost
	handshakeOverCapacity
	handshakeRateLimited
	handshakeDraining
)

// HandshakeReasons returns the labels of hubd_handshakes_rejected_total in
// order.
func HandshakeReasons() []string {
	return []string{"invalid", "unauthorized", "forbidden", "origin", "host", "over_capacity", "rate_limited", "draining"}
}

func (s *Server) rejectHandshake(reason handshakeReason) {
	s.cfg.Metrics.HandshakeRejected(int(reason))
}

// refuseHandshake counts the refusal and answers with it.
func (s *Server) refuseHandshake(w http.ResponseWriter, r *http.Request, err error) {
	switch hub.CodeOf(err) {
	case hub.Unauthorized:
		s.rejectHandshake(handshakeUnauthorized)
	case hub.Forbidden:
		s.rejectHandshake(handshakeForbidden)
	case hub.Draining:
		s.rejectHandshake(handshakeDraining)
	case hub.OverCapacity:
		s.rejectHandshake(handshakeOverCapacity)
	default:
		s.rejectHandshake(handshakeInvalid)
	}
	s.fail(w, r, err)
}

// isUpgrade reports whether the client asks for WebSocket. The headers are
// lists (RFC 9110, sections 7.6.1 and 7.8); whether the handshake is a valid
// one is decided later.
func isUpgrade(r *http.Request) bool {
	for _, line := range r.Header.Values("Upgrade") {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "websocket") {
				return true
			}
		}
	}
	return false
}

// protocolsOf yields the subprotocols that the client offers.
func protocolsOf(r *http.Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
			for offer := range strings.SplitSeq(line, ",") {
				if !yield(strings.TrimSpace(offer)) {
					return
				}
			}
		}
	}
}

// offersProtocol reports whether the client offers our subprotocol.
func offersProtocol(r *http.Request) bool {
	for offer := range protocolsOf(r) {
		if strings.EqualFold(offer, Protocol) {
			return true
		}
	}
	return false
}

// handleWS is /ws: a connection in no room yet.
func (s *Server) handleWS(w http.ResponseWriter, r *http.Request) {
	p, refusal := s.permitOf(r)
	if refusal == nil {
		refusal = s.wouldRefuse()
	}
	switch {
	case isUpgrade(r) && refusal != nil:
		s.refuseHandshake(w, r, refusal)
	case refusal != nil:
		// Browsers keep the answer to a handshake from the page. Its client
		// asks here for what the handshake was told, Retry-After included.
		s.fail(w, r, refusal)
	case !isUpgrade(r):
		// RFC 9110, section 15.5.22: say what to upgrade to.
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		writeProblem(w, http.StatusUpgradeRequired, &hub.Error{Code: hub.InvalidOption, Detail: "open a WebSocket here, with the subprotocol " + Protocol})
	case !offersProtocol(r):
		s.refuseHandshake(w, r, &hub.Error{Code: hub.InvalidOption, Detail: "/ws needs the subprotocol " + Protocol})
	default:
		s.upgrade(w, r, p, nil)
	}
}

// upgradeRoom is a WebSocket on /rooms/{room}.
func (s *Server) upgradeRoom(w http.ResponseWriter, r *http.Request, p permit, room frame.Room) {
	var join joinCommand
	query, err := queryOf(r)
	if err == nil {
		join, err = joinOf(query, room)
	}
	if err == nil {
		err = s.cfg.Hub.Check(room, join.Options)
	}
	if err != nil {
		s.refuseHandshake(w, r, err)
		return
	}
	s.upgrade(w, r, p, &join)
}

// joinOf reads the join of a URL's query.
func joinOf(query url.Values, room frame.Room) (joinCommand, error) {
	j := joinCommand{Room: room, Gaps: true}
	if p := query.Get("policy"); p != "" {
		if err := j.setPolicy(p); err != nil {
			return j, err
		}
	}
	for name, to := range map[string]*int{"queue_messages": &j.Options.Queue.Messages, "queue_bytes": &j.Options.Queue.Bytes} {
		if !query.Has(name) {
			continue
		}
		n, err := strconv.Atoi(query.Get(name))
		if err != nil || n < 1 {
			return j, errQueueLimit
		}
		*to = n
	}
	switch query.Get("gaps") {
	case "off", "false":
		j.Gaps = false
	case "", "on", "true":
	default:
		return j, &hub.Error{Code: hub.InvalidOption, Detail: "gaps is on or off"}
	}
	if query.Has("after") {
		return j, j.setAfter(query.Get("after"))
	}
	return j, nil
}

// upgrade makes a connection of the request, in the room of join if there is
// one. It returns once the connection is handed over: the handler's goroutine
// and its buffers would cost an idle connection more than all the rest.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, p permit, join *joinCommand) {
	if r.ContentLength != 0 {
		// The body may never come, and net/http would wait for it before it
		// answers, unless the connection is not used any further.
		w.Header().Set("Connection", "close")
		s.refuseHandshake(w, r, &hub.Error{Code: hub.InvalidOption, Detail: "a WebSocket handshake has no body"})
		return
	}
	deflate, err := negotiateDeflate(r.Header)
	if err != nil {
		s.refuseHandshake(w, r, &hub.Error{Code: hub.InvalidOption, Detail: err.Error()})
		return
	}
	// Two versions are none (RFC 6455, section 11.3.5); the library looks at the
	// first.
	r.Header.Set("Sec-WebSocket-Version", strings.Join(r.Header.Values("Sec-WebSocket-Version"), ", "))
	if err := s.admit(); err != nil {
		s.refuseHandshake(w, r, err)
		return
	}
	c := s.newConn(r, p)
	h := &hijacker{ResponseWriter: w, conn: c}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Protocol},
		InsecureSkipVerify: true,                          // the guard has judged the origin
		CompressionMode:    websocket.CompressionDisabled, // it is done here
		OnPingReceived: func(_ context.Context, payload []byte) bool {
			c.pingedBy(payload)
			return false
		},
		OnPongReceived: func(context.Context, []byte) { c.pong() },
	})
	if err != nil {
		s.unadmit()
		s.rejectHandshake(handshakeInvalid)
		h.explain()
		return
	}
	ws.SetReadLimit(-1) // the scanner and the reader have their own
	c.ws, c.pipe = ws, h.pipe
	if c.deflate = s.cfg.Compression && deflate != ""; c.deflate {
		h.Header().Set("Sec-WebSocket-Extensions", deflate)
	}
	c.lane.push(responseHead(http.StatusSwitchingProtocols, h.Header()))
	if ws.Subprotocol() != "" {
		c.dialect = dialectJSON
	} else {
		c.rawRoom = join.Room
	}
	c.limitReads()
	c.pipe.scan.limit, c.pipe.scan.deflate = uint64(c.readLimit()), c.deflate
	c.start(join)
}

// newConn returns a connection that was admitted, without a socket yet.
func (s *Server) newConn(r *http.Request, p permit) *conn {
	return &conn{
		srv: s, permit: p, id: strconv.FormatUint(s.connIDs.Add(1), 36),
		remote: r.RemoteAddr, since: time.Now(), readerDone: make(chan struct{}), answered: make(chan struct{}),
	}
}

// start lets a connection live that has its socket, the head of its response
// in the lane. Its first join is made before the writer and the reader run: who
// has seen the response is in the room, which a raw client learns in no other
// way, and its first message finds the room.
func (c *conn) start(join *joinCommand) {
	s := c.srv
	c.encoding = c.dialect.encoding()
	if c.deflate {
		c.encoding = c.encoding.Deflated()
	}
	c.startPing()
	c.startExpiry()
	s.register(c)
	s.cfg.Logger.Info("connection opened", "conn", c.id, "remote", c.remote, "transport", Transports()[c.dialect.transport()])
	if join != nil {
		if err := c.join(*join); err != nil {
			c.end(causeOfRefusal(err))
		}
	}
	c.Wake()    // for the head, where there is no join
	go c.read() // joined by finish
}

// limitReads bounds the messages that the client may send. Who has shown no
// token has nothing to say but that.
func (c *conn) limitReads() {
	c.limit = c.readLimit()
	if c.permit.anonymous() {
		c.limit = auth.MaxTokenBytes + envelopeBytes
	}
}

// readLimit is the largest message that any client of this dialect may send.
func (c *conn) readLimit() int64 {
	limit := int64(c.srv.cfg.Hub.MaxMessageBytes())
	if c.dialect == dialectJSON {
		limit = max(limit*maxEscaping, auth.MaxTokenBytes) + envelopeBytes
	}
	return limit
}

const (
	// maxEscaping is how many bytes of JSON one byte of a text may need: \u0000.
	maxEscaping = 6
	// envelopeBytes is more than a command has beside its payload.
	envelopeBytes = 4096
)

// hijacker is the ResponseWriter that the WebSocket library is given. It hands
// out the connection's pipe instead of the socket, with small buffers, and
// keeps the library's answers from the client, who gets ours.
type hijacker struct {
	http.ResponseWriter
	conn   *conn
	pipe   *pipe
	status int
}

// The library reads control frames into the one and flushes each from the
// other: at least 127 bytes, so that each is written at once.
const (
	readBufferBytes  = 512
	writeBufferBytes = 256
)

// WriteHeader writes nothing: a refusal is explained in words of our own, and
// the head that switches protocols is the connection's first write.
func (h *hijacker) WriteHeader(status int) { h.status = status }

func (h *hijacker) Write(b []byte) (int, error) { return len(b), nil }

// explain answers with what is wrong with the handshake. The library's texts
// quote what the client sent, at any length; these do not.
func (h *hijacker) explain() {
	detail := "a handshake has one Sec-WebSocket-Key: 16 bytes in base64"
	switch {
	case h.status >= http.StatusInternalServerError:
		detail = "the connection could not be taken over"
	case h.status == http.StatusMethodNotAllowed:
		h.Header().Set("Allow", http.MethodGet)
		detail = "a handshake is a GET"
	case h.status == http.StatusUpgradeRequired:
		detail = "a handshake is HTTP/1.1 with Connection: Upgrade"
	case h.Header().Get("Sec-WebSocket-Version") != "":
		detail = "the version of WebSocket here is 13"
	}
	writeProblem(h.ResponseWriter, h.status, &hub.Error{Code: hub.InvalidOption, Detail: detail})
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	var leftover []byte
	if n := rw.Reader.Buffered(); n > 0 {
		leftover = make([]byte, n)
		if _, err := io.ReadFull(rw.Reader, leftover); err != nil {
			return nil, nil, errors.Join(err, raw.Close())
		}
	}
	// Not h: it would keep the request, and net/http's buffers, for as long as
	// the connection lives.
	c := h.conn
	h.pipe = newPipe(raw, leftover, c.srv.cfg.WriteTimeout, c.closedByClient)
	if err := h.pipe.limitUnsent(h.conn.srv.cfg.MaxUnsentBytes); err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	return h.pipe, bufio.NewReadWriter(bufio.NewReaderSize(h.pipe, readBufferBytes), bufio.NewWriterSize(h.pipe, writeBufferBytes)), nil
}
