package hub_test

import (
	"context"
	"fmt"
	"testing"

	"hubd/internal/hub"
	"hubd/internal/queue"
)

// Sealed: nothing more comes in, what is queued can still go out.
func TestSeal(t *testing.T) {
	n := newHub(t)
	s, other := n.join("lobby"), n.join("lobby")
	n.publish("lobby", "before")
	s.Seal()
	s.Seal()
	p := n.publish("lobby", "after")
	equal(t, "offered to", p.Subscribers, 1)
	equal(t, "subscribers", n.Info(room("lobby")).Subscribers, 1)
	same(t, "read by the sealed", s.read(), []string{"before"})
	same(t, "read by the other", other.read(), []string{"before", "after"})
	other.Seal()
	if _, ok := n.Room(room("lobby")); ok {
		t.Error("a room is there whose subscriptions are all sealed")
	}
	s.Leave()
	other.Leave()
	n.empty()
}

// Left: nothing goes out any more, and what was queued counts as closed, once.
func TestLeave(t *testing.T) {
	n := newHub(t)
	s := n.join("lobby")
	for i := range 5 {
		n.publish("lobby", fmt.Sprint(i))
	}
	inFlight := s.Take(nil, queue.Limits{Messages: 2, Bytes: 100}).Items
	equal(t, "in flight", n.State().InFlight, 2)
	for range 3 {
		s.Leave()
	}
	equal(t, "closed", n.value("hubd_frames_dropped_total", "reason", "closed"), 3)
	taken := s.Take(nil, all)
	if len(taken.Items) != 0 || !taken.Empty || taken.Tail.Lost != 0 {
		t.Errorf("taken after the end: %+v", taken)
	}
	// What was in flight is still the writer's to resolve.
	if n.State().RetainedBytes == 0 {
		t.Error("the frames in flight are not retained")
	}
	s.Sent(inFlight, 1, nil)
	equal(t, "sent", n.value("hubd_frames_sent_total"), 1)
	equal(t, "closed", n.value("hubd_frames_dropped_total", "reason", "closed"), 4)
	n.empty()
}

// Each number of frames that a write may have got out, before and after the
// end: sent and closed are exact.
func TestInFlightIsResolved(t *testing.T) {
	const messages = 4
	for sent := range messages + 1 {
		for _, end := range []string{"after", "between", "before"} {
			n := newHub(t)
			s := n.join("lobby")
			for i := range messages {
				n.publish("lobby", fmt.Sprint(i))
			}
			items := s.take()
			if end == "before" {
				s.Leave()
			}
			ages := s.Sent(items[:messages/2], min(sent, messages/2), nil)
			equal(t, "ages", len(ages), min(sent, messages/2))
			if end == "between" {
				s.Leave()
			}
			ages = s.Sent(items[messages/2:], max(0, sent-messages/2), ages)
			equal(t, "ages", len(ages), max(0, sent-messages/2))
			if end == "after" {
				st, _ := n.Room(room("lobby"))
				equal(t, "in flight", st.Subscriptions[0].InFlight, 0)
				equal(t, "sent of the subscription", st.Subscriptions[0].Stats.Sent, uint64(sent))
				s.Leave()
			}
			equal(t, "sent", n.value("hubd_frames_sent_total"), sent)
			equal(t, "closed", n.value("hubd_frames_dropped_total", "reason", "closed"), messages-sent)
			n.empty()
		}
	}
}

func TestDrain(t *testing.T) {
	n := newHub(t)
	s := n.join("lobby")
	n.publish("lobby", "before")
	n.Drain()
	for _, name := range []string{"lobby", "new"} {
		_, err := n.tryJoin(name)
		is(t, err, hub.Draining)
		_, err = n.Publish(context.Background(), say(name, "after"))
		is(t, err, hub.Draining)
	}
	equal(t, "rooms", n.State().Rooms, 1)
	equal(t, "published", n.value("hubd_messages_published_total"), 1)
	same(t, "read", s.read(), []string{"before"})
	s.Leave()
	n.empty()
}

func TestRefusedMessages(t *testing.T) {
	n := newHubWith(t, hub.Config{MaxMessageBytes: 10, Feeds: []hub.Feed{{Name: "default", Match: []string{"*"}, History: &hub.HistoryLimits{}}}})
	equal(t, "limit", n.MaxMessageBytes(), 10)
	s := n.join("lobby")
	equal(t, "over the limit", n.refused("lobby", "12345678901"), hub.MessageTooLarge)
	equal(t, "not UTF-8", n.refused("lobby", "\xc3\x28"), hub.InvalidMessage)
	equal(t, "at the limit", n.publish("lobby", "1234567890").Position.Seq, 1)
	same(t, "read", s.read(), []string{"1234567890"})
	s.Leave()
	n.empty()
}
