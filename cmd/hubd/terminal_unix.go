//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is the size of the terminal that file is, 0 if it is none.
func terminalSize(file *os.File) (rows, columns int) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			rows, columns = int(size.Row), int(size.Col)
		}
	})
	return rows, columns
}
