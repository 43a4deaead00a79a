package server

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"hubd/internal/auth"
	"hubd/internal/frame"
	"hubd/internal/hub"
)

const (
	// tokenProtocol begins the subprotocol that carries a token. It is offered
	// beside Protocol and never answered with.
	tokenProtocol = "hubd.token."
	// authTimeout is how long a connection on /ws may be without a token.
	authTimeout = 5 * time.Second
	// keysWait is how long a token may wait for the keys that it needs.
	keysWait = 3 * time.Second
)

// permit is what a request or a connection may do. The zero permit is that of
// somebody who has shown no token: it permits nothing.
type permit struct {
	open  bool // no authentication: all is permitted
	grant auth.Grant
	// until is when the grant ends, leeway included. It has a monotonic reading:
	// whatever is done to the clock later makes it neither longer nor shorter.
	until time.Time
}

func (p permit) anonymous() bool { return !p.open && p.grant.Subject == "" }

// The refusals of permits. What is wrong with a token is in auth.Refusal.
var (
	errNoToken       = &hub.Error{Code: hub.Unauthorized, Detail: "show a token: as Authorization: Bearer, as subprotocol " + tokenProtocol + "<jwt>, as ?access_token=, or in the command auth on /ws"}
	errTokens        = &hub.Error{Code: hub.Unauthorized, Detail: "show one token: there are several, and they differ"}
	errOtherSubject  = &hub.Error{Code: hub.Unauthorized, Detail: "sub: the token is another subject's than the connection's"}
	errMayNotJoin    = &hub.Error{Code: hub.Forbidden, Detail: "the token does not grant joining this room"}
	errMayNotPublish = &hub.Error{Code: hub.Forbidden, Detail: "the token does not grant publishing to this room"}
	errNoAdmin       = &hub.Error{Code: hub.Forbidden, Detail: `the token does not grant administration: it needs "admin":true`}
	errNoKeys        = &hub.Error{Code: hub.OverCapacity, Detail: auth.ErrNoKeys.Error(), RetryAfter: 5 * time.Second}
)

// join returns nil, or why the room may not be joined or read.
func (p permit) join(room frame.Room) error {
	return p.decide(p.grant.MayJoin(room.String()), errMayNotJoin)
}

// publish returns nil, or why nothing may be published to the room.
func (p permit) publish(room frame.Room) error {
	return p.decide(p.grant.MayPublish(room.String()), errMayNotPublish)
}

// administer returns nil, or why the operator's side is closed.
func (p permit) administer() error { return p.decide(p.grant.Admin, errNoAdmin) }

func (p permit) decide(granted bool, refusal *hub.Error) error {
	switch {
	case p.open:
		return nil
	case p.anonymous():
		return errNoToken
	case !granted:
		return refusal
	}
	return nil
}

// permitOf returns what the request's token permits: the zero permit without
// one, an error with a bad one.
func (s *Server) permitOf(r *http.Request) (permit, error) {
	if s.cfg.Auth == nil {
		return permit{open: true}, nil
	}
	switch tokens := tokensOf(r); len(tokens) {
	case 0:
		return permit{}, nil
	case 1:
		p, err := s.verify(tokens[0], r.Context().Done())
		if err != nil {
			s.cfg.Logger.Debug("token refused", "remote", r.RemoteAddr, "error", err)
		}
		return p, err
	}
	return permit{}, errTokens
}

// tokensOf returns the tokens that the request carries, each once, whichever
// way. One that is empty is a token too: a bad one.
func tokensOf(r *http.Request) []string {
	var tokens []string
	add := func(token string) {
		if !slices.Contains(tokens, token) {
			tokens = append(tokens, token)
		}
	}
	for _, line := range r.Header.Values("Authorization") {
		// Another scheme is meant for somebody else, such as a proxy.
		if scheme, token, _ := strings.Cut(strings.TrimSpace(line), " "); strings.EqualFold(scheme, "Bearer") {
			add(strings.TrimSpace(token))
		}
	}
	for offer := range protocolsOf(r) {
		if token, ok := strings.CutPrefix(offer, tokenProtocol); ok {
			add(token)
		}
	}
	query, _ := url.ParseQuery(r.URL.RawQuery) // what is malformed is refused where it is of use
	for _, token := range query["access_token"] {
		add(token)
	}
	return tokens
}

// verify returns what a token permits. A token whose key is not there yet waits
// for it a little, but no longer than until gone is closed.
func (s *Server) verify(token string, gone <-chan struct{}) (permit, error) {
	p, err := s.verifyNow(token)
	if errors.Is(err, auth.KeyUnknown) || errors.Is(err, auth.ErrNoKeys) {
		patience := time.NewTimer(keysWait)
		defer patience.Stop()
		select {
		case <-s.cfg.Auth.Refresh():
		case <-patience.C:
		case <-gone:
		}
		p, err = s.verifyNow(token)
	}
	var refusal auth.Refusal
	switch {
	case err == nil:
		return p, nil
	case errors.As(err, &refusal):
		return permit{}, &hub.Error{Code: hub.Unauthorized, Detail: refusal.Error()}
	}
	return permit{}, errNoKeys
}

func (s *Server) verifyNow(token string) (permit, error) {
	now := s.cfg.Now()
	grant, err := s.cfg.Auth.Verify(token, now)
	if err != nil {
		return permit{}, err
	}
	// now may have no monotonic reading, or be a test's.
	return permit{grant: grant, until: time.Now().Add(grant.Expires.Add(s.cfg.Auth.Leeway()).Sub(now))}, nil
}

// operators lets through what a token with admin asks for.
func (s *Server) operators(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.permitOf(r)
		if err == nil {
			err = p.administer()
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// challenge tells a client which credentials are asked for (RFC 6750, section
// 3). One that has shown none is not told of an error.
func challenge(h http.Header, e *hub.Error) {
	const bearer = `Bearer realm="hubd"`
	switch {
	case e == errNoToken:
		h.Set("WWW-Authenticate", bearer)
	case e.Code == hub.Unauthorized:
		h.Set("WWW-Authenticate", bearer+`, error="invalid_token"`)
	case e.Code == hub.Forbidden:
		h.Set("WWW-Authenticate", bearer+`, error="insufficient_scope"`)
	}
}

// authenticate is the command auth. It runs on the reader, as all do that look
// at the permit.
func (c *conn) authenticate(id requestID, token string) {
	if c.permit.open {
		c.refuse(id, &hub.Error{Code: hub.InvalidOption, Detail: "this hub is open: it asks for no token"})
		return
	}
	p, err := c.srv.verify(token, c.answered)
	if err == nil && !c.permit.anonymous() && p.grant.Subject != c.permit.grant.Subject {
		err = errOtherSubject
	}
	if err != nil {
		c.refuse(id, err)
		c.end(causeOfRefusal(err))
		return
	}
	c.permit = p
	c.expireAt(p.until)
	c.limitReads()
	c.srv.cfg.Logger.Debug("authenticated", "conn", c.id, "sub", p.grant.Subject)
	c.answer(marshal(struct {
		Type    string    `json:"type"`
		ID      requestID `json:"id,omitempty"`
		Expires int64     `json:"expires"`
	}{"authenticated", id, p.grant.Expires.Unix()}))
	for _, m := range c.memberships() {
		if p.join(m.sub.Room()) != nil {
			c.leaveMember("", m)
		}
	}
}

// expireAt ends the connection at that time, unless it is called again before.
func (c *conn) expireAt(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cause != causeNone: // finish would not see a timer that is made now
	case c.expiry == nil:
		c.expiry = time.AfterFunc(time.Until(until), func() { c.end(causeUnauthorized) })
	default:
		c.expiry.Reset(time.Until(until))
	}
}

func (c *conn) stopExpiry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expiry != nil {
		c.expiry.Stop()
	}
}

// startExpiry bounds the life of a connection that needs a token.
func (c *conn) startExpiry() {
	switch {
	case c.permit.open:
	case c.permit.anonymous():
		c.expireAt(time.Now().Add(authTimeout))
	default:
		c.expireAt(c.permit.until)
		c.srv.cfg.Logger.Debug("authenticated", "conn", c.id, "sub", c.permit.grant.Subject)
	}
}
