package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// tailCommand follows rooms over one WebSocket connection.
type tailCommand struct {
	Rooms []string `arg:"" name:"room" help:"The rooms to follow."`

	Count         count  `short:"n" placeholder:"N" help:"End after N messages. Default: go on until interrupted."`
	JSON          toggle `name:"json" help:"Print the frames of the JSON protocol as they come, a line each."`
	Policy        choice `choices:"drop-newest,drop-oldest,keep-latest,disconnect,reject-publish" placeholder:"POLICY" help:"What a full queue loses: drop-newest, drop-oldest, keep-latest, disconnect or reject-publish, as far as the feed allows it. Default: the feed's."`
	QueueMessages count  `placeholder:"N" help:"Ask for a queue of at most N messages. Default: the feed's limit."`
	QueueBytes    size   `placeholder:"SIZE" help:"Ask for a queue of at most so many payload bytes. Default: the feed's limit."`
	After         string `placeholder:"EPOCH:SEQ" help:"Begin after this position of the one room named, as far as its history goes back."`
	Slow          speed  `placeholder:"BYTES/S" help:"Read slowly on purpose, like 2KiB, to see what a slow subscriber gets. The receive buffer is made small as well."`
	NoReconnect   toggle `help:"End with status 1 when the connection is lost, in place of connecting again."`
	target
}

func (c *tailCommand) Help() string {
	return "Prints \"ROOM SEQ MESSAGE\" for each message, and \"ROOM gap lost=N reason=R\" wherever messages were lost on the way, as one line each; what cannot be shown in a line is quoted, binary messages are base64. Notices about the connection go to standard error. A lost connection is made again after a random delay that grows to 30 seconds, and goes on behind the last message where the server still has what came after it. Ctrl-C ends it with status 0."
}

func (c *tailCommand) run(ctx context.Context, p *program) error {
	server, err := parseServerURL(c.URL)
	if err != nil {
		return p.usage("tail", err)
	}
	if err := c.check(); err != nil {
		return p.usage("tail", err)
	}
	f := &follower{
		command: c,
		server:  server,
		notices: p.stderr,
		printer: newPrinter(p.stdout, bool(c.JSON)),
		dial:    dialer(c.Slow),
	}
	if c.After != "" {
		at, err := parsePlace(c.After)
		if err != nil {
			return p.usage("tail", err)
		}
		f.printer.rooms[c.Rooms[0]] = &at
	}
	return f.follow(ctx)
}

func (c *tailCommand) check() error {
	seen := make(map[string]bool)
	for _, room := range c.Rooms {
		if room == "" {
			return errors.New("the name of a room is empty; name rooms like lobby")
		}
		if seen[room] {
			return fmt.Errorf("room %s is named twice; name each once", printable(room))
		}
		seen[room] = true
	}
	if c.After != "" && len(c.Rooms) > 1 {
		return errors.New("--after is a position in one room, but several are named; follow that room with a command of its own")
	}
	return nil
}

// Delays before connecting again: random up to a bound that doubles from the
// first to the last, so that many clients do not come back together.
const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 30 * time.Second
	// steady is how long a connection must have lasted for the next delay to
	// begin small again.
	steady = 10 * time.Second
)

// follower keeps a connection to the server for as long as it should.
type follower struct {
	command *tailCommand
	server  *url.URL
	notices io.Writer
	printer *printer
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}

// follow returns nil when ctx has ended or enough messages have come.
func (f *follower) follow(ctx context.Context) error {
	joined := false
	for attempt := 0; ; attempt++ {
		start := time.Now()
		s := &session{follower: f}
		err := s.run(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // being interrupted is how following ends
		}
		joined = joined || s.joined > 0
		if !joined || bool(f.command.NoReconnect) || final(err) {
			return err
		}
		if s.joined > 0 && time.Since(start) > steady {
			attempt = 0
		}
		delay := max(rand.N(min(firstDelay<<min(attempt, 10), lastDelay)), retryAfter(err))
		f.notice("%v; connecting again in %v", err, delay.Round(time.Millisecond))
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// notice tells about the connection, apart from what comes over it.
func (f *follower) notice(format string, args ...any) {
	fmt.Fprintf(f.notices, "hubd: "+format+"\n", args...)
}

// final tells whether connecting again with the same request is in vain.
func final(err error) bool {
	if code := websocket.CloseStatus(err); code == closeUnauthorized || code == closeForbidden {
		return true
	}
	var outcome *outputError
	var rejected *joinError
	var refused *refusal
	switch {
	case errors.As(err, &outcome):
		return true
	case errors.As(err, &rejected):
		return !rejected.passing()
	case errors.As(err, &refused):
		return refused.status >= 400 && refused.status < 500 && refused.status != http.StatusTooManyRequests
	}
	return false
}

// Close codes after which the same token will not do.
const (
	closeUnauthorized websocket.StatusCode = 4001
	closeForbidden    websocket.StatusCode = 4003
)

func retryAfter(err error) time.Duration {
	var refused *refusal
	if errors.As(err, &refused) {
		return min(refused.retryAfter, lastDelay)
	}
	return 0
}

// endpoint is the URL of the connection that is in no room yet.
func (f *follower) endpoint() string {
	return strings.TrimSuffix(f.server.String(), "/") + "/ws"
}
