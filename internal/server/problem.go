package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"hubd/internal/hub"
)

// statusOf is the HTTP status of each code.
var statusOf = map[hub.Code]int{
	hub.InvalidRoom:     http.StatusBadRequest,
	hub.InvalidOption:   http.StatusBadRequest,
	hub.InvalidPosition: http.StatusBadRequest,
	hub.InvalidMessage:  http.StatusBadRequest,
	hub.MessageTooLarge: http.StatusRequestEntityTooLarge,
	hub.Unauthorized:    http.StatusUnauthorized,
	hub.Forbidden:       http.StatusForbidden,
	hub.OriginForbidden: http.StatusForbidden,
	hub.HostForbidden:   http.StatusForbidden,
	hub.NotFound:        http.StatusNotFound,
	hub.Overflow:        http.StatusServiceUnavailable,
	hub.OverCapacity:    http.StatusServiceUnavailable,
	hub.RateLimited:     http.StatusTooManyRequests,
	hub.TooManyRooms:    http.StatusServiceUnavailable,
	hub.AlreadyJoined:   http.StatusConflict,
	hub.NotJoined:       http.StatusConflict,
	hub.Draining:        http.StatusServiceUnavailable,

	hub.IdempotencyConflict: http.StatusConflict,
}

// problem is an error as RFC 9457 has it, with the code as an extension.
type problem struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Code   hub.Code `json:"code,omitempty"`
	Detail string   `json:"detail,omitempty"`
}

// fail answers with err, which is a *hub.Error or a fault of ours.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *hub.Error
	if !errors.As(err, &e) {
		level := slog.LevelError
		if r.Context().Err() != nil {
			level = slog.LevelDebug // the client went away; it is no fault of ours
		}
		s.cfg.Logger.Log(r.Context(), level, "request failed", "method", r.Method, "error", err)
		writeProblem(w, http.StatusInternalServerError, &hub.Error{Detail: "the request failed; the log says why"})
		return
	}
	writeProblem(w, statusOf[e.Code], e)
}

func writeProblem(w http.ResponseWriter, status int, e *hub.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	challenge(w.Header(), e)
	writeJSON(w, "application/problem+json", status, problem{http.StatusText(status), status, e.Code, e.Detail})
}

// writeJSON answers with v. What could be written of it is out of our hands
// once the header is: an error is the client's loss alone.
func writeJSON(w http.ResponseWriter, contentType string, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // v is one of our own structs
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}
