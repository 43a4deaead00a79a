package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/auth"
	"hubd/internal/hub"
	"hubd/internal/metrics"
)

// Config is what a server is made with. Zero values are the documented
// defaults, but for Hub, which is needed.
type Config struct {
	Hub     *hub.Hub
	Metrics *metrics.Metrics
	// Gatherer is what /metrics shows; nil: nothing.
	Gatherer prometheus.Gatherer
	// Version is shown to operators.
	Version string
	// Logger; nil: none.
	Logger *slog.Logger

	// Auth verifies tokens. Nil: nobody is asked for one, and all is permitted.
	// It is the caller's to close, after the server.
	Auth *auth.Verifier
	// Now is the clock that tokens are judged by; nil: time.Now.
	Now func() time.Time

	// Open is the open mode on loopback: requests must name a loopback host or
	// PublicURL's, so that a name rebound to 127.0.0.1 opens nothing.
	Open bool
	// SplitAdmin moves /metrics, /admin and /debug to AdminHandler.
	SplitAdmin bool
	// PublicURL, if set, is the URL that browsers use: its origin is the only
	// same origin.
	PublicURL *url.URL
	// AllowedOrigins are further origins, such as https://example.com:8443.
	AllowedOrigins []string

	MaxConnections        int           // 0: 10,000
	MaxRoomsPerConnection int           // 0: 32
	PingInterval          time.Duration // 0: 25 s
	PongTimeout           time.Duration // 0: 10 s
	WriteTimeout          time.Duration // 0: 10 s
	CloseTimeout          time.Duration // 0: 1 s
	DrainWindow           time.Duration // 0: 10 s
	// MaxUnsentBytes bounds what waits unsent in the kernel for one connection,
	// on Linux. 0: 16 KiB; negative: the system's default.
	MaxUnsentBytes int
	// Compression lets clients negotiate permessage-deflate.
	Compression bool
}

// The defaults that Config's zero values stand for.
const (
	DefaultMaxConnections        = 10_000
	DefaultMaxRoomsPerConnection = 32
	DefaultPingInterval          = 25 * time.Second
	DefaultPongTimeout           = 10 * time.Second
	DefaultWriteTimeout          = 10 * time.Second
	DefaultCloseTimeout          = time.Second
	DefaultDrainWindow           = 10 * time.Second
	DefaultMaxUnsentBytes        = 16 << 10
)

func orDefault[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	orDefault(&c.Logger, slog.New(slog.DiscardHandler))
	orDefault(&c.MaxConnections, DefaultMaxConnections)
	orDefault(&c.MaxRoomsPerConnection, DefaultMaxRoomsPerConnection)
	orDefault(&c.PingInterval, DefaultPingInterval)
	orDefault(&c.PongTimeout, DefaultPongTimeout)
	orDefault(&c.WriteTimeout, DefaultWriteTimeout)
	orDefault(&c.CloseTimeout, DefaultCloseTimeout)
	orDefault(&c.DrainWindow, DefaultDrainWindow)
	orDefault(&c.MaxUnsentBytes, DefaultMaxUnsentBytes)
	return c
}

// Timeouts of the HTTP side. There is no server-wide write timeout: it would
// silence whatever streams.
const (
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 10 * time.Second
	idleTimeout    = 75 * time.Second
	maxHeaderBytes = 16 << 10
)

// Server is the HTTP and WebSocket side of one hub. It owns every connection
// that was upgraded, and joins their goroutines.
type Server struct {
	// immutable
	cfg     Config
	origins origins
	start   time.Time
	public  *http.Server
	admin   *http.Server

	connIDs atomic.Uint64
	answers idempotency

	// mu guards the registry of connections. Draining is decided under it, and
	// newcomers are registered under it, so none slips in behind the drain.
	mu       sync.Mutex
	conns    map[*conn]struct{}
	pending  int // admitted, not yet upgraded
	draining bool
	// idle is closed, if not nil, when there is no connection and none pending.
	idle chan struct{}
}

// New returns a server, or why cfg does not make one.
func New(cfg Config) (*Server, error) {
	if cfg.Hub == nil {
		return nil, errors.New("server: no hub given")
	}
	cfg = cfg.withDefaults()
	o, err := newOrigins(cfg)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{cfg: cfg, origins: o, start: time.Now(), conns: map[*conn]struct{}{}}
	s.public = s.httpServer(s.Handler())
	s.admin = s.httpServer(s.AdminHandler())
	cfg.Metrics.Collect(cfg.Hub.State, s.transports)
	return s, nil
}

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		// An upgrade request that announces a body and sends none would hang
		// without it; connections that were upgraded are not bound by it.
		ReadTimeout:    headerTimeout + bodyTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// transports returns the connections of now by transport.
func (s *Server) transports() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := make([]int, len(Transports()))
	for c := range s.conns {
		n[c.dialect.transport()]++
	}
	return n
}

// Transports returns the labels of hubd_connections in order.
func Transports() []string { return []string{"websocket", "sse"} }

// Serve answers requests on ln until the server is closed; then it returns nil.
func (s *Server) Serve(ln net.Listener) error { return serve(s.public, ln) }

// ServeAdmin does the same for the admin listener.
func (s *Server) ServeAdmin(ln net.Listener) error { return serve(s.admin, ln) }

func serve(hs *http.Server, ln net.Listener) error {
	if err := hs.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", ln.Addr(), err)
	}
	return nil
}

// admit reserves a place for a connection, or returns why there is none.
func (s *Server) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusalLocked(); err != nil {
		return err
	}
	if err := s.cfg.Hub.Reserve(connectionBytes); err != nil {
		return err
	}
	s.pending++
	return nil
}

// wouldRefuse returns what admit would refuse a connection with, if it would.
func (s *Server) wouldRefuse() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusalLocked()
}

func (s *Server) refusalLocked() error {
	if s.draining {
		return &hub.Error{Code: hub.Draining, Detail: "this node is shutting down", RetryAfter: time.Second}
	}
	if len(s.conns)+s.pending >= s.cfg.MaxConnections {
		return &hub.Error{Code: hub.OverCapacity, Detail: "this node has all the connections it takes", RetryAfter: 5 * time.Second}
	}
	return nil
}

// connectionBytes is what an idle connection takes: its reader's stack, buffers
// and state, the kernel's part not included.
const connectionBytes = 12 << 10

// unadmit gives a place back that was not used.
func (s *Server) unadmit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending--
	s.cfg.Hub.Unreserve(connectionBytes)
	s.idleLocked()
}

// register turns a reserved place into a connection. Draining may have begun
// since; then the connection is ended like all others.
func (s *Server) register(c *conn) {
	s.mu.Lock()
	s.pending--
	s.conns[c] = struct{}{}
	draining := s.draining
	s.mu.Unlock()
	if draining {
		c.end(causeDrain)
	}
}

// closed is the last that is heard of a connection.
func (s *Server) closed(c *conn, row closing, outcome closeOutcome) {
	s.cfg.Metrics.ConnectionClosed(int(row.label))
	s.cfg.Metrics.CloseOutcome(int(outcome))
	s.cfg.Logger.Info("connection closed", "conn", c.id, "remote", c.remote, "reason", CloseReasons()[row.label],
		"code", int(row.code), "outcome", CloseOutcomes()[outcome], "after", time.Since(c.since).Round(time.Millisecond))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.cfg.Hub.Unreserve(connectionBytes)
	s.idleLocked()
}

func (s *Server) idleLocked() {
	if s.idle != nil && len(s.conns)+s.pending == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// allIdle returns a channel that is closed once no connection is left. It is
// for use while no new ones are admitted.
func (s *Server) allIdle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.idleLocked()
	return idle
}

// list returns the connections of now.
func (s *Server) list() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// isDraining reports whether the node is on its way out.
func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// refuseNewcomers begins the drain.
func (s *Server) refuseNewcomers() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.cfg.Hub.Drain()
}

// A drain that has few connections to close need not take the whole window:
// this many a second are no stampede anywhere.
const closesPerSecond = 25

// Drain takes the node out of service: it reports not ready, refuses joins and
// publishes while the listeners stay open, closes every connection with what is
// queued for it, spread over the drain window, and then the listeners. It
// returns when all is closed, within the window and the close timeout. When ctx
// ends, what is left is closed at once.
func (s *Server) Drain(ctx context.Context) error {
	start := time.Now()
	s.refuseNewcomers()
	conns := s.list()
	idle := s.allIdle()
	s.cfg.Logger.Info("draining", "connections", len(conns))
	var window time.Duration
	if len(conns) > 0 {
		window = min(s.cfg.DrainWindow, time.Duration(len(conns))*time.Second/closesPerSecond)
		s.endSpread(ctx, conns, window/time.Duration(len(conns)))
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
	// Requests that are being answered get their answers, in the same time that
	// the last connections had.
	answers, cancel := context.WithDeadline(ctx, start.Add(window+s.cfg.CloseTimeout))
	defer cancel()
	err := errors.Join(s.public.Shutdown(answers), s.admin.Shutdown(answers))
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = nil // Close cuts them off
	}
	return errors.Join(err, s.Close())
}

// endSpread ends the connections one every interval.
func (s *Server) endSpread(ctx context.Context, conns []*conn, interval time.Duration) {
	tick := time.NewTicker(max(interval, time.Microsecond))
	defer tick.Stop()
	start := time.Now()
	for done := 0; done < len(conns); {
		due := min(len(conns), 1+int(time.Since(start)/max(interval, time.Microsecond)))
		for ; done < due; done++ {
			conns[done].end(causeDrain)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends everything at once: connections are destroyed after at most the
// close timeout, listeners closed. It returns when all goroutines of the
// server's have ended. It may be called again.
func (s *Server) Close() error {
	s.refuseNewcomers()
	err := errors.Join(s.public.Close(), s.admin.Close())
	idle := s.allIdle()
	for _, c := range s.list() {
		c.end(causeDrain)
	}
	<-idle
	return err
}
