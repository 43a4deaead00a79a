package web_test

import (
	"fmt"
	"strings"
	"testing"

	"hubd/internal/server"
)

// faint lists the visible texts whose contrast is below what WCAG 2.2 AA asks
// for: 4.5, or 3 for large ones.
const faint = `(() => {
	const parse = (c) => {
		const m = c.match(/[\d.]+/g).map(Number);
		return { rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 };
	};
	const over = (top, below) => top.rgb.map((v, i) => v * top.a + below[i] * (1 - top.a));
	const background = (node) => {
		const layers = [];
		for (let n = node; n; n = n.parentElement) layers.unshift(parse(getComputedStyle(n).backgroundColor));
		return layers.reduce((below, layer) => over(layer, below), matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255]);
	};
	const luminance = (rgb) => {
		const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const found = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let texts = 0;
	while (walker.nextNode()) {
		const node = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
		texts++;
		const style = getComputedStyle(node);
		const below = background(node);
		const [a, b] = [luminance(over(parse(style.color), below)), luminance(below)];
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(style.fontSize);
		const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
		if (contrast < (large ? 3 : 4.5)) found.push(contrast.toFixed(2) + ' ' + walker.currentNode.data.trim().slice(0, 40));
	}
	return [String(texts), ...found];
})()`

// wide lists the elements that reach beyond the viewport to the right.
const wide = `[...document.querySelectorAll('body *')]
	.filter((n) => n.checkVisibility() && n.getBoundingClientRect().right > innerWidth + 0.5 && !n.closest('.sr, .skip'))
	.map((n) => n.tagName + '.' + n.className)`

// unnamed lists the controls that a screen reader could not name.
const unnamed = `[...document.querySelectorAll('button, input, select, textarea, [role=log], table, article')]
	.filter((n) => n.checkVisibility() && !n.innerText?.trim() && !n.labels?.length && !n.ariaLabel && !n.getAttribute('aria-labelledby'))
	.map((n) => n.outerHTML)`

func TestLooks(t *testing.T) {
	n := startNode(t, server.Config{})
	long := strings.Repeat("long-room-name.", 8)
	n.dial(long) // does not read
	p := n.open("#/lobby,chat.dev")
	p.eventually(`document.querySelectorAll('.room').length === 2`)
	n.post("lobby", "text/plain", strings.Repeat("unbroken", 500))
	n.post("lobby", "application/json", `{"any":"json"}`)
	for range 300 {
		n.publish(long, strings.Repeat("x", 32<<10))
	}
	p.run(`document.querySelector('#join').requestSubmit();
		document.querySelector('.publish').requestSubmit();
		document.querySelector('#failure').hidden = false;
		document.querySelector('.failure-text').textContent = 'what went wrong '.repeat(20);
		document.querySelector('#draining').hidden = false;
		for (const d of document.querySelectorAll('details')) d.open = true`)
	p.eventually(`document.querySelector('#slowest tr') && document.querySelector('.more')`)
	p.run(`document.querySelector('.kick').click()`)

	for _, scheme := range []string{"light", "dark"} {
		for _, size := range [][2]int64{{1920, 1080}, {1280, 900}, {1060, 800}, {1000, 800}, {699, 900}, {390, 844}, {320, 640}} {
			t.Run(fmt.Sprintf("%s %d", scheme, size[0]), func(t *testing.T) {
				p.look(size[0], size[1], scheme)
				p.eventually(fmt.Sprintf(`innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches`, size[0], scheme))
				if got := eval[int64](p, `document.documentElement.scrollWidth`); got > size[0] {
					t.Errorf("the page is %d wide: %v", got, eval[[]string](p, wide))
				}
				if got := eval[[]string](p, wide); len(got) > 0 {
					t.Errorf("beyond the edge: %v", got)
				}
				if got := eval[[]string](p, unnamed); len(got) > 0 {
					t.Errorf("controls without a name: %v", got)
				}
				got := eval[[]string](p, faint)
				if got[0] == "0" {
					t.Error("no text was looked at")
				}
				for _, text := range got[1:] {
					t.Errorf("too faint: %s", text)
				}
				columns := eval[int](p, `getComputedStyle(document.querySelector('main')).gridTemplateColumns.split(' ').length`)
				if want := map[bool]int{true: 2, false: 1}[size[0] >= 1060]; columns != want {
					t.Errorf("%d columns, want %d", columns, want)
				}
			})
		}
	}
}
