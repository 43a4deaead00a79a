package sim

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"hubd/internal/queue"
)

func TestSubscriberText(t *testing.T) {
	for _, text := range []string{"0", "5", "5/40-80", "12/1-2/120-130"} {
		var s Subscriber
		if err := s.UnmarshalText([]byte(text)); err != nil || s.String() != text {
			t.Errorf("%q became %q, %v", text, s, err)
		}
	}
	s := Subscriber{Drain: 3}
	for _, text := range []string{"", "x", "5/", "5/40", "5/40-", "5/-80", "5/a-b", "5-6", "5/1-2/", "1.5"} {
		if err := s.UnmarshalText([]byte(text)); err == nil || s.Drain != 3 {
			t.Errorf("%q passed as %v", text, s)
		}
	}
}

func TestOrderText(t *testing.T) {
	for _, want := range []Order{DrainFirst, PublishFirst} {
		got := Order(9)
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Errorf("%v became %v, %v", want, got, err)
		}
	}
	var o Order
	err := o.UnmarshalText([]byte("drain"))
	if err == nil || !strings.Contains(err.Error(), "drain-first, publish-first") {
		t.Errorf("the error should list the orders: %v", err)
	}
}

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	wrong := Config{
		Policies: []queue.Policy{queue.NumPolicies}, Ticks: -1, Rate: -2, Capacity: -3, Bytes: -4,
		Sizes: []int{-5}, Keys: -6, TTL: -7,
		Subscribers: []Subscriber{{Drain: -8}, {Pauses: []Pause{{9, 9}}}, {Pauses: []Pause{{-1, 2}}}},
	}
	err := wrong.Validate()
	if err == nil {
		t.Fatal("everything wrong passed")
	}
	for _, hint := range []string{
		"Policy(5)", "ticks is -1", "rate is -2", "capacity is -3", "byte limit is -4", "message size is -5",
		"keys is -6", "ttl is -7", "drain is -8", "pause 9-9", "pause -1-2",
	} {
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("no word of %q in:\n%v", hint, err)
		}
	}
	if got := strings.Count(err.Error(), "\n") + 1; got != 11 {
		t.Errorf("%d errors, want 11:\n%v", got, err)
	}
	for _, much := range []Config{{Subscribers: []Subscriber{{Drain: math.MaxInt}}}, {Ticks: math.MaxInt}, {Rate: math.MaxInt}, {Ticks: 1 << 20, Rate: 1 << 20}} {
		if _, err := Run(much); err == nil {
			t.Errorf("%d ticks of %d messages passed", much.Ticks, much.Rate)
		}
	}
}

func TestRenderTable(t *testing.T) {
	cfg := Config{}
	var b bytes.Buffer
	if err := RenderTable(&b, cfg, run(t, cfg)); err != nil {
		t.Fatal(err)
	}
	want := `
200 ticks, 5 messages a tick, queues of 10 messages, drain-first; ages in ticks, messages numbered from 0

policy          published  refused  drain  sent  lost  predicted  queued  last sent  mean age  max age
drop-newest          1000        0      1   199   791        791      10        945      9.74       10
                                        5   995     0          0       5        994      1.00        1
drop-oldest          1000        0      1   199   791        791      10        985      1.99        2
                                        5   995     0          0       5        994      1.00        1
keep-latest          1000        0      1   199   800        791       1        988      1.40        2
                                        5   995     0          0       5        994      1.00        1
reject-publish        209      791      1   199     0          0      10        198      9.74       10
                                        5   208     0          0       1        207      1.00        1

keep-latest, drain 1: clearing the queue gives its credit back: 9 more than the formula says
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}

func TestRenderTableOutsideTheDomain(t *testing.T) {
	cfg := Config{
		Policies: []queue.Policy{queue.DropNewest, queue.Disconnect, queue.RejectPublish},
		Ticks:    50, Rate: 20, Bytes: 900, Sizes: []int{50, 100}, Keys: 3, TTL: 3, Order: PublishFirst,
		Subscribers: []Subscriber{{Drain: 0}, {Drain: 30, Pauses: []Pause{{10, 20}}}},
	}
	var b bytes.Buffer
	if err := RenderTable(&b, cfg, run(t, cfg)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"50 ticks, 20 messages a tick, queues of 10 messages and 900 bytes, sizes 50 100, 3 keys in turn, ttl 3, publish-first; ages in ticks, messages numbered from 0\n",
		"\ndrop-newest, drain 0: sizes differ under a byte limit that counts, the 20 messages of a tick do not fit a queue of 10, a ttl drops what waits: as the formula says all the same\n",
		"\ndrop-newest, drain 30/10-20: sizes differ under a byte limit that counts, the 20 messages of a tick do not fit a queue of 10, the subscriber pauses, a ttl drops what waits: ",
		"more than the formula says\n",
		"\ndisconnect, drain 0: cut off in tick 0; 989 messages came afterwards\n",
		"\nreject-publish, refused: ",
		"  30/10-20  ",
		"          -         -        -\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestNoteOfKeys: with keys no queue is cleared.
func TestNoteOfKeys(t *testing.T) {
	cfg := Config{Policies: []queue.Policy{queue.KeepLatest}, Keys: 3, Subscribers: []Subscriber{{Drain: 1}}}
	const want = "a message makes room for a newer one of its key: "
	if note := run(t, cfg)[0].Subscribers[0].Note; !strings.HasPrefix(note, want) {
		t.Errorf("the note is %q, want %q", note, want)
	}
}

// TestRenderJSON holds the shape to what is promised, no more and no less, and
// the figures to those of the default scenario.
func TestRenderJSON(t *testing.T) {
	var b, compact bytes.Buffer
	if err := RenderJSON(&b, run(t, Config{})); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&compact, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	want := `[{"policy":"drop-newest","published":1000,"refused":0,"subscribers":[` +
		`{"drain":1,"sent":199,"lost":791,"queued":10,"last_sent":945,"mean_age":9.74,"max_age":10},` +
		`{"drain":5,"sent":995,"lost":0,"queued":5,"last_sent":994,"mean_age":1,"max_age":1}]},` +
		`{"policy":"drop-oldest","published":1000,"refused":0,"subscribers":[` +
		`{"drain":1,"sent":199,"lost":791,"queued":10,"last_sent":985,"mean_age":1.99,"max_age":2},` +
		`{"drain":5,"sent":995,"lost":0,"queued":5,"last_sent":994,"mean_age":1,"max_age":1}]},` +
		`{"policy":"keep-latest","published":1000,"refused":0,"subscribers":[` +
		`{"drain":1,"sent":199,"lost":800,"queued":1,"last_sent":988,"mean_age":1.4,"max_age":2},` +
		`{"drain":5,"sent":995,"lost":0,"queued":5,"last_sent":994,"mean_age":1,"max_age":1}]},` +
		`{"policy":"reject-publish","published":209,"refused":791,"subscribers":[` +
		`{"drain":1,"sent":199,"lost":0,"queued":10,"last_sent":198,"mean_age":9.74,"max_age":10},` +
		`{"drain":5,"sent":208,"lost":0,"queued":1,"last_sent":207,"mean_age":1,"max_age":1}]}]`
	if got := compact.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
