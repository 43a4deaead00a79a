package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// crowd is a number of keys of which one is updated each tick, and a reader
// that takes one frame every so many ticks.
type crowd struct {
	keys, capacity, ticks, every int
	next                         func(tick int) int // the key that is updated
}

// crowdSeen is what its reader saw, counted in takes.
type crowdSeen struct {
	times   []int // how often each key was read
	longest int   // the longest that any key was not read
	final   int   // from the last update until the newest value of all was read
	back    int   // frames read that were older than one read before
}

func (c crowd) run() (seen crowdSeen) {
	q := New(Config[int]{Policy: KeepLatest, Limits: Limits{c.capacity, math.MaxInt}})
	key := make([]int, c.ticks)                                // of each frame
	newest, latest := make([]int, c.keys), make([]int, c.keys) // frame of each key: offered, read
	lastRead, takes, frame := make([]int, c.keys), 0, 0        // lastRead is in takes
	seen.times = make([]int, c.keys)
	take := func(tick int) {
		takes++
		for _, it := range q.Take(nil, time.Duration(tick), Limits{1, math.MaxInt}).Items {
			if it.Value < frame {
				seen.back++
			}
			frame = it.Value
			k := key[frame]
			latest[k] = frame
			seen.times[k]++
			seen.longest = max(seen.longest, takes-lastRead[k])
			lastRead[k] = takes
		}
	}
	for tick := range c.ticks {
		k := c.next(tick)
		key[tick], newest[k] = k, tick
		q.Offer(Item[int]{Value: tick, Key: "player-" + strconv.Itoa(k), Bytes: 1, At: time.Duration(tick)})
		if tick%c.every == c.every-1 {
			take(tick)
		}
	}
	for _, at := range lastRead {
		seen.longest = max(seen.longest, takes-at)
	}
	for ; !slices.Equal(latest, newest) && seen.final < c.ticks; seen.final++ {
		take(c.ticks)
	}
	return seen
}

// TestNoKeyStarves updates 100 keys 5,000 times a second for 10 s against a
// reader of 50 a second. Where the keys take turns, updates and takes are in
// exact resonance, and without the spared frame the reader would see the same
// few keys for ever.
func TestNoKeyStarves(t *testing.T) {
	const keys, ticks, every = 100, 50_000, 100
	orders := []struct {
		name string
		next func(*rand.Rand, int) int
	}{
		{"in turn", func(_ *rand.Rand, tick int) int { return tick % keys }},
		{"there and back", func(_ *rand.Rand, tick int) int { return min(tick%198, 198-tick%198) }},
		{"at random", func(rng *rand.Rand, _ int) int { return rng.IntN(keys) }},
		{"one in between", func(_ *rand.Rand, tick int) int { return tick % 2 * (tick / 2 % keys) }},
	}
	for _, capacity := range []int{101, 150} {
		for _, order := range orders {
			t.Run(fmt.Sprintf("capacity=%d/%s", capacity, order.name), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(5, 6))
				seen := crowd{keys, capacity, ticks, every, func(tick int) int {
					return order.next(rng, tick)
				}}.run()
				if least := slices.Min(seen.times); least < 2 {
					t.Errorf("a key was read %d times", least)
				}
				if seen.longest > 3*keys {
					t.Errorf("a key was not read for %d takes", seen.longest)
				}
				if seen.final > 150 { // 3 s
					t.Errorf("the final values took %d takes", seen.final)
				}
				if seen.back > 0 {
					t.Errorf("%d frames were read out of order", seen.back)
				}
				t.Logf("read at least %d times, at worst after %d takes; all final after %d",
					slices.Min(seen.times), seen.longest, seen.final)
			})
		}
	}
}

// TestSparedFrameIsOneOnly has a reader that never reads: beside the newest of
// each key at most one older frame is ever queued after a conflation.
func TestSparedFrameIsOneOnly(t *testing.T) {
	const keys = 10
	q := New(Config[int]{Policy: KeepLatest, Limits: Limits{keys + 5, math.MaxInt}})
	for tick := range 1000 {
		k := tick * tick % 7 % keys
		v := q.Offer(Item[int]{Key: strconv.Itoa(k), Bytes: 1, At: time.Duration(tick)})
		if v.Conflated == 0 {
			continue
		}
		older := 0
		for i := range q.ring.n {
			for j := i + 1; j < q.ring.n; j++ {
				if q.ring.at(i).Key == q.ring.at(j).Key {
					older++
				}
			}
		}
		if older > 1 {
			t.Fatalf("%d older frames are queued beside the newest", older)
		}
	}
}
