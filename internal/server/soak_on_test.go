//go:build soak

package server_test

// The load tests run at the size that their cases ask for.
const soak = true
