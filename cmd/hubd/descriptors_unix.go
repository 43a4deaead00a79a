//go:build unix

package main

import "syscall"

// descriptorLimit is how many files the process may have open, 0 if there is
// no limit. The runtime has raised the soft limit to the hard one already.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	const plenty = 1 << 20
	if cur := uint64(limit.Cur); cur < plenty {
		return int(cur)
	}
	return plenty
}
