package plan

import (
	"errors"
	"fmt"
	"math"
	"time"

	"hubd/internal/queue"
)

// Input describes a feed at its peak, and what its operator wants. Zero fields
// have the defaults named.
type Input struct {
	// Policies to plan for; none: all.
	Policies []queue.Policy `json:"policies"`
	// Rate is how many messages a second are published into one room at the
	// peak; 0: 50.
	Rate float64 `json:"rate"`
	// Size of a message in payload bytes; 0: 1024.
	Size int `json:"size"`
	// Keys that messages have; 0: none.
	Keys int `json:"keys"`
	// Stall is how long a healthy subscriber may stop reading at the peak
	// without losing anything; 0: 2s.
	Stall time.Duration `json:"-"`
	// Subscribers of a room; 0: 1000. Rooms; 0: 1.
	Subscribers int `json:"subscribers"`
	Rooms       int `json:"rooms"`
	// Slow is how many subscribers of a room are slow; 0: one in a hundred, at
	// least 1. Drain is how many messages a second each of them takes; 0: none,
	// they are stuck.
	Slow  int     `json:"slow"`
	Drain float64 `json:"drain"`
	// Memory to spend on queues, in bytes; 0: 256 MiB.
	Memory int64 `json:"memory"`
	// Queue is the limits to judge; where one is 0, the recommended one.
	Queue queue.Limits `json:"-"`
	// Reconnect is how long a subscriber that was cut off is away; 0: 2s.
	Reconnect time.Duration `json:"-"`
	// Encodings that are in use; each frame keeps its payload and one copy for
	// each. 0: 1.
	Encodings int `json:"encodings"`
	// OfferCost and WakeCost are the processor time of an offer and of waking a
	// subscriber's writer; 0: 20ns and 200ns.
	OfferCost time.Duration `json:"-"`
	WakeCost  time.Duration `json:"-"`
}

// Report is what follows from an input.
type Report struct {
	Input Input `json:"input"` // with its defaults
	// Advice has one entry a policy, in the order of the input.
	Advice []Advice `json:"policies"`
	FanOut FanOut   `json:"fan_out"`
	// Warnings are sentences.
	Warnings []string `json:"warnings"`
}

// Advice is what to set under one policy, and what comes of the queue that the
// operator has in mind: the one given, or else the one recommended. What is
// said of a slow subscriber holds while the peak lasts.
type Advice struct {
	Policy      queue.Policy `json:"policy"`
	Recommended queue.Limits `json:"recommended"`
	Queue       queue.Limits `json:"queue"`
	// Credit is how many messages the queue holds.
	Credit int `json:"credit"`
	// Survives is how long a subscriber may stop reading without loss.
	Survives Seconds `json:"survives_s"`
	// Overflow is how long a slow subscriber lasts, from an empty queue.
	Overflow Seconds `json:"overflow_after_s"`
	// Loss is what it loses from then on, in messages a second and in per cent
	// of what is published. Under reject-publish it loses nothing, and Refused
	// is what nobody gets.
	Loss           float64 `json:"loss_per_s"`
	LossPercent    float64 `json:"loss_percent"`
	Refused        float64 `json:"refused_per_s"`
	RefusedPercent float64 `json:"refused_percent"`
	// Staleness bounds the age of what it reads; Never if it reads nothing.
	Staleness Seconds `json:"staleness_s"`
	// Reconnects a second, of all slow subscribers in all rooms.
	Reconnects float64 `json:"reconnects_per_s"`
	Memory     Memory  `json:"memory"`
}

// FanOut is the processor time of offering one message to a room, when all
// writers are at work already and when all must be woken, and the latter as the
// share of one processor that all rooms take at the peak.
type FanOut struct {
	Busy  Seconds `json:"busy_s"`
	Idle  Seconds `json:"idle_s"`
	Share float64 `json:"share"`
}

func (in Input) withDefaults() Input {
	if len(in.Policies) == 0 {
		in.Policies = queue.Policies()
	}
	setDefault(&in.Rate, 50)
	setDefault(&in.Size, 1024)
	setDefault(&in.Stall, 2*time.Second)
	setDefault(&in.Subscribers, 1000)
	setDefault(&in.Rooms, 1)
	setDefault(&in.Slow, max(1, in.Subscribers/100))
	setDefault(&in.Memory, 256<<20)
	setDefault(&in.Reconnect, 2*time.Second)
	setDefault(&in.Encodings, 1)
	setDefault(&in.OfferCost, 20*time.Nanosecond)
	setDefault(&in.WakeCost, 200*time.Nanosecond)
	return in
}

func setDefault[N int | int64 | float64 | time.Duration](n *N, value N) {
	if *n == 0 {
		*n = value
	}
}

// Validate reports everything that is wrong with the input at once.
func (in Input) Validate() error {
	in = in.withDefaults()
	var errs []error
	positive := func(what string, n float64) {
		// Larger numbers would make products overflow.
		if !(n > 0 && n <= 1e12) {
			errs = append(errs, fmt.Errorf("%s is %v: must be positive and at most 1e12", what, n))
		}
	}
	positive("rate", in.Rate)
	positive("size", float64(in.Size))
	positive("stall", in.Stall.Seconds())
	positive("subscribers", float64(in.Subscribers))
	positive("rooms", float64(in.Rooms))
	positive("slow subscribers", float64(in.Slow))
	positive("memory", float64(in.Memory))
	positive("time to reconnect", in.Reconnect.Seconds())
	positive("encodings", float64(in.Encodings))
	positive("cost of an offer", in.OfferCost.Seconds())
	positive("cost of a wake", in.WakeCost.Seconds())
	if in.Slow > in.Subscribers && in.Subscribers > 0 {
		errs = append(errs, fmt.Errorf("%d of %d subscribers are slow: must be no more than there are", in.Slow, in.Subscribers))
	}
	notNegative := func(what string, n float64) {
		if !(n >= 0) {
			errs = append(errs, fmt.Errorf("%s is %v: must not be negative", what, n))
		}
	}
	notNegative("drain", in.Drain)
	notNegative("keys", float64(in.Keys))
	notNegative("queue messages", float64(in.Queue.Messages))
	notNegative("queue bytes", float64(in.Queue.Bytes))
	for _, p := range in.Policies {
		if p >= queue.NumPolicies {
			errs = append(errs, fmt.Errorf("no such policy: %v", p))
		}
	}
	return errors.Join(errs...)
}

// New works out the report.
func New(in Input) (Report, error) {
	if err := in.Validate(); err != nil {
		return Report{}, fmt.Errorf("plan: %w", err)
	}
	in = in.withDefaults()
	r := Report{Input: in, FanOut: in.fanOut()}
	for _, policy := range in.Policies {
		r.Advice = append(r.Advice, in.advise(policy))
	}
	r.Warnings = in.warnings(r)
	return r, nil
}

func (in Input) fanOut() FanOut {
	offers := float64(in.Subscribers) * in.OfferCost.Seconds()
	wakes := float64(in.Subscribers) * in.WakeCost.Seconds()
	return FanOut{
		Busy:  Seconds(offers),
		Idle:  Seconds(offers + wakes),
		Share: (offers + wakes) * in.Rate * float64(in.Rooms),
	}
}

// need is how many messages a queue must hold for what the operator wants: what
// arrives in a stall and one that comes with its end; under keep-latest the
// newest of each key and one older that waits for its turn.
func (in Input) need(policy queue.Policy) int {
	switch {
	case policy != queue.KeepLatest:
		return clamp(math.Ceil(in.Rate*in.Stall.Seconds()) + 1)
	case in.Keys > 0:
		return in.Keys + 1
	}
	return 1
}

func clamp(n float64) int { return int(min(n, math.MaxInt32)) }

func (in Input) advise(policy queue.Policy) Advice {
	need := in.need(policy)
	messages := in.affordable(need)
	if messages == 0 {
		messages = need // smaller queues would not help
	}
	a := Advice{Policy: policy, Recommended: in.limits(messages), Queue: in.Queue}
	setDefault(&a.Queue.Messages, a.Recommended.Messages)
	setDefault(&a.Queue.Bytes, a.Recommended.Bytes)
	a.Credit = min(a.Queue.Messages, a.Queue.Bytes/in.Size)
	a.Memory = in.memory(a.Queue, a.Credit)

	credit := float64(a.Credit)
	a.Survives = ratio(credit, in.Rate)
	a.Staleness = ratio(credit, in.Drain)
	excess := in.Rate - in.Drain
	if excess <= 0 {
		a.Overflow = Never
		return a
	}
	a.Overflow = ratio(credit, excess)
	a.Loss = excess
	switch {
	case policy == queue.DropOldest, policy == queue.KeepLatest && in.Keys == 0:
		// What is read was not pushed out, so it is no older than what
		// arrives while the queue fills.
		if in.Drain > 0 {
			a.Staleness = ratio(credit, in.Rate)
		}
	case policy == queue.Disconnect:
		// It comes back, only to go again, and gets what it takes meanwhile.
		if in.Drain > 0 {
			a.Staleness = min(a.Staleness, a.Overflow)
		}
		cycle := float64(a.Overflow) + in.Reconnect.Seconds()
		a.Loss = in.Rate - in.Drain*float64(a.Overflow)/cycle
		a.Reconnects = float64(in.Slow) * float64(in.Rooms) / cycle
	case policy == queue.RejectPublish:
		a.Loss, a.Refused = 0, excess
	}
	a.LossPercent = 100 * a.Loss / in.Rate
	a.RefusedPercent = 100 * a.Refused / in.Rate
	return a
}

// ratio is how long so many messages take at so many a second.
func ratio(messages, rate float64) Seconds {
	if messages == 0 {
		return 0
	}
	return Seconds(messages / rate) // a rate of 0 makes it Never
}
