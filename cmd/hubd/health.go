package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const healthTimeout = 2 * time.Second

// healthCommand succeeds if the server answers that it is alive.
type healthCommand struct {
	URL   string `name:"url" group:"connect" placeholder:"URL" help:"The server. Default: the address in HUBD_ADDR, as in the server's own container, else http://127.0.0.1:8080."`
	Ready toggle `help:"Ask for readiness in place of liveness: a server that drains is alive, but not ready."`
}

func (c *healthCommand) Help() string {
	return "Exit status 0: it is; 1: it is not, or gave no answer within 2 seconds."
}

func (c *healthCommand) run(ctx context.Context, p *program) error {
	base := c.URL
	if base == "" {
		base = ownURL(p.env[variable("addr")])
	}
	target, err := parseServerURL(base)
	if err != nil {
		return p.usage("health", err)
	}
	path := "healthz"
	if c.Ready {
		path = "readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.JoinPath(path).String(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return unreachable(target, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %w", request.URL, refusalOf(response))
	}
	_, err = fmt.Fprintln(p.stdout, "ok")
	return err
}

// ownURL is how a server that listens on addr is reached from its own machine.
func ownURL(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return defaultURL
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
