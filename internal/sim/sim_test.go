package sim

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"hubd/internal/queue"
)

func run(t *testing.T, cfg Config) []Result {
	t.Helper()
	results, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// one runs one subscriber under one policy.
func one(t *testing.T, policy queue.Policy, cfg Config) (Result, Seen) {
	t.Helper()
	cfg.Policies = []queue.Policy{policy}
	r := run(t, cfg)[0]
	return r, r.Subscribers[0]
}

func drains(n ...int) (s []Subscriber) {
	for _, d := range n {
		s = append(s, Subscriber{Drain: d})
	}
	return s
}

// TestFigures holds the default world to the figures that are published.
func TestFigures(t *testing.T) {
	want := []string{
		"drop-newest 1000 0 | 199 791 10 945 9.74 10 | 995",
		"drop-oldest 1000 0 | 199 791 10 985 1.99 2 | 995",
		"keep-latest 1000 0 | 199 800 1 988 1.40 2 | 995",
		"reject-publish 209 791 | 199 0 10 198 9.74 10 | 208",
	}
	var got []string
	for _, r := range run(t, Config{}) {
		slow, fast := r.Subscribers[0], r.Subscribers[1]
		if slow.Drain != 1 || fast.Drain != 5 || len(r.Subscribers) != 2 {
			t.Errorf("%v: the subscribers are %+v", r.Policy, r.Subscribers)
		}
		got = append(got, fmt.Sprintf("%v %d %d | %d %d %d %d %.2f %d | %d", r.Policy, r.Published, r.Refused,
			slow.Sent, slow.Lost, slow.Queued, slow.LastSent, slow.MeanAge, slow.MaxAge, fast.Sent))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("got\n%q, want\n%q", got, want)
		}
	}
}

func TestFirstSequences(t *testing.T) {
	for policy, want := range map[queue.Policy][]int{
		queue.DropNewest:    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 20},
		queue.DropOldest:    {0, 1, 5, 10, 15, 20},
		queue.KeepLatest:    {0, 1, 12, 13, 24, 25, 26, 37},
		queue.RejectPublish: {0, 1, 2, 3},
	} {
		w := newWorld(Config{}.withDefaults(), policy)
		var got []int
		w.sent = func(subscriber, seq, age int) {
			if subscriber == 0 {
				got = append(got, seq)
			}
		}
		w.run()
		if !slices.Equal(got[:len(want)], want) {
			t.Errorf("%v sends %v first, want %v", policy, got[:len(want)], want)
		}
	}
}

func TestSeries(t *testing.T) {
	for _, tt := range []struct {
		rate, drain, capacity int
		order                 Order
		sent, lost            int
	}{
		{5, 1, 10, PublishFirst, 200, 791},
		{5, 1, 10, DrainFirst, 199, 791},
		{5, 1, 50, DrainFirst, 199, 751},
		{5, 1, 100, DrainFirst, 199, 701},
		{5, 1, 500, DrainFirst, 199, 301},
		{2, 1, 199, DrainFirst, 199, 2},
		{2, 1, 200, DrainFirst, 199, 1},
		{2, 1, 201, DrainFirst, 199, 0},
		{1, 1, 1, DrainFirst, 199, 0},
		{5, 5, 10, DrainFirst, 995, 0},
		{5, 5, 10, PublishFirst, 1000, 0},
	} {
		cfg := Config{Rate: tt.rate, Capacity: tt.capacity, Order: tt.order, Subscribers: drains(tt.drain)}
		for _, policy := range []queue.Policy{queue.DropNewest, queue.DropOldest} {
			_, got := one(t, policy, cfg)
			if got.Sent != tt.sent || got.Lost != tt.lost || got.Predicted != tt.lost {
				t.Errorf("%v %+v: sent %d, lost %d, predicted %d", policy, tt, got.Sent, got.Lost, got.Predicted)
			}
		}
	}
}

// grid calls f for many worlds of one subscriber, without a policy.
func grid(f func(Config)) {
	for _, rate := range []int{1, 2, 3, 5, 8, 13} {
		for _, drain := range []int{0, 1, 2, 3, 5, 13} {
			for _, capacity := range []int{1, 2, 5, 10, 20, 50} {
				for _, ticks := range []int{1, 30} {
					for _, order := range []Order{DrainFirst, PublishFirst} {
						f(Config{Ticks: ticks, Rate: rate, Capacity: capacity, Order: order, Subscribers: drains(drain)})
					}
				}
			}
		}
	}
}

// TestTheDropPoliciesLoseTheSame, and in the formula's domain what it says.
func TestTheDropPoliciesLoseTheSame(t *testing.T) {
	worlds, inDomain := 0, 0
	grid(func(cfg Config) {
		_, newest := one(t, queue.DropNewest, cfg)
		_, oldest := one(t, queue.DropOldest, cfg)
		worlds++
		if newest.Lost != oldest.Lost || newest.Sent != oldest.Sent {
			t.Errorf("%+v: drop-newest loses %d of %d, drop-oldest %d", cfg, newest.Lost, newest.Lost+newest.Sent, oldest.Lost)
		}
		want := max(0, (cfg.Rate-newest.Drain)*cfg.Ticks-(cfg.Capacity-newest.Drain))
		if fits := cfg.Rate <= cfg.Capacity; newest.InDomain != fits || oldest.InDomain != fits {
			t.Errorf("%+v: said to be in the domain: %v, %v", cfg, newest.InDomain, oldest.InDomain)
		} else if !fits {
			return
		}
		inDomain++
		if newest.Lost != want || newest.Predicted != want || newest.Note != "" {
			t.Errorf("%+v: lost %d, predicted %d (%s), want %d", cfg, newest.Lost, newest.Predicted, newest.Note, want)
		}
	})
	t.Logf("%d worlds, %d of them in the domain", worlds, inDomain)
	if worlds < 530 || inDomain < 320 {
		t.Errorf("only %d worlds, %d of them in the domain", worlds, inDomain)
	}
}

// TestPredictions has every policy in every world do as predicted, or not be in
// the domain and say so.
func TestPredictions(t *testing.T) {
	wrong := map[queue.Policy]int{}
	grid(func(cfg Config) {
		for _, policy := range queue.Policies() {
			r, s := one(t, policy, cfg)
			exact := s.Lost == s.Predicted && r.Refused == r.PredictedRefused
			if s.InDomain && s.Lost != s.Predicted || r.InDomain && r.Refused != r.PredictedRefused {
				t.Errorf("%v, %+v: %+v", policy, cfg, r)
			}
			if !exact && s.Note+r.Note == "" {
				t.Errorf("%v, %+v: no note that the prediction is wrong", policy, cfg)
			}
			if !exact {
				wrong[policy]++
			}
			if r.Published != s.Sent+s.Lost+s.Queued && s.Disconnected == nil {
				t.Errorf("%v, %+v: not conserved: %+v", policy, cfg, r)
			}
		}
	})
	t.Logf("outside the domain the formula was wrong: %v", wrong)
}

// TestBytesAreCapacity: with one size, a byte limit is a limit in messages.
func TestBytesAreCapacity(t *testing.T) {
	for _, policy := range queue.Policies() {
		byMessages, a := one(t, policy, Config{Capacity: 7, Subscribers: drains(2)})
		byBytes, b := one(t, policy, Config{Capacity: 50, Bytes: 79, Sizes: []int{10}, Subscribers: drains(2)})
		b.Predicted, a.Predicted = b.Predicted-a.Predicted, 0
		if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) && policy != queue.Disconnect {
			t.Errorf("%v: %+v by messages, %+v by bytes", policy, a, b)
		}
		if byMessages.Refused != byBytes.Refused || byBytes.PredictedRefused != byBytes.Refused {
			t.Errorf("%v: refused %d by messages, %d by bytes", policy, byMessages.Refused, byBytes.Refused)
		}
	}
	for _, policy := range []queue.Policy{queue.DropNewest, queue.RejectPublish} {
		_, s := one(t, policy, Config{Bytes: 9, Sizes: []int{10}})
		if s.Lost != 1000 || s.InDomain {
			t.Errorf("%v: messages that never fit: %+v", policy, s)
		}
	}
}

func TestSizes(t *testing.T) {
	cfg := Config{Rate: 2, Bytes: 10, Sizes: []int{4, 7}, Subscribers: drains(2)}
	if _, s := one(t, queue.DropNewest, cfg); s.Lost != 200 || s.InDomain {
		t.Errorf("every second message does not fit, and yet: %+v", s)
	}
	cfg.Bytes = 11
	if _, s := one(t, queue.DropNewest, cfg); s.Lost != 0 {
		t.Errorf("all messages fit, and yet: %+v", s)
	}
	// Where even the largest always fit, the limit does not count.
	cfg.Capacity, cfg.Bytes = 2, 14
	if _, s := one(t, queue.DropNewest, cfg); s.Lost != 0 || !s.InDomain {
		t.Errorf("the byte limit cannot be hit, and yet: %+v", s)
	}
}

func TestNothingSent(t *testing.T) {
	for _, policy := range queue.Policies() {
		if _, s := one(t, policy, Config{Subscribers: drains(0)}); s.Sent != 0 || s.LastSent != -1 || s.MeanAge != 0 {
			t.Errorf("%v: a stuck subscriber: %+v", policy, s)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		outside             []string
		predicted, observed int
		want                string
	}{
		{nil, 5, 5, ""},
		{nil, 5, 6, "nothing that would explain it: 1 more than the formula says"},
		{[]string{"a", "b"}, 5, 5, "a, b: as the formula says all the same"},
		{[]string{"a"}, 5, 3, "a: 2 fewer than the formula says"},
	} {
		if got := compare(tt.outside, tt.predicted, tt.observed); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestAgeBound: nothing waits longer than a full queue takes to drain.
func TestAgeBound(t *testing.T) {
	grid(func(cfg Config) {
		drain := cfg.Subscribers[0].Drain
		if drain == 0 {
			return
		}
		bound := int(math.Ceil(float64(cfg.Capacity) / float64(drain)))
		for _, policy := range queue.Policies() {
			if _, s := one(t, policy, cfg); s.MaxAge > bound || s.MeanAge > float64(s.MaxAge) {
				t.Errorf("%v, %+v: age %d, %v in the mean; the bound is %d", policy, cfg, s.MaxAge, s.MeanAge, bound)
			}
		}
	})
}

// TestRejectPublish: nobody loses anything, and the slowest sets the pace of
// all.
func TestRejectPublish(t *testing.T) {
	grid(func(cfg Config) {
		slow := cfg.Subscribers[0].Drain
		cfg.Policies = []queue.Policy{queue.RejectPublish}
		cfg.Subscribers = drains(slow, cfg.Rate+slow)
		r := run(t, cfg)[0]
		if r.Published+r.Refused != cfg.Rate*cfg.Ticks {
			t.Errorf("%+v: published %d, refused %d", cfg, r.Published, r.Refused)
		}
		for _, s := range r.Subscribers {
			if s.Lost != 0 {
				t.Errorf("%+v: lost %d", cfg, s.Lost)
			}
		}
		if most := slow*cfg.Ticks + cfg.Capacity; r.Subscribers[1].Sent > most {
			t.Errorf("%+v: one that keeps up was sent %d, the slow one can have had %d", cfg, r.Subscribers[1].Sent, most)
		}
	})
}

// TestKeepLatest loses no less than the drop policies and ends no further from
// now; in many worlds more, and nearer.
func TestKeepLatest(t *testing.T) {
	more, nearer := 0, 0
	grid(func(cfg Config) {
		_, latest := one(t, queue.KeepLatest, cfg)
		_, oldest := one(t, queue.DropOldest, cfg)
		_, newest := one(t, queue.DropNewest, cfg)
		if latest.Lost < oldest.Lost {
			t.Errorf("%+v: keep-latest loses %d, drop-oldest %d", cfg, latest.Lost, oldest.Lost)
		}
		if latest.LastSent < oldest.LastSent || oldest.LastSent < newest.LastSent {
			t.Errorf("%+v: the last sent are %d, %d, %d", cfg, latest.LastSent, oldest.LastSent, newest.LastSent)
		}
		if latest.MeanAge > oldest.MeanAge || oldest.MeanAge > newest.MeanAge {
			t.Errorf("%+v: the mean ages are %v, %v, %v", cfg, latest.MeanAge, oldest.MeanAge, newest.MeanAge)
		}
		if latest.Lost > oldest.Lost {
			more++
		}
		if latest.LastSent > oldest.LastSent {
			nearer++
		}
	})
	t.Logf("loses more in %d worlds, ends nearer in %d", more, nearer)
	if more == 0 || nearer == 0 {
		t.Errorf("loses more in %d worlds, ends nearer in %d", more, nearer)
	}
}

// TestCapacityIsCredit: given once, while the rate is for ever.
func TestCapacityIsCredit(t *testing.T) {
	for _, policy := range []queue.Policy{queue.DropNewest, queue.DropOldest} {
		lost := func(capacity, ticks int) int {
			_, s := one(t, policy, Config{Capacity: capacity, Ticks: ticks, Subscribers: drains(2)})
			return s.Lost
		}
		base := lost(10, 100)
		for more := range 50 {
			if got := lost(10+more, 100); got != base-more {
				t.Errorf("%v: %d more of capacity lose %d, want %d", policy, more, got, base-more)
			}
			if got, want := lost(10+more, 200)-lost(10+more, 100), 3*100; got != want {
				t.Errorf("%v: 100 more ticks lose %d, want %d whatever the capacity", policy, got, want)
			}
		}
	}
}

func TestPause(t *testing.T) {
	pausing := func(capacity int) Config {
		return Config{
			Capacity:    capacity,
			Subscribers: []Subscriber{{Drain: 8, Pauses: []Pause{{40, 50}, {45, 60}}}},
		}
	}
	for _, policy := range queue.Policies() {
		// 20 ticks are 100 messages, and 5 wait from the tick before.
		r, s := one(t, policy, pausing(105))
		if s.Lost != 0 || r.Refused != 0 || s.LastSent != 994 {
			t.Errorf("%v: a queue of 105 lost %d", policy, s.Lost)
		}
		r, s = one(t, policy, pausing(104))
		lost := map[queue.Policy]int{queue.KeepLatest: 104, queue.Disconnect: 105, queue.RejectPublish: 0}
		want, ok := lost[policy]
		if !ok {
			want = 1
		}
		if s.Lost != want || (policy == queue.RejectPublish) != (r.Refused == 1) {
			t.Errorf("%v: a queue of 104 lost %d, want %d", policy, s.Lost, want)
		}
		if recovered := s.LastSent >= 994-1; recovered == (policy == queue.Disconnect) {
			t.Errorf("%v: ended at %d", policy, s.LastSent)
		}
		if s.InDomain && policy != queue.RejectPublish {
			t.Errorf("%v: a pause is said to be in the formula's domain", policy)
		}
	}
}

func TestDisconnect(t *testing.T) {
	r, s := one(t, queue.Disconnect, Config{})
	if s.Disconnected == nil || *s.Disconnected != 2 || s.Sent != 2 || s.Lost != 11 || s.Queued != 0 {
		t.Errorf("the slow subscriber: %+v", s)
	}
	if fast := r.Subscribers[1]; fast.Disconnected != nil || fast.Sent != 995 || r.Published != 1000 {
		t.Errorf("the fast subscriber: %+v", fast)
	}
}

func TestTTL(t *testing.T) {
	for _, policy := range queue.Policies() {
		_, s := one(t, policy, Config{TTL: 4, Subscribers: drains(1)})
		if s.MaxAge > 4 {
			t.Errorf("%v: a message of age %d was sent in spite of a ttl of 4", policy, s.MaxAge)
		}
		if s.InDomain {
			t.Errorf("%v: a ttl is said to be in the formula's domain", policy)
		}
		if policy == queue.DropNewest && s.MaxAge != 4 {
			t.Errorf("%v: the oldest message was %d ticks old", policy, s.MaxAge)
		}
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(Config{Keys: 4, Subscribers: drains(1)}.withDefaults(), queue.KeepLatest)
	times := map[int]int{}
	w.sent = func(_, seq, _ int) { times[seq%4]++ }
	w.run()
	for key := range 4 {
		if times[key] < 199/4 {
			t.Errorf("of 4 keys the reader saw %v", times)
		}
	}
	dropped := w.members[0].queue.Stats(0).Dropped
	if dropped[queue.Overflow] != 0 || dropped[queue.Conflated] == 0 {
		t.Errorf("the queue holds 4 keys, and yet dropped %v", dropped)
	}
}

func TestDeterministic(t *testing.T) {
	cfg := Config{
		Policies: queue.Policies(), Rate: 7, Bytes: 90, Sizes: []int{5, 11, 20}, Keys: 3, TTL: 6,
		Subscribers: []Subscriber{{Drain: 2}, {Drain: 9, Pauses: []Pause{{3, 30}}}},
	}
	if a, b := run(t, cfg), run(t, cfg); !reflect.DeepEqual(a, b) {
		t.Errorf("two runs differ:\n%+v\n%+v", a, b)
	}
}
