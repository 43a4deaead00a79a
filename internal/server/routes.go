package server

import (
	"net/http"
	"net/http/pprof"
	"net/url"
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
	r.MethodNotAllowed(methodNotAllowed)
	r.Get("/healthz", s.handleHealth)
	r.Get("/readyz", s.handleReady)
	return r
}

var errNotFound = &hub.Error{Code: hub.NotFound, Detail: "there is nothing here"}

func methodNotAllowed(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, http.StatusMethodNotAllowed, &hub.Error{Code: hub.InvalidOption, Detail: "this resource does not take that method"})
}

func (s *Server) operatorRoutes(r chi.Router) {
	if s.cfg.Gatherer != nil {
		r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{}))
	}
	r.Group(func(r chi.Router) {
		r.Use(s.guard)
		r.Get("/admin/stats", s.handleStats)
		r.Get("/admin/rooms", s.handleRooms)
		r.Get("/admin/rooms/*", s.handleRoomDetail)
		r.Get("/admin/subscribers", s.handleSubscribers)
		r.Delete("/admin/subscribers/{id}", s.handleKick)
		r.HandleFunc("/debug/pprof/*", pprof.Index)
		r.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		r.HandleFunc("/debug/pprof/profile", pprof.Profile)
		r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		r.HandleFunc("/debug/pprof/trace", pprof.Trace)
	})
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
	path, history := strings.CutSuffix(r.URL.EscapedPath(), "/history")
	if path == "/rooms" { // the room of that name
		path, history = r.URL.EscapedPath(), false
	}
	room, ok, err := roomOf(path, "/rooms/")
	switch {
	case !ok:
		s.fail(w, r, errNotFound)
	case err == nil && history && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.handleHistory(w, r, room)
	case err == nil && history:
		w.Header().Set("Allow", "GET, HEAD")
		methodNotAllowed(w, r)
	case err != nil:
		switch {
		case isUpgrade(r):
			s.rejectHandshake(handshakeInvalid)
		case r.Method == http.MethodPost:
			s.rejectPublish(hub.InvalidRoom)
		}
		s.fail(w, r, err)
	case isUpgrade(r):
		s.upgradeRoom(w, r, room)
	case r.Method == http.MethodPost:
		s.handlePublish(w, r, room)
	case r.Method == http.MethodGet && wantsEvents(r):
		s.streamRoom(w, r, room)
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		s.handleInfo(w, room)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		methodNotAllowed(w, r)
	}
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
	writeJSON(w, "application/json", http.StatusOK, map[string]string{"status": "ready"})
}
