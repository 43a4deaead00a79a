package plan

import (
	"encoding/json"
	"math"
	"strconv"
)

// Seconds is a duration, which may be Never to end. In JSON that is null.
type Seconds float64

// Never is longer than any duration.
var Never = Seconds(math.Inf(1))

// MarshalJSON writes a number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(s), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(s))
}

func (s Seconds) String() string {
	switch {
	case s == 0:
		return "0 s"
	case math.IsInf(float64(s), 0):
		return "never"
	case s < 1e-3:
		return short(float64(s)*1e6) + " µs"
	case s < 1:
		return short(float64(s)*1e3) + " ms"
	case s < 120:
		return short(float64(s)) + " s"
	case s < 2*3600:
		return short(float64(s)/60) + " min"
	case s < 2*86400:
		return short(float64(s)/3600) + " h"
	}
	return short(float64(s)/86400) + " days"
}

// ByteText writes a number of bytes with three digits, for people.
func ByteText(n int64) string {
	units := []string{" B", " KiB", " MiB", " GiB", " TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return short(value) + units[unit]
}

// short writes a number with three digits, or all that are before the point.
func short(n float64) string {
	switch {
	case math.Abs(n) >= 100:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n == 0:
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(n))))
	scale := math.Pow(10, float64(digits))
	return strconv.FormatFloat(math.Round(n*scale)/scale, 'f', -1, 64)
}
