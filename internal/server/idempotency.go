package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
)

const (
	// idempotencyWindow is how long the answer to a key is remembered.
	idempotencyWindow = 2 * time.Minute
	// idempotencyEntries bounds the answers remembered. Beyond it the oldest
	// go before their time.
	idempotencyEntries = 100_000
	// maxIdempotencyKey is the longest Idempotency-Key, in bytes.
	maxIdempotencyKey = 255
)

// idempotency remembers the answers to publishes that carried a key, so that a
// retry gets the first answer instead of a second delivery. Refusals are not
// remembered: they delivered nothing.
type idempotency struct {
	// mu guards the rest; nothing is published under it.
	mu      sync.Mutex
	entries map[idempotencyKey]*remembered
	// order lists the entries by age, as all live equally long; head is the
	// first that is still in use.
	order []*remembered
	head  int
}

type idempotencyKey struct {
	room frame.Room
	key  [sha256.Size]byte // of whose it is, and the client's key, which may be long
}

// idempotencyKeyOf is the key of one subject, "" in open mode: nobody can take
// another's.
func idempotencyKeyOf(room frame.Room, subject, key string) idempotencyKey {
	whose := sha256.Sum256([]byte(subject))
	return idempotencyKey{room, sha256.Sum256(append(whose[:], key...))}
}

// remembered is a publish that is under way or has been answered.
type remembered struct {
	key     idempotencyKey
	content [sha256.Size]byte
	since   time.Time
	// done is closed when the publish was answered; then ok says whether
	// answer is to be given again.
	done   chan struct{}
	ok     bool
	answer hub.Published
}

// contentOf is what must be the same for a publish to be the same.
func contentOf(m frame.Message) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %s ", m.Kind, len(m.Key), m.Key)
	h.Write(m.Data)
	return [sha256.Size]byte(h.Sum(nil))
}

// publishOnce publishes q unless one with that key was published before, whose
// answer it returns then. It waits for one that is under way.
func (s *Server) publishOnce(ctx context.Context, subject, key string, q hub.PublishRequest) (hub.Published, error) {
	if len(key) > maxIdempotencyKey {
		return hub.Published{}, &hub.Error{Code: hub.InvalidOption, Detail: fmt.Sprintf("an Idempotency-Key has at most %d bytes", maxIdempotencyKey)}
	}
	id := idempotencyKeyOf(q.Message.Room, subject, key)
	content := contentOf(q.Message)
	for {
		entry, first := s.answers.claim(id, content, time.Now())
		if first {
			p, err := s.cfg.Hub.Publish(ctx, q)
			s.answers.settle(entry, p, err)
			return p, err
		}
		if entry.content != content {
			return hub.Published{}, &hub.Error{Code: hub.IdempotencyConflict, Detail: "another message was published with that Idempotency-Key"}
		}
		select {
		case <-entry.done:
			if entry.ok {
				return entry.answer, nil
			}
		case <-ctx.Done():
			return hub.Published{}, fmt.Errorf("waiting for the first with that key: %w", ctx.Err())
		}
	}
}

// claim returns the entry of id, and whether the caller made it and must settle
// it.
func (a *idempotency) claim(id idempotencyKey, content [sha256.Size]byte, now time.Time) (entry *remembered, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked(now)
	if entry := a.entries[id]; entry != nil {
		return entry, false
	}
	if a.entries == nil {
		a.entries = map[idempotencyKey]*remembered{}
	}
	entry = &remembered{key: id, content: content, since: now, done: make(chan struct{})}
	a.entries[id] = entry
	a.order = append(a.order, entry)
	return entry, true
}

// settle records the answer, or forgets a refusal.
func (a *idempotency) settle(e *remembered, p hub.Published, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.ok, e.answer = err == nil, p
	if !e.ok && a.entries[e.key] == e {
		delete(a.entries, e.key)
	}
	close(e.done)
}

// expireLocked forgets what is too old, and the oldest of what is too much.
func (a *idempotency) expireLocked(now time.Time) {
	for a.head < len(a.order) {
		e := a.order[a.head]
		if now.Sub(e.since) < idempotencyWindow && len(a.order)-a.head < idempotencyEntries {
			break
		}
		if a.entries[e.key] == e {
			delete(a.entries, e.key)
		}
		a.order[a.head] = nil
		a.head++
	}
	if a.head > 64 && a.head > len(a.order)/2 {
		a.order = append([]*remembered(nil), a.order[a.head:]...)
		a.head = 0
	}
}
