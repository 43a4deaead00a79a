// Package web is the page that hubd serves at /: try-it page and dashboard in
// one, plain HTML, style sheets and ES modules, embedded as they are. There is
// no build step and no dependency.
//
// The page uses nothing that another client could not: rooms go through the
// client module, which is served to everybody, the live state comes from the admin endpoints. Where those
// are on a listener of their own the page says so and keeps working.
//
// Invariants:
//
//   - What a client chose (names, messages, errors) reaches the document as
//     text only. The content security policy enforces it: Trusted Types refuse
//     every sink that parses markup, and nothing inline runs or styles.
//   - The page is bounded as the hub is: a stream keeps at most 500 rows and
//     4 Mi characters, and touches the document once an animation frame.
//   - Nothing is loaded from elsewhere.
//
// Files:
//
//	hubd.js, hubd.d.ts        the client module and its types; README.md is its manual
//	package.json, test/       the same as a package, and its tests without a browser
//	web.go                    the handler: content types, entity tags, security headers
//	page/index.html           all markup, with templates for what repeats
//	page/assets/main.js       wires the parts below
//	page/assets/room.js       one joined room
//	page/assets/stream.js     its bounded list of messages and gaps
//	page/assets/operator.js   the live state
//	page/assets/chart.js      bars and lines
//	page/assets/format.js     how figures and reasons are written
//	page/assets/dom.js        helpers
//	page/assets/*.css         page.css has the colours and common parts
package web
