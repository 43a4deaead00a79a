package hub

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"hubd/internal/frame"
	"hubd/internal/metrics"
	"hubd/internal/queue"
)

// The built-in feed's limits, and every feed's where it names none.
const (
	DefaultQueueMessages   = 256
	DefaultQueueBytes      = 1 << 20
	DefaultMaxMessageBytes = 64 << 10
	DefaultHistoryMessages = 100
	DefaultHistoryBytes    = 256 << 10
	DefaultHistoryAge      = 5 * time.Minute
	DefaultMaxHistoryBytes = 256 << 20
)

// MinMemoryBudget is the smallest budget that makes sense, in bytes.
const MinMemoryBudget = 16 << 20

// DefaultFeed is the name of the feed that matches what no other does.
const DefaultFeed = "default"

// Feed is a class of rooms, and what one message means there.
type Feed struct {
	// Name is the metric label: [a-z0-9_-]{1,32}.
	Name string
	// Match lists globs on room names, in path.Match syntax.
	Match []string
	// Policy is what a full queue loses where the subscriber asks for nothing.
	Policy queue.Policy
	// Allow lists what a subscriber may ask for beside Policy; nil: all but
	// reject-publish.
	Allow []queue.Policy
	// Queue bounds each subscription's queue; 0: the default.
	Queue queue.Limits
	// History bounds what a room retains; nil: the default. Messages 0 retains
	// nothing.
	History *HistoryLimits
	// TTL is how old a frame may be when its turn comes; 0: any age.
	TTL time.Duration
}

// Config is what a hub is made with. Its zero value is a hub with the built-in
// feed.
type Config struct {
	// Feeds in order: the first that matches a room is the room's. The built-in
	// feed comes last unless one of them is named DefaultFeed.
	Feeds []Feed
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// MaxMessageBytes bounds the payload of one message; 0: 64 KiB.
	MaxMessageBytes int
	// MemoryBudget bounds the bytes of all distinct frames that are retained,
	// and of what connections and subscriptions take beside them; 0: no bound.
	MemoryBudget int64
	// MaxHistoryBytes bounds what all rooms' histories take together: payload,
	// and some hundred bytes a message and a room. 0: 256 MiB, and never more
	// than a quarter of MemoryBudget. Beyond it, the rooms used least recently
	// lose theirs.
	MaxHistoryBytes int
}

// WithDefaults returns c with everything that was left out filled in.
func (c Config) WithDefaults() Config {
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if c.MaxHistoryBytes == 0 {
		c.MaxHistoryBytes = DefaultMaxHistoryBytes
	}
	if c.MemoryBudget > 0 {
		c.MaxHistoryBytes = min(c.MaxHistoryBytes, int(c.MemoryBudget/4))
	}
	feeds := slices.Clone(c.Feeds)
	if !slices.ContainsFunc(feeds, func(f Feed) bool { return f.Name == DefaultFeed }) {
		feeds = append(feeds, Feed{Name: DefaultFeed, Match: []string{"*"}})
	}
	for i := range feeds {
		f := &feeds[i]
		if f.Queue.Messages == 0 {
			f.Queue.Messages = DefaultQueueMessages
		}
		if f.Queue.Bytes == 0 {
			f.Queue.Bytes = max(DefaultQueueBytes, c.MaxMessageBytes)
		}
		if f.History == nil {
			f.History = DefaultHistory()
		}
		if f.Allow == nil {
			f.Allow = slices.DeleteFunc(queue.Policies(), func(p queue.Policy) bool { return p == queue.RejectPublish })
		}
		if !slices.Contains(f.Allow, f.Policy) {
			f.Allow = append(slices.Clone(f.Allow), f.Policy)
		}
	}
	c.Feeds = feeds
	return c
}

// FeedNames returns the names of the feeds in order, the built-in one included.
func (c Config) FeedNames() []string {
	var names []string
	for _, f := range c.WithDefaults().Feeds {
		names = append(names, f.Name)
	}
	return names
}

var feedName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// Validate reports everything that is wrong with c, joined, each with what to
// do about it.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.MaxMessageBytes < 1 {
		errs = append(errs, fmt.Errorf("max message bytes is %d: give a positive number", c.MaxMessageBytes))
	}
	if c.MemoryBudget < 0 || c.MemoryBudget > 0 && c.MemoryBudget < MinMemoryBudget {
		errs = append(errs, fmt.Errorf("the memory budget is %d bytes: give at least %d, or 0 for none", c.MemoryBudget, MinMemoryBudget))
	}
	seen := map[string]bool{}
	for i, f := range c.Feeds {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("feed %d (%q): "+format, append([]any{i + 1, f.Name}, args...)...))
		}
		if !feedName.MatchString(f.Name) {
			bad("the name is a metric label: use 1 to 32 of a-z 0-9 _ -")
		}
		if seen[f.Name] {
			bad("another feed has that name: rename one of them")
		}
		seen[f.Name] = true
		if len(f.Match) == 0 {
			bad(`it matches no room: give match at least one glob, such as "chat.*"`)
		}
		for _, glob := range f.Match {
			if _, err := path.Match(glob, ""); err != nil {
				bad("match %q is no glob: see path.Match for the syntax", glob)
			}
		}
		if f.Queue.Messages < 1 {
			bad("queue messages is %d: give a positive number", f.Queue.Messages)
		}
		if f.Queue.Bytes < c.MaxMessageBytes {
			bad("queue bytes is %d, less than one message may have (%d): raise it, or lower max message bytes", f.Queue.Bytes, c.MaxMessageBytes)
		}
		switch hl := f.History; {
		case hl.Messages < 0:
			bad("history messages is %d: give 0 (none) or a positive number", hl.Messages)
		case hl.Messages > 0 && (hl.Bytes < 1 || hl.Age <= 0):
			bad("history of %d messages within %d bytes and %v: give positive bytes and age, or 0 messages for none", hl.Messages, hl.Bytes, hl.Age)
		}
		if f.TTL < 0 {
			bad("ttl is %v: give 0 (never) or a positive duration", f.TTL)
		}
	}
	return errors.Join(errs...)
}

// matches reports whether the room is of this feed. A feed named DefaultFeed
// takes what is left, whatever its globs.
func (f *Feed) matches(room frame.Room) bool {
	return slices.ContainsFunc(f.Match, func(glob string) bool {
		ok, err := path.Match(glob, room.String())
		return ok && err == nil // Validate has seen the syntax
	})
}

// Options is what a subscriber may ask for. The zero value asks for nothing.
type Options struct {
	// Policy, if not nil, must be among the feed's Allow.
	Policy *queue.Policy
	// Queue limits: 0 is the feed's; larger than the feed's is lowered to it.
	Queue queue.Limits
}

// resolve returns what a subscriber of f gets who asks for o.
func (f *Feed) resolve(o Options) (queue.Policy, queue.Limits, error) {
	policy, limits := f.Policy, f.Queue
	if o.Policy != nil {
		if !slices.Contains(f.Allow, *o.Policy) {
			return 0, queue.Limits{}, &Error{Code: InvalidOption,
				Detail: fmt.Sprintf("feed %s allows no %v; it allows %v", f.Name, *o.Policy, f.Allow)}
		}
		policy = *o.Policy
	}
	if o.Queue.Messages < 0 || o.Queue.Bytes < 0 {
		return 0, queue.Limits{}, &Error{Code: InvalidOption, Detail: "a queue limit is a positive number"}
	}
	if o.Queue.Messages > 0 {
		limits.Messages = min(limits.Messages, o.Queue.Messages)
	}
	if o.Queue.Bytes > 0 {
		limits.Bytes = min(limits.Bytes, o.Queue.Bytes)
	}
	return policy, limits, nil
}
