package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const defaultURL = "http://127.0.0.1:8080"

// target is where the commands of a client find the server.
type target struct {
	URL   string `name:"url" group:"connect" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server. Default: http://127.0.0.1:8080."`
	Token string `group:"connect" placeholder:"TOKEN" help:"Bearer token, for a server with authentication. HUBD_TOKEN in place of the flag keeps it out of the process list."`
}

// parseServerURL checks the URL of a server. A path is that of a proxy before it.
func parseServerURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil {
		switch u.Scheme {
		case "ws":
			u.Scheme = "http"
		case "wss":
			u.Scheme = "https"
		}
	}
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--url %q is not the address of a server; write it like %s", text, defaultURL)
	}
	return u, nil
}

// usage makes err a mistake of the command line.
func (p *program) usage(command string, err error) error {
	return problems{err.Error()}.err(command)
}

// authorize adds the token, if any, to a request's header.
func (t *target) authorize(header http.Header) {
	if t.Token != "" {
		header.Set("Authorization", "Bearer "+t.Token)
	}
}

// refusal is an answer of the server that was no success.
type refusal struct {
	status     int
	code       string
	detail     string
	retryAfter time.Duration // 0: the server did not say
}

func (r *refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", r.status, http.StatusText(r.status))
	if r.code != "" {
		fmt.Fprintf(&b, " (%s)", printable(r.code))
	}
	if r.detail != "" {
		fmt.Fprintf(&b, ": %s", printable(r.detail))
	}
	if r.retryAfter > 0 {
		fmt.Fprintf(&b, "; try again in %v", r.retryAfter)
	}
	return b.String()
}

// maxProblem bounds what is read of an answer that is an error.
const maxProblem = 16 << 10

// refusalOf reads an error answer: problem+json, or the start of whatever some
// proxy wrote in its place.
func refusalOf(response *http.Response) *refusal {
	r := &refusal{status: response.StatusCode}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.retryAfter = time.Duration(seconds) * time.Second
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	if err != nil && len(body) == 0 {
		return r
	}
	var problem struct{ Code, Title, Detail string }
	if json.Unmarshal(body, &problem) == nil && (problem.Code != "" || problem.Detail != "") {
		r.code, r.detail = problem.Code, problem.Detail
		return r
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	r.detail = line[:min(len(line), 200)]
	return r
}

// unreachable explains why no answer came.
func unreachable(server *url.URL, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nothing listens at %s: start \"hubd serve\" there, or name the server with --url", server.Redacted())
	}
	return fmt.Errorf("%s: %w", server.Redacted(), err)
}
