//go:build race

package hub_test

// Under the race detector a sync.Pool loses things at random, so allocations
// cannot be counted.
const raceDetector = true
