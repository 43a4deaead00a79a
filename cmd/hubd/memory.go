package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/plan"
)

// memoryBudget is what the flag comes to: where it is not given, half of what
// the container has, or else the machine; 0 for no bound.
func (p *program) memoryBudget(given size) int64 {
	if _, ok := p.sources["memory-budget"]; ok {
		if given > 0 && given < hub.MinMemoryBudget {
			p.wrong("memory-budget", "%s is too little; give at least %s, or 0 for no bound", given, size(hub.MinMemoryBudget))
			return 0
		}
		return int64(given)
	}
	has, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil {
		return 0 // not known on this system
	}
	return max(int64(has/2), hub.MinMemoryBudget)
}

// worstCase is what queues can come to under a configuration: every connection
// is in as many rooms as it may, and every queue is full of messages that no
// other one holds, in every encoding.
type worstCase struct {
	connections, rooms int // rooms of a connection
	bytes              int64
	budget             int64 // 0: none
}

func (e *effective) worstCase() worstCase {
	w := worstCase{e.server.MaxConnections, e.server.MaxRoomsPerConnection, 0, e.hub.MemoryBudget}
	encodings := len(frame.Encodings())
	if !e.server.Compression {
		encodings -= 2 // those that are compressed
	}
	for _, feed := range e.feeds {
		w.bytes = max(w.bytes, plan.WorstCase(w.queues(), feed.Queue, encodings))
	}
	return w
}

func (w worstCase) queues() int { return w.connections * w.rooms }

func (w worstCase) String() string {
	text := fmt.Sprintf("%d connections, each in %d rooms, have %d queues; all full, and no two of the same messages, they would hold %s",
		w.connections, w.rooms, w.queues(), plan.ByteText(w.bytes))
	switch {
	case w.budget == 0:
		return text + ", which no memory budget bounds."
	case w.bytes > w.budget:
		return text + ". The memory budget keeps that to " + plan.ByteText(w.budget) + "."
	}
	return text + ", which is within the memory budget of " + plan.ByteText(w.budget) + "."
}

// collectWithin has the garbage collector work harder as the memory of the
// container runs out, rather than be killed for what it could have freed. The
// variable GOMEMLIMIT, which is Go's, decides where it is set.
func collectWithin(log *slog.Logger) error {
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.FromCgroup))
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
		return nil
	case err != nil:
		return fmt.Errorf("set the memory limit from the container's: %w", err)
	}
	if limit < math.MaxInt64 {
		log.Info("memory limit", "gomemlimit", limit)
	}
	return nil
}
