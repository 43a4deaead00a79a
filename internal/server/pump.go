package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"hubd/internal/hub"
	"hubd/internal/queue"
)

// The states of a connection's writer. It is a goroutine only while there is
// something to write: an idle connection has none.
const (
	writerIdle  int32 = iota // no goroutine; the next wake starts one
	writerBusy               // the goroutine will look again before it ends, or has been told nothing new
	writerAgain              // something came after the goroutine may have looked
)

// batchLimit is what one write takes out of the queues. Beyond 64 KiB nothing
// is gained, and what is in flight is no longer the policy's to drop.
var batchLimit = queue.Limits{Messages: 512, Bytes: 64 << 10}

// slowBatchLimit holds while the socket is not keeping up: frames are taken as
// late as possible, so that keep-latest means the latest.
var slowBatchLimit = queue.Limits{Messages: 512, Bytes: 16 << 10}

// A write that took this long had to wait for the peer.
const slowWrite = 2 * time.Millisecond

// Wake implements hub.Owner: it makes sure that a writer looks at the queues,
// the lane and the cause after this call.
func (c *conn) Wake() {
	for {
		switch c.writing.Load() {
		case writerIdle:
			if c.writing.CompareAndSwap(writerIdle, writerBusy) {
				// Joined by Server.Close through the connection's end: only
				// the writer that finishes reports the connection closed.
				go c.pump()
				return
			}
		case writerBusy:
			if c.writing.CompareAndSwap(writerBusy, writerAgain) {
				return
			}
		case writerAgain:
			return
		}
	}
}

// pump is the writer: it writes until there is nothing left, or finishes the
// connection once it has a cause.
func (c *conn) pump() {
	b := batches.Get().(*batch)
	defer b.free()
	sealed := false
	for {
		cause := c.ended()
		if cause != causeNone {
			if !closeTable[cause].flush {
				c.finish(cause)
				return
			}
			if !sealed {
				sealed = true
				for _, m := range c.memberships() {
					m.sub.Seal()
				}
			}
		}
		switch wrote := c.writeBatch(b); {
		case wrote:
		case cause != causeNone:
			c.finish(cause)
			return
		case c.writing.CompareAndSwap(writerBusy, writerIdle):
			return
		default:
			c.writing.Store(writerBusy)
		}
	}
}

// writeBatch writes the lane and then what the queues hold, within the limit,
// in one write. It reports whether there was anything.
func (c *conn) writeBatch(b *batch) bool {
	defer b.reset()
	// One step: an answer in the lane and the subscription it announces are
	// seen together or not at all.
	c.mu.Lock()
	control, pings := c.lane.take()
	members := c.members
	c.mu.Unlock()
	if len(control) > 0 {
		b.add(control)
	}
	c.fill(b, members)
	if b.size == 0 {
		return false
	}
	start := time.Now()
	n, err := c.pipe.writeFrames(b.gather())
	took := time.Since(start)
	b.slow = took > slowWrite
	c.srv.cfg.Metrics.Write(took)
	b.settle(int(n))
	switch {
	case err == nil:
		if pings {
			c.pinged()
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.end(causeWriteTimeout)
	default:
		c.end(causeClient) // the socket is gone, or the client has closed
	}
	return true
}

// flushLane writes the answers that are still in the lane, ahead of the close
// frame. An error is the end of the connection either way.
func (c *conn) flushLane() {
	c.mu.Lock()
	control, _ := c.lane.take()
	c.mu.Unlock()
	if len(control) > 0 {
		_, _ = c.pipe.writeFrames(net.Buffers{control})
	}
}

// fill takes frames from the members' queues, each in its turn first.
func (c *conn) fill(b *batch, members []*member) {
	limit := batchLimit
	if b.slow {
		limit = slowBatchLimit
	}
	c.next++
	for i := range members {
		m := members[(c.next+i)%len(members)]
		from := len(b.items)
		taken := m.sub.Take(b.items, limit)
		b.items = taken.Items
		for i := from; i < len(b.items); i++ {
			item := &b.items[i]
			limit.Messages--
			limit.Bytes -= item.Bytes
			b.gap(c.dialect, m, item.Gap, item.Value.Seq())
			b.add(item.Value.Bytes(c.encoding))
			b.ends = append(b.ends, b.size)
			m.last = item.Value.Seq()
		}
		b.gap(c.dialect, m, taken.Tail, 0)
		if len(b.items) > from {
			b.parts = append(b.parts, part{m.sub, from, len(b.items)})
		}
		if limit.Messages <= 0 || limit.Bytes <= 0 {
			return
		}
	}
}

// batch is the writer's scratch space for one write; pooled, because an idle
// connection needs none.
type batch struct {
	bufs  net.Buffers
	size  int // bytes in bufs
	items []hub.Item
	ends  []int // where in the write each of items ends
	parts []part
	flat  []byte
	ages  []time.Duration
	slow  bool // the last write had to wait for the peer
}

// part is what a batch holds of one room.
type part struct {
	sub      *hub.Subscription
	from, to int // in items
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) free() {
	b.slow = false
	batches.Put(b)
}

func (b *batch) reset() {
	clear(b.bufs)
	clear(b.items)
	clear(b.parts)
	b.bufs, b.items, b.ends, b.parts, b.size = b.bufs[:0], b.items[:0], b.ends[:0], b.parts[:0], 0
}

func (b *batch) add(encoded []byte) {
	b.bufs = append(b.bufs, encoded)
	b.size += len(encoded)
}

// gap adds the notice of a loss between the frame sent last and the one before
// which it stands; before is 0 where there is none yet.
func (b *batch) gap(d dialect, m *member, g queue.Gap, before uint64) {
	if g.Lost > 0 && m.gaps && d != dialectRaw {
		b.add(d.gap(m.sub.Room(), m.last, before, g))
	}
}

// copyBelow is the size up to which copying a batch together costs less than
// handing its pieces to writev.
const copyBelow = 32 << 10

// gather returns what to write: a single piece as it is, a small batch copied
// together, a large one as its pieces. The list is a copy: the write consumes
// it.
func (b *batch) gather() net.Buffers {
	if len(b.bufs) == 1 || b.size >= copyBelow {
		return b.bufs
	}
	b.flat = b.flat[:0]
	for _, piece := range b.bufs {
		b.flat = append(b.flat, piece...)
	}
	clear(b.bufs)
	b.bufs = append(b.bufs[:0], b.flat)
	return b.bufs
}

// settle resolves the frames in flight after n bytes were written.
func (b *batch) settle(n int) {
	for _, p := range b.parts {
		sent := p.from
		for sent < p.to && b.ends[sent] <= n {
			sent++
		}
		b.ages = p.sub.Sent(b.items[p.from:p.to], sent-p.from, b.ages)
	}
}
