package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"hubd/internal/queue"
	"hubd/internal/sim"
)

func report(t *testing.T, in Input) Report {
	t.Helper()
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// advice plans for one policy.
func advice(t *testing.T, policy queue.Policy, in Input) Advice {
	t.Helper()
	in.Policies = []queue.Policy{policy}
	return report(t, in).Advice[0]
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

func TestAdvice(t *testing.T) {
	in := Input{Rate: 50, Size: 1000, Drain: 10, Stall: 2 * time.Second, Slow: 20, Rooms: 2, Reconnect: 3 * time.Second, Memory: 1 << 30}
	for _, tt := range []struct {
		policy                                queue.Policy
		messages                              int
		survives, overflow, loss, staleness   float64
		lossPercent, refused, refusedPerc, re float64
	}{
		{queue.DropNewest, 101, 2.02, 2.525, 40, 10.1, 80, 0, 0, 0},
		{queue.DropOldest, 101, 2.02, 2.525, 40, 2.02, 80, 0, 0, 0},
		{queue.KeepLatest, 1, .02, .025, 40, .02, 80, 0, 0, 0},
		{queue.Disconnect, 101, 2.02, 2.525, 50 - 25.25/5.525, 2.525, 100 - 50.5/5.525, 0, 0, 40 / 5.525},
		{queue.RejectPublish, 101, 2.02, 2.525, 0, 10.1, 0, 40, 80, 0},
	} {
		a := advice(t, tt.policy, in)
		want := queue.Limits{Messages: tt.messages, Bytes: max(65536, tt.messages*1000)}
		if a.Recommended != want || a.Queue != want || a.Credit != min(tt.messages, want.Bytes/1000) {
			t.Errorf("%v: recommended %+v, want %+v; holds %d", tt.policy, a.Recommended, want, a.Credit)
		}
		for what, n := range map[string][2]float64{
			"survives":        {float64(a.Survives), tt.survives},
			"overflow":        {float64(a.Overflow), tt.overflow},
			"loss":            {a.Loss, tt.loss},
			"staleness":       {float64(a.Staleness), tt.staleness},
			"loss percent":    {a.LossPercent, tt.lossPercent},
			"refused":         {a.Refused, tt.refused},
			"refused percent": {a.RefusedPercent, tt.refusedPerc},
			"reconnects":      {a.Reconnects, tt.re},
		} {
			if !near(n[0], n[1]) {
				t.Errorf("%v: %s is %v, want %v", tt.policy, what, n[0], n[1])
			}
		}
	}
}

func TestAdviceAtTheEdges(t *testing.T) {
	for _, policy := range queue.Policies() {
		stuck := advice(t, policy, Input{})
		if stuck.Staleness != Never || stuck.Overflow == Never {
			t.Errorf("%v: a stuck subscriber: %+v", policy, stuck)
		}
		for _, drain := range []float64{50, 51} {
			fast := advice(t, policy, Input{Drain: drain})
			if fast.Overflow != Never || fast.Loss != 0 || fast.Refused != 0 || fast.Reconnects != 0 || fast.Staleness == Never {
				t.Errorf("%v: one that keeps up: %+v", policy, fast)
			}
		}
		none := advice(t, policy, Input{Queue: queue.Limits{Bytes: 1023}})
		if none.Credit != 0 || none.Survives != 0 || none.Overflow != 0 || none.Staleness != 0 {
			t.Errorf("%v: nothing fits: %+v", policy, none)
		}
	}
	if a := advice(t, queue.KeepLatest, Input{Keys: 100, Drain: 10}); a.Recommended.Messages != 101 || !near(float64(a.Staleness), 10.1) {
		t.Errorf("100 keys: %+v", a)
	}
	given := queue.Limits{Messages: 7, Bytes: 5000}
	if a := advice(t, queue.DropNewest, Input{Queue: given}); a.Queue != given || a.Credit != 4 || a.Recommended.Messages != 101 {
		t.Errorf("given limits: %+v", a)
	}
}

// TestAgreesWithSimulation lets a second be a tick and holds the plan to what
// the real queues do.
func TestAgreesWithSimulation(t *testing.T) {
	run := func(policy queue.Policy, ticks, rate, drain, capacity int) sim.Seen {
		t.Helper()
		results, err := sim.Run(sim.Config{
			Policies: []queue.Policy{policy}, Ticks: ticks, Rate: rate, Capacity: capacity,
			Subscribers: []sim.Subscriber{{Drain: drain}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return results[0].Subscribers[0]
	}
	for _, rate := range []int{2, 3, 5, 8} {
		for _, drain := range []int{1, 2, 4, 7} {
			for _, capacity := range []int{8, 10, 25, 60} {
				if drain >= rate {
					continue
				}
				for _, policy := range queue.Policies() {
					a := advice(t, policy, Input{
						Rate: float64(rate), Drain: float64(drain), Size: 1,
						Queue: queue.Limits{Messages: capacity, Bytes: capacity},
					})
					// Of what the plan has arrive and leave evenly, a tick has all
					// arrive after all has left.
					early := float64(drain) / float64(rate-drain)
					before, after := int(float64(a.Overflow)-early), int(a.Overflow)+1
					if policy != queue.RejectPublish {
						if s := run(policy, max(1, before), rate, drain, capacity); s.Lost != 0 {
							t.Errorf("%v %d-%d/%d: lost %d in %d ticks; planned to overflow after %v", policy, rate, drain, capacity, s.Lost, before, a.Overflow)
						}
						if s := run(policy, after, rate, drain, capacity); s.Lost == 0 {
							t.Errorf("%v %d-%d/%d: lost nothing in %d ticks; planned to overflow after %v", policy, rate, drain, capacity, after, a.Overflow)
						}
					}
					long, longer := run(policy, 500, rate, drain, capacity), run(policy, 600, rate, drain, capacity)
					if bound := int(math.Ceil(float64(a.Staleness))); longer.MaxAge > bound {
						t.Errorf("%v %d-%d/%d: age %d; planned %d at most", policy, rate, drain, capacity, longer.MaxAge, bound)
					}
					if policy == queue.DropNewest || policy == queue.DropOldest {
						if lost := longer.Lost - long.Lost; !near(float64(lost), 100*a.Loss) {
							t.Errorf("%v %d-%d/%d: lost %d in 100 ticks; planned %v a tick", policy, rate, drain, capacity, lost, a.Loss)
						}
					}
				}
			}
		}
	}
}

// TestNeedSurvivesTheStall: one message a tick, and a pause as long as planned.
func TestNeedSurvivesTheStall(t *testing.T) {
	const pause = 40
	need := advice(t, queue.DropNewest, Input{Rate: 1, Stall: pause * time.Second, Drain: 2}).Recommended.Messages
	for capacity, lost := range map[int]bool{need: false, need - 1: true} {
		results, err := sim.Run(sim.Config{
			Policies: []queue.Policy{queue.DropNewest}, Rate: 1, Capacity: capacity, Order: sim.PublishFirst,
			Subscribers: []sim.Subscriber{{Drain: 2, Pauses: []sim.Pause{{From: 50, To: 50 + pause}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := results[0].Subscribers[0].Lost; (got > 0) != lost {
			t.Errorf("a queue of %d loses %d in a pause of %d ticks", capacity, got, pause)
		}
	}
}

func TestMemory(t *testing.T) {
	limits := queue.Limits{Messages: 100, Bytes: 70_000}
	one := int64(70_000*2 + 100*frameBytes + 128*64)
	if got := WorstCase(1, limits, 1); got != one {
		t.Errorf("one queue takes %d, want %d", got, one)
	}
	if got := WorstCase(1000, limits, 1); got != 1000*one {
		t.Errorf("1000 queues take %d, want %d", got, 1000*one)
	}
	if got := WorstCase(1, limits, 3); got != one+2*70_000 {
		t.Errorf("with 3 encodings %d, want %d", got, one+2*70_000)
	}
	if got := WorstCase(math.MaxInt, queue.Limits{Messages: math.MaxInt, Bytes: math.MaxInt}, 5); got != math.MaxInt64 {
		t.Errorf("more than can be counted is %d", got)
	}

	in := Input{Size: 700, Subscribers: 500, Rooms: 3, Slow: 20, Queue: limits}
	a := advice(t, queue.DropNewest, in)
	if want := 1500 * one; a.Memory.Worst != want {
		t.Errorf("at worst %d, want %d", a.Memory.Worst, want)
	}
	if want := int64(3 * (100*(700*2+frameBytes) + 20*128*64)); a.Memory.Likely != want {
		t.Errorf("likely %d, want %d", a.Memory.Likely, want)
	}
}

// TestAffordable: what is recommended keeps to the memory, and one message more
// would not.
func TestAffordable(t *testing.T) {
	for _, memory := range []int64{130 << 20, 150 << 20, 200 << 20, 229 << 20} {
		in := Input{Memory: memory}
		a := advice(t, queue.DropOldest, in)
		if a.Memory.Worst > memory || a.Recommended.Messages >= 101 {
			t.Errorf("of %d recommended %+v, which takes %d", memory, a.Recommended, a.Memory.Worst)
		}
		more := in.withDefaults().limits(a.Recommended.Messages + 1)
		if WorstCase(1000, more, 1) <= memory {
			t.Errorf("of %d recommended %+v, but %+v would do", memory, a.Recommended, more)
		}
	}
	for _, memory := range []int64{100 << 20, 300 << 20} { // not even one, and all
		if a := advice(t, queue.DropOldest, Input{Memory: memory}); a.Recommended.Messages != 101 {
			t.Errorf("of %d recommended %+v", memory, a.Recommended)
		}
	}
}

func TestFanOut(t *testing.T) {
	f := report(t, Input{Subscribers: 10_000, Rooms: 4, Rate: 100, OfferCost: 25, WakeCost: 75}).FanOut
	if !near(float64(f.Busy), 250e-6) || !near(float64(f.Idle), 1e-3) || !near(f.Share, .4) {
		t.Errorf("%+v", f)
	}
}

func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   Input
		want []string // each is in one of the warnings, in order; nothing else is warned of
	}{
		{"nothing to warn of", Input{Drain: 50}, nil},
		{"slow ones", Input{Drain: 10}, []string{
			"drop-newest: what a slow subscriber reads is up to 10.1 s old; under drop-oldest it loses as many messages and reads what is 2.02 s old.",
			"disconnect: 10 slow subscribers, each back 2 s after it was cut off, reconnect 2.21 times a second while",
			"reject-publish: one slow subscriber has its whole room get 10 a second.",
			"A subscriber that takes 10 a second, where 50 messages a second are published, overflows",
		}},
		{"stuck ones", Input{Policies: []queue.Policy{queue.DropNewest, queue.RejectPublish}}, []string{
			"reject-publish: one slow subscriber has its whole room get nothing.",
			"A subscriber that takes nothing, where",
		}},
		{"slow ones in several rooms", Input{Policies: []queue.Policy{queue.Disconnect}, Drain: 10, Rooms: 3, Memory: 1 << 30}, []string{
			"disconnect: 30 slow subscribers, each back 2 s after it was cut off, reconnect 6.63 times a second while",
			"A subscriber that takes 10 a second",
		}},
		{"memory too small for the stall", Input{Drain: 50, Memory: 200 << 20}, []string{
			"drop-newest, drop-oldest, disconnect, reject-publish: a queue would have to hold 101 messages; within 200 MiB it can hold 87, which survive 1.74 s.",
			"drop-newest, drop-oldest, disconnect, reject-publish: a queue that holds 87 messages survives 1.74 s of the 2 s asked for.",
		}},
		{"too many queues for any", Input{Drain: 50, Subscribers: 10_000}, []string{
			"reject-publish: no queue, however small, keeps the worst case within 256 MiB.",
			"drop-newest, drop-oldest, disconnect, reject-publish: all queues can take 2.24 GiB at worst, more than the 256 MiB to spend.",
			"keep-latest: all queues can take 1.23 GiB at worst",
		}},
		{"a queue too small for the stall", Input{Policies: []queue.Policy{queue.DropOldest}, Drain: 50, Queue: queue.Limits{Messages: 25}}, []string{
			"drop-oldest: a queue that holds 25 messages survives 500 ms of the 2 s asked for.",
		}},
		{"a queue too small for its keys", Input{Policies: []queue.Policy{queue.KeepLatest}, Drain: 50, Keys: 25, Queue: queue.Limits{Messages: 25}}, []string{
			"keep-latest: a queue that holds 25 messages is too small for 25 keys",
		}},
		{"a queue too small for a message", Input{Policies: []queue.Policy{queue.Disconnect}, Queue: queue.Limits{Bytes: 1000}}, []string{
			"disconnect: no message of 1 KiB fits a queue of 101 messages, 1000 B.",
			"A subscriber that takes nothing",
		}},
		{"a fan-out that takes a processor", Input{Drain: 5000, Rate: 5000, Stall: 10 * time.Millisecond}, []string{
			"Offering the messages takes 110% of one processor",
		}},
	} {
		got := report(t, tt.in).Warnings
		for i, w := range got {
			if i >= len(tt.want) || !strings.Contains(w, tt.want[i]) {
				t.Errorf("%s: unexpected: %s", tt.name, w)
			}
		}
		if len(got) < len(tt.want) {
			t.Errorf("%s: only\n%s", tt.name, strings.Join(got, "\n"))
		}
	}
}

func TestValidate(t *testing.T) {
	_, err := New(Input{
		Policies: []queue.Policy{9}, Rate: -1, Size: -2, Keys: -3, Stall: -4, Subscribers: -5, Rooms: -6, Slow: -7,
		Drain: -8, Memory: -9, Queue: queue.Limits{Messages: -10, Bytes: -11}, Reconnect: -12, Encodings: -13,
		OfferCost: -14, WakeCost: -15,
	})
	if err == nil {
		t.Fatal("everything wrong passed")
	}
	for _, hint := range []string{
		"Policy(9)", "rate is -1", "size is -2", "keys is -3", "stall is -4e-09", "subscribers is -5", "rooms is -6",
		"slow subscribers is -7", "drain is -8", "memory is -9", "queue messages is -10", "queue bytes is -11",
		"reconnect is -1.2e-08", "encodings is -13", "offer is -1.4e-08", "wake is -1.5e-08",
	} {
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("no word of %q in:\n%v", hint, err)
		}
	}
	for _, in := range []Input{{Rate: math.NaN()}, {Rate: math.Inf(1)}, {Drain: math.NaN()}, {Size: math.MaxInt}, {Slow: 5, Subscribers: 4}} {
		if _, err := New(in); err == nil {
			t.Errorf("%+v passed", in)
		}
	}
	if _, err := New(Input{Rate: 1e12, Stall: 1000 * time.Hour, Subscribers: 1e12, Rooms: 1e12, Size: 1e12}); err != nil {
		t.Errorf("large numbers: %v", err)
	}
}

func TestRender(t *testing.T) {
	r := report(t, Input{Drain: 10, Policies: []queue.Policy{queue.DropOldest, queue.Disconnect, queue.RejectPublish}})
	var b bytes.Buffer
	if err := RenderTable(&b, r); err != nil {
		t.Fatal(err)
	}
	want := `
At the peak 50 messages a second of 1 KiB a room; 1 room of 1000 subscribers, of which 10 take 10 a second.
A stall to survive is 2 s, the memory to spend 256 MiB.

                          drop-oldest  disconnect  reject-publish
recommended, messages     101          101         101
recommended, bytes        101 KiB      101 KiB     101 KiB
stall without loss        2.02 s       2.02 s      2.02 s
slow ones overflow after  2.53 s       2.53 s      2.53 s
and then lose             40/s         44.4/s      -
  of all there is         80%          88.8%       -
all are refused           -            -           40/s
  of all there is         -            -           80%
reconnects                -            2.21/s      -
oldest they read          2.02 s       2.53 s      10.1 s
memory at worst           230 MiB      230 MiB     230 MiB
memory, likely            307 KiB      307 KiB     307 KiB

Offering one message to a room takes 20 µs, or 220 µs where all writers must be woken; at the peak 1.1% of one processor.

- disconnect: `
	if got := "\n" + b.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got%s\nwant%s", got, want)
	}

	b.Reset()
	r = report(t, Input{Keys: 5, Drain: 0, Rooms: 2, Queue: queue.Limits{Messages: 1, Bytes: 2048}})
	if err := RenderTable(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		" of 1 KiB with 5 keys a room; 2 rooms of 1000 subscribers, of which 10 take nothing.\n",
		"\ngiven, messages           1  ", "\ngiven, bytes              2 KiB  ", "\noldest they read          read nothing  ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}

	b.Reset()
	if err := RenderTable(&b, report(t, Input{Drain: 50})); err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"\nand then lose", "\n  of all there is", "\nall are refused", "\nreconnects", "\ngiven", "\n- "} {
		if strings.Contains(b.String(), unwanted) {
			t.Errorf("%q in:\n%s", unwanted, b.String())
		}
	}
	if !strings.Contains(b.String(), "\nslow ones overflow after  never ") {
		t.Errorf("those who keep up never overflow:\n%s", b.String())
	}
}

func TestRenderJSON(t *testing.T) {
	var b bytes.Buffer
	if err := RenderJSON(&b, report(t, Input{Drain: 50})); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Input struct {
			Rate  float64
			Stall float64 `json:"stall_s"`
		}
		Policies []struct {
			Policy   string
			Queue    struct{ Messages, Bytes int }
			Overflow *float64 `json:"overflow_after_s"`
			Stale    *float64 `json:"staleness_s"`
		}
		Warnings []string
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	first := got.Policies[0]
	if got.Input.Rate != 50 || got.Input.Stall != 2 || len(got.Policies) != 5 || first.Policy != "drop-newest" ||
		first.Queue.Messages != 101 || first.Overflow != nil || first.Stale == nil || *first.Stale != 2.02 || got.Warnings == nil {
		t.Errorf("got %+v from\n%s", got, b.String())
	}
}

func TestUnits(t *testing.T) {
	for s, want := range map[Seconds]string{
		0: "0 s", 2e-8: "0.02 µs", 20e-6: "20 µs", .0123456: "12.3 ms", 1: "1 s", 119: "119 s", 120: "2 min",
		7200: "2 h", 100 * 86400: "100 days", 12345 * 86400: "12345 days", Never: "never",
	} {
		if got := s.String(); got != want {
			t.Errorf("%v is written %q, want %q", float64(s), got, want)
		}
	}
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB", 5 << 50: "5120 TiB",
	} {
		if got := ByteText(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
}
