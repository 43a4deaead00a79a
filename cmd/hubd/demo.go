package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/plan"
	"hubd/internal/queue"
)

// demoCommand shows on this machine who pays for a slow subscriber.
type demoCommand struct {
	Addr string `group:"listen" default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Loopback address for the demo's hub. Default: a free port of 127.0.0.1."`
	For  period `default:"20s" placeholder:"TIME" help:"How long to go on; 0: until Ctrl-C. Default: 20s."`
}

func (c *demoCommand) Help() string {
	return "A hub, a publisher, and fast, slow and stuck subscribers over real connections, all in this process: one room for each policy, so that each can be seen to charge somebody else. The table shows it live, and so does the page at the printed address; at the end it says in words what each policy cost, and whom. It takes no other settings, opens nothing to other machines and leaves nothing behind."
}

func (c *demoCommand) configure(p *program) {
	if host, _, err := net.SplitHostPort(c.Addr); err == nil && !loopbackHost(host) {
		p.wrong("addr", "%s can be reached from other machines, which a demo should not be; give a loopback address like 127.0.0.1:8080", c.Addr)
		return
	}
	p.listenAddr("addr", c.Addr, true)
}

func (c *demoCommand) run(ctx context.Context, p *program) error {
	d := &demo{
		length: time.Duration(c.For),
		screen: newScreen(p.stdout, p.dumb),
		dial:   dialer,
		listen: func(ctx context.Context) (net.Listener, error) { return listen(ctx, c.Addr, false) },
	}
	return d.run(ctx)
}

// What is played. The figures are small enough to be followed by eye.
const (
	demoInterval = 20 * time.Millisecond // between two messages to a room
	demoRate     = int(time.Second / demoInterval)
	demoSize     = 2 << 10 // payload of a message
	demoQueue    = 50      // messages
	demoSlow     = 10      // messages a second that a slow subscriber reads
	demoAlone    = 5 * time.Second
	// demoPatience bounds what must come at once: a connection, an answer, the
	// last messages to the fast.
	demoPatience = 5 * time.Second
)

// never is longer than anybody watches.
const never = 1000 * time.Hour

// demo is one performance.
type demo struct {
	// immutable
	length time.Duration // 0: until interrupted
	screen *screen
	listen func(context.Context) (net.Listener, error)
	// dial returns how a client connects that reads at that speed.
	dial func(speed) dialFunc

	// set before anything runs
	start time.Time
	hub   *hub.Hub
	url   string // ends in a slash
	http  *http.Client
	rooms []*demoRoom

	reading sync.WaitGroup
	// laggards is when the first of them joined, in nanoseconds since start; 0:
	// not yet.
	laggards atomic.Int64
	// mu guards how long messages took to the fast subscribers: before there
	// were laggards, with laggards in their rooms, and meanwhile in the room
	// without.
	mu                   sync.Mutex
	alone, beside, apart recent

	final demoReport // how it ended
}

// effective is the demo's configuration: a feed for each policy, with a room
// of the same name, and the default.
func (d *demo) effective() *effective {
	var e effective
	limits := queue.Limits{Messages: demoQueue, Bytes: hub.DefaultQueueBytes}
	for _, policy := range queue.Policies() {
		name := policy.String()
		e.hub.Feeds = append(e.hub.Feeds, hub.Feed{Name: name, Match: []string{name}, Policy: policy, Queue: limits})
	}
	e.hub.Feeds = append(e.hub.Feeds, hub.Feed{Name: hub.DefaultFeed, Match: []string{"*"}, Queue: limits})
	e.server.Open = true
	// Whoever reads nothing for ten seconds is cut off in real life, whatever
	// the policy; here that would hide what the policies do.
	e.server.WriteTimeout, e.server.PingInterval = never, never
	return &e
}

// run plays until the end, or until ctx ends, and tells what it came to.
func (d *demo) run(ctx context.Context) error {
	report, err := d.perform(ctx)
	if err != nil {
		return err
	}
	d.final = report
	d.screen.table(report.table())
	d.screen.print("\n" + report.summary())
	return errors.Join(d.screen.err, report.imbalance())
}

// perform plays in a hub of its own, of which nothing is left afterwards, and
// reports how things stood at the end.
func (d *demo) perform(ctx context.Context) (demoReport, error) {
	parts, err := d.effective().build(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return demoReport{}, err
	}
	defer parts.hub.Close() // after the server
	listener, err := d.listen(ctx)
	if err != nil {
		return demoReport{}, fmt.Errorf("listen on --addr: %w", err)
	}
	d.start, d.hub, d.url = time.Now(), parts.hub, browsable(listener.Addr())
	d.alone.most, d.beside.most, d.apart.most = 8192, 8192, 8192
	transport := &http.Transport{DialContext: d.dial(0), MaxIdleConnsPerHost: queue.NumPolicies + 1}
	d.http = &http.Client{Transport: transport, Timeout: demoPatience}
	served := make(chan error, 1)
	go func() { served <- parts.server.Serve(listener) }() // joined below

	err = d.play(ctx)
	report := d.look()
	d.leave()
	transport.CloseIdleConnections()
	err = errors.Join(err, parts.server.Close(), <-served)
	return report, errors.Join(err, d.balance(parts.metrics))
}

// play is the performance: the fast alone, then with the others.
func (d *demo) play(ctx context.Context) (err error) {
	if d.rooms, err = newDemoRooms(d); err != nil {
		return err
	}
	for _, room := range d.rooms {
		if err := room.join(ctx, demoFast); err != nil {
			return early(ctx, err)
		}
	}
	first, length := demoAlone, never
	if d.length > 0 {
		first, length = min(first, d.length/4), d.length
	}
	d.screen.print(d.introduction(first))
	fault := d.publishing(ctx, func(ctx context.Context) error {
		d.watch(ctx, d.start.Add(first), "the fast only")
		if err := d.disturb(ctx); err != nil {
			return early(ctx, err)
		}
		d.watch(ctx, d.start.Add(length), "fast, slow and stuck")
		return d.screen.err
	})
	d.catchUp()
	return fault
}

// disturb has a slow and a stuck subscriber join every room but one.
func (d *demo) disturb(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.laggards.Store(int64(time.Since(d.start)))
	if !d.screen.live {
		d.screen.print(fmt.Sprintf("%3d s: a slow one and a stuck one join each room\n", time.Since(d.start)/time.Second))
	}
	for _, room := range d.rooms {
		for _, pace := range []demoPace{demoSlowPace, demoStuck} {
			if room.control {
				continue
			}
			if err := room.join(ctx, pace); err != nil {
				return err
			}
		}
	}
	return nil
}

// early is the error of what was begun when ctx may have ended: then it is none.
func early(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// publishing runs f while messages are published, and reports the first fault
// of either.
func (d *demo) publishing(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	faults := make(chan error, len(d.rooms))
	var publishers sync.WaitGroup
	for i, room := range d.rooms {
		// One after the other, not five at a time.
		offset := demoInterval * time.Duration(i) / time.Duration(len(d.rooms))
		publishers.Go(func() {
			if err := room.publish(ctx, offset); err != nil {
				faults <- err
				stop()
			}
		})
	}
	fault := f(ctx)
	stop()
	publishers.Wait()
	select {
	case err := <-faults:
		return errors.Join(err, fault)
	default:
		return fault
	}
}

// watch shows the state until the end of a scene, or until ctx ends.
func (d *demo) watch(ctx context.Context, end time.Time, scene string) {
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	tick := time.NewTicker(d.screen.interval())
	defer tick.Stop()
	for d.screen.err == nil {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case now := <-tick.C:
			if now.Before(end) {
				d.show(now.Sub(d.start), scene)
			}
		}
	}
}

// show shows the state at a moment of the demo.
func (d *demo) show(now time.Duration, scene string) {
	report := d.look()
	status := fmt.Sprintf("%3d s: %s", now/time.Second, scene)
	if d.length > 0 {
		status += fmt.Sprintf(", %d s to go", (d.length-now)/time.Second)
	}
	if d.screen.live {
		d.screen.table(report.table() + "\n" + report.swiftness() + status + "; Ctrl-C ends it\n")
	} else {
		d.screen.print(status + "; " + report.brief() + "\n")
	}
}

// catchUp waits for what is on its way to the fast subscribers.
func (d *demo) catchUp() {
	over := time.NewTimer(demoPatience)
	defer over.Stop()
	tick := time.NewTicker(demoInterval)
	defer tick.Stop()
	for {
		report, behind := d.look(), false
		for _, room := range report.rooms {
			fast := &room.clients[0]
			behind = behind || fast.gone == 0 && fast.received < int(fast.Offered)-fast.lost()
		}
		if !behind {
			return
		}
		select {
		case <-over.C:
			return
		case <-tick.C:
		}
	}
}

// leave ends all clients.
func (d *demo) leave() {
	for _, room := range d.rooms {
		for _, c := range room.members() {
			_ = c.conn.CloseNow()
		}
	}
	d.reading.Wait()
}

// balance checks the books of the hub as a whole, with all queues gone.
func (d *demo) balance(m *metrics.Metrics) error {
	totals := m.Totals()
	resolved := totals.Sent
	for _, n := range totals.Dropped {
		resolved += n
	}
	if resolved != totals.Offered {
		return fmt.Errorf("the hub offered %d frames and can account for %d: this is a fault of hubd, please report it", totals.Offered, resolved)
	}
	return nil
}

func (d *demo) introduction(first time.Duration) string {
	return fmt.Sprintf(`A hub with a room for each policy. To watch it on a page: %s

Into each room %d messages a second are published, of %s, and a fast subscriber reads
them. After %s a slow one joins that reads %d a second, and a stuck one that reads
nothing. Each has a queue of %d messages in the hub. Who will pay?

`, d.url, demoRate, plan.ByteText(demoSize), seconds(first), demoSlow, demoQueue)
}
