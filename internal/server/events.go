package server

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"hubd/internal/frame"
)

// eventsKeepAlive is how often a quiet event stream gets a comment line, at
// least: proxies cut what is silent for longer.
const eventsKeepAlive = 15 * time.Second

var keepAliveComment = []byte(":\n\n")

// streamRoom is GET /rooms/{room} for Server-Sent Events (HTML standard,
// section 9.2). The connection is taken over like a WebSocket's and has the
// same writer: the stream ends with the connection, so it needs no chunks.
func (s *Server) streamRoom(w http.ResponseWriter, r *http.Request, p permit, room frame.Room) {
	var join joinCommand
	query, err := queryOf(r)
	if err == nil {
		join, err = joinOf(query, room)
	}
	if id := r.Header.Get("Last-Event-ID"); err == nil && id != "" {
		err = join.setAfter(id) // a browser that comes back; ?after= is where it began
	}
	if err == nil {
		err = s.cfg.Hub.Check(room, join.Options)
	}
	if err == nil {
		err = s.admit()
	}
	if err != nil {
		s.refuseHandshake(w, r, err)
		return
	}
	c := s.newConn(r, p)
	raw, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.unadmit()
		s.fail(w, r, err)
		return
	}
	c.pipe = newPipe(raw, nil, s.cfg.WriteTimeout, nil)
	if err := c.pipe.limitUnsent(s.cfg.MaxUnsentBytes); err != nil {
		s.cfg.Logger.Error("bounding the kernel's backlog", "conn", c.id, "error", err)
	}
	c.dialect = dialectEvents
	c.lane.push(eventsHead(w.Header()))
	c.start(&join)
}

// eventsHead is the response's head: extra is what the guard has set.
func eventsHead(extra http.Header) []byte {
	h := extra.Clone()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Connection", "close")
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return responseHead(http.StatusOK, h)
}

// responseHead is a status line and headers, for a connection that net/http
// has handed over without having answered.
func responseHead(status int, h http.Header) []byte {
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n")
	if err := h.Write(&b); err != nil {
		panic(err) // a buffer takes everything
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
