package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// siocOutqNSD asks for the bytes that were written and not sent yet
// (linux/sockios.h).
const siocOutqNSD = 0x894B

// limitUnsent bounds what waits in the kernel unsent: a write blocks while more
// than n bytes do (TCP_NOTSENT_LOWAT). Without it the kernel takes megabytes
// before the first write blocks, and a queue's limits mean little.
func limitUnsent(c *net.TCPConn, n int) error {
	return control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n)
	})
}

// unsent returns the bytes that wait in the kernel and were not sent yet.
func unsent(c *net.TCPConn) int { return query(c, siocOutqNSD) }

// unacked returns the bytes in the kernel that the peer's has not acknowledged.
func unacked(c *net.TCPConn) int { return query(c, unix.SIOCOUTQ) }

// query returns 0 for a socket that is closed already.
func query(c *net.TCPConn, request uint) (n int) {
	err := control(c, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, request)
		return err
	})
	if err != nil {
		return 0
	}
	return n
}

func control(c *net.TCPConn, f func(fd int) error) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := rc.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
