package metrics

import "slices"

// Depths are quantiles of a distribution, each one of its values.
type Depths struct {
	P50  int `json:"p50"`
	P90  int `json:"p90"`
	P99  int `json:"p99"`
	P999 int `json:"p999"`
	Max  int `json:"max"`
}

// Quantiles returns the quantiles of values by nearest rank: each is the least
// value that at least that share of the values do not exceed. Nothing is
// interpolated, so each is the depth of a subscription that exists. It returns
// zeros for no values, and leaves values as they are.
func Quantiles(values []int) Depths {
	if len(values) == 0 {
		return Depths{}
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	// Whole numbers, as 0.9*n in floating point may fall on either side of n's
	// exact share.
	rank := func(permille int) int { return sorted[(len(sorted)*permille+999)/1000-1] }
	return Depths{P50: rank(500), P90: rank(900), P99: rank(990), P999: rank(999), Max: sorted[len(sorted)-1]}
}
