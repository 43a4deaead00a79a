package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
)

// publishReason is a label of hubd_publish_rejected_total.
type publishReason uint8

const (
	rejectedOverflow publishReason = iota
	rejectedTooLarge
	rejectedInvalid
	rejectedUnauthorized
	rejectedForbidden
	rejectedOrigin
	rejectedRateLimited
	rejectedDraining
	rejectedBroker
)

// PublishReasons returns the labels of hubd_publish_rejected_total in order.
func PublishReasons() []string {
	return []string{"overflow", "too_large", "invalid", "unauthorized", "forbidden", "origin", "rate_limited", "draining", "broker"}
}

var publishReasonOf = map[hub.Code]publishReason{
	hub.Overflow:        rejectedOverflow,
	hub.MessageTooLarge: rejectedTooLarge,
	hub.InvalidMessage:  rejectedInvalid,
	hub.InvalidOption:   rejectedInvalid,
	hub.InvalidRoom:     rejectedInvalid,
	hub.Unauthorized:    rejectedUnauthorized,
	hub.Forbidden:       rejectedForbidden,
	hub.OriginForbidden: rejectedOrigin,
	hub.RateLimited:     rejectedRateLimited,
	hub.Draining:        rejectedDraining,

	hub.IdempotencyConflict: rejectedInvalid,
}

// rejectPublish counts a publish that was refused.
func (s *Server) rejectPublish(code hub.Code) {
	if reason, ok := publishReasonOf[code]; ok {
		s.cfg.Metrics.PublishRejected(int(reason))
	}
}

// handlePublish is POST /rooms/{room}.
func (s *Server) handlePublish(w http.ResponseWriter, r *http.Request, as permit, room frame.Room) {
	q, err := s.readPublish(w, r, room)
	var p hub.Published
	switch key := r.Header.Get("Idempotency-Key"); {
	case err != nil:
	case key != "":
		p, err = s.publishOnce(r.Context(), as.grant.Subject, key, q)
	default:
		p, err = s.cfg.Hub.Publish(r.Context(), q)
	}
	if err != nil {
		s.rejectPublish(hub.CodeOf(err))
		s.fail(w, r, err)
		return
	}
	s.cfg.Logger.Debug("published", "room", room.String(), "seq", p.Position.Seq, "bytes", len(q.Message.Data), "subscribers", p.Subscribers, "dropped", p.Dropped)
	writeJSON(w, "application/json", http.StatusOK, struct {
		Room         frame.Room `json:"room"`
		Epoch        string     `json:"epoch"`
		Seq          uint64     `json:"seq"`
		Subscribers  int        `json:"subscribers"`
		Queued       int        `json:"queued"`
		Dropped      int        `json:"dropped"`
		Conflated    int        `json:"conflated"`
		Disconnected int        `json:"disconnected"`
	}{room, p.Position.Epoch, p.Position.Seq, p.Subscribers, p.Queued, p.Dropped, p.Conflated, p.Disconnected})
}

func (s *Server) readPublish(w http.ResponseWriter, r *http.Request, room frame.Room) (q hub.PublishRequest, err error) {
	q.Message.Room = room
	if q.Message.Kind, err = kindOf(r.Header.Get("Content-Type")); err != nil {
		return q, err
	}
	query, err := queryOf(r)
	if err != nil {
		return q, err
	}
	if q.Wait, err = waitOf(query.Get("wait")); err != nil {
		return q, err
	}
	q.Message.Key = r.Header.Get("Hubd-Key")
	if key := query.Get("key"); key != "" {
		q.Message.Key = key
	}
	q.Message.Data, err = s.readBody(w, r)
	return q, err
}

// kindOf is how a body of this type is published. No type is text, and so is
// the one that curl sends with --data.
func kindOf(contentType string) (frame.Kind, error) {
	if contentType == "" {
		return frame.Text, nil
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, &hub.Error{Code: hub.InvalidMessage, Detail: "the Content-Type is malformed"}
	}
	if charset := params["charset"]; charset != "" && media != "application/octet-stream" &&
		!strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return 0, &hub.Error{Code: hub.InvalidMessage, Detail: "text is taken in UTF-8 only"}
	}
	switch {
	case media == "application/json":
		return frame.JSON, nil
	case media == "application/octet-stream":
		return frame.Binary, nil
	case strings.HasPrefix(media, "text/"), media == "application/x-www-form-urlencoded":
		return frame.Text, nil
	}
	return 0, &hub.Error{Code: hub.InvalidMessage, Detail: "publish as application/json, text/plain or application/octet-stream"}
}

// waitOf parses ?wait=.
func waitOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, &hub.Error{Code: hub.InvalidOption, Detail: "wait is a duration such as 700ms, at most 5s"}
	}
	return d, nil
}

// readBody reads a body of at most one message. A Content-Length over the limit
// is refused unread, so a client that asked with Expect sends nothing.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := int64(s.cfg.Hub.MaxMessageBytes())
	tooLarge := &hub.Error{Code: hub.MessageTooLarge, Detail: fmt.Sprintf("a message has at most %d bytes", limit)}
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("bounding the body's time: %w", err)
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	var data []byte
	var err error
	if r.ContentLength >= 0 {
		data = make([]byte, r.ContentLength)
		_, err = io.ReadFull(body, data)
	} else {
		data, err = io.ReadAll(body)
	}
	var over *http.MaxBytesError
	switch {
	case err == nil:
		return data, nil
	case errors.As(err, &over):
		return nil, tooLarge
	}
	return nil, &hub.Error{Code: hub.InvalidMessage, Detail: "the body ended early or took too long"}
}
