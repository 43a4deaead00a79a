package queue

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// FuzzQueue reads a configuration and a run of calls from the input and holds
// the queue to the model after each.
func FuzzQueue(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for p := range NumPolicies {
		for range 4 {
			input := randomBytes(rng, 400)
			input[0] = byte(p)
			f.Add(input)
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) { newPair(t, input).run() })
}

// TestQueueRandom does the same with inputs from a fixed seed, long enough for
// the rings to grow and shrink.
func TestQueueRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 400 {
		input := randomBytes(rng, 50+rng.IntN(3000))
		input[0] = byte(i)
		newPair(t, input).run()
		if t.Failed() {
			t.Fatalf("run %d", i)
		}
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.UintN(256))
	}
	return b
}

// pair drives a queue and its model with the same calls.
type pair struct {
	t        *testing.T
	input    []byte
	q        *Queue[int]
	m        model
	released []int
	keys     int
	closes   bool
	now      time.Duration
	told     int
	id       int
}

func newPair(t *testing.T, input []byte) *pair {
	p := &pair{t: t, input: input}
	p.m.policy = Policy(p.next() % NumPolicies)
	p.m.limits = Limits{Messages: 1 + p.next()%24, Bytes: 1 + p.next()}
	p.m.ttl = time.Duration(p.next() % 3 * 8)
	p.keys = p.next() % 20
	p.closes = p.next()%8 == 0
	p.q = New(Config[int]{
		Policy: p.m.policy, Limits: p.m.limits, TTL: p.m.ttl,
		Released: func(id int) { p.released = append(p.released, id) },
	})
	return p
}

func (p *pair) next() int {
	if len(p.input) == 0 {
		return 0
	}
	b := p.input[0]
	p.input = p.input[1:]
	return int(b)
}

func (p *pair) run() {
	for len(p.input) > 0 && !p.t.Failed() {
		switch op := p.next() % 32; {
		case op < 18:
			p.offer(p.next(), p.next())
		case op < 22:
			p.take(p.next()%3, Limits{Messages: p.next() % 8, Bytes: p.next()})
		case op < 25:
			p.done(p.next(), p.next())
		case op == 25:
			n := p.next() % 3
			p.q.Begin(n)
			p.m.begin(n)
		case op == 26:
			before := p.now - time.Duration(p.next()%8)
			p.same("Shed", p.q.Shed(before, p.now), p.m.shed(before, p.now))
		case op < 28:
			p.now += time.Duration(p.next() % 4)
		case op < 30:
			bytes := p.next()
			p.same("Fits", p.q.Fits(bytes), p.m.fits(bytes))
		case op == 30 && p.closes:
			p.same("Close", p.q.Close(), p.m.close())
		case op == 31:
			for range p.m.limits.Messages {
				p.offer(p.next(), 1)
			}
		}
		p.check()
	}
}

func (p *pair) offer(key, size int) {
	f := modelFrame{id: p.id, bytes: size % 40, at: p.now}
	p.id++
	if size > 250 {
		f.bytes = size
	}
	if key %= p.keys + 1; key > 0 {
		f.key = strconv.Itoa(key)
	}
	// What the caller writes in Gap must not matter.
	got := p.q.Offer(Item[int]{Value: f.id, Key: f.key, Bytes: f.bytes, At: f.at, Gap: Gap{Lost: 99}})
	p.same("Offer", got, p.m.offer(f))
}

func (p *pair) take(have int, limit Limits) {
	batch := make([]Item[int], have)
	got := p.q.Take(batch, p.now, limit)
	frames, gaps, expired, tail := p.m.take(have > 0, p.now, limit)
	want := Taken[int]{Items: batch, Expired: expired, Tail: tail, Empty: len(frames)+len(p.m.queued) == 0}
	for i, f := range frames {
		want.Items = append(want.Items, Item[int]{Value: f.id, Key: f.key, Bytes: f.bytes, At: f.at, Gap: gaps[i]})
	}
	if !slices.Equal(got.Items, want.Items) {
		p.t.Errorf("Take took\n%v, want\n%v", got.Items, want.Items)
	}
	p.same("Expired", got.Expired, want.Expired)
	p.same("Tail", got.Tail, want.Tail)
	p.same("Empty", got.Empty, want.Empty)
	for _, it := range got.Items {
		p.told += it.Gap.Lost
	}
	p.told += got.Tail.Lost
}

func (p *pair) done(sent, lost int) {
	sent %= p.m.flight + 1
	lost %= p.m.flight - sent + 1
	p.q.Done(sent, lost)
	p.m.done(sent, lost)
}

func (p *pair) same(what string, got, want any) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// check compares all state and holds the queue to what must be true of it
// whatever the model says.
func (p *pair) check() {
	p.t.Helper()
	s := p.q.Stats(p.now)
	p.same("Stats", s, p.m.stats(p.now))
	slices.Sort(p.released)
	slices.Sort(p.m.released)
	if !slices.Equal(p.released, p.m.released) {
		p.t.Errorf("released %v, want %v", p.released, p.m.released)
	}
	p.released, p.m.released = p.released[:0], p.m.released[:0]

	if s.Queued.Messages > p.m.limits.Messages || s.Queued.Bytes > p.m.limits.Bytes {
		p.t.Errorf("queued %+v with limits %+v", s.Queued, p.m.limits)
	}
	var dropped, tellable uint64
	for reason, n := range s.Dropped {
		dropped += n
		if Reason(reason) != Closed {
			tellable += n
		}
	}
	if s.Offered != s.Sent+dropped+uint64(s.Queued.Messages+s.InFlight) {
		p.t.Errorf("not conserved: %+v", s)
	}
	pending := p.q.tail.Lost
	for i := range p.q.ring.n {
		pending += p.q.ring.at(i).Gap.Lost
	}
	if !p.m.closed && uint64(p.told+pending) != tellable {
		p.t.Errorf("told %d, pending %d of %d losses", p.told, pending, tellable)
	}
	for i := p.q.ring.n; i < len(p.q.ring.slots); i++ {
		if *p.q.ring.at(i) != (slot[int]{}) {
			p.t.Errorf("a free slot keeps %+v", *p.q.ring.at(i))
		}
	}
}
