package hub_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// reader is an owner that takes only when it is told to.
type reader struct{}

func (reader) Wake()                {}
func (reader) Evicted(hub.Eviction) {}

func roomNamed(t *testing.T, name string) frame.Room {
	t.Helper()
	room, err := frame.ParseRoom(name)
	if err != nil {
		t.Fatal(err)
	}
	return room
}

// world is a hub with one feed for all rooms.
type world struct {
	t *testing.T
	*hub.Hub
}

func newWorld(t *testing.T, feed hub.Feed, maxHistory int) world {
	t.Helper()
	feed.Name, feed.Match = "all", []string{"*"}
	h, err := hub.New(hub.Config{Feeds: []hub.Feed{feed}, MaxHistoryBytes: maxHistory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return world{t, h}
}

func (w world) publish(room, key, text string) frame.Position {
	w.t.Helper()
	p, err := w.Publish(context.Background(), hub.PublishRequest{Message: frame.Message{Room: roomNamed(w.t, room), Kind: frame.Text, Key: key, Data: []byte(text)}})
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Position
}

func (w world) join(room string, after *frame.Position) *hub.Subscription {
	w.t.Helper()
	s, err := w.Join(hub.JoinRequest{Room: roomNamed(w.t, room), After: after, Owner: reader{}, ID: "1"})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// take takes one batch and reports what a subscriber would see of it: seqs, and
// gaps as -lost.
func take(s *hub.Subscription, messages int) (seen []int) {
	t := s.Take(nil, queue.Limits{Messages: messages, Bytes: 1 << 20})
	for _, it := range t.Items {
		if it.Gap.Lost > 0 {
			seen = append(seen, -it.Gap.Lost)
		}
		seen = append(seen, int(it.Value.Seq()))
	}
	if t.Tail.Lost > 0 {
		seen = append(seen, -t.Tail.Lost)
	}
	s.Sent(t.Items, len(t.Items), nil)
	return seen
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func seqs(e hub.Entries) (s []int) {
	for _, m := range e.Messages {
		s = append(s, int(m.Seq))
	}
	return s
}

func TestHistoryBounds(t *testing.T) {
	for _, step := range []struct {
		name   string
		limits hub.HistoryLimits
		want   string
	}{
		{"messages", hub.HistoryLimits{Messages: 3, Bytes: 1000, Age: time.Hour}, "[8 9 10]"},
		{"bytes", hub.HistoryLimits{Messages: 100, Bytes: 25, Age: time.Hour}, "[9 10]"},
		{"age", hub.HistoryLimits{Messages: 100, Bytes: 1000, Age: 4 * time.Second}, "[7 8 9 10]"},
		{"none", hub.HistoryLimits{}, "[]"},
	} {
		t.Run(step.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, hub.Feed{History: &step.limits}, 0)
				s := w.join("r", nil) // keeps the room alive where nothing else does
				for i := range 10 {
					if i > 0 {
						time.Sleep(time.Second)
					}
					w.publish("r", "", "ten bytes!")
				}
				e := w.History(roomNamed(t, "r"), nil, 100)
				expect(t, "retained", seqs(e), step.want)
				if n := len(e.Messages); n > 0 {
					expect(t, "range", []uint64{e.First, e.Last}, []uint64{e.Messages[0].Seq, 10})
					expect(t, "limit", len(w.History(roomNamed(t, "r"), nil, 1).Messages), 1)
				}
				s.Leave()
				w.Close()
				expect(t, "retained bytes at the end", w.State().RetainedBytes, 0)
			})
		})
	}
}

// TestHistoryExpires: a room without subscribers keeps its history and epoch
// until it is too old, and then is gone without anybody's doing.
func TestHistoryExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hub.Feed{History: &hub.HistoryLimits{Messages: 10, Bytes: 1000, Age: 10 * time.Second}}, 0)
		first := w.publish("r", "", "a")
		time.Sleep(6 * time.Second)
		second := w.publish("r", "", "b")
		expect(t, "epoch goes on", second.Epoch == first.Epoch && second.Seq == 2, true)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		expect(t, "retained", seqs(w.History(roomNamed(t, "r"), nil, 10)), "[2]")
		expect(t, "rooms", w.State().Rooms, 1)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		st := w.State()
		expect(t, "rooms and bytes", []int64{int64(st.Rooms), st.RetainedBytes}, "[0 0]")
		expect(t, "info", w.Info(roomNamed(t, "r")).Position, frame.Position{})
		third := w.publish("r", "", "c")
		expect(t, "a new numbering", third.Seq == 1 && third.Epoch != first.Epoch, true)
	})
}

// TestHistoryRooms is many rooms that nobody is in: bounded together, and
// nothing of them left in the end.
func TestHistoryRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hub.Feed{History: &hub.HistoryLimits{Messages: 10, Bytes: 1 << 20, Age: 10 * time.Second}}, 1000*1000)
		payload := string(make([]byte, 1000))
		for i := range 2500 {
			w.publish("r"+strconv.Itoa(i), "", payload)
			time.Sleep(time.Microsecond)
			if i >= 1000 && i%100 == 0 { // this one is used, so it stays
				expect(t, "used", len(w.History(roomNamed(t, "r999"), nil, 1).Messages), 1)
			}
			if n := w.State().RetainedBytes; n > 1000*1000 {
				t.Fatalf("after %d rooms %d bytes are retained", i+1, n)
			}
		}
		expect(t, "the newest", len(w.History(roomNamed(t, "r2499"), nil, 1).Messages), 1)
		expect(t, "the oldest", len(w.History(roomNamed(t, "r0"), nil, 1).Messages), 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		st := w.State()
		expect(t, "rooms and bytes", []int64{int64(st.Rooms), st.RetainedBytes}, "[0 0]")
	})
}

func at(p frame.Position, seq uint64) *frame.Position {
	return &frame.Position{Epoch: p.Epoch, Seq: seq}
}

// TestReplay reads history in chunks while the room goes on.
func TestReplay(t *testing.T) {
	w := newWorld(t, hub.Feed{History: &hub.HistoryLimits{Messages: 5, Bytes: 1000, Age: time.Hour}}, 0)
	var pos frame.Position
	for range 5 {
		pos = w.publish("r", "", "x")
	}
	s := w.join("r", at(pos, 1))
	n, ok := s.Resumed()
	expect(t, "resumed", []any{n, ok, s.Start(), s.Joined().Seq}, "[4 true 1 5]")
	expect(t, "first chunk", take(s, 2), "[2 3]")
	w.publish("r", "", "x") // 1 goes, and is not missed
	expect(t, "second chunk", take(s, 1), "[4]")
	for range 4 { // 5 goes, which was not read yet
		w.publish("r", "", "x")
	}
	expect(t, "after a loss", take(s, 2), "[-1 6 7]")
	expect(t, "the rest", take(s, 100), "[8 9 10]")
	w.publish("r", "", "x")
	expect(t, "live", take(s, 100), "[11]")
	expect(t, "empty", s.Take(nil, queue.Limits{Messages: 1, Bytes: 1}).Empty, true)
	for _, st := range w.Rooms() {
		for _, sub := range st.Subscriptions {
			expect(t, "offered and sent", []uint64{sub.Offered, sub.Stats.Sent}, "[9 9]")
		}
	}
	expect(t, "subscribers", w.Info(roomNamed(t, "r")).Subscribers, 1)
	s.Leave()
	expect(t, "subscribers in the end", w.Info(roomNamed(t, "r")).Subscribers, 0)
}

// TestResumable is the verdict on every position around the edges.
func TestResumable(t *testing.T) {
	w := newWorld(t, hub.Feed{History: &hub.HistoryLimits{Messages: 5, Bytes: 1000, Age: time.Hour}}, 0)
	var pos frame.Position
	for range 8 {
		pos = w.publish("r", "", "x")
	}
	for seq, want := range map[uint64]string{0: "[0 false]", 2: "[0 false]", 3: "[5 true]", 7: "[1 true]", 8: "[0 true]", 9: "[0 false]"} {
		s := w.join("r", at(pos, seq))
		n, ok := s.Resumed()
		expect(t, fmt.Sprint("after ", seq), []any{n, ok}, want)
		s.Leave()
	}
	s := w.join("r", &frame.Position{Epoch: "another", Seq: 7})
	n, ok := s.Resumed()
	expect(t, "of another epoch", []any{n, ok}, "[0 false]")
	s.Leave()
}

// TestReplayOfNothing: history went away whole before it was read.
func TestReplayOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hub.Feed{History: &hub.HistoryLimits{Messages: 5, Bytes: 1000, Age: time.Second}}, 0)
		pos := w.publish("r", "", "x")
		w.publish("r", "", "x")
		s := w.join("r", at(pos, 0))
		time.Sleep(2 * time.Second)
		expect(t, "all lost", take(s, 10), "[-2]")
		w.publish("r", "", "x")
		expect(t, "live", take(s, 10), "[3]")
		s.Leave()
	})
}

// TestReplayLeaves: a subscription that ends while it catches up.
func TestReplayLeaves(t *testing.T) {
	w := newWorld(t, hub.Feed{History: &hub.HistoryLimits{Messages: 5, Bytes: 1000, Age: time.Hour}}, 0)
	pos := w.publish("r", "", "x")
	w.publish("r", "", "x")
	s := w.join("r", at(pos, 0))
	expect(t, "subscribers", w.Info(roomNamed(t, "r")).Subscribers, 1)
	expect(t, "some", take(s, 1), "[1]")
	s.Leave()
	expect(t, "nothing more", take(s, 1), "[]")
	expect(t, "subscribers", w.Info(roomNamed(t, "r")).Subscribers, 0)
}

// TestSnapshotCompacts: a keep-latest room retains one frame a key, and gives
// them to a joiner without calling what came before it lost.
func TestSnapshotCompacts(t *testing.T) {
	w := newWorld(t, hub.Feed{Policy: queue.KeepLatest}, 0)
	var pos frame.Position
	for i := range 10 {
		pos = w.publish("r", "k"+strconv.Itoa(i%3), "x")
	}
	expect(t, "retained", seqs(w.History(roomNamed(t, "r"), nil, 100)), "[8 9 10]")
	s := w.join("r", nil)
	expect(t, "snapshot", s.Snapshot(), 3)
	expect(t, "first", take(s, 1), "[8]")
	w.publish("r", "k2", "x") // replaces 9 before it was read
	w.publish("r", "k2", "x") // and then itself, which is a loss to s
	expect(t, "rest", take(s, 10), "[10 -1 12]")
	back := w.join("r", at(pos, 9))
	n, ok := back.Resumed()
	expect(t, "resumed", []any{n, ok, back.Snapshot()}, "[2 true 0]")
	expect(t, "newer only", take(back, 10), "[10 -1 12]")
	drop := queue.DropNewest
	other, err := w.Join(hub.JoinRequest{Room: roomNamed(t, "r"), Options: hub.Options{Policy: &drop}, Owner: reader{}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "no snapshot under another policy", []any{other.Snapshot(), len(take(other, 10))}, "[0 0]")
}

// TestSnapshotOfNothing: with no last value to be given, a joiner starts where
// the room is, as it would under any other policy.
func TestSnapshotOfNothing(t *testing.T) {
	w := newWorld(t, hub.Feed{Policy: queue.KeepLatest, History: &hub.HistoryLimits{}}, 0)
	first := w.join("r", nil) // keeps the room
	for range 3 {
		w.publish("r", "", "x")
	}
	s := w.join("r", nil)
	expect(t, "snapshot and start", []any{s.Snapshot(), s.Start()}, "[0 3]")
	back := w.join("r", at(s.Joined(), s.Start()))
	_, resumed := back.Resumed()
	expect(t, "resumed from the start", resumed, true)
	for _, s := range []*hub.Subscription{first, s, back} {
		s.Leave()
	}
}

// TestHistoryOfTinyMessages: what a room and a frame take beside the payload is
// bounded, too, or rooms without end could be made of empty messages.
func TestHistoryOfTinyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hub.Feed{}, 1<<20)
		for i := range 5000 {
			w.publish("r"+strconv.Itoa(i), "", "")
		}
		if n := w.State().Rooms; n < 100 || n > 1500 {
			t.Errorf("%d rooms are retained within 1 MiB", n)
		}
	})
}
