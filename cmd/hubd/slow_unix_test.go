//go:build unix

package main

import (
	"net"
	"syscall"
	"testing"
)

func TestReceiveBuffer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dialer(64<<10)(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if err := raw.Control(func(fd uintptr) {
		got, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
	}); err != nil {
		t.Fatal(err)
	}
	// Linux doubles what is asked for, to have room for its own records.
	if err != nil || got < 16<<10 || got > 32<<10 {
		t.Errorf("the receive buffer is %d (%v), want 16 KiB or its double", got, err)
	}
}
