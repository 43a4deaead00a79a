package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/metrics/metricstest"
	"hubd/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a hub and its metrics.
type node struct {
	*hub.Hub
	t   testing.TB
	reg *prometheus.Registry
	ids atomic.Int64
}

// newHub returns a hub with these feeds and the built-in one, all without
// history unless they say otherwise: what is retained is then what is queued.
func newHub(t testing.TB, feeds ...hub.Feed) *node {
	t.Helper()
	feeds = hub.Config{Feeds: feeds}.WithDefaults().Feeds
	for i := range feeds {
		if feeds[i].History.Age == hub.DefaultHistoryAge {
			feeds[i].History = &hub.HistoryLimits{}
		}
	}
	return newHubWith(t, hub.Config{Feeds: feeds})
}

// newHubWith returns a hub. When the test ends, whatever it did, all that was
// offered must be accounted for.
func newHubWith(t testing.TB, cfg hub.Config) *node {
	t.Helper()
	n := &node{t: t, reg: prometheus.NewRegistry()}
	cfg.Metrics = metrics.New(n.reg, metrics.Sets{
		Feeds: cfg.FeedNames(), Policies: queue.PolicyNames(), DropReasons: queue.ReasonNames(),
		OverflowReasons: queue.LimitNames(), Encodings: frame.Encodings(), Transports: []string{"none"},
	})
	var err error
	if n.Hub, err = hub.New(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Metrics.Collect(n.State, nil)
	t.Cleanup(func() { metricstest.Conserved(t, n.reg) })
	return n
}

// value is one metric, summed over the labels that are not given.
func (n *node) value(name string, labels ...string) int {
	n.t.Helper()
	return int(metricstest.Value(n.t, n.reg, name, labels...))
}

// empty fails the test unless the hub is as new: no room, nothing retained.
func (n *node) empty() {
	n.t.Helper()
	if st := n.State(); st.Rooms != 0 || st.RetainedBytes != 0 || st.InFlight != 0 || len(st.DepthMessages) != 0 {
		n.t.Errorf("the hub is not empty: %d rooms, %d bytes retained, %d frames in flight, %d subscriptions",
			st.Rooms, st.RetainedBytes, st.InFlight, len(st.DepthMessages))
	}
	if rooms := n.Rooms(); len(rooms) != 0 || n.Registered() != 0 {
		n.t.Errorf("%d rooms are registered: %v", n.Registered(), rooms)
	}
}

func room(name string) frame.Room {
	r, err := frame.ParseRoom(name)
	if err != nil {
		panic(err)
	}
	return r
}

// owner is a connection that does nothing but remember what it was told.
type owner struct {
	wakes   chan struct{} // holds one: a wake is a state, not an event
	evicted chan hub.Eviction
}

func newOwner() *owner {
	return &owner{wakes: make(chan struct{}, 1), evicted: make(chan hub.Eviction, 8)}
}

func (o *owner) Wake() {
	select {
	case o.wakes <- struct{}{}:
	default:
	}
}

func (o *owner) Evicted(e hub.Eviction) { o.evicted <- e }

// member is a subscription with its owner.
type member struct {
	*hub.Subscription
	*owner
}

// join joins with what mod asks for.
func (n *node) join(name string, mod ...func(*hub.JoinRequest)) member {
	n.t.Helper()
	m, err := n.tryJoin(name, mod...)
	if err != nil {
		n.t.Fatalf("join %s: %v", name, err)
	}
	return m
}

func (n *node) tryJoin(name string, mod ...func(*hub.JoinRequest)) (member, error) {
	o := newOwner()
	q := hub.JoinRequest{Room: room(name), Owner: o, ID: strconv.FormatInt(n.ids.Add(1), 10)}
	for _, f := range mod {
		f(&q)
	}
	s, err := n.Join(q)
	return member{s, o}, err
}

// with asks for a policy.
func with(p queue.Policy) func(*hub.JoinRequest) {
	return func(q *hub.JoinRequest) { q.Options.Policy = &p }
}

// limited asks for limits.
func limited(messages, bytes int) func(*hub.JoinRequest) {
	return func(q *hub.JoinRequest) { q.Options.Queue = queue.Limits{Messages: messages, Bytes: bytes} }
}

// all is a take without a limit.
var all = queue.Limits{Messages: 1 << 30, Bytes: 1 << 30}

// take takes what is queued, which is then in flight.
func (m member) take() []hub.Item { return m.Take(nil, all).Items }

// read takes and sends what is queued, and returns it as text.
func (m member) read() []string {
	items := m.take()
	var texts []string
	for _, it := range items {
		texts = append(texts, text(it))
	}
	m.Sent(items, len(items), nil)
	return texts
}

// text is an item's payload.
func text(it hub.Item) string {
	return string(frame.Payload(it.Value.Bytes(frame.EncodingRaw)))
}

// say is a message.
func say(name, text string) hub.PublishRequest {
	return hub.PublishRequest{Message: frame.Message{Room: room(name), Kind: frame.Text, Data: []byte(text)}}
}

func (n *node) publish(name, text string) hub.Published {
	n.t.Helper()
	p, err := n.Publish(context.Background(), say(name, text))
	if err != nil {
		n.t.Fatalf("publish to %s: %v", name, err)
	}
	return p
}

// refused publishes and returns the code of the refusal.
func (n *node) refused(name, text string) hub.Code {
	n.t.Helper()
	p, err := n.Publish(context.Background(), say(name, text))
	if err == nil {
		n.t.Fatalf("publish to %s was accepted: %+v", name, p)
	}
	return hub.CodeOf(err)
}

// patience is how long a test waits for what must come; one that reaches it has
// failed.
const patience = 30 * time.Second

// receive waits for a value.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s came", what)
		panic("not reached")
	}
}

// is fails the test unless err has that code and says something.
func is(t testing.TB, err error, code hub.Code) {
	t.Helper()
	var e *hub.Error
	if !errors.As(err, &e) || e.Code != code || e.Detail == "" {
		t.Errorf("error %v, want code %s and a detail", err, code)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// same compares by what is printed.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	equal(t, what, fmt.Sprint(got), fmt.Sprint(want))
}
