package web_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"hubd/internal/hub"
	"hubd/internal/queue"
	"hubd/internal/server"
)

// kept is a feed whose rooms lose nothing in these tests.
func kept() hub.Feed {
	return hub.Feed{
		Name: "kept", Match: []string{"kept.*"}, Queue: queue.Limits{Messages: 20_000, Bytes: 32 << 20},
		History: &hub.HistoryLimits{Messages: 20_000, Bytes: 32 << 20, Age: time.Hour},
	}
}

// tabAt opens url in a browser, or in a further tab of beside's. The page has
// the client module as hubd.
func tabAt(t *testing.T, url, module string, beside *tab) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if errors.Is(browser.err, errNoBrowser) {
		t.Skip("this test needs a browser: ", browser.err)
	}
	if browser.err != nil {
		t.Fatal("starting the browser: ", browser.err)
	}
	parent, options := browser.ctx, []chromedp.ContextOption{chromedp.WithNewBrowserContext()}
	if beside != nil {
		parent, options = beside.ctx, nil
	}
	ctx, cancel := chromedp.NewContext(parent, options...)
	ctx, stop := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(func() { stop(); cancel() })
	p := &tab{t: t, ctx: ctx}
	p.do(chromedp.Navigate(url))
	p.run(`window.hubd = null`)
	eval[bool](p, fmt.Sprintf(`import(%q).then((m) => { window.hubd = m; return true })`, module))
	return p
}

// connect makes a hub and a room in the page, which write down all they tell.
func (p *tab) connect(url, room, options string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`
		window.told = { messages: [], links: 0, other: [] };
		window.hub = hubd.connect(%q, { backoff: { base: 5, cap: 50 }, ...%s });
		hub.addEventListener('open', () => told.links++);
		window.room = hub.join(%q);
		room.addEventListener('message', (e) => told.messages.push(e.detail));
		for (const type of ['gap', 'resumefailed', 'left', 'error']) room.addEventListener(type, (e) => told.other.push(type + ' ' + (e.detail.code ?? '')))`,
		url, options, room))
}

// TestClientExactlyOnce: over a network that cuts, delays and swallows, the
// client gets every message once and in order.
func TestClientExactlyOnce(t *testing.T) {
	for _, transport := range []string{"websocket", "sse"} {
		t.Run(transport, func(t *testing.T) {
			n := startNode(t, server.Config{}, kept())
			net := startProxy(t, n)
			n.publish("kept.r", "0") // so that the room and its numbering are there
			p := tabAt(t, net.url+"healthz", net.url+"client/hubd.js", nil)
			p.connect(net.url, "kept.r", fmt.Sprintf(`{ transport: %q }`, transport))
			p.eventually(`room.state === 'joined'`)
			rng := rand.New(rand.NewPCG(1, 2))
			last := uint64(1)
			burst := func() {
				for range rng.IntN(150) {
					last = n.publish("kept.r", strconv.FormatUint(last, 10))
				}
			}
			const rounds = 40
			for round := range rounds {
				links := eval[int](p, `told.links`)
				next := fault{}
				switch round % 4 {
				case 1: // in the middle of whatever comes then
					next.cutAfter, next.cuts = 150+rng.IntN(4000), 3
				case 2:
					next.delay = 5 * time.Millisecond
				}
				net.set(next)
				burst()
				net.cut()
				burst()
				p.eventually(fmt.Sprintf(`told.links > %d && room.state === 'joined'`, links))
			}
			// The last fault is one that no socket notices. The client finds out
			// when the browser says that something has changed.
			links := eval[int](p, `told.links`)
			net.set(fault{silent: transport == "websocket"})
			net.cut()
			p.eventually(fmt.Sprintf(`told.links > %d`, links))
			burst()
			net.set(fault{})
			if transport == "websocket" {
				p.run(`dispatchEvent(new Event('online'))`)
				p.eventually(fmt.Sprintf(`told.links > %d`, links+1))
			}
			p.eventually(fmt.Sprintf(`told.messages.at(-1)?.seq === %d`, last))
			bad := eval[[]string](p, `told.messages.flatMap((m, i) => m.seq === i + 2 && m.text === String(i + 1) ? [] : [i + ': ' + m.seq + ' ' + m.text]).slice(0, 5)`)
			if got := eval[int](p, `told.messages.length`); got != int(last-1) || len(bad) > 0 {
				t.Errorf("%d of %d messages; wrong: %v", got, last-1, bad)
			}
			if other := eval[[]string](p, `told.other`); len(other) > 0 {
				t.Errorf("the room also told: %v", other)
			}
			t.Logf("%d messages over %d links", last-1, eval[int](p, `told.links`))
			p.run(`hub.close()`)
		})
	}
}

// TestClientWithoutWebSocket: where handshakes do not get through, event
// streams take over, and publishes go over POST.
func TestClientWithoutWebSocket(t *testing.T) {
	n := startNode(t, server.Config{}, kept())
	net := startProxy(t, n)
	net.set(fault{noUpgrade: true})
	p := tabAt(t, net.url+"healthz", net.url+"client/hubd.js", nil)
	p.connect(net.url, "kept.r", `{}`)
	p.eventually(`room.state === 'joined'`)
	if got := eval[string](p, `hub.transport`); got != "sse" {
		t.Errorf("the transport is %s", got)
	}
	eval[bool](p, `(async () => {
		for (const m of [{ n: 1 }, 'text', new Uint8Array([1, 255])]) await room.publish(m);
		return true;
	})()`)
	p.eventually(`told.messages.length === 3`)
	if got := eval[string](p, `JSON.stringify(told.messages.map((m) => [m.seq, m.kind, m.text]))`); got != `[[1,"json","{\"n\":1}"],[2,"text","text"],[3,"binary","Af8="]]` {
		t.Errorf("got %s", got)
	}
	p.run(`hub.close()`)
}

// TestSevenTabsOfEventStreams: a browser opens six connections to a host over
// HTTP/1.1. The tabs leave one of them free, and those without a stream say so.
func TestSevenTabsOfEventStreams(t *testing.T) {
	n := startNode(t, server.Config{})
	var tabs []*tab
	for i := range 7 {
		var beside *tab
		if i > 0 {
			beside = tabs[0]
		}
		p := tabAt(t, n.url+"healthz", n.url+"client/hubd.js", beside) // which loads, also the seventh time
		p.connect(n.url, "r"+strconv.Itoa(i), `{ transport: 'sse' }`)
		if i < 5 {
			p.eventually(`room.state === 'joined'`)
		} else {
			p.eventually(`told.other[0] === 'error too_many_streams'`)
			// It can publish all the same.
			eval[int](p, `room.publish('x').then((p) => p.seq)`)
		}
		tabs = append(tabs, p)
	}
	tabs[1].run(`hub.close()`)
	tabs[2].run(`hub.close()`)
	tabs[5].eventually(`room.state === 'joined'`)
	tabs[6].eventually(`room.state === 'joined'`)
}

// TestClientOfAnotherSite: a page of an allowed origin loads the module from
// the hub, and uses it over either transport; that of another one may not.
func TestClientOfAnotherSite(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>elsewhere</title>")
	}))
	defer site.Close()
	n := startNode(t, server.Config{AllowedOrigins: []string{site.URL}})
	p := tabAt(t, site.URL, n.url+"client/hubd.js", nil)
	for i, transport := range []string{"websocket", "sse"} {
		p.connect(n.url, "r", fmt.Sprintf(`{ transport: %q }`, transport))
		p.eventually(`room.state === 'joined'`)
		if got := eval[int](p, `room.publish({ n: 1 }, { key: 'k' }).then((p) => p.seq)`); got != i+1 {
			t.Errorf("published as %d", got)
		}
		p.eventually(`told.messages.length === 1`)
		p.run(`hub.close()`)
	}
	other := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	p = tabAt(t, other, n.url+"client/hubd.js", nil)
	p.connect(n.url, "r", `{}`)
	p.eventually(`hub.state === 'waiting' || told.links > 0`)
	if eval[int](p, `told.links`) > 0 {
		t.Error("a page of another origin got a link")
	}
	p.run(`hub.close()`)
}

// TestPageCache: a page that is left gives its link up, and takes up where it
// was when it is come back to.
func TestPageCache(t *testing.T) {
	n := startNode(t, server.Config{}, kept())
	p := n.open("#/kept.r")
	p.eventually(`document.querySelector('.publish')`)
	n.publish("kept.r", "before")
	p.eventually(rows("kept.r", ".text") + `.join() === 'before'`)
	p.run(`addEventListener('pageshow', (e) => { window.restored = e.persisted })`)
	p.do(chromedp.Navigate(n.url + "assets/page.css"))
	for len(n.subscribers("kept.r")) > 0 { // the hub sees it go
	}
	n.publish("kept.r", "meanwhile")
	// A page that is taken out of the cache is not loaded: nothing to wait for.
	p.run(`setTimeout(() => history.back())`)
	for p.ctx.Err() == nil {
		if restored, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`String(window.restored)`)); err == nil && restored == "true" {
			break
		}
		if path, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.readyState + location.pathname`)); err == nil && path == "complete/" {
			t.Skip("this browser does not keep pages")
		}
	}
	p.eventually(rows("kept.r", ".text") + `.join() === 'before,meanwhile'`)
	if got := len(n.subscribers("kept.r")); got != 1 {
		t.Errorf("%d subscribers after coming back", got)
	}
}
