//go:build !linux

package server

import "net"

// Elsewhere than on Linux the kernel's backlog is neither bounded nor known.

func limitUnsent(*net.TCPConn, int) error { return nil }

func unsent(*net.TCPConn) int { return 0 }

// unacked assumes the worst: a socket that is destroyed is reset.
func unacked(*net.TCPConn) int { return 1 }
