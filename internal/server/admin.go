package server

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/queue"
)

// roomView is GET /rooms/{room}.
type roomView struct {
	Room        frame.Room   `json:"room"`
	Feed        string       `json:"feed"`
	Policy      queue.Policy `json:"policy"`
	Epoch       string       `json:"epoch"`
	Seq         uint64       `json:"seq"`
	Subscribers int          `json:"subscribers"`
	Queue       queueLimits  `json:"queue"`
}

func roomJSON(i hub.RoomInfo) roomView {
	return roomView{i.Room, i.Feed, i.Policy, i.Position.Epoch, i.Position.Seq, i.Subscribers, queueLimits(i.Queue)}
}

// adminRoom is one room as operators see it.
type adminRoom struct {
	roomView
	Queued        queueLimits       `json:"queued"`
	Dropped       uint64            `json:"dropped"`
	Subscriptions []adminSubscriber `json:"subscriptions,omitempty"`
}

func adminRoomJSON(st hub.RoomStats) adminRoom {
	return adminRoom{roomView: roomJSON(st.RoomInfo), Queued: queueLimits(st.Queued), Dropped: st.Dropped}
}

// adminSubscriber is one subscription as operators see it.
type adminSubscriber struct {
	ID          string       `json:"id"`
	Room        frame.Room   `json:"room"`
	Transport   string       `json:"transport"`
	Policy      queue.Policy `json:"policy"`
	Queued      queueLimits  `json:"queued"`
	Limit       queueLimits  `json:"limit"`
	OldestMS    int64        `json:"oldest_ms"`
	Sent        uint64       `json:"sent"`
	Dropped     uint64       `json:"dropped"`
	UnsentBytes int          `json:"unsent_bytes"`
	Remote      string       `json:"remote"`
	Since       time.Time    `json:"since"`
}

func subscriberJSON(st hub.SubscriptionStats) adminSubscriber {
	a := adminSubscriber{
		ID: st.ID(), Room: st.Room(), Policy: st.Policy(),
		Queued: queueLimits(st.Queued), Limit: queueLimits(st.Limits()),
		OldestMS: st.Oldest.Milliseconds(), Sent: st.Stats.Sent, Dropped: st.Lost(), Since: st.Since().UTC(),
	}
	if c, ok := st.Owner().(*conn); ok {
		a.Transport = Transports()[c.dialect.transport()]
		a.Remote, a.UnsentBytes = c.remote, c.pipe.unsent()
	}
	return a
}

// limitOf reads ?limit=.
func limitOf(query url.Values, fallback int) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, &hub.Error{Code: hub.InvalidOption, Detail: "limit is a positive whole number"}
	}
	return n, nil
}

const defaultLimit = 100

// handleRooms is GET /admin/rooms: the largest backlog first.
func (s *Server) handleRooms(w http.ResponseWriter, r *http.Request) {
	limit, err := limitOf(r.URL.Query(), defaultLimit)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	rooms := s.cfg.Hub.Rooms()
	slices.SortFunc(rooms, func(a, b hub.RoomStats) int {
		return cmp.Or(cmp.Compare(b.Queued.Messages, a.Queued.Messages), cmp.Compare(b.Subscribers, a.Subscribers),
			cmp.Compare(a.Room.String(), b.Room.String()))
	})
	views := []adminRoom{}
	for _, st := range rooms[:min(limit, len(rooms))] {
		views = append(views, adminRoomJSON(st))
	}
	writeJSON(w, "application/json", http.StatusOK, map[string]any{"rooms": views})
}

// handleRoomDetail is GET /admin/rooms/{room}.
func (s *Server) handleRoomDetail(w http.ResponseWriter, r *http.Request) {
	room, ok, err := roomOf(escapedPath(r.URL), "/admin/rooms/")
	if !ok {
		err = errNotFound
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	st, ok := s.cfg.Hub.Room(room)
	if !ok {
		s.fail(w, r, &hub.Error{Code: hub.NotFound, Detail: "nobody is in that room"})
		return
	}
	view := adminRoomJSON(st)
	for _, sub := range st.Subscriptions {
		view.Subscriptions = append(view.Subscriptions, subscriberJSON(sub))
	}
	writeJSON(w, "application/json", http.StatusOK, view)
}

// subscriberOrders are the orders of ?sort=, each with the worst first.
var subscriberOrders = map[string]func(a, b hub.SubscriptionStats) int{
	"queued":  func(a, b hub.SubscriptionStats) int { return cmp.Compare(b.Queued.Messages, a.Queued.Messages) },
	"oldest":  func(a, b hub.SubscriptionStats) int { return cmp.Compare(b.Oldest, a.Oldest) },
	"dropped": func(a, b hub.SubscriptionStats) int { return cmp.Compare(b.Lost(), a.Lost()) },
}

// handleSubscribers is GET /admin/subscribers.
func (s *Server) handleSubscribers(w http.ResponseWriter, r *http.Request) {
	limit, err := limitOf(r.URL.Query(), defaultLimit)
	order, ok := subscriberOrders[cmp.Or(r.URL.Query().Get("sort"), "queued")]
	if !ok {
		err = &hub.Error{Code: hub.InvalidOption, Detail: "sort is one of queued, oldest, dropped"}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var all []hub.SubscriptionStats
	for _, room := range s.cfg.Hub.Rooms() {
		all = append(all, room.Subscriptions...)
	}
	slices.SortFunc(all, func(a, b hub.SubscriptionStats) int {
		return cmp.Or(order(a, b), cmp.Compare(a.ID(), b.ID()))
	})
	views := []adminSubscriber{}
	for _, st := range all[:min(limit, len(all))] {
		views = append(views, subscriberJSON(st))
	}
	writeJSON(w, "application/json", http.StatusOK, map[string]any{"subscribers": views})
}

// handleKick is DELETE /admin/subscribers/{id}: it closes the connection that
// the subscription belongs to, after what is queued for it.
func (s *Server) handleKick(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	for _, c := range s.list() {
		for _, m := range c.memberships() {
			if m.sub.ID() == id {
				c.end(causeKicked)
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
	}
	s.fail(w, r, &hub.Error{Code: hub.NotFound, Detail: "there is no such subscriber"})
}

// depths are the quantiles of a queue depth over all subscriptions.
type depths struct {
	Messages metrics.Depths `json:"messages"`
	Bytes    metrics.Depths `json:"bytes"`
}

// handleStats is GET /admin/stats.
func (s *Server) handleStats(w http.ResponseWriter, _ *http.Request) {
	st := s.cfg.Hub.State()
	totals := s.cfg.Metrics.Totals()
	var queued queueLimits
	for i := range st.DepthMessages {
		queued.Messages += st.DepthMessages[i]
		queued.Bytes += st.DepthBytes[i]
	}
	conns := s.transports()
	writeJSON(w, "application/json", http.StatusOK, struct {
		Version       string            `json:"version"`
		UptimeS       int64             `json:"uptime_s"`
		Connections   map[string]int    `json:"connections"`
		Rooms         int               `json:"rooms"`
		Subscriptions int               `json:"subscriptions"`
		Published     uint64            `json:"published"`
		Offered       uint64            `json:"offered"`
		Sent          uint64            `json:"sent"`
		Dropped       map[string]uint64 `json:"dropped"`
		Queued        queueLimits       `json:"queued"`
		InFlight      int               `json:"in_flight"`
		RetainedBytes int64             `json:"retained_bytes"`
		OldestMS      int64             `json:"oldest_ms"`
		Depth         depths            `json:"depth"`
		Draining      bool              `json:"draining"`
	}{
		Version: s.cfg.Version, UptimeS: int64(time.Since(s.start).Seconds()),
		Connections: map[string]int{Transports()[0]: conns[0], Transports()[1]: conns[1]},
		Rooms:       st.Rooms, Subscriptions: len(st.DepthMessages),
		Published: totals.Published, Offered: totals.Offered, Sent: totals.Sent, Dropped: totals.Dropped,
		Queued: queued, InFlight: st.InFlight, RetainedBytes: st.RetainedBytes, OldestMS: st.Oldest.Milliseconds(),
		Depth:    depths{metrics.Quantiles(st.DepthMessages), metrics.Quantiles(st.DepthBytes)},
		Draining: s.isDraining(),
	})
}
