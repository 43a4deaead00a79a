package server

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// permessage-deflate (RFC 7692) is done here and not by the WebSocket library,
// which takes a message that was cut short for a whole one, carries what stands
// behind a final block into the next message, and accepts offers that must be
// declined.

// What every answer holds: no context is taken over, in either direction. One
// compressed frame serves all subscribers, and an idle connection holds no
// window.
const deflateAnswer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"

// errExtensions is the refusal of a Sec-WebSocket-Extensions that is none.
var errExtensions = errors.New("Sec-WebSocket-Extensions is not as RFC 6455, section 9.1, has it")

// negotiateDeflate returns the answer to the first of the client's offers that
// can be accepted; "" for none.
func negotiateDeflate(h http.Header) (answer string, err error) {
	offers, err := parseExtensions(strings.Join(h.Values("Sec-WebSocket-Extensions"), ","))
	if err != nil {
		return "", err
	}
	for _, o := range offers {
		if o.name != "permessage-deflate" {
			continue
		}
		if answer := o.accept(); answer != "" {
			return answer, nil
		}
	}
	return "", nil
}

// extension is one offer of the client's.
type extension struct {
	name   string
	params []parameter
}

type parameter struct {
	name, value string
	hasValue    bool
}

// accept returns the answer to an offer of permessage-deflate, or "" to decline
// it: for a parameter that is unknown, wrong or there twice (section 7.1), and
// for a window that is smaller than the one there is.
func (e extension) accept() string {
	answer := deflateAnswer
	seen := map[string]bool{}
	for _, p := range e.params {
		if seen[p.name] {
			return ""
		}
		seen[p.name] = true
		switch p.name {
		case "server_no_context_takeover", "client_no_context_takeover":
			if p.hasValue {
				return ""
			}
		case "client_max_window_bits": // a smaller window is inflated all the same
			if p.hasValue && !windowBits(p.value) {
				return ""
			}
		case "server_max_window_bits":
			if p.value != "15" {
				return ""
			}
			answer += "; server_max_window_bits=15" // section 7.1.2.1
		default:
			return ""
		}
	}
	return answer
}

func windowBits(s string) bool {
	return len(s) == 1 && '8' <= s[0] && s[0] <= '9' || len(s) == 2 && s[0] == '1' && '0' <= s[1] && s[1] <= '5'
}

// parseExtensions reads a list of extensions (RFC 6455, section 9.1). Empty
// elements are let pass, as in all lists of HTTP.
func parseExtensions(s string) (all []extension, err error) {
	p := &headerParser{s}
	for {
		for p.accept(',') {
		}
		if p.rest == "" {
			return all, nil
		}
		var e extension
		if e.name = p.token(); e.name == "" {
			return nil, errExtensions
		}
		for p.accept(';') {
			var param parameter
			if param.name = p.token(); param.name == "" {
				return nil, errExtensions
			}
			if param.hasValue = p.accept('='); param.hasValue {
				if param.value = p.value(); param.value == "" {
					return nil, errExtensions
				}
			}
			e.params = append(e.params, param)
		}
		all = append(all, e)
		if p.rest != "" && !p.accept(',') {
			return nil, errExtensions
		}
	}
}

// headerParser takes a header's value apart (RFC 9110, section 5.6).
type headerParser struct{ rest string }

func (p *headerParser) space() { p.rest = strings.TrimLeft(p.rest, " \t") }

// accept takes c, and the white space around it, if it comes next.
func (p *headerParser) accept(c byte) bool {
	p.space()
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	p.space()
	return true
}

// token takes a token; "" where none comes next.
func (p *headerParser) token() string {
	n := 0
	for n < len(p.rest) && tokenByte(p.rest[n]) {
		n++
	}
	t := p.rest[:n]
	p.rest = p.rest[n:]
	return t
}

// value takes a token, quoted or not; "" where none comes next.
func (p *headerParser) value() string {
	if p.rest == "" || p.rest[0] != '"' {
		return p.token()
	}
	var v []byte
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			p.rest = p.rest[i+1:]
			return string(v)
		case c == '\\' && i+1 < len(p.rest):
			i++
			c = p.rest[i]
		}
		if !tokenByte(c) {
			return "" // section 9.1: once unquoted, it is a token too
		}
		v = append(v, c)
	}
	return ""
}

func tokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// deflatedLimit is the size of a compressed message that may still inflate to no
// more than limit: what cannot be compressed grows by less than this.
func deflatedLimit(limit int64) int64 { return limit + limit/64 + 64 }

var errInflate = &violation{causeProtocol, "a message is not compressed as RFC 7692 has it"}

var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

const (
	// flushed is what the sender takes off the end of each message (section
	// 7.2.1), and lastBlock ends the stream: a message that is whole ends there.
	flushed   = "\x00\x00\xff\xff"
	lastBlock = "\x01\x00\x00\xff\xff"
	window    = 32 << 10
)

// inflate appends to dst what payload inflates to, or fails with a violation
// if that is not to be had, or is more than limit. It appends to payload.
func inflate(dst, payload *bytes.Buffer, limit int64) error {
	if payload.Len() == 0 {
		return nil // it should be the one byte of section 7.2.3.6, but is clear enough
	}
	payload.WriteString(flushed + lastBlock)
	in := bytes.NewReader(payload.Bytes())
	r := inflaters.Get().(io.Reader)
	defer inflaters.Put(r)
	for {
		// Behind a block that says it is the last there may be others (section
		// 7.2.1); they may refer to what came before.
		dict := dst.Bytes()
		if err := r.(flate.Resetter).Reset(in, dict[max(0, len(dict)-window):]); err != nil {
			return err
		}
		_, err := dst.ReadFrom(io.LimitReader(r, limit+1-int64(dst.Len())))
		switch left := in.Len(); {
		case int64(dst.Len()) > limit:
			return errTooBig
		case err != nil:
			return errInflate
		case left == 0, left == len(flushed)+len(lastBlock):
			return nil
		case left < len(flushed)+len(lastBlock):
			return errInflate // it went on into what it does not have
		}
	}
}
