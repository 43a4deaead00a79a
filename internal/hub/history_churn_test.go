package hub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/queue"
)

// follower checks what one subscription gets: rising seqs, and every hole told,
// exactly.
type follower struct {
	member
	last  uint64
	told  int // in tails, since last
	exact bool
}

func (f *follower) see(t *testing.T, taken hub.Taken, from int) {
	for _, it := range taken.Items[from:] {
		seq := it.Value.Seq()
		hole := int(seq - f.last - 1)
		told := f.told + it.Gap.Lost
		if seq <= f.last || told > hole || f.exact && told != hole {
			t.Errorf("%v subscription %s: seq %d after %d, and %d lost were told", f.Policy(), f.ID(), seq, f.last, told)
		}
		f.last, f.told = seq, 0
	}
	f.told += taken.Tail.Lost
}

// Subscribers come and go in rooms with a short history: they resume from
// positions of all kinds, catch up in small takes while others publish, and
// leave in the midst of it.
func TestHistoryUnderChurn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	limits := &hub.HistoryLimits{Messages: 20, Bytes: 2000, Age: time.Minute}
	n := newHubWith(t, hub.Config{Feeds: []hub.Feed{
		{Name: "state", Match: []string{"state-*"}, Policy: queue.KeepLatest, History: limits, Queue: queue.Limits{Messages: 16}},
		{Name: "cut", Match: []string{"cut-*"}, Policy: queue.Disconnect, History: limits, Queue: queue.Limits{Messages: 8}},
		{Name: "brief", Match: []string{"brief-*"}, History: limits, TTL: 50 * time.Microsecond},
		{Name: "default", Match: []string{"*"}, History: limits, Queue: queue.Limits{Messages: 8}},
	}})
	var mu sync.Mutex
	known := map[string]frame.Position{} // the newest position that a publisher was told
	var workers sync.WaitGroup
	for w := range 6 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			publish := func(name string) {
				q := say(name, "some text of some length"[:rng.IntN(24)])
				q.Message.Key = fmt.Sprint(rng.IntN(5))
				p, err := n.Publish(context.Background(), q)
				if err != nil {
					t.Errorf("publish: %v", err)
				}
				mu.Lock()
				known[name] = p.Position
				mu.Unlock()
			}
			for range 150 {
				name := []string{"state-1", "cut-1", "brief-1", "lobby"}[rng.IntN(4)]
				publish(name)
				mu.Lock()
				after := known[name]
				mu.Unlock()
				after.Seq -= min(after.Seq, uint64(rng.IntN(30)))
				s := n.join(name, func(q *hub.JoinRequest) {
					if rng.IntN(3) > 0 {
						q.After = &after
					}
					if p := queue.Policy(rng.IntN(4)); rng.IntN(2) == 0 {
						q.Options.Policy = &p
					}
				})
				if info := n.Info(room(name)); len(s.evicted) == 0 && info.Subscribers == 0 {
					t.Errorf("joined %s, and it shows no subscribers", name)
				}
				f := &follower{member: s, last: s.Start(), exact: s.Snapshot() == 0}
				for range rng.IntN(20) {
					if rng.IntN(2) == 0 {
						publish(name)
					}
					taken := s.Take(nil, queue.Limits{Messages: 1 + rng.IntN(4), Bytes: 100})
					f.see(t, taken, 0)
					sent := len(taken.Items)
					if rng.IntN(50) == 0 && sent > 0 { // the socket broke
						sent = rng.IntN(sent)
						s.Leave()
					}
					s.Sent(taken.Items, sent, nil)
				}
				s.Leave()
			}
		})
	}
	workers.Wait()
	if len(n.Rooms()) == 0 {
		t.Error("nothing is retained")
	}
	n.Close()
	n.empty()
}
