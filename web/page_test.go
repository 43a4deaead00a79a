package web_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/coder/websocket"

	"hubd/internal/server"
)

func TestMessagePublishedOverHTTPAppears(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("")
	p.join("lobby", "", "")
	p.join("chat.dev", "drop-oldest", "10")
	if got := eval[string](p, `document.querySelector('[aria-label="Room lobby"] .empty').innerText`); !strings.Contains(got, n.url+"rooms/lobby") {
		t.Errorf("the empty room teaches %q, not its URL", got)
	}

	n.post("lobby", "text/plain", "hello from a shell")
	// Beyond 2^53, and with spacing: neither survives a parse.
	n.post("chat.dev", "application/json", `{"n": 12345678901234567890}`)
	n.post("chat.dev", "application/octet-stream", "\x00\x01\x02")
	p.eventually(rows("lobby", ".text") + `.join() === 'hello from a shell'`)
	p.eventually(rows("chat.dev", ".json") + `.join() === '{"n": 12345678901234567890}'`)
	p.eventually(rows("chat.dev", ".binary") + `.join() === 'binary, 3 B AAEC'`)
	facts := eval[string](p, `document.querySelector('[aria-label="Room chat.dev"] .facts').innerText`)
	if !strings.Contains(facts, "drop-oldest") || !strings.Contains(facts, "10 / 1 MiB") {
		t.Errorf("facts of the room: %q", facts)
	}
	if eval[bool](p, `[...document.querySelectorAll('.empty')].some((n) => n.checkVisibility())`) {
		t.Error("a room with messages still says that it is empty")
	}

	p.run(`document.querySelector('[aria-label="Room lobby"] .leave').click()`)
	p.eventually(`!document.querySelector('[aria-label="Room lobby"]')`)
	p.eventually(`fetch('admin/stats').then((r) => r.json()).then((s) => s.subscriptions === 1)`)
}

func TestPublishReachesAnotherSubscriber(t *testing.T) {
	n := startNode(t, server.Config{})
	other := n.dial("lobby")
	p := n.open("#/lobby")
	p.eventually(`document.querySelector('.publish')`)
	publish := func(format, text string) {
		t.Helper()
		p.run(fmt.Sprintf(`const { elements } = document.querySelector('.publish');
			elements.format.value = %q; elements.message.value = %q; elements.message.form.requestSubmit()`, format, text))
	}
	for _, m := range [][2]string{{"text", "hello\nfrom the page"}, {"json", `{"n": 12345678901234567890}`}} {
		publish(m[0], m[1])
		_, got, err := other.Read(n.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != m[1] {
			t.Errorf("the other subscriber got %q, want %q", got, m[1])
		}
		p.eventually(`document.querySelector('.result').dataset.tone === 'good' && document.querySelector('.publish').elements.message.value === ''`)
	}
	p.eventually(`document.querySelector('.result').textContent === 'Published as 2'`)

	publish("json", `{"half":`)
	p.eventually(`document.querySelector('.result').textContent.includes('(invalid_message)')`)
	publish("text", strings.Repeat("x", 65<<10))
	p.eventually(`document.querySelector('.result').textContent.includes('(message_too_large)')`)
	if got := eval[string](p, `document.querySelector('#link').dataset.state`); got != "open" {
		t.Errorf("after refusals the connection is %s", got)
	}
}

func TestRefusedJoinIsShown(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("")
	submit := func(room, policy, limit, want string) {
		t.Helper()
		p.run(fmt.Sprintf(`const { elements } = document.querySelector('#join');
			elements.room.value = %q; elements.policy.value = %q; elements.queue_messages.value = %q;
			document.querySelector('#join').requestSubmit()`, room, policy, limit))
		p.eventually(fmt.Sprintf(`document.querySelector('#join-error').innerText.includes(%q) && !document.querySelector('#join button').disabled`, want))
	}
	submit("", "", "", "A room needs a name")
	submit("a b", "", "", "(invalid_room)")
	submit("lobby", "reject-publish", "", "(invalid_option)")
	submit("lobby", "", "-3", "positive whole number")
	p.join("lobby", "", "")
	submit("lobby", "", "", "(already_joined)")
}

func TestMarkupIsShownAsText(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("#/lobby", "Trusted")
	p.eventually(`document.querySelector('.publish')`)
	markup := `<img src=x onerror="window.harmed=1"><script>window.harmed=1</script><b>bold</b>`
	n.post("lobby", "text/plain", markup)
	n.post("lobby", "application/json", `"</span><svg onload=window.harmed=1>"`)
	p.eventually(rows("lobby", ".json") + `.length === 1`)
	if got := eval[string](p, rows("lobby", ".text")+`[0]`); got != markup {
		t.Errorf("shown: %q, want %q", got, markup)
	}
	if eval[bool](p, `'harmed' in window || document.querySelector('.rows :is(img, script, svg, b)') !== null`) {
		t.Error("a message became markup")
	}
	// The policy stands behind it: a sink that parses markup throws.
	if got := eval[string](p, `(() => { try { document.querySelector('.rows').innerHTML = '<b>x</b>'; return 'allowed' } catch (e) { return e.name } })()`); got != "TypeError" {
		t.Errorf("assigning innerHTML: %s", got)
	}
}

func TestGapIsShown(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("")
	p.join("busy", "drop-newest", "1")
	var last uint64
	for !eval[bool](p, `document.querySelector('.row.gap') !== null`) {
		for range 500 {
			last = n.publish("busy", "x")
		}
	}
	text := eval[string](p, `document.querySelector('.row.gap .body').textContent`)
	lost, rest, _ := strings.Cut(text, " ")
	if _, err := strconv.Atoi(strings.ReplaceAll(lost, ",", "")); err != nil || !strings.Contains(rest, " missed after ") || !strings.Contains(rest, ": overflow") {
		t.Errorf("the gap reads %q", text)
	}
	// Every message was either shown or told as missed.
	figure := func(name string) string {
		return `Number(document.querySelector('.fact-` + name + `').textContent.split(' ')[0].replaceAll(',', ''))`
	}
	p.eventually(fmt.Sprintf(`%s + %s === %d`, figure("received"), figure("missed"), last))
}

func TestStreamIsBounded(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("")
	p.join("busy", "drop-oldest", "")
	var last uint64
	for range 3000 {
		last = n.publish("busy", "x")
	}
	// The newest always comes through, so the list must end with it.
	p.eventually(fmt.Sprintf(`[...document.querySelectorAll('.row .seq')].at(-1)?.textContent === '%d'`, last))
	for i := range 600 {
		n.post("busy", "text/plain", strconv.Itoa(i))
	}
	p.eventually(rows("busy", "") + `.at(-1) === '599'`)
	if got := eval[int](p, `document.querySelectorAll('.row').length`); got != 500 {
		t.Errorf("%d rows, want 500", got)
	}
	if got := eval[string](p, `document.querySelector('.trimmed').innerText`); !strings.Contains(got, "the last 500 lines of") {
		t.Errorf("what is no longer shown: %q", got)
	}

	// Looking back holds the list still; what comes meanwhile is counted.
	p.run(`document.querySelector('.stream').scrollTop = 0`)
	p.eventually(`document.querySelector('.pause').getAttribute('aria-pressed') === 'true'`)
	n.post("busy", "text/plain", "later")
	p.eventually(`document.querySelector('.latest').innerText === 'Latest (1 new line)'`)
	p.run(`document.querySelector('.latest').click()`)
	p.eventually(rows("busy", "") + `.at(-1) === 'later'`)

	long := strings.Repeat("long ", 13000)
	n.post("busy", "text/plain", long)
	p.eventually(`document.querySelector('.more')`)
	if got := eval[int](p, rows("busy", "")+`.at(-1).length`); got > 1100 {
		t.Errorf("a long message is shown with %d characters at first", got)
	}
	p.run(`document.querySelector('.more').click()`)
	p.eventually(fmt.Sprintf(`%s.at(-1).length === %d`, rows("busy", ""), len(long)))
}

func TestOperatorPanel(t *testing.T) {
	n := startNode(t, server.Config{Version: "v1.2.3"})
	slow := n.dial("prices") // does not read
	p := n.open("#/lobby")
	payload := strings.Repeat("x", 32<<10)
	row := `document.querySelector('#slowest tr')`
	for !eval[bool](p, row+`?.querySelector('.lost').classList.contains('some') ?? false`) {
		for range 50 {
			n.publish("prices", payload)
		}
	}
	text := eval[string](p, row+`.innerText`)
	for _, want := range []string{"prices", "drop-newest", "KiB", "/ 256"} {
		if !strings.Contains(text, want) {
			t.Errorf("the slowest subscriber reads %q, without %q", text, want)
		}
	}
	p.eventually(`document.querySelector('#version').textContent === 'v1.2.3'`)
	p.eventually(`['prices', 'lobby'].every((r) => document.querySelector('#room-rows').innerText.includes(r))`)
	p.eventually(`Number(document.querySelector('.bar-fill.max').getAttribute('width').replace('%', '')) === 100`)
	p.eventually(`document.querySelector('.reasons .some').innerText.startsWith('overflow')`)

	// The tab is out of sight, and comes back.
	visibility := `Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => '%s' });
		document.dispatchEvent(new Event('visibilitychange'))`
	p.run(fmt.Sprintf(visibility, "hidden"))
	p.eventually(`document.querySelector('#polling').dataset.state === 'paused'`)
	p.run(fmt.Sprintf(visibility, "visible"))
	p.eventually(`document.querySelector('#polling').dataset.state === 'live'`)

	// The first press asks, the second one kicks.
	p.run(row + `.querySelector('.kick').click()`)
	p.eventually(row + `.querySelector('.kick').innerText === 'Sure?'`)
	p.run(row + `.querySelector('.kick').click()`)
	p.eventually(`!document.querySelector('#slowest').innerText.includes('prices')`)
	for {
		if _, _, err := slow.Read(n.ctx()); err != nil {
			break
		}
	}

	// A room of the table can be joined from there.
	n.dial("extra")
	p.eventually(`document.querySelector('[aria-label="Join extra"]')`)
	p.run(`document.querySelector('[aria-label="Join extra"]').click()`)
	p.eventually(`document.querySelector('[aria-label="Room extra"]')`)
}

func TestAdminElsewhere(t *testing.T) {
	n := startNode(t, server.Config{SplitAdmin: true})
	p := n.open("", "404 (Not Found)")
	p.eventually(`document.querySelector('#operator-notice').innerText.includes('--admin-addr')`)
	if eval[bool](p, `document.querySelector('#operator-body').checkVisibility()`) {
		t.Error("the panel shows figures that it cannot have")
	}
	p.join("lobby", "", "")
}

func TestReconnect(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("#/lobby?policy=drop-oldest")
	p.eventually(`document.querySelector('#slowest .kick')`)
	n.post("lobby", "text/plain", "before") // an empty room is forgotten when nobody is in it
	p.eventually(rows("lobby", ".text") + `.join() === 'before'`)
	id := eval[string](p, `fetch('admin/subscribers').then((r) => r.json()).then((s) => s.subscribers[0].id)`)
	r, err := http.NewRequestWithContext(n.ctx(), http.MethodDelete, n.url+"admin/subscribers/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p.eventually(rows("lobby", ".note") + `.join().includes('Connection lost: kicked by an operator.')`)
	p.eventually(rows("lobby", ".note") + `.join().includes('Resumed at 1: nothing was missed.')`)
	p.eventually(`document.querySelector('.fact-policy').textContent === 'drop-oldest'`)
	n.post("lobby", "text/plain", "after")
	p.eventually(rows("lobby", ".text") + `.join() === 'before,after'`)
}

func TestAddressKeepsTheRooms(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("")
	p.join("lobby", "keep-latest", "7")
	p.join("a:b@c~d", "", "")
	if got, want := eval[string](p, `location.hash`), "#/lobby?policy=keep-latest&queue_messages=7,a:b@c~d"; got != want {
		t.Errorf("address: %s, want %s", got, want)
	}
	p.do(chromedp.Reload())
	p.eventually(`document.querySelectorAll('.room').length === 2`)
	p.eventually(`document.querySelector('[aria-label="Room lobby"] .fact-policy').textContent === 'keep-latest'`)
	p.eventually(`document.querySelector('[aria-label="Room lobby"] .fact-queue').textContent.startsWith('7 /')`)
}

// Following a link must not make this page do more than join.
func TestAddressCannotPublish(t *testing.T) {
	n := startNode(t, server.Config{})
	other := n.dial("lobby")
	p := n.open("#/lobby?type=publish&text=harm&policy=drop-oldest")
	p.eventually(`document.querySelector('.fact-policy')?.textContent === 'drop-oldest'`)
	n.post("lobby", "text/plain", "harmless")
	if _, got, err := other.Read(n.ctx()); err != nil || string(got) != "harmless" {
		t.Errorf("the room got %q (%v)", got, err)
	}
}

// press types keys as a keyboard does: chromedp marks the presses such that a
// page cannot stop the characters that follow.
func press(keys string) chromedp.Action[chromedp.Void] {
	return chromedp.KeyEvent(keys, func(k *input.DispatchKeyEventParams) {
		if k.Type == kb.KeyDown {
			k.Type = input.DispatchKeyEventTypeRawKeyDown
		}
	})
}

func TestKeyboardOnly(t *testing.T) {
	n := startNode(t, server.Config{})
	other := n.dial("lobby")
	p := n.open("")
	walk := func(what, selector string, modifiers ...chromedp.Modifier) {
		t.Helper()
		for range 40 {
			if eval[bool](p, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
				if !eval[bool](p, `getComputedStyle(document.activeElement).outlineStyle !== 'none' || getComputedStyle(document.activeElement.nextElementSibling ?? document.body).outlineStyle !== 'none'`) {
					t.Errorf("the focus on the %s cannot be seen", what)
				}
				return
			}
			p.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(modifiers...)))
		}
		t.Fatalf("the %s cannot be reached with Tab\n%s", what, p.screen())
	}
	tabTo := func(what, selector string) { t.Helper(); walk(what, selector) }
	tabBack := func(what, selector string) { t.Helper(); walk(what, selector, chromedp.ModifierShift) }
	read := func(want string) {
		t.Helper()
		typ, got, err := other.Read(n.ctx())
		if err != nil || typ != websocket.MessageText || string(got) != want {
			t.Fatalf("the other subscriber got %q (%v), want %q", got, err, want)
		}
	}
	tabTo("skip link", ".skip")
	tabTo("room's name", "#join input[name=room]")
	p.do(press("lobby"), press(kb.Enter))
	p.eventually(`document.activeElement.matches('.publish textarea')`)
	p.do(press("first"), press(kb.Enter))
	read("first")
	p.eventually(`document.querySelector('.result').textContent === 'Published as 1' && document.activeElement.matches('.publish textarea')`)
	tabTo("format", "input[name=format]")
	p.do(press(kb.ArrowRight))
	tabTo("key", ".publish input[name=key]")
	tabTo("summary", ".publish summary")
	p.do(press(kb.Enter))
	p.eventually(`document.querySelector('.publish details').open`)
	tabBack("message", ".publish textarea")
	p.do(press(`[1]`), press(kb.Enter))
	read("[1]")
	p.eventually(rows("lobby", ".json") + `.join() === '[1]'`)
	tabBack("leave button", ".leave")
	p.do(press(kb.Enter))
	p.eventually(`document.activeElement.matches('#rooms') && !document.querySelector('.room')`)
}

// TestFaultButtons tries out what the page offers to try out.
func TestFaultButtons(t *testing.T) {
	n := startNode(t, server.Config{})
	p := n.open("")
	if eval[bool](p, `document.querySelector('#faults').checkVisibility()`) {
		t.Error("there are faults to try, and no room to see them in")
	}
	p.join("lobby", "drop-oldest", "10")
	n.post("lobby", "text/plain", "before")
	p.eventually(rows("lobby", ".text") + `.join() === 'before'`)

	// What is published between the press and the next link comes with it.
	p.run(`document.querySelector('#drop').click();
		fetch('rooms/lobby', { method: 'POST', body: 'meanwhile', headers: { 'Content-Type': 'text/plain' } })`)
	p.eventually(rows("lobby", ".text") + `.join() === 'before,meanwhile'`)
	p.eventually(rows("lobby", ".note") + `.join().includes('Connection lost: interrupted.')`)
	p.eventually(rows("lobby", ".note") + `.join().includes('Resumed')`)

	// A tab that does not read: the hub's queue for it fills, and nobody else's.
	other := n.dial("other")
	p.run(`document.querySelector('#stall').click()`)
	var last uint64
	payload := strings.Repeat("x", 32<<10)
	for full := false; !full; {
		last = n.publish("lobby", payload)
		full = len(n.subscribers("lobby")) == 1 && n.subscribers("lobby")[0].Queued.Messages == 10
	}
	for range 100 {
		last = n.publish("lobby", payload)
	}
	n.post("other", "text/plain", "meanwhile")
	if _, got, err := other.Read(n.ctx()); err != nil || string(got) != "meanwhile" {
		t.Errorf("another subscriber got %q (%v)", got, err)
	}
	p.eventually(`document.querySelector('.row.gap') !== null`)
	figure := func(name string) string {
		return `Number(document.querySelector('.fact-` + name + `').textContent.split(' ')[0].replaceAll(',', ''))`
	}
	p.eventually(fmt.Sprintf(`%s + %s === %d`, figure("received"), figure("missed"), last))
	if missed := eval[int](p, figure("missed")); missed == 0 {
		t.Errorf("%d messages were missed while the queue was full, want some", missed)
	}
	p.eventually(`document.querySelector('#stall').textContent === 'Stop reading for 5 s'`)
}
