package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// publishCommand sends messages over plain HTTP, one request each.
type publishCommand struct {
	Room    string  `arg:"" help:"The room to publish to."`
	Message *string `arg:"" optional:"" help:"The message. Without it each line of standard input is one."`

	Type  choice `default:"text" choices:"text,json,binary" placeholder:"TYPE" help:"What the message is: text, json or binary. Default: text."`
	Whole toggle `help:"Publish all of standard input as one message, byte for byte."`
	Key   string `placeholder:"KEY" help:"Conflation key: under keep-latest the newest message of each key is kept."`
	Wait  period `placeholder:"TIME" help:"In a room that refuses messages when a queue is full: how long to wait for room, at most 5s. Default: 0s."`
	JSON  toggle `name:"json" xor:"output" help:"Print the server's answers as JSON, a line each."`
	Quiet toggle `short:"q" xor:"output" help:"Print no answers."`
	target
}

func (c *publishCommand) Help() string {
	return "Prints for each message its room and sequence number, to how many subscribers it was offered, how many queues took it, and what it cost the slow ones. A refused message ends the command with status 1 and the server's reason; lines after it are not published."
}

var contentTypes = map[choice]string{
	"text":   "text/plain; charset=utf-8",
	"json":   "application/json",
	"binary": "application/octet-stream",
}

func (c *publishCommand) run(ctx context.Context, p *program) error {
	if c.Message != nil && bool(c.Whole) {
		return p.usage("publish", errors.New("--whole reads standard input, but there is a message on the command line; give one of them"))
	}
	server, err := parseServerURL(c.URL)
	if err != nil {
		return p.usage("publish", err)
	}
	if c.Room == "" {
		return p.usage("publish", errors.New("the room's name is empty; name a room like lobby"))
	}
	pub := &publisher{command: c, server: server, url: c.endpoint(server), out: p.stdout}
	switch {
	case c.Message != nil:
		return pub.publish(ctx, []byte(*c.Message))
	case bool(c.Whole):
		all, err := io.ReadAll(p.stdin)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		return pub.publish(ctx, all)
	default:
		return pub.lines(ctx, p.stdin)
	}
}

func (c *publishCommand) endpoint(server *url.URL) string {
	query := url.Values{}
	if c.Key != "" {
		query.Set("key", c.Key)
	}
	if c.Wait > 0 {
		query.Set("wait", c.Wait.String())
	}
	endpoint := strings.TrimSuffix(server.String(), "/") + "/rooms/" + url.PathEscape(c.Room)
	if len(query) > 0 {
		endpoint += "?" + query.Encode()
	}
	return endpoint
}

type publisher struct {
	command *publishCommand
	server  *url.URL
	url     string
	out     io.Writer
}

// maxLine bounds a line of standard input. Servers take far less by default.
const maxLine = 64 << 20

// lines publishes each line, and stops at the first that is refused.
func (pub *publisher) lines(ctx context.Context, stdin io.Reader) error {
	scanner := bufio.NewScanner(stdin)
	scanner.Buffer(nil, maxLine)
	number := 0
	for scanner.Scan() {
		number++
		if err := pub.publish(ctx, scanner.Bytes()); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("read standard input after line %d: %w", number, err)
	}
	return nil
}

// receipt is the server's answer to a publish.
type receipt struct {
	Room         string `json:"room"`
	Seq          uint64 `json:"seq"`
	Subscribers  int    `json:"subscribers"`
	Queued       int    `json:"queued"`
	Dropped      int    `json:"dropped"`
	Conflated    int    `json:"conflated"`
	Disconnected int    `json:"disconnected"`
}

func (r receipt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d subscribers=%d queued=%d", printable(r.Room), r.Seq, r.Subscribers, r.Queued)
	for _, cost := range []struct {
		name string
		n    int
	}{{"dropped", r.Dropped}, {"conflated", r.Conflated}, {"disconnected", r.Disconnected}} {
		if cost.n > 0 {
			fmt.Fprintf(&b, " %s=%d", cost.name, cost.n)
		}
	}
	return b.String()
}

func (pub *publisher) publish(ctx context.Context, message []byte) error {
	c := pub.command
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, pub.url, bytes.NewReader(message))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentTypes[c.Type])
	c.authorize(request.Header)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return unreachable(pub.server, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not published: %w", refusalOf(response))
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("published, but the answer broke off: %w", err)
	}
	return pub.print(answer)
}

func (pub *publisher) print(answer []byte) error {
	var r receipt
	if err := json.Unmarshal(answer, &r); err != nil {
		return fmt.Errorf("the answer of %s is not that of a hubd: %w", pub.server.Redacted(), err)
	}
	var err error
	switch c := pub.command; {
	case bool(c.Quiet):
	case bool(c.JSON):
		_, err = fmt.Fprintf(pub.out, "%s\n", bytes.TrimSpace(answer))
	default:
		_, err = fmt.Fprintln(pub.out, r)
	}
	return err
}
