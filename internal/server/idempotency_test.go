package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

func newBareServer(t *testing.T, feed hub.Feed) *Server {
	t.Helper()
	feed.Name, feed.Match = "all", []string{"*"}
	h, err := hub.New(hub.Config{Feeds: []hub.Feed{feed}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Hub: h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return s
}

func once(t *testing.T, s *Server, key, room, body string) (hub.Published, error) {
	t.Helper()
	name, err := frame.ParseRoom(room)
	if err != nil {
		t.Fatal(err)
	}
	return s.publishOnce(context.Background(), "", key, hub.PublishRequest{Message: frame.Message{Room: name, Kind: frame.Text, Data: []byte(body)}})
}

func TestIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, hub.Feed{})
		first, err := once(t, s, "k", "r", "body")
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name            string
			key, room, body string
			wait            time.Duration
			seq             uint64
			code            hub.Code
		}{
			{"retry", "k", "r", "body", 0, 1, ""},
			{"another body", "k", "r", "other", 0, 0, hub.IdempotencyConflict},
			{"another room", "k", "q", "other", 0, 1, ""},
			{"another key", "l", "r", "body", 0, 2, ""},
			{"late retry", "k", "r", "body", idempotencyWindow - time.Second, 1, ""},
			{"too late", "k", "r", "body", time.Second, 3, ""},
		} {
			time.Sleep(step.wait)
			p, err := once(t, s, step.key, step.room, step.body)
			if hub.CodeOf(err) != step.code || p.Position.Seq != step.seq {
				t.Errorf("%s: %+v, %v", step.name, p, err)
			}
			if step.name == "retry" && p != first {
				t.Errorf("the answer %+v became %+v", first, p)
			}
		}
		if _, err := once(t, s, fmt.Sprintf("%0300d", 1), "r", "x"); hub.CodeOf(err) != hub.InvalidOption {
			t.Errorf("a long key: %v", err)
		}
	})
}

// TestIdempotencyRefused: a refusal delivered nothing, so it is not an answer.
func TestIdempotencyRefused(t *testing.T) {
	s := newBareServer(t, hub.Feed{Policy: queue.RejectPublish, Queue: queue.Limits{Messages: 1}})
	room, err := frame.ParseRoom("r")
	if err != nil {
		t.Fatal(err)
	}
	sub, err := s.cfg.Hub.Join(hub.JoinRequest{Room: room, Owner: noOwner{}})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Leave()
	if _, err := once(t, s, "a", "r", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := once(t, s, "b", "r", "y"); hub.CodeOf(err) != hub.Overflow {
		t.Fatalf("full: %v", err)
	}
	taken := sub.Take(nil, queue.Limits{Messages: 1, Bytes: 1})
	sub.Sent(taken.Items, 1, nil)
	if p, err := once(t, s, "b", "r", "y"); err != nil || p.Position.Seq != 2 {
		t.Errorf("again: %+v, %v", p, err)
	}
}

type noOwner struct{}

func (noOwner) Wake()                {}
func (noOwner) Evicted(hub.Eviction) {}

// TestIdempotencyTogether: retries that overtake the first are one publish.
func TestIdempotencyTogether(t *testing.T) {
	s := newBareServer(t, hub.Feed{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	seqs := map[uint64]int{}
	for range 50 {
		wg.Go(func() {
			p, err := once(t, s, "k", "r", "body")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seqs[p.Position.Seq]++
		})
	}
	wg.Wait()
	if len(seqs) != 1 || seqs[1] != 50 {
		t.Errorf("seqs: %v", seqs)
	}
}

// TestIdempotencyBounded: what is remembered has an end, whatever is asked.
func TestIdempotencyBounded(t *testing.T) {
	var a idempotency
	now := time.Now()
	claim := func(i int) {
		id := idempotencyKey{}
		copy(id.key[:], fmt.Sprint(i))
		e, first := a.claim(id, [32]byte{}, now)
		if !first {
			t.Fatalf("%d was there already", i)
		}
		var err error
		if i%3 == 0 {
			err = errors.New("refused")
		}
		a.settle(e, hub.Published{}, err)
		now = now.Add(time.Microsecond)
	}
	for i := range 3 * idempotencyEntries {
		claim(i)
		if len(a.entries) > idempotencyEntries || len(a.order) > 2*idempotencyEntries+64 {
			t.Fatalf("after %d: %d entries, %d in order", i, len(a.entries), len(a.order))
		}
	}
	now = now.Add(idempotencyWindow)
	claim(-1)
	if len(a.entries) != 1 || len(a.order)-a.head != 1 {
		t.Errorf("after the window: %d entries, %d in order", len(a.entries), len(a.order)-a.head)
	}
}
