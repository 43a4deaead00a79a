package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"
)

// floor is the least that a fan-out can cost: the publisher's own goroutine
// does one write(2) for each socket, with a frame that was encoded once. There
// is no queue, so one full socket would lose or garble its stream; no server
// for real use can be this. What hubd needs beyond it is the price of queues
// and of writers that may be slow.
type floor struct {
	// mu guards subscribers, and makes a message's writes one after another.
	mu          sync.Mutex
	subscribers []int // descriptors
}

func serveFloor(ln net.Listener) error {
	f := &floor{}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() { // ends with its connection, at the latest with the process
			_ = f.serve(conn.(*net.TCPConn)) // whatever it was, the connection is over
		}()
	}
}

// magic is the constant of RFC 6455, section 1.3.
const magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

func (f *floor) serve(conn *net.TCPConn) error {
	defer conn.Close()
	r := bufio.NewReader(conn)
	request, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	if request.Header.Get("Upgrade") == "" {
		f.mu.Lock()
		info := fmt.Sprintf(peerInfo, len(f.subscribers))
		f.mu.Unlock()
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(info), info)
		return err
	}
	accept := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + magic))
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(accept[:])); err != nil {
		return err
	}
	fd, err := descriptor(conn)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.subscribers = append(f.subscribers, fd)
	f.mu.Unlock()
	defer f.forget(fd)
	for {
		message, err := readMasked(r)
		if err != nil {
			return err
		}
		f.broadcast(message)
	}
}

// descriptor returns conn's descriptor, valid until conn is closed.
func descriptor(conn *net.TCPConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(n uintptr) { fd = int(n) })
	return fd, err
}

func (f *floor) forget(fd int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.subscribers {
		if s == fd {
			f.subscribers = append(f.subscribers[:i], f.subscribers[i+1:]...)
			return
		}
	}
}

func (f *floor) broadcast(message []byte) {
	b := make([]byte, 0, 10+len(message))
	switch n := len(message); {
	case n < 126:
		b = append(b, 0x80|opBinary, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|opBinary, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|opBinary, 127), uint64(n))
	}
	b = append(b, message...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fd := range f.subscribers {
		_, _ = unix.Write(fd, b) // a short write shows as a protocol error at the subscriber
	}
}

// readMasked reads one client frame, taken to be a whole message of less than
// 64 KiB.
func readMasked(r *bufio.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:2]); err != nil {
		return nil, err
	}
	size := int(header[1] & 0x7f)
	if size == 126 {
		if _, err := io.ReadFull(r, header[2:4]); err != nil {
			return nil, err
		}
		size = int(binary.BigEndian.Uint16(header[2:]))
	}
	var key [4]byte
	if _, err := io.ReadFull(r, key[:]); err != nil {
		return nil, err
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(r, message); err != nil {
		return nil, err
	}
	for i := range message {
		message[i] ^= key[i%4]
	}
	return message, nil
}
