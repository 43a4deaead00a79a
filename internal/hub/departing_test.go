package hub_test

import (
	"testing"

	"hubd/internal/hub"
	"hubd/internal/queue"
)

// takeAll takes without resolving: the frames are in flight.
func takeAll(s *hub.Subscription) []hub.Item {
	return s.Take(nil, queue.Limits{Messages: 100, Bytes: 1 << 20}).Items
}

// balance returns what State says of frames that are neither sent nor lost.
func (w world) balance() (subscriptions, queued, inFlight int) {
	st := w.State()
	for _, n := range st.DepthMessages {
		queued += n
	}
	return len(st.DepthMessages), queued, st.InFlight
}

func (w world) wantBalance(when string, subscriptions, queued, inFlight int) {
	w.t.Helper()
	if s, q, f := w.balance(); s != subscriptions || q != queued || f != inFlight {
		w.t.Errorf("%s: %d subscriptions, %d queued, %d in flight; want %d, %d, %d", when, s, q, f, subscriptions, queued, inFlight)
	}
}

func TestFramesInFlightCountAfterTheirSubscriptionLeft(t *testing.T) {
	w := newWorld(t, hub.Feed{Policy: queue.Disconnect, Queue: queue.Limits{Messages: 2}}, 0)
	for name, end := range map[string]func(*hub.Subscription){
		"leave": (*hub.Subscription).Leave,
		"evict": func(*hub.Subscription) {
			w.publish("lobby", "", "x")
			w.publish("lobby", "", "x")
			w.publish("lobby", "", "x")
		},
		"sealed": (*hub.Subscription).Seal,
	} {
		s := w.join("lobby", nil)
		w.publish("lobby", "", "one")
		items := takeAll(s)
		w.wantBalance(name+": taken", 1, 0, 1)
		end(s)
		w.wantBalance(name+": ended", 1, 0, 1)
		s.Sent(items, 0, nil)
		w.wantBalance(name+": resolved", 0, 0, 0)
		s.Leave()
		w.wantBalance(name+": left again", 0, 0, 0)
	}
}

func TestQueuedFramesCountUntilTheyAreFlushed(t *testing.T) {
	w := newWorld(t, hub.Feed{}, 0)
	s := w.join("lobby", nil)
	w.publish("lobby", "", "one")
	w.publish("lobby", "", "two")
	s.Seal()
	w.wantBalance("sealed", 1, 2, 0)
	items := takeAll(s)
	w.wantBalance("taken", 1, 0, 2)
	s.Sent(items, 2, nil)
	w.wantBalance("flushed", 0, 0, 0)

	idle := w.join("lobby", nil)
	idle.Leave()
	w.wantBalance("an idle one left", 0, 0, 0)
}
