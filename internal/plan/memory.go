package plan

import (
	"math"
	"sort"

	"hubd/internal/queue"
)

const (
	// frameBytes is what a frame takes beside its payload and encodings, about.
	frameBytes = 256
	// minBytes is the least that a queue's limit in bytes should be: a message
	// may be that large.
	minBytes = 64 << 10
)

// Memory is in bytes, of all queues of the feed.
type Memory struct {
	// Worst: every queue is full to both limits, and no two hold the same frame.
	Worst int64 `json:"worst"`
	// Likely: the slow queues of a room are full, of the same frames.
	Likely int64 `json:"likely"`
}

// WorstCase is the memory of so many queues, in bytes, when every one is full
// to both limits and no two hold the same frame. Each frame keeps its payload
// and one copy for each encoding in use. It never overflows.
func WorstCase(queues int, limits queue.Limits, encodings int) int64 {
	return whole(float64(queues) * full(limits, encodings))
}

// full is the memory of one full queue with its frames.
func full(limits queue.Limits, encodings int) float64 {
	return frames(float64(limits.Messages), float64(limits.Bytes), encodings) + float64(queue.RingBytes(limits.Messages))
}

// frames is the memory of so many frames with so many bytes of payload.
func frames(messages, bytes float64, encodings int) float64 {
	return bytes*float64(1+encodings) + messages*frameBytes
}

func whole(bytes float64) int64 {
	if bytes >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(bytes)
}

func (in Input) memory(limits queue.Limits, credit int) Memory {
	shared := frames(float64(credit), float64(credit)*float64(in.Size), in.Encodings)
	rings := float64(in.Slow) * float64(queue.RingBytes(credit))
	return Memory{
		Worst:  whole(in.queues() * full(limits, in.Encodings)),
		Likely: whole(float64(in.Rooms) * (shared + rings)),
	}
}

func (in Input) queues() float64 { return float64(in.Subscribers) * float64(in.Rooms) }

// limits are those of a queue for so many messages of the size planned for.
func (in Input) limits(messages int) queue.Limits {
	return queue.Limits{Messages: messages, Bytes: max(minBytes, clamp(float64(messages)*float64(in.Size)))}
}

// affordable returns how many of the messages that a queue should hold the
// memory allows at worst. 0 means that not even one does: any message may be
// large, and there are too many queues.
func (in Input) affordable(messages int) int {
	return sort.Search(messages, func(n int) bool {
		return in.queues()*full(in.limits(n+1), in.Encodings) > float64(in.Memory)
	})
}
