package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"hubd/internal/frame"
	"hubd/internal/hub"
	"hubd/internal/metrics"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// patience is how long a test waits for what must come. It is no expectation
// of speed: a test that reaches it has failed.
const patience = 60 * time.Second

// browser is the one browser of all tests; each page has a profile of its own.
var browser struct {
	once  sync.Once
	ctx   context.Context
	err   error
	close func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.close != nil {
		browser.close()
	}
	os.Exit(code)
}

var errNoBrowser = errors.New("no chromium on the PATH")

func startBrowser() {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		browser.err = errNoBrowser
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	browser.ctx = ctx
	browser.close = func() { cancel(); stop() }
	browser.err = chromedp.Do(ctx)
}

// node is a whole hub on a real socket.
type node struct {
	t   *testing.T
	hub *hub.Hub
	url string // http://127.0.0.1:port/
}

func startNode(t *testing.T, cfg server.Config, feeds ...hub.Feed) *node {
	t.Helper()
	hc := hub.Config{Feeds: feeds}
	registry := prometheus.NewRegistry()
	hc.Metrics = metrics.New(registry, metrics.Sets{
		Feeds: hc.FeedNames(), Policies: queue.PolicyNames(), DropReasons: queue.ReasonNames(), OverflowReasons: queue.LimitNames(),
		Encodings: frame.Encodings(), PublishReasons: server.PublishReasons(), Transports: server.Transports(),
		CloseReasons: server.CloseReasons(), CloseOutcomes: server.CloseOutcomes(), HandshakeReasons: server.HandshakeReasons(),
	})
	h, err := hub.New(hc)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Hub, cfg.Metrics, cfg.Gatherer, cfg.Open = h, hc.Metrics, registry, true
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("closing the server: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return &node{t: t, hub: h, url: "http://" + ln.Addr().String() + "/"}
}

func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

// post publishes as curl would.
func (n *node) post(room, contentType, body string) {
	n.t.Helper()
	resp, err := http.Post(n.url+"rooms/"+room, contentType, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		n.t.Fatalf("publishing: %s", resp.Status)
	}
}

// publish publishes in process, as fast as the hub takes it.
func (n *node) publish(room, text string) uint64 {
	n.t.Helper()
	name, err := frame.ParseRoom(room)
	if err != nil {
		n.t.Fatal(err)
	}
	p, err := n.hub.Publish(n.ctx(), hub.PublishRequest{Message: frame.Message{Room: name, Kind: frame.Text, Data: []byte(text)}})
	if err != nil {
		n.t.Fatal(err)
	}
	return p.Position.Seq
}

// subscriber is one of a room, as operators see it.
type subscriber struct {
	ID     string
	Queued struct{ Messages, Bytes int }
}

func (n *node) subscribers(room string) []subscriber {
	n.t.Helper()
	resp, err := http.Get(n.url + "admin/rooms/" + room)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Subscriptions []subscriber }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		n.t.Fatal(err)
	}
	return got.Subscriptions
}

// dial joins a room as another subscriber, raw.
func (n *node) dial(room string) *websocket.Conn {
	n.t.Helper()
	ws, resp, err := websocket.Dial(n.ctx(), n.url+"rooms/"+room, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	n.t.Cleanup(func() { ws.CloseNow() })
	return ws
}

// tab is the page in a browser.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex
	problems []string // guarded by mu: what the console and the network told
}

// open shows the node's page at path, such as "#/lobby". At the end of the
// test nothing may have gone wrong in the console (violations of the content
// security policy appear there) and nothing may have been asked of others.
func (n *node) open(path string, expected ...string) *tab {
	n.t.Helper()
	browser.once.Do(startBrowser)
	if errors.Is(browser.err, errNoBrowser) {
		n.t.Skip("this test needs a browser: ", browser.err)
	}
	if browser.err != nil {
		n.t.Fatal("starting the browser: ", browser.err)
	}
	p := &tab{t: n.t, origin: strings.TrimSuffix(n.url, "/")}
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	ctx, stop := context.WithTimeout(ctx, patience)
	p.ctx = ctx
	n.t.Cleanup(func() {
		stop()
		cancel()
		p.check(expected)
	})
	p.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(n.url+path))
	p.eventually(`document.querySelector('#link').dataset.state === 'open'`)
	return p
}

func (p *tab) listen(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			text, _ := json.Marshal(e.Args)
			problem = fmt.Sprintf("console.%s: %s", e.Type, text)
		}
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("exception: %+v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			problem = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme != "blob" && u.Scheme+"://"+u.Host != p.origin {
			problem = "request to elsewhere: " + e.Request.URL
		}
	case *network.EventWebSocketCreated:
		if want := "ws" + strings.TrimPrefix(p.origin, "http") + "/ws"; e.URL != want {
			problem = "WebSocket to elsewhere: " + e.URL
		}
	}
	if problem != "" {
		p.mu.Lock()
		p.problems = append(p.problems, problem)
		p.mu.Unlock()
	}
}

// check reports what went wrong, but for what contains one of expected.
func (p *tab) check(expected []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
next:
	for _, problem := range p.problems {
		for _, e := range expected {
			if strings.Contains(problem, e) {
				continue next
			}
		}
		p.t.Error("the browser tells: ", problem)
	}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of a JavaScript expression, awaited.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T]("(async () => ("+expression+"))()", chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", expression, err, p.screen())
	}
	return v
}

// run executes statements.
func (p *tab) run(statements string) {
	p.t.Helper()
	eval[bool](p, "(() => {"+statements+"; return true})()")
}

// eventually waits until the expression is true, looking once a frame. The
// page's policy forbids what chromedp's own Poll needs, to compile a text.
func (p *tab) eventually(expression string) {
	p.t.Helper()
	const loop = `new Promise((resolve) => {
		const look = () => { if (%s) resolve(true); else requestAnimationFrame(look); };
		look();
	})`
	ctx, cancel := context.WithTimeout(p.ctx, patience/2)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(loop, expression), chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("never came true: %s: %v\n%s", expression, err, p.screen())
	}
}

// screen is what a failed test shows of the page.
func (p *tab) screen() string {
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// look sets the viewport and the colour scheme.
func (p *tab) look(width, height int64, scheme string) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// join fills the form in and waits until the room is there.
func (p *tab) join(room, policy, limit string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`const { elements } = document.querySelector('#join');
		elements.room.value = %q; elements.policy.value = %q; elements.queue_messages.value = %q;
		document.querySelector('#join').requestSubmit()`, room, policy, limit))
	p.eventually(fmt.Sprintf(`document.querySelector('[aria-label="Room %s"]')`, room))
}

// rows is a JavaScript expression for the texts of the rows in a room.
func rows(room, kind string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('[aria-label="Room %s"] .row%s .body')].map((n) => n.textContent)`, room, kind)
}
