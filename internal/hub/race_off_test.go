//go:build !race

package hub_test

const raceDetector = false
