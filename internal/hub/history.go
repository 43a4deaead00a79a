package hub

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"hubd/internal/frame"
	"hubd/internal/queue"
)

// HistoryLimits bounds what a room retains of its messages: all three hold.
// Messages 0 retains nothing.
type HistoryLimits struct {
	Messages int
	Bytes    int
	Age      time.Duration
}

// DefaultHistory returns the limits of a feed that names none.
func DefaultHistory() *HistoryLimits {
	return &HistoryLimits{DefaultHistoryMessages, DefaultHistoryBytes, DefaultHistoryAge}
}

// retained is one frame of a history, held by it, and when it was published.
type retained struct {
	*frame.Frame
	at time.Duration
}

// history is what a room retains: the frames that its subscribers were sent,
// oldest first. It is guarded by room.mu.
//
// In a feed whose policy is keep-latest it keeps one frame a key, the newest:
// whoever reads it from the start has the state of now.
type history struct {
	limits  HistoryLimits
	compact bool
	total   *atomic.Int64 // what all histories of the hub take

	frames []retained
	bytes  int   // payload of frames
	taken  int64 // this history's part of total
	// floor is the newest seq that a limit took away. Whoever has seen it has
	// missed nothing that is not here, or was replaced by something newer that
	// is.
	floor uint64
}

// append retains f and drops what no limit allows any more.
func (h *history) append(f *frame.Frame, now time.Duration) {
	if h.limits.Messages == 0 {
		h.floor = f.Seq()
		return
	}
	if h.compact {
		if i := slices.IndexFunc(h.frames, func(r retained) bool { return r.Key() == f.Key() }); i >= 0 {
			h.forget(h.frames[i])
			h.frames = slices.Delete(h.frames, i, i+1)
		}
	}
	f.Retain(1)
	h.frames = append(h.frames, retained{f, now})
	h.bytes += f.Size()
	h.trim(now)
	h.account()
}

func (h *history) forget(r retained) {
	h.bytes -= r.Size()
	r.Release(1)
}

// What a retained frame and a room take beside the payload.
const (
	retainedBytes = 256
	roomBytes     = 512
)

// account brings total up to date. The payload alone would bound nothing: rooms
// without end can be made of empty messages.
func (h *history) account() {
	taken := int64(0)
	if n := len(h.frames); n > 0 {
		taken = int64(h.bytes + n*retainedBytes + roomBytes)
	}
	h.total.Add(taken - h.taken)
	h.taken = taken
}

// trim drops the oldest frames until the limits hold.
func (h *history) trim(now time.Duration) {
	n := 0
	for bytes := h.bytes; n < len(h.frames); n++ {
		r := h.frames[n]
		if len(h.frames)-n <= h.limits.Messages && bytes <= h.limits.Bytes && now-r.at < h.limits.Age {
			break
		}
		bytes -= r.Size()
	}
	h.drop(n)
}

// drop forgets the n oldest frames.
func (h *history) drop(n int) {
	if n == 0 {
		return
	}
	for _, r := range h.frames[:n] {
		h.floor = r.Seq()
		h.forget(r)
	}
	// The front is sliced off, and append moves the rest to a new array once in
	// a while: moving it at each publish would take as long as the history is.
	// When most goes at once, a smaller array is made of what is left.
	clear(h.frames[:n])
	rest := h.frames[n:]
	if n >= len(rest) {
		rest = append([]retained(nil), rest...)
	}
	h.frames = rest
	h.account()
}

// from returns the retained frames after seq, oldest first. The slice is valid
// under room.mu only.
func (h *history) from(seq uint64) []retained {
	return h.frames[sort.Search(len(h.frames), func(i int) bool { return h.frames[i].Seq() > seq }):]
}

// expires returns when the oldest frame will be too old.
func (h *history) expires() time.Duration { return h.frames[0].at + h.limits.Age }

// replay is a subscription's place in its room's history while it catches up.
// The flag is the writer's, the rest is guarded by room.mu.
type replay struct {
	// on: the writer reads from history, not yet from the queue.
	on bool
	// cursor is the seq up to which the subscriber has everything it will get.
	cursor uint64
	// told is the seq up to which missing frames are no loss: a joiner who did
	// not ask to resume has lost nothing of what came before it.
	told uint64
}

// beginLocked decides, at the moment of joining, what of the history s gets.
func (r *room) beginLocked(s *Subscription, after *frame.Position) {
	h := &r.history
	h.trim(r.hub.now())
	snapshot := h.compact && s.policy == queue.KeepLatest
	s.joined = frame.Position{Epoch: r.epoch, Seq: r.seq}
	s.resumed = after != nil && after.Epoch == r.epoch && after.Seq <= r.seq && after.Seq >= h.floor
	switch {
	case s.resumed:
		s.replay.cursor, s.replay.told = after.Seq, after.Seq
		s.replayed = len(h.from(after.Seq))
	case snapshot && len(h.frames) > 0:
		s.replay.told = r.seq
		s.snapshot = len(h.frames)
	default:
		s.replay.cursor = r.seq
	}
	s.start = s.replay.cursor
	s.replay.on = s.start < r.seq
}

// readLocked moves what comes next in history into flight, within limit, and
// reports whether s has caught up.
func (r *room) readLocked(s *Subscription, dst []Item, limit queue.Limits) (t Taken, caughtUp bool) {
	t.Items = dst
	now, ttl := r.hub.now(), r.hub.feeds[r.feed].TTL
	r.history.trim(now)
	for _, f := range r.history.from(s.replay.cursor) {
		if ttl > 0 && now-f.at > ttl {
			continue // it counts as lost before the next
		}
		if len(t.Items) > 0 && (limit.Messages <= 0 || f.Size() > limit.Bytes) {
			return t, false
		}
		limit.Messages--
		limit.Bytes -= f.Size()
		f.Retain(1)
		t.Items = append(t.Items, Item{Value: f.Frame, Key: f.Key(), Bytes: f.Size(), At: now, Gap: s.missed(f.Seq(), &r.history)})
		s.replay.cursor = f.Seq()
	}
	t.Tail = s.missed(r.seq+1, &r.history)
	s.replay.cursor = r.seq
	return t, true
}

// missed is what s has lost between its cursor and the frame at next.
func (s *Subscription) missed(next uint64, h *history) queue.Gap {
	from := max(s.replay.cursor, min(s.replay.told, next-1))
	g := queue.Gap{Lost: int(next - 1 - from), Reason: queue.Expired}
	if h.compact && h.floor <= from {
		g.Reason = queue.Conflated
	}
	return g
}

// catchUp is Take while the subscription reads history. In the step in which it
// has caught up it becomes live: nothing is published in between, so the seam
// has neither gap nor duplicate.
func (s *Subscription) catchUp(dst []Item, limit queue.Limits) Taken {
	r := s.room
	r.mu.Lock()
	if s.index < 0 { // sealed: what it has not read it never gets
		r.mu.Unlock()
		s.replay.on = false
		return Taken{Items: dst, Empty: true}
	}
	t, caughtUp := r.readLocked(s, dst, limit)
	n := len(t.Items) - len(dst)
	s.queue.Begin(n)
	if caughtUp {
		s.replay.on = false
		r.behind.remove(s)
		r.goLiveLocked(s)
	}
	r.mu.Unlock()
	s.series.Offered(n)
	return t
}

// Entry is one retained message, for those who look.
type Entry struct {
	Seq  uint64
	Time time.Time
	frame.Message
}

// Entries is what a room retains.
type Entries struct {
	Epoch       string
	First, Last uint64 // the retained range; 0 where nothing is retained
	Messages    []Entry
}

// History returns up to limit retained messages after the position, oldest
// first; from the oldest where after is of another epoch or nil. It creates no
// room, and copies nothing of the messages: their bytes are shared.
func (h *Hub) History(name frame.Room, after *frame.Position, limit int) Entries {
	r := h.find(name)
	if r == nil {
		return Entries{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead.Load() {
		return Entries{}
	}
	now := h.now()
	r.history.trim(now)
	r.used = now
	e := Entries{Epoch: r.epoch}
	if n := len(r.history.frames); n > 0 {
		e.First, e.Last = r.history.frames[0].Seq(), r.history.frames[n-1].Seq()
	}
	seq := uint64(0)
	if after != nil && after.Epoch == r.epoch {
		seq = after.Seq
	}
	for _, f := range r.history.from(seq) {
		if len(e.Messages) == limit {
			break
		}
		e.Messages = append(e.Messages, Entry{f.Seq(), h.start.Add(f.at), f.Message()})
	}
	return e
}

// expire is the room's timer: what is too old goes although nobody publishes.
func (r *room) expire() {
	r.mu.Lock()
	r.history.trim(r.hub.now())
	r.timer = nil
	r.watchLocked()
	r.retireLocked()
	r.mu.Unlock()
	r.forgetDead()
}

// watchLocked makes sure that the timer is set while something can expire.
func (r *room) watchLocked() {
	if r.timer == nil && len(r.history.frames) > 0 && !r.hub.closed.Load() {
		r.timer = time.AfterFunc(r.history.expires()-r.hub.now(), r.expire)
	}
}

// clear drops the whole history.
func (r *room) clear() { r.shed(math.MaxInt64, 0) }

// shed drops what was published before a moment.
func (r *room) shed(before, _ time.Duration) {
	r.mu.Lock()
	n := slices.IndexFunc(r.history.frames, func(f retained) bool { return f.at >= before })
	if n < 0 {
		n = len(r.history.frames)
	}
	r.history.drop(n)
	if len(r.history.frames) == 0 && r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.retireLocked()
	r.mu.Unlock()
	r.forgetDead()
}

// historyAge returns the age of the oldest retained frame, if there is any.
func (r *room) historyAge(now time.Duration) (age time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.history.frames) == 0 {
		return 0, false
	}
	return max(0, now-r.history.frames[0].at), true
}

// boundHistory makes room when all histories together hold too much: the rooms
// that were used least recently lose theirs, a tenth of the bound at a time so
// that not every publish looks for one.
func (h *Hub) boundHistory() {
	if h.historyBytes.Load() <= h.maxHistory || !h.bounding.CompareAndSwap(false, true) {
		return
	}
	defer h.bounding.Store(false)
	type candidate struct {
		*room
		used time.Duration
	}
	var rooms []candidate
	for _, r := range h.snapshot() {
		r.mu.Lock()
		if len(r.history.frames) > 0 {
			rooms = append(rooms, candidate{r, r.used})
		}
		r.mu.Unlock()
	}
	slices.SortFunc(rooms, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	for _, r := range rooms {
		if h.historyBytes.Load() <= h.maxHistory*9/10 {
			return
		}
		r.clear()
	}
}
