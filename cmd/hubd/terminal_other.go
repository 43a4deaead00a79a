//go:build !unix

package main

import "os"

// terminalSize is 0: what the terminal understands is not known here.
func terminalSize(*os.File) (rows, columns int) { return 0, 0 }
