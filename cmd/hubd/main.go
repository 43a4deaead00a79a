package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(supervise(signals, func(ctx context.Context) int {
		return run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	}))
}

// supervise runs command until it returns. The first signal cancels the
// command's context, which begins an orderly end; the second one gives up on
// it and makes the status 1 at once. A handler is needed for both: as the
// first process of a container, a program without one is deaf to signals.
func supervise(signals <-chan os.Signal, command func(context.Context) int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	status := make(chan int, 1)
	go func() { status <- command(ctx) }()
	select {
	case code := <-status:
		return code
	case <-signals:
		cancel()
	}
	select {
	case code := <-status:
		return code
	case <-signals:
		return exitFault // the process ends, and the command with it
	}
}
