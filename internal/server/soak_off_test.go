//go:build !soak

package server_test

const soak = false
