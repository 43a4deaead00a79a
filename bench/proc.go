package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on
// every architecture that Go knows.
const clockTick = 10 * time.Millisecond

// cpu returns the processor time that the process has used, user and system.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(text)
}

// parseCPU reads utime and stime, fields 14 and 15 (proc(5)). The second field,
// the program's name in parentheses, may contain anything.
func parseCPU(stat []byte) (time.Duration, error) {
	_, rest, ok := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc/PID/stat: %.100q", stat)
	}
	var total time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(string(f), 10, 62)
		if err != nil {
			return 0, fmt.Errorf("times in /proc/PID/stat: %w", err)
		}
		total += time.Duration(n) * clockTick
	}
	return total, nil
}

// ownCPU returns what this process has used.
func ownCPU() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// resident returns the bytes of memory that the process has in RAM.
func resident(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("unexpected /proc/PID/statm: %q", text)
	}
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize(), err
}

// serverSockets counts the TCP sockets of a local IPv4 port whose other end is
// one of the given ports, in whatever state: the kernel's view of what a server
// still holds.
func serverSockets(port int, others map[int]bool) (int, error) {
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	return countSockets(string(text), port, others)
}

func countSockets(table string, port int, others map[int]bool) (n int, err error) {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[1:] { // the first names the columns
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return 0, fmt.Errorf("unexpected line in /proc/net/tcp: %q", line)
		}
		local, err := hexPort(fields[1])
		if err != nil {
			return 0, err
		}
		remote, err := hexPort(fields[2])
		if err != nil {
			return 0, err
		}
		if local == port && others[remote] {
			n++
		}
	}
	return n, nil
}

// hexPort reads the port of an address such as 0100007F:1F90.
func hexPort(addr string) (int, error) {
	_, text, _ := strings.Cut(addr, ":")
	n, err := strconv.ParseUint(text, 16, 16)
	if err != nil {
		return 0, fmt.Errorf("address %q: %w", addr, err)
	}
	return int(n), nil
}

// raiseFileLimit lets this process, and those it starts, have as many files
// open as the system allows. Go does that for itself at the start, but gives
// children the limit of before.
func raiseFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
