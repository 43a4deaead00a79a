package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"hubd/internal/queue"
)

// Order is what comes first within a tick.
type Order uint8

const (
	// DrainFirst: subscribers drain, then the publisher publishes. What is
	// published in a tick waits for the next at least.
	DrainFirst Order = iota
	// PublishFirst: the other way round.
	PublishFirst
)

var orderNames = [...]string{"drain-first", "publish-first"}

func (o Order) String() string {
	if int(o) < len(orderNames) {
		return orderNames[o]
	}
	return fmt.Sprintf("Order(%d)", uint8(o))
}

// UnmarshalText reads drain-first or publish-first.
func (o *Order) UnmarshalText(text []byte) error {
	i := slices.Index(orderNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown order %q: must be one of %s", text, strings.Join(orderNames[:], ", "))
	}
	*o = Order(i)
	return nil
}

// Pause is a run of ticks, counted from 0, in which a subscriber does not
// drain: From and those after it, but not To.
type Pause struct{ From, To int }

// Subscriber is one subscriber of the room. Its text form is its drain, then
// its pauses, each behind a slash: 5 or 5/40-80 or 5/40-80/120-130.
type Subscriber struct {
	// Drain is how many messages it takes a tick; 0 takes none, ever.
	Drain int
	// Pauses may be in any order and overlap.
	Pauses []Pause
}

func (s Subscriber) String() string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(s.Drain))
	for _, p := range s.Pauses {
		fmt.Fprintf(&b, "/%d-%d", p.From, p.To)
	}
	return b.String()
}

// UnmarshalText reads the text form.
func (s *Subscriber) UnmarshalText(text []byte) error {
	drain, pauses, paused := strings.Cut(string(text), "/")
	var parsed Subscriber
	var err error
	if parsed.Drain, err = strconv.Atoi(drain); err != nil {
		return s.malformed(text)
	}
	for paused {
		var pause string
		pause, pauses, paused = strings.Cut(pauses, "/")
		from, to, _ := strings.Cut(pause, "-")
		var p Pause
		if p.From, err = strconv.Atoi(from); err != nil {
			return s.malformed(text)
		}
		if p.To, err = strconv.Atoi(to); err != nil {
			return s.malformed(text)
		}
		parsed.Pauses = append(parsed.Pauses, p)
	}
	*s = parsed
	return nil
}

func (*Subscriber) malformed(text []byte) error {
	return fmt.Errorf("malformed subscriber %q: must be the messages drained a tick, with pauses as in 5/40-80", text)
}

func (s Subscriber) drainAt(tick int) int {
	for _, p := range s.Pauses {
		if p.From <= tick && tick < p.To {
			return 0
		}
	}
	return s.Drain
}

// Config is one world. Its zero value is a publisher of 5 messages a tick for
// 200 ticks, queues of 10 messages, and two subscribers that drain 1 and 5 a
// tick.
type Config struct {
	// Policies to run, each in a world of its own. None: all but disconnect,
	// which is over too soon to be compared.
	Policies []queue.Policy
	// Ticks to run; 0: 200.
	Ticks int
	// Rate is how many messages are published a tick; 0: 5.
	Rate int
	// Capacity is the limit of each queue in messages; 0: 10.
	Capacity int
	// Bytes is the limit of each queue in payload bytes; 0: none.
	Bytes int
	// Sizes of messages in bytes, in turn; none: 1 byte each.
	Sizes []int
	// Keys that messages have, in turn; 0: they have none.
	Keys int
	// TTL in ticks, 0: never. A message that has waited longer is dropped when
	// its turn comes.
	TTL int
	// Order within a tick.
	Order Order
	// Subscribers of the room; none: the two above.
	Subscribers []Subscriber
}

// maxMessages keeps a mistyped number from running for hours.
const maxMessages = 100_000_000

func (c Config) withDefaults() Config {
	if len(c.Policies) == 0 {
		c.Policies = []queue.Policy{queue.DropNewest, queue.DropOldest, queue.KeepLatest, queue.RejectPublish}
	}
	setDefault(&c.Ticks, 200)
	setDefault(&c.Rate, 5)
	setDefault(&c.Capacity, 10)
	setDefault(&c.Bytes, math.MaxInt)
	if len(c.Sizes) == 0 {
		c.Sizes = []int{1}
	}
	if len(c.Subscribers) == 0 {
		c.Subscribers = []Subscriber{{Drain: 1}, {Drain: 5}}
	}
	return c
}

func setDefault(n *int, value int) {
	if *n == 0 {
		*n = value
	}
}

// Validate reports everything that is wrong with c at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	atLeast := func(what string, n, least int) {
		if n < least {
			errs = append(errs, fmt.Errorf("%s is %d: must be at least %d", what, n, least))
		}
	}
	atLeast("ticks", c.Ticks, 1)
	atLeast("rate", c.Rate, 1)
	atLeast("capacity", c.Capacity, 1)
	atLeast("byte limit", c.Bytes, 1)
	atLeast("keys", c.Keys, 0)
	atLeast("ttl", c.TTL, 0)
	for _, size := range c.Sizes {
		atLeast("message size", size, 0)
	}
	for _, p := range c.Policies {
		if p >= queue.NumPolicies {
			errs = append(errs, fmt.Errorf("no such policy: %v", p))
		}
	}
	for _, s := range c.Subscribers {
		atLeast("drain", s.Drain, 0)
		if s.Drain > maxMessages {
			errs = append(errs, fmt.Errorf("drain is %d: must be at most %d", s.Drain, maxMessages))
		}
		for _, p := range s.Pauses {
			if p.From < 0 || p.To <= p.From {
				errs = append(errs, fmt.Errorf("pause %d-%d: must end after it begins, at tick 0 or later", p.From, p.To))
			}
		}
	}
	if c.Ticks > 0 && c.Rate > maxMessages/c.Ticks {
		errs = append(errs, fmt.Errorf("%d ticks of %d messages are more than %d messages: lower either", c.Ticks, c.Rate, maxMessages))
	}
	return errors.Join(errs...)
}
