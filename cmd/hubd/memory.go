package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"hubd/internal/hub"
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
