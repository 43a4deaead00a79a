package sim

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"hubd/internal/queue"
)

// Result is what one policy did.
type Result struct {
	Policy queue.Policy `json:"policy"`
	// Published counts messages that got a sequence number, Refused those that
	// the publisher was refused.
	Published int `json:"published"`
	Refused   int `json:"refused"`
	// PredictedRefused is Refused by formula, exact where InDomain; Note is as
	// in Seen. They are for tables: JSON has what was seen.
	PredictedRefused int    `json:"-"`
	InDomain         bool   `json:"-"`
	Note             string `json:"-"`
	// Subscribers are in the order of the configuration.
	Subscribers []Seen `json:"subscribers"`
}

// Seen is what one subscriber got. Ages are in ticks, from publish to take.
type Seen struct {
	Drain int `json:"drain"`
	Sent  int `json:"sent"`
	// Lost counts frames dropped for whatever reason.
	Lost   int `json:"lost"`
	Queued int `json:"queued"`
	// LastSent is a sequence number from 0; -1 if nothing was sent.
	LastSent int `json:"last_sent"`
	// MeanAge is to hundredths of a tick.
	MeanAge float64 `json:"mean_age"`
	MaxAge  int     `json:"max_age"`
	// Predicted is Lost by formula, exact where InDomain. Note says what lies
	// outside the domain, and whether the formula was wrong there.
	Predicted int    `json:"-"`
	InDomain  bool   `json:"-"`
	Note      string `json:"-"`
	// Disconnected is the tick in which the subscriber was cut off, if it was.
	Disconnected *int `json:"-"`
}

// Run runs each policy of the configuration, in order.
func Run(cfg Config) ([]Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	cfg = cfg.withDefaults()
	results := make([]Result, 0, len(cfg.Policies))
	for _, policy := range cfg.Policies {
		results = append(results, newWorld(cfg, policy).run())
	}
	return results, nil
}

// world is one room under one policy.
type world struct {
	cfg      Config
	policy   queue.Policy
	members  []*member
	attempts int // messages that the publisher had
	seq      int // of the next message; so also how many were published
	refused  int
	// sent, if set, is told of each frame.
	sent func(subscriber, seq, age int)
}

type member struct {
	Subscriber
	queue        *queue.Queue[int] // of sequence numbers
	lastSent     int
	ages         int // sum
	maxAge       int
	disconnected *int
}

func newWorld(cfg Config, policy queue.Policy) *world {
	w := &world{cfg: cfg, policy: policy}
	for _, s := range cfg.Subscribers {
		w.members = append(w.members, &member{
			Subscriber: s,
			lastSent:   -1,
			queue: queue.New(queue.Config[int]{
				Policy: policy,
				Limits: queue.Limits{Messages: cfg.Capacity, Bytes: cfg.Bytes},
				TTL:    time.Duration(cfg.TTL),
			}),
		})
	}
	return w
}

func (w *world) run() Result {
	for tick := range w.cfg.Ticks {
		if w.cfg.Order == DrainFirst {
			w.drain(tick)
		}
		for range w.cfg.Rate {
			w.publish(tick)
		}
		if w.cfg.Order == PublishFirst {
			w.drain(tick)
		}
	}
	return w.result()
}

func (w *world) drain(tick int) {
	for i, m := range w.members {
		n := m.drainAt(tick)
		if n == 0 {
			continue // a take is of one frame at least
		}
		got := m.queue.Take(nil, time.Duration(tick), queue.Limits{Messages: n, Bytes: math.MaxInt})
		m.queue.Done(len(got.Items), 0)
		for _, it := range got.Items {
			age := tick - int(it.At)
			m.lastSent = it.Value
			m.ages += age
			m.maxAge = max(m.maxAge, age)
			if w.sent != nil {
				w.sent(i, it.Value, age)
			}
		}
	}
}

// publish does what a room does: it asks every queue first if the policy says
// so, then offers to all.
func (w *world) publish(tick int) {
	size := w.cfg.Sizes[w.attempts%len(w.cfg.Sizes)]
	w.attempts++
	if w.policy == queue.RejectPublish {
		for _, m := range w.members {
			if !m.queue.Fits(size) {
				w.refused++
				return
			}
		}
	}
	it := queue.Item[int]{Value: w.seq, Bytes: size, At: time.Duration(tick)}
	if w.cfg.Keys > 0 {
		it.Key = strconv.Itoa(w.seq % w.cfg.Keys)
	}
	w.seq++
	for _, m := range w.members {
		if m.queue.Offer(it).Disconnect {
			m.disconnected = &tick
		}
	}
}

func (w *world) result() Result {
	r := Result{Policy: w.policy, Published: w.seq, Refused: w.refused}
	w.cfg.predictRefused(&r)
	for _, m := range w.members {
		s := m.queue.Stats(time.Duration(w.cfg.Ticks))
		seen := Seen{
			Drain:        m.Drain,
			Sent:         int(s.Sent),
			Queued:       s.Queued.Messages,
			LastSent:     m.lastSent,
			MaxAge:       m.maxAge,
			Disconnected: m.disconnected,
		}
		for _, n := range s.Dropped {
			seen.Lost += int(n)
		}
		if seen.Sent > 0 {
			seen.MeanAge = math.Round(100*float64(m.ages)/float64(seen.Sent)) / 100
		}
		w.cfg.predict(w.policy, m.Subscriber, &seen)
		r.Subscribers = append(r.Subscribers, seen)
	}
	return r
}
