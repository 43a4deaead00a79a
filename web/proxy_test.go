package web_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy is a network between a browser and a node that can be made to fail.
type proxy struct {
	t        *testing.T
	upstream string
	url      string // http://127.0.0.1:port/
	links    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu: both ends of every link
	fault fault             // guarded by mu: of links from now on
}

// fault is what a proxy does to a link.
type fault struct {
	noUpgrade bool          // WebSocket handshakes are cut off
	delay     time.Duration // of each piece on its way to the browser
	cutAfter  int           // cut when so many bytes have gone to the browser; 0: never
	cuts      int           // how many links cutAfter is for
	silent    bool          // nothing gets to the browser any more, without a word
}

func startProxy(t *testing.T, n *node) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, upstream: n.url[len("http://") : len(n.url)-1], url: "http://" + ln.Addr().String() + "/", conns: map[net.Conn]bool{}}
	p.links.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			p.links.Go(func() { p.link(near) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		p.cut()
		p.links.Wait()
	})
	return p
}

// set decides the fate of the links that come.
func (p *proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// cut resets every link.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

func (p *proxy) track(c net.Conn) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	f := p.fault
	if f.cuts == 0 {
		f.cutAfter = 0
	}
	return f
}

func (p *proxy) cutOnce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault.cuts--
}

func (p *proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *proxy) link(near net.Conn) {
	f := p.track(near)
	defer p.forget(near)
	if f.cutAfter > 0 {
		p.cutOnce()
	}
	head := make([]byte, 16<<10)
	size, err := near.Read(head)
	if err != nil || f.noUpgrade && bytes.Contains(bytes.ToLower(head[:size]), []byte("upgrade: websocket")) {
		return
	}
	far, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	p.track(far)
	defer p.forget(far)
	if _, err := far.Write(head[:size]); err != nil {
		return
	}
	p.links.Go(func() {
		_, _ = io.Copy(far, near) // the end of a link is no news here
		far.Close()
	})
	f.copy(near, far)
}

// copy forwards what the node says, as the fault allows.
func (f fault) copy(near, far net.Conn) {
	buf := make([]byte, 4<<10)
	for sent := 0; ; {
		n, err := far.Read(buf)
		if err != nil {
			return
		}
		if f.delay > 0 {
			<-time.After(f.delay)
		}
		if f.silent && sent > 0 { // the answer to the handshake goes through
			continue
		}
		if f.cutAfter > 0 && sent+n >= f.cutAfter {
			_, _ = near.Write(buf[:f.cutAfter-sent])
			near.(*net.TCPConn).SetLinger(0)
			return
		}
		if _, err := near.Write(buf[:n]); err != nil {
			return
		}
		sent += n
	}
}
