package hub_test

import (
	"strings"
	"testing"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
)

func TestFeedOfARoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		feeds []hub.Feed
		want  map[string]string // room to feed
	}{
		{"the built-in one takes everything", nil, map[string]string{"lobby": "default", "a.b": "default"}},
		{"the first match wins", []hub.Feed{
			{Name: "alerts", Match: []string{"*.alert", "siren"}},
			{Name: "chat", Match: []string{"chat.*"}},
			{Name: "late", Match: []string{"chat.late"}},
		}, map[string]string{
			"chat.lobby": "chat", "chat.alert": "alerts", "siren": "alerts", "chat.late": "chat", "lobby": "default", "chat": "default",
		}},
		{"the one named default takes what is left, wherever it stands", []hub.Feed{
			{Name: "default", Match: []string{"d*"}},
			{Name: "dogs", Match: []string{"dog*", "cat"}},
		}, map[string]string{"dog": "default", "cat": "dogs", "lobby": "default"}},
		{"also in the middle", []hub.Feed{
			{Name: "cats", Match: []string{"cat"}},
			{Name: "default", Match: []string{"d*"}},
			{Name: "dogs", Match: []string{"dog*", "bird"}},
		}, map[string]string{"cat": "cats", "dog": "default", "bird": "dogs", "lobby": "default"}},
		{"a catch-all before the default leaves nothing to it", []hub.Feed{{Name: "all", Match: []string{"*"}}},
			map[string]string{"lobby": "all"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newHub(t, c.feeds...)
			for name, feed := range c.want {
				equal(t, "feed of "+name, n.Info(room(name)).Feed, feed)
				// What is counted must be the same feed's.
				s := n.join(name)
				offered, published := n.value("hubd_frames_offered_total", "feed", feed), n.value("hubd_messages_published_total", "feed", feed)
				n.publish(name, "x")
				equal(t, "frames offered in "+feed, n.value("hubd_frames_offered_total", "feed", feed), offered+1)
				equal(t, "messages published in "+feed, n.value("hubd_messages_published_total", "feed", feed), published+1)
				equal(t, "fan-outs timed in "+feed, n.value("hubd_fanout_duration_seconds_count", "feed", feed), published+1)
				s.Leave()
			}
		})
	}
}

func TestWhatASubscriberMayAskFor(t *testing.T) {
	feeds := []hub.Feed{
		{Name: "open", Match: []string{"open"}, Policy: queue.DropOldest, Queue: queue.Limits{Messages: 10, Bytes: 70_000}},
		{Name: "strict", Match: []string{"strict"}, Policy: queue.Disconnect, Allow: []queue.Policy{queue.DropOldest}},
		{Name: "fixed", Match: []string{"fixed"}, Policy: queue.KeepLatest, Allow: []queue.Policy{}},
		{Name: "refusing", Match: []string{"refusing"}, Policy: queue.RejectPublish},
	}
	n := newHub(t, feeds...)
	for _, c := range []struct {
		room  string
		allow string // policies, in order
	}{
		{"open", "drop-newest drop-oldest keep-latest disconnect"},
		{"strict", "drop-oldest disconnect"},
		{"fixed", "keep-latest"},
		{"refusing", "drop-newest drop-oldest keep-latest disconnect reject-publish"},
	} {
		var allowed []string
		for _, p := range queue.Policies() {
			s, err := n.tryJoin(c.room, with(p))
			checked := n.Check(room(c.room), hub.Options{Policy: &p})
			if (err == nil) != (checked == nil) {
				t.Errorf("%s with %v: join says %v, check says %v", c.room, p, err, checked)
			}
			if err != nil {
				is(t, err, hub.InvalidOption)
				continue
			}
			equal(t, "policy in force", s.Policy(), p)
			s.Leave()
			allowed = append(allowed, p.String())
		}
		equal(t, "allowed in "+c.room, strings.Join(allowed, " "), c.allow)
	}
	n.empty()
}

func TestAFeedsPolicyAndLimits(t *testing.T) {
	n := newHub(t, hub.Feed{Name: "small", Match: []string{"small"}, Policy: queue.DropOldest, Queue: queue.Limits{Messages: 10, Bytes: 70_000}})
	for _, c := range []struct {
		name, room string
		ask, want  queue.Limits
	}{
		{"nothing asked", "small", queue.Limits{}, queue.Limits{Messages: 10, Bytes: 70_000}},
		{"less", "small", queue.Limits{Messages: 3, Bytes: 5}, queue.Limits{Messages: 3, Bytes: 5}},
		{"more is lowered", "small", queue.Limits{Messages: 11, Bytes: 70_001}, queue.Limits{Messages: 10, Bytes: 70_000}},
		{"each by itself", "small", queue.Limits{Messages: 1}, queue.Limits{Messages: 1, Bytes: 70_000}},
		{"the defaults", "other", queue.Limits{}, queue.Limits{Messages: 256, Bytes: 1 << 20}},
	} {
		s := n.join(c.room, limited(c.ask.Messages, c.ask.Bytes))
		equal(t, c.name, s.Limits(), c.want)
		s.Leave()
	}
	for _, ask := range []queue.Limits{{Messages: -1}, {Bytes: -1}} {
		_, err := n.tryJoin("small", limited(ask.Messages, ask.Bytes))
		is(t, err, hub.InvalidOption)
	}
	s := n.join("small")
	defer s.Leave()
	equal(t, "policy where nothing is asked", s.Policy(), queue.DropOldest)
	info := n.Info(room("small"))
	equal(t, "policy shown", info.Policy, queue.DropOldest)
	equal(t, "limits shown", info.Queue, queue.Limits{Messages: 10, Bytes: 70_000})
}

// A limit is not only shown: it is the queue's.
func TestLimitsAreTheQueues(t *testing.T) {
	n := newHub(t)
	s := n.join("lobby", limited(3, 10))
	for range 3 {
		n.publish("lobby", "1234")
	}
	st, _ := n.Room(room("lobby"))
	equal(t, "queued", st.Queued, queue.Limits{Messages: 2, Bytes: 8})
	s.read()
	for range 4 {
		n.publish("lobby", "1")
	}
	st, _ = n.Room(room("lobby"))
	equal(t, "queued", st.Queued, queue.Limits{Messages: 3, Bytes: 3})
	s.Leave()
}

func TestTTLIsTheFeeds(t *testing.T) {
	n := newHub(t, hub.Feed{Name: "short", Match: []string{"short"}, TTL: time.Nanosecond})
	short, long := n.join("short"), n.join("long")
	n.publish("short", "x")
	n.publish("long", "x")
	same(t, "read where frames expire at once", short.read(), []string{})
	same(t, "read where they never do", long.read(), []string{"x"})
	equal(t, "expired", n.value("hubd_frames_dropped_total", "feed", "short", "reason", "expired"), 1)
	short.Leave()
	long.Leave()
}

func TestValidateTellsAllAtOnce(t *testing.T) {
	err := hub.Config{MaxMessageBytes: 1000, Feeds: []hub.Feed{
		{Name: "Chat!", Match: []string{"chat"}},
		{Name: "twice", Match: []string{"["}},
		{Name: "twice"},
		{Name: "limits", Match: []string{"*"}, Queue: queue.Limits{Messages: -1, Bytes: 999}, TTL: -1},
	}}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	equal(t, "problems", len(lines), 7)
	for _, want := range []string{
		`feed 1 ("Chat!"): the name`, `feed 2 ("twice"): match "["`, `feed 3 ("twice"): another feed`, `feed 3 ("twice"): it matches no room`,
		`feed 4 ("limits"): queue messages is -1`, `feed 4 ("limits"): queue bytes is 999`, `feed 4 ("limits"): ttl is -1ns`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about: %s\n%v", want, err)
		}
	}
	if _, err := hub.New(hub.Config{MaxMessageBytes: -1}); err == nil {
		t.Error("a negative message limit was accepted")
	}
	if err := (hub.Config{}).Validate(); err != nil {
		t.Errorf("the zero config: %v", err)
	}
}
