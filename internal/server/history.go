package server

import (
	"encoding/json"
	"net/http"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
)

// Bounds of ?limit= of the history.
const (
	defaultHistory = 100
	maxHistory     = 1000
)

// entry is one retained message. Exactly one of Data, Text and Base64 is there.
type entry struct {
	Seq    uint64          `json:"seq"`
	Time   time.Time       `json:"time"`
	Data   json.RawMessage `json:"data,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 *[]byte         `json:"base64,omitempty"`
	Key    string          `json:"key,omitempty"`
}

func entryJSON(e hub.Entry) entry {
	out := entry{Seq: e.Seq, Time: e.Time.UTC(), Key: e.Key}
	switch e.Kind {
	case frame.JSON:
		out.Data = e.Data
	case frame.Text:
		text := string(e.Data)
		out.Text = &text
	case frame.Binary:
		out.Base64 = &e.Data
	}
	return out
}

// handleHistory is GET /rooms/{room}/history.
func (s *Server) handleHistory(w http.ResponseWriter, r *http.Request, room frame.Room) {
	query, err := queryOf(r)
	var limit int
	if err == nil {
		limit, err = limitOf(query, defaultHistory)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var after *frame.Position
	if query.Has("after") {
		pos, err := frame.ParsePosition(query.Get("after"))
		if err != nil {
			s.fail(w, r, &hub.Error{Code: hub.InvalidPosition, Detail: err.Error()})
			return
		}
		after = &pos
	}
	got := s.cfg.Hub.History(room, after, min(limit, maxHistory))
	entries := make([]entry, 0, len(got.Messages))
	for _, e := range got.Messages {
		entries = append(entries, entryJSON(e))
	}
	writeJSON(w, "application/json", http.StatusOK, struct {
		Room     frame.Room `json:"room"`
		Epoch    string     `json:"epoch"`
		First    uint64     `json:"first"`
		Last     uint64     `json:"last"`
		Messages []entry    `json:"messages"`
	}{room, got.Epoch, got.First, got.Last, entries})
}
