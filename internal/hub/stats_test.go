package hub_test

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// What operators see, against a hub whose every number is known.
func TestWhatOperatorsSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHub(t, hub.Feed{Name: "state", Match: []string{"state.*"}, Policy: queue.KeepLatest})
		began := time.Now()
		slow := n.join("lobby", limited(3, 100))
		for _, text := range []string{"1", "22", "333"} {
			n.publish("lobby", text)
		}
		fast := n.join("lobby", with(queue.DropOldest), limited(1, 100))
		time.Sleep(2 * time.Second)
		n.publish("lobby", "4444") // lost by slow
		latest := n.join("state.a", limited(1, 100))
		n.publish("state.a", "first")
		n.publish("state.a", "second") // replaces it
		inFlight := slow.Take(nil, queue.Limits{Messages: 1, Bytes: 100}).Items
		time.Sleep(time.Second)

		st := n.State()
		equal(t, "rooms", st.Rooms, 2)
		equal(t, "in flight", st.InFlight, 1)
		equal(t, "oldest", st.Oldest, 3*time.Second)
		equal(t, "retained", st.RetainedBytes, int64(1+2+3+4+6))
		slices.Sort(st.DepthMessages)
		slices.Sort(st.DepthBytes)
		same(t, "depths", st.DepthMessages, []int{1, 1, 2})
		same(t, "depths in bytes", st.DepthBytes, []int{4, 5, 6})
		same(t, "subscriptions", st.Subscriptions, [][]int{{0, 0, 1, 0, 0}, {1, 1, 0, 0, 0}})

		rooms := n.Rooms()
		slices.SortFunc(rooms, func(a, b hub.RoomStats) int { return cmp.Compare(a.Room.String(), b.Room.String()) })
		equal(t, "rooms listed", len(rooms), 2)
		lobby, ok := n.Room(room("lobby"))
		equal(t, "there is a lobby", ok, true)
		same(t, "the lobby in the list", rooms[0].RoomInfo, lobby.RoomInfo)
		same(t, "the lobby", lobby.RoomInfo, hub.RoomInfo{Room: room("lobby"), Feed: "default", Policy: queue.DropNewest,
			Position: slow.next(4), Subscribers: 2, Queue: queue.Limits{Messages: 256, Bytes: 1 << 20}})
		equal(t, "queued in the lobby", lobby.Queued, queue.Limits{Messages: 3, Bytes: 9})
		equal(t, "dropped in the lobby", lobby.Dropped, 1)
		equal(t, "queued in state.a", rooms[1].Queued, queue.Limits{Messages: 1, Bytes: 6})
		equal(t, "dropped in state.a", rooms[1].Dropped, 1)

		for _, s := range lobby.Subscriptions {
			switch s.ID() {
			case slow.ID():
				same(t, "slow", s.Stats, queue.Stats{Queued: queue.Limits{Messages: 2, Bytes: 5}, InFlight: 1, Oldest: 3 * time.Second, Offered: 4, Dropped: [queue.NumReasons]uint64{1}})
				equal(t, "since", s.Since(), began)
				equal(t, "owner", s.Owner(), hub.Owner(slow.owner))
				equal(t, "lost by slow", s.Lost(), 1)
			case fast.ID():
				same(t, "fast", s.Stats, queue.Stats{Queued: queue.Limits{Messages: 1, Bytes: 4}, Oldest: time.Second, Offered: 1})
			default:
				t.Errorf("a subscription %q", s.ID())
			}
		}
		if _, ok := n.Room(room("nowhere")); ok {
			t.Error("a room is there that nobody made")
		}
		slow.Sent(inFlight, 1, nil)
		for _, m := range []member{slow, fast, latest} {
			m.Leave()
		}
		n.empty()
	})
}

// next is the position that many messages after joining.
func (m member) next(messages uint64) frame.Position {
	p := m.Joined()
	p.Seq += messages
	return p
}

// The metrics' gauges are read from the same state.
func TestGauges(t *testing.T) {
	n := newHub(t)
	s := n.join("lobby", limited(2, 100))
	n.publish("lobby", "1")
	n.publish("lobby", "22")
	n.publish("lobby", "333")
	for _, c := range []struct {
		name string
		want int
	}{
		{"hubd_rooms", 1}, {"hubd_subscriptions", 1}, {"hubd_queued_frames", 2}, {"hubd_queued_bytes", 3},
		{"hubd_queue_depth_messages_count", 1}, {"hubd_queue_depth_messages_sum", 2}, {"hubd_queue_depth_bytes_sum", 3},
		{"hubd_frames_in_flight", 0}, {"hubd_retained_bytes", 3}, {"hubd_messages_published_total", 3},
		{"hubd_frames_offered_total", 3}, {"hubd_frames_dropped_total", 1}, {"hubd_overflow_total", 1},
		{"hubd_fanout_duration_seconds_count", 3},
	} {
		equal(t, c.name, n.value(c.name), c.want)
	}
	items := s.take()
	equal(t, "in flight", n.value("hubd_frames_in_flight"), 2)
	equal(t, "queued", n.value("hubd_queued_frames"), 0)
	s.Sent(items, 2, nil)
	equal(t, "time in queue", n.value("hubd_time_in_queue_seconds_count", "feed", "default", "policy", "drop-newest"), 2)
	equal(t, "in flight", n.value("hubd_frames_in_flight"), 0)
	s.Leave()
	for _, name := range []string{"hubd_rooms", "hubd_subscriptions", "hubd_queued_frames", "hubd_retained_bytes"} {
		equal(t, name+" at the end", n.value(name), 0)
	}
}
