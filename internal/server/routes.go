package server

import (
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/web"
)

// Handler returns the public side: rooms, the page, health, and unless they
// have a listener of their own also metrics, admin and debug.
func (s *Server) Handler() http.Handler {
	r := s.router()
	if !s.cfg.SplitAdmin {
		s.operatorRoutes(r)
	}
	r.Group(func(r chi.Router) {
		r.Use(s.guard)
		r.HandleFunc("/rooms/*", s.handleRoom)
		r.HandleFunc("/ws", s.handleWS)
		r.Handle("/*", web.Handler())
	})
	return r
}

// AdminHandler returns the operator's side alone, and health.
func (s *Server) AdminHandler() http.Handler {
	r := s.router()
	s.operatorRoutes(r)
	return r
}

func (s *Server) router() *chi.Mux {
	r := chi.NewRouter()
	r.NotFound(func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, errNotFound) })
	r.MethodNotAllowed(unknownMethod)
	r.HandleFunc("/healthz", reads(s.handleHealth))
	r.HandleFunc("/readyz", reads(s.handleReady))
	return r
}

var errNotFound = &hub.Error{Code: hub.NotFound, Detail: "there is nothing here"}

func methodNotAllowed(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, http.StatusMethodNotAllowed, &hub.Error{Code: hub.InvalidOption, Detail: "this resource does not take that method"})
}

// unknownMethod answers methods that are none of HTTP's: the resources have been
// asked for all others. No resource here takes any but these.
func unknownMethod(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "GET, HEAD, POST, DELETE")
	methodNotAllowed(w, r)
}

// takes wraps the handler of a resource that takes these methods only. The
// router alone would hand others on to what serves the page, which knows nothing
// of that resource.
func takes(h http.HandlerFunc, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			methodNotAllowed(w, r)
			return
		}
		h(w, r)
	}
}

// reads wraps the handler of a resource that is only looked at.
func reads(h http.HandlerFunc) http.HandlerFunc { return takes(h, http.MethodGet, http.MethodHead) }

func (s *Server) operatorRoutes(r chi.Router) {
	if s.cfg.Gatherer != nil {
		r.HandleFunc("/metrics", reads(promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{}).ServeHTTP))
	}
	r.Group(func(r chi.Router) {
		r.Use(s.guard)
		r.Use(s.operators)
		r.HandleFunc("/admin/stats", reads(s.handleStats))
		r.HandleFunc("/admin/rooms", reads(s.handleRooms))
		r.HandleFunc("/admin/rooms/*", reads(s.handleRoomDetail))
		r.HandleFunc("/admin/subscribers", reads(s.handleSubscribers))
		r.HandleFunc("/admin/subscribers/{id}", takes(s.handleKick, http.MethodDelete))
		r.HandleFunc("/debug/pprof/*", pprof.Index)
		r.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		r.HandleFunc("/debug/pprof/profile", pprof.Profile)
		r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		r.HandleFunc("/debug/pprof/trace", pprof.Trace)
	})
}

// escapedPath returns the path as it was asked for. EscapedPath alone would
// decode and encode one that has an unusual character, slashes included.
func escapedPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// roomOf takes the room from the escaped path, the one spelling that no router
// has touched, and decodes it once. ok is false where the path has another
// shape: no room, or more than a room.
func roomOf(escaped, prefix string) (room frame.Room, ok bool, err error) {
	name, found := strings.CutPrefix(escaped, prefix)
	if !found || name == "" || strings.Contains(name, "/") {
		return room, false, nil
	}
	name, err = url.PathUnescape(name)
	if err == nil {
		room, err = frame.ParseRoom(name)
	}
	if err != nil {
		return room, true, &hub.Error{Code: hub.InvalidRoom, Detail: frame.ErrRoom.Error()}
	}
	return room, true, nil
}

// queryOf returns the query. One that is malformed is refused: an option that
// was dropped from it would be taken as not given.
func queryOf(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &hub.Error{Code: hub.InvalidOption, Detail: "the query is malformed: escape % and ; in values"}
	}
	return query, nil
}

// handleRoom is everything under /rooms/.
func (s *Server) handleRoom(w http.ResponseWriter, r *http.Request) {
	path, history := strings.CutSuffix(escapedPath(r.URL), "/history")
	if path == "/rooms" { // the room of that name
		path, history = escapedPath(r.URL), false
	}
	room, ok, err := roomOf(path, "/rooms/")
	if !ok {
		s.fail(w, r, errNotFound)
		return
	}
	d := doorOf(r, history)
	if d == doorNone {
		w.Header().Set("Allow", map[bool]string{true: "GET, HEAD", false: "GET, HEAD, POST"}[history])
		methodNotAllowed(w, r)
		return
	}
	var p permit
	if err == nil {
		p, err = s.permitOf(r)
	}
	switch {
	case err != nil:
	case d == doorPublish:
		err = p.publish(room)
	default:
		err = p.join(room)
	}
	if err != nil {
		s.turnAway(w, r, d, err)
		return
	}
	switch d {
	case doorSocket:
		s.upgradeRoom(w, r, p, room)
	case doorEvents:
		s.streamRoom(w, r, p, room)
	case doorPublish:
		s.handlePublish(w, r, p, room)
	case doorHistory:
		s.handleHistory(w, r, room)
	case doorInfo:
		s.handleInfo(w, room)
	}
}

// door is what a request for a room wants.
type door uint8

const (
	doorNone door = iota // nothing that there is
	doorSocket
	doorEvents
	doorPublish
	doorHistory
	doorInfo
)

func doorOf(r *http.Request, history bool) door {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case history && reads:
		return doorHistory
	case history:
		return doorNone
	case isUpgrade(r):
		return doorSocket
	case r.Method == http.MethodPost:
		return doorPublish
	case r.Method == http.MethodGet && wantsEvents(r):
		return doorEvents
	case reads:
		return doorInfo
	}
	return doorNone
}

// turnAway answers a request for a room that is refused for its room or its
// token, and counts it.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, d door, err error) {
	switch d {
	case doorSocket, doorEvents:
		s.refuseHandshake(w, r, err)
		return
	case doorPublish:
		s.rejectPublish(hub.CodeOf(err))
	case doorNone, doorHistory, doorInfo:
	}
	s.fail(w, r, err)
}

func (s *Server) handleInfo(w http.ResponseWriter, room frame.Room) {
	info := s.cfg.Hub.Info(room)
	writeJSON(w, "application/json", http.StatusOK, roomJSON(info))
}

func (s *Server) handleHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, "application/json", http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) handleReady(w http.ResponseWriter, r *http.Request) {
	if s.isDraining() {
		s.fail(w, r, &hub.Error{Code: hub.Draining, Detail: "this node is shutting down"})
		return
	}
	if s.cfg.Auth != nil && !s.cfg.Auth.Ready() {
		s.fail(w, r, errNoKeys)
		return
	}
	writeJSON(w, "application/json", http.StatusOK, map[string]string{"status": "ready"})
}
