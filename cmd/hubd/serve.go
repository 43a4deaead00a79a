package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"hubd/internal/auth"
	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// serveCommand runs the server until its context ends, then drains it.
type serveCommand struct {
	settings
}

func (c *serveCommand) Help() string {
	return "Open the printed address in a browser for the dashboard, or join a room with any WebSocket client at ws://ADDR/rooms/NAME. SIGTERM or Ctrl-C drains: newcomers are refused, connections get what is queued for them and are closed over --drain-window. A second signal ends the process at once. Every flag can also be set by a variable: --drain-window is HUBD_DRAIN_WINDOW."
}

func (c *serveCommand) run(ctx context.Context, p *program) error {
	log := c.logger(p)
	if err := collectWithin(log); err != nil {
		log.Warn("no memory limit", "error", err)
	}
	verifier, err := c.verifier(log)
	if err != nil {
		return err
	}
	if verifier != nil {
		defer verifier.Close()
	}
	parts, err := c.effective.build(log, verifier)
	if err != nil {
		return err
	}
	defer parts.hub.Close() // after the server
	s := &service{log: log, server: parts.server, patience: c.effective.server.DrainWindow + 2*c.effective.server.CloseTimeout}
	if err := s.listen(ctx, &c.settings); err != nil {
		return err
	}
	c.announce(s)
	return s.serve(ctx)
}

// verifier returns what checks tokens, nil in open mode.
func (c *serveCommand) verifier(log *slog.Logger) (*auth.Verifier, error) {
	if c.effective.auth == nil {
		return nil, nil //nolint:nilnil // none is what open mode has
	}
	cfg := *c.effective.auth
	cfg.Logger = log
	v, err := auth.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the verifier of tokens: %w", err)
	}
	return v, nil
}

// parts are what a server consists of but for its sockets.
type parts struct {
	hub     *hub.Hub
	server  *server.Server
	metrics *metrics.Metrics
}

// build wires the parts.
func (e *effective) build(log *slog.Logger, verifier *auth.Verifier) (parts, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	version, revision := build()
	hubConfig, serverConfig := e.hub, e.server
	hubConfig.Metrics = metrics.New(registry, metrics.Sets{
		Feeds:            hubConfig.FeedNames(),
		Policies:         queue.PolicyNames(),
		DropReasons:      queue.ReasonNames(),
		OverflowReasons:  queue.LimitNames(),
		Encodings:        frame.Encodings(),
		PublishReasons:   server.PublishReasons(),
		Transports:       server.Transports(),
		CloseReasons:     server.CloseReasons(),
		CloseOutcomes:    server.CloseOutcomes(),
		HandshakeReasons: server.HandshakeReasons(),
		Version:          version,
		Revision:         revision,
	})
	h, err := hub.New(hubConfig)
	if err != nil {
		return parts{}, fmt.Errorf("make the hub: %w", err)
	}
	serverConfig.Version = version
	serverConfig.Hub = h
	serverConfig.Auth = verifier
	serverConfig.Metrics = hubConfig.Metrics
	serverConfig.Gatherer = registry
	serverConfig.Logger = log
	srv, err := server.New(serverConfig)
	if err != nil {
		return parts{}, fmt.Errorf("make the server: %w", err)
	}
	return parts{h, srv, hubConfig.Metrics}, nil
}

// announce says once what runs, where, and within which limits.
func (c *serveCommand) announce(s *service) {
	version, revision := build()
	e := &c.effective
	s.log.Info("hubd starts", "version", version, "revision", revision, "go", runtime.Version())
	var feeds []string
	for _, feed := range e.feeds {
		feeds = append(feeds, feed.Name)
	}
	s.log.Info("limits",
		"max_connections", e.server.MaxConnections,
		"open_files", e.descriptors,
		"max_message_bytes", e.hub.MaxMessageBytes,
		"max_rooms_per_connection", e.server.MaxRoomsPerConnection,
		"max_unsent_bytes", int(c.MaxUnsent),
		"memory_budget", e.hub.MemoryBudget,
		"feeds", strings.Join(feeds, ","))
	worst := e.worstCase()
	s.log.Info("memory at worst: every queue full, no two of the same messages", "queues", worst.queues(), "bytes", worst.bytes, "memory_budget", worst.budget)
	addr := s.public.Addr().String()
	switch {
	case e.auth != nil:
		announceAuth(s.log, e.auth)
	case e.server.Open:
		s.log.Info("open mode: no authentication; every program on this machine may read, publish and administer", "addr", addr)
	default:
		s.log.Warn("open mode: no authentication; whoever reaches this address may read, publish and administer", "addr", addr)
	}
	if s.admin != nil {
		s.log.Info("listening for administration", "addr", s.admin.Addr().String())
	}
	s.log.Info("listening", "addr", addr, "url", browsable(s.public.Addr()))
}

// browsable is the URL under which this machine reaches addr.
func browsable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/"
}

// service is the server with its listeners.
type service struct {
	log      *slog.Logger
	server   *server.Server
	patience time.Duration // what a drain may take at most
	public   net.Listener
	admin    net.Listener // nil: all is on public
}

// listen opens the listeners, or none.
func (s *service) listen(ctx context.Context, c *settings) (err error) {
	if s.public, err = listen(ctx, c.Addr, c.anywhere()); err != nil {
		return fmt.Errorf("listen on --addr: %w", err)
	}
	if c.AdminAddr == "" {
		return nil
	}
	if s.admin, err = listen(ctx, c.AdminAddr, c.anywhere()); err != nil {
		return errors.Join(fmt.Errorf("listen on --admin-addr: %w", err), s.public.Close())
	}
	return nil
}

// listen listens on addr. A name such as localhost is checked by what it
// turned out to be.
func listen(ctx context.Context, addr string, anywhere bool) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if !anywhere && !loopback(listener.Addr().String()) {
		return nil, errors.Join(
			fmt.Errorf("%s is %s, which other machines can reach: name a loopback address, ask for tokens, or accept it with --insecure", addr, listener.Addr()),
			listener.Close())
	}
	return listener, nil
}

// serve answers requests until ctx ends or a listener fails, and returns when
// every connection is gone and both listeners are closed.
func (s *service) serve(ctx context.Context) error {
	var running sync.WaitGroup
	failed := make(chan error, 2)
	running.Go(func() { failed <- s.server.Serve(s.public) })
	if s.admin != nil {
		running.Go(func() { failed <- s.server.ServeAdmin(s.admin) })
	}
	var fault error
	select {
	case <-ctx.Done():
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
		fault = s.server.Drain(deadline)
		cancel()
	case fault = <-failed:
	}
	fault = errors.Join(fault, s.server.Close())
	running.Wait()
	s.log.Info("hubd ends")
	return fault
}
