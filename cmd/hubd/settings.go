package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"hubd/internal/auth"
	"hubd/internal/hub"
	"hubd/internal/server"
)

// settings are the flags of the server, shared by the commands that need its
// configuration.
type settings struct {
	Addr      string `group:"listen" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen; port 0 takes a free one. Default: 127.0.0.1:8080."`
	AdminAddr string `group:"listen" placeholder:"HOST:PORT" help:"Serve /metrics, /admin and /debug here, and no longer on --addr."`
	Config    string `group:"listen" placeholder:"FILE" help:"YAML file with the feeds. Default: one feed for every room."`
	Insecure  toggle `group:"access" help:"Allow open mode (no authentication) on addresses other than loopback: whoever reaches them may read, publish and administer."`
	PublicURL string `group:"access" name:"public-url" placeholder:"URL" help:"Where browsers find this server when a proxy stands before it, like https://hub.example.com."`
	authFlags
	Origins    []string `group:"access" name:"allowed-origins" placeholder:"ORIGIN" help:"Origins of other sites whose pages may connect and publish, like https://app.example.com."`
	MaxConns   count    `group:"limits" name:"max-connections" placeholder:"N" help:"Subscriber connections at a time; more are refused with 503. Default: what the limit on open files allows, less a reserve."`
	MaxMessage size     `group:"limits" name:"max-message-bytes" default:"64KiB" placeholder:"SIZE" help:"Largest payload of one message. Default: 64KiB."`
	MaxRooms   count    `group:"limits" name:"max-rooms-per-connection" default:"32" placeholder:"N" help:"Rooms that one connection may join. Default: 32."`
	MaxUnsent  size     `group:"limits" name:"max-unsent-bytes" default:"16KiB" placeholder:"SIZE" help:"What may wait unsent in the kernel for one connection, outside its queue; 0 leaves the system's default, which is megabytes. Default: 16KiB."`
	MemBudget  size     `group:"limits" name:"memory-budget" placeholder:"SIZE" help:"Memory for retained messages and connections together; beyond it the subscribers that are furthest behind lose what they hold, and joins are refused. 0: no bound. Default: half of what the container or machine has."`

	PingInterval period `group:"timing" default:"25s" placeholder:"TIME" help:"Time between pings of a connection. Default: 25s."`
	PongTimeout  period `group:"timing" default:"10s" placeholder:"TIME" help:"Time a ping's answer may take. Default: 10s."`
	WriteTimeout period `group:"timing" default:"10s" placeholder:"TIME" help:"A write that gets no byte further for so long ends the connection. Default: 10s."`
	CloseTimeout period `group:"timing" default:"1s" placeholder:"TIME" help:"Time for saying goodbye; then the socket is destroyed. Default: 1s."`
	DrainWindow  period `group:"timing" default:"10s" placeholder:"TIME" help:"Time over which connections are closed at shutdown; 0 closes them all at once. Default: 10s."`

	Compression toggle `group:"output" help:"Offer permessage-deflate to WebSocket clients. It costs memory and CPU time."`
	LogLevel    choice `group:"output" default:"info" choices:"debug,info,warn,error" placeholder:"LEVEL" help:"Least level to log: debug, info, warn or error. Default: info."`
	LogFormat   choice `group:"output" default:"text" choices:"text,json" placeholder:"FORMAT" help:"Log as text or json. Default: text."`

	effective effective
}

var flagGroups = []kong.Group{
	{Key: "listen", Title: "Listening:"},
	{Key: "access", Title: "Access:"},
	{Key: "limits", Title: "Limits (sizes like 65536, 64KiB, 1MiB):"},
	{Key: "timing", Title: "Timing (like 500ms, 25s, 1m30s):"},
	{Key: "output", Title: "Output:"},
	{Key: "publisher", Title: "What is published:"},
	{Key: "subscribers", Title: "Subscribers and their queues:"},
	{Key: "queues", Title: "Queues and what they may cost:"},
	{Key: "connect", Title: "Connection:"},
}

// effective is what the settings come to.
type effective struct {
	hub         hub.Config    // without what serve makes: metrics
	server      server.Config // likewise: hub, metrics, gatherer, logger
	feeds       []hub.Feed    // as configured, and the built-in default
	auth        *auth.Config  // nil: open mode
	descriptors int           // open files that the process may have, 0 if unknown
}

// configure computes what is effective and adds to p all that is wrong.
func (s *settings) configure(p *program) {
	e := &s.effective
	e.auth = s.authFlags.auth(p)
	public := p.publicURL(s.PublicURL)
	entries := p.feeds(s.Config)
	e.hub = hub.Config{MaxMessageBytes: int(s.MaxMessage), MemoryBudget: p.memoryBudget(s.MemBudget)}
	for _, entry := range entries {
		e.hub.Feeds = append(e.hub.Feeds, entry.Feed)
	}
	e.feeds = e.hub.WithDefaults().Feeds
	e.descriptors = descriptorLimit()
	e.server = server.Config{
		Open:                  e.auth == nil && loopback(s.Addr),
		SplitAdmin:            s.AdminAddr != "",
		PublicURL:             public,
		AllowedOrigins:        p.origins(s.Origins),
		MaxConnections:        p.maxConnections(int(s.MaxConns), e.descriptors),
		MaxRoomsPerConnection: int(s.MaxRooms),
		PingInterval:          time.Duration(s.PingInterval),
		PongTimeout:           time.Duration(s.PongTimeout),
		WriteTimeout:          time.Duration(s.WriteTimeout),
		CloseTimeout:          time.Duration(s.CloseTimeout),
		DrainWindow:           time.Duration(s.DrainWindow),
		MaxUnsentBytes:        int(s.MaxUnsent),
		Compression:           bool(s.Compression),
	}
	// To the server 0 means the default, to the user what the help says.
	if s.MaxUnsent == 0 {
		e.server.MaxUnsentBytes = -1
	}
	if s.DrainWindow == 0 {
		e.server.DrainWindow = time.Nanosecond
	}
	p.listenAddr("addr", s.Addr, s.anywhere())
	if s.AdminAddr != "" {
		p.listenAddr("admin-addr", s.AdminAddr, s.anywhere())
		if s.AdminAddr == s.Addr && !strings.HasSuffix(s.Addr, ":0") {
			p.wrong("admin-addr", "it is the same as --addr; choose another port, or leave it out to serve all on one")
		}
	}
	p.positive(map[string]int{
		"max-message-bytes":        int(s.MaxMessage),
		"max-rooms-per-connection": int(s.MaxRooms),
		"ping-interval":            int(s.PingInterval),
		"pong-timeout":             int(s.PongTimeout),
		"write-timeout":            int(s.WriteTimeout),
		"close-timeout":            int(s.CloseTimeout),
	})
	if err := e.hub.Validate(); err != nil {
		p.hubProblems(flatten(err), entries)
	}
}

// anywhere reports whether the server may listen where others reach it.
func (s *settings) anywhere() bool { return bool(s.Insecure) || s.effective.auth != nil }

// wrong notes a problem with a flag, under the name that the user gave it.
func (p *program) wrong(flag, format string, args ...any) {
	name := "--" + flag
	if p.sources[flag] == sourceEnv {
		name = variable(flag)
	}
	p.problems.add("%s: %s", name, fmt.Sprintf(format, args...))
}

// positive rejects 0 where it was given; where a value did not parse, that is
// known already.
func (p *program) positive(values map[string]int) {
	for _, flag := range p.flags {
		if n, ok := values[flag.Name]; ok && n <= 0 && !p.rejected(flag.Name) {
			p.wrong(flag.Name, "it must be more than 0")
		}
	}
}

func (p *program) rejected(flag string) bool {
	return slices.ContainsFunc(p.problems, func(problem string) bool {
		return strings.HasPrefix(problem, "--"+flag+" ") || strings.HasPrefix(problem, variable(flag)+" ")
	})
}

// listenAddr checks an address to listen on.
func (p *program) listenAddr(flag, addr string, anywhere bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		p.wrong(flag, "%q is not HOST:PORT; write 127.0.0.1:8080, or [::1]:8080 for IPv6", addr)
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		p.wrong(flag, "port %q is not a number from 0 to 65535", port)
	}
	if !loopbackHost(host) && !anywhere {
		p.wrong(flag, "%s can be reached from other machines, and without authentication whoever reaches it may read, publish and end connections; "+
			"ask for tokens (--auth-hmac-secret, --auth-public-key, --auth-jwks-url), listen on 127.0.0.1, or accept that with --insecure (HUBD_INSECURE=true)", addr)
	}
}

// loopback tells whether addr, a host and port, is for this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (p *program) publicURL(text string) *url.URL {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		p.wrong("public-url", "%q is not the root of a site; write scheme and host like https://hub.example.com", text)
		return nil
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}
}

// origins checks origins and brings them into the form in which browsers send
// them: lower case, without a port that is the scheme's own.
func (p *program) origins(texts []string) []string {
	var origins []string
	for _, text := range texts {
		text = strings.TrimSpace(text)
		u, err := url.Parse(text)
		switch {
		case text == "":
		case text == "*" || text == "null":
			p.wrong("allowed-origins", "%q would let any page in; list the sites one by one", text)
		case err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			p.wrong("allowed-origins", "%q is not an origin; write scheme, host and, if unusual, port, like https://app.example.com", text)
		case strings.Contains(u.Host, "*"):
			p.wrong("allowed-origins", "%q: patterns are not supported; list the sites one by one", text)
		default:
			host := strings.ToLower(u.Host)
			switch u.Scheme {
			case "http":
				host = strings.TrimSuffix(host, ":80")
			case "https":
				host = strings.TrimSuffix(host, ":443")
			}
			origins = append(origins, u.Scheme+"://"+host)
		}
	}
	return origins
}

// unreserved is how few descriptors besides those of the connections the
// program can live with: standard streams, listeners, the poller, files.
const unreserved = 16

// maxConnections is the limit asked for or, with 0, the one that the limit on
// open files allows. The reserve leaves room for publishers and scrapers,
// whose requests take a descriptor each as well.
func (p *program) maxConnections(asked, descriptors int) int {
	switch {
	case descriptors == 0: // no such limit, or an unknown one
		if asked == 0 {
			return 10_000
		}
	case asked == 0:
		reserve := min(max(descriptors/16, 64), 1024)
		return max(descriptors-reserve, descriptors/2)
	case asked > descriptors-unreserved:
		p.wrong("max-connections", "%d connections need more open files than the %d that this process may have; "+
			"raise that limit (ulimit -n, LimitNOFILE=) or ask for fewer", asked, descriptors)
	}
	return asked
}

func (s *settings) logger(p *program) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.LogLevel)) // one of the flag's choices
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(p.stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.stderr, options))
}

// feeds reads the file of --config.
func (p *program) feeds(file string) []feedEntry {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		p.wrong("config", "%v; name a YAML file with the feeds", err)
		return nil
	}
	feeds, found := parseFeeds(file, text)
	p.problems = append(p.problems, found...)
	return feeds
}

// hubProblems adds what the hub finds wrong with its configuration, with the
// place in the file where it concerns a feed of it.
func (p *program) hubProblems(texts []string, entries []feedEntry) {
	for _, text := range texts {
		var number int
		if _, err := fmt.Sscanf(text, "feed %d ", &number); err != nil || number < 1 || number > len(entries) {
			p.problems.add("%s", text)
		} else if entry := entries[number-1]; !entry.broken {
			p.problems.add("%s: %s", entry.where, text)
		}
	}
}

// flatten returns the texts of an error that joins others.
func flatten(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var texts []string
	for _, e := range joined.Unwrap() {
		texts = append(texts, flatten(e)...)
	}
	return texts
}
