//go:build unix

package main

import "syscall"

// descriptorLimit is how many files the process may have open, at most about a
// million, 0 if that cannot be known. The runtime has raised the soft limit to
// the hard one already.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	const plenty = 1 << 20
	return int(min(limit.Cur, plenty))
}
