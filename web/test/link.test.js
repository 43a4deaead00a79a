import assert from "node:assert/strict";
import { test } from "node:test";

import { connect, HubdError } from "../hubd.js";
import { record, recordRoom, seeded, settle, start } from "./fake.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;

test("whatever happens, there is at most one live socket", async () => {
  for (let seed = 1; seed <= 5; seed++) {
    const random = seeded(seed);
    const pick = (list) => list[Math.floor(random() * list.length)];
    let answer = "up";
    const c = start({ random, answer: () => answer, client: { transport: "websocket" } });
    const events = recordRoom(c.hub.join("r"));
    await c.clock.advance(SECOND);
    let published = 0;
    const acts = [
      () => c.page.say("online"), () => c.page.say("offline"), () => c.page.say("pagehide"), () => c.page.say("pageshow"),
      () => c.page.show(false), () => c.page.show(true), () => c.hub.reconnect(), () => c.hub.interrupt(),
      () => (answer = pick(["up", "up", "down", "hang", { status: 503, headers: { "Retry-After": "2" }, code: "draining" }])),
      () => c.server.open[0]?.end(pick([1001, 1006, 1013, 4008])),
      () => c.server.open[0] && (c.server.open[0].deaf = true),
      () => (c.clock.granularity = pick([1, 1, MINUTE])),
      () => c.clock.sleep(random() * 5 * MINUTE),
      () => c.server.publish("r", { data: ++published }),
      () => c.server.publish("r", { data: ++published }),
    ];
    for (let i = 0; i < 600; i++) {
      pick(acts)();
      await c.clock.advance(random() < 0.5 ? 0 : random() * 20 * SECOND);
      assert.ok(c.WebSocket.live <= 1);
    }
    answer = "up";
    c.clock.granularity = 1;
    c.page.say("pageshow");
    c.page.show(true);
    await c.clock.advance(10 * MINUTE);
    assert.equal(c.hub.state, "open");
    assert.equal(c.server.open.filter((s) => !s.deaf).length, 1);
    assert.equal(c.WebSocket.most, 1);
    // And nothing of the room was missed or came twice.
    assert.deepEqual(events.of("message").map((m) => m.data), Array.from({ length: published }, (_, i) => i + 1));
    assert.deepEqual([...events.of("gap"), ...events.of("resumefailed")], []);
    c.hub.close();
    await settle();
    assert.equal(c.WebSocket.live, 0);
  }
});

test("a handshake that nobody answers is given up", async () => {
  const c = start({ answer: () => "hang", client: { connectTimeout: 4 * SECOND } });
  await c.clock.advance(4 * SECOND - 1);
  assert.equal(c.server.sockets[0].readyState, 0);
  await c.clock.advance(1);
  assert.equal(c.server.sockets[0].readyState, 2);
  await c.clock.advance(5 * SECOND); // what is asked over HTTP hangs as well
  assert.equal(c.events.of("close").length, 1);
  c.hub.close();
});

test("a failed handshake counts as such, also where no close event follows", async () => {
  const c = start({ answer: () => "hang" });
  c.server.sockets[0].onerror({});
  await c.clock.advance(5 * SECOND); // what is asked over HTTP hangs as well
  assert.equal(c.events.of("close").length, 1);
  c.hub.close();
});

test("a page in the page cache holds no link, and comes back where it was", async () => {
  const c = start();
  const events = recordRoom(c.hub.join("r"));
  c.server.publish("r", { data: 1 });
  await c.clock.advance(SECOND);
  c.server.publish("r", { data: 2 });
  await c.clock.advance(SECOND);
  c.page.say("pagehide");
  assert.equal(c.WebSocket.live, 0);
  assert.equal(c.hub.state, "suspended");
  c.server.publish("r", { data: 3 });
  c.page.show(true);
  c.page.say("online");
  await c.clock.advance(60 * MINUTE);
  assert.equal(c.WebSocket.live, 0);
  c.page.say("pageshow");
  await c.clock.advance(SECOND);
  assert.equal(c.hub.state, "open");
  assert.deepEqual(events.of("message").map((m) => m.data), [2, 3]);
  assert.equal(events.of("joined").at(-1).resumed, true);
  c.hub.close();
});

test("a string token is offered as a subprotocol, and its refusal is final", async () => {
  for (const code of [4001, 4003]) {
    const c = start({ client: { token: "a.b.c" } });
    const events = recordRoom(c.hub.join("r"));
    await c.clock.advance(SECOND);
    assert.deepEqual(c.server.sockets[0].protocols, ["hubd.v1.json", "hubd.token.a.b.c"]);
    c.server.open[0].end(code);
    await c.clock.advance(10 * MINUTE);
    assert.equal(c.hub.state, "closed");
    assert.equal(c.server.sockets.length, 1);
    assert.equal(c.events.of("close").at(-1).final, true);
    const [error] = events.of("error");
    assert.ok(error instanceof HubdError);
    assert.equal(error.code, code === 4001 ? "unauthorized" : "forbidden");
    assert.throws(() => c.hub.join("s"), { code: "closed" });
  }
});

test("a token callback is asked for another token once, until the link has been stable", async () => {
  const asked = [];
  const c = start({ client: { token: async ({ refresh }) => (asked.push(refresh), `t${asked.length}`) } });
  await c.clock.advance(SECOND);
  assert.equal(c.server.sockets[0].protocols[1], "hubd.token.t1");
  c.server.open[0].end(4001);
  await c.clock.advance(2 * SECOND);
  assert.equal(c.server.sockets[1].protocols[1], "hubd.token.t2");
  await c.clock.advance(40 * SECOND);
  c.server.open[0].end(4001);
  await c.clock.advance(2 * SECOND);
  assert.equal(c.hub.state, "open");
  c.server.open[0].end(4001);
  await c.clock.advance(MINUTE);
  assert.equal(c.hub.state, "closed");
  assert.deepEqual(asked, [false, true, true]);
});

test("a handshake refused with 401 counts as 4001", async () => {
  const asked = [];
  const c = start({
    answer: (socket) => (socket?.protocols[1] ?? "hubd.token.good") === "hubd.token.good" && asked.length > 1 ? "up" : { status: 401, code: "unauthorized" },
    client: { token: ({ refresh }) => (asked.push(refresh), refresh ? "good" : "bad") },
  });
  await c.clock.advance(5 * SECOND);
  assert.deepEqual(asked, [false, true]);
  assert.equal(c.hub.state, "open");
  c.hub.close();
});

test("a token callback that fails is called again, after a while", async () => {
  let calls = 0;
  const c = start({ client: { token: () => { if (++calls < 3) throw new Error("no net"); return "t"; } } });
  await c.clock.advance(10 * SECOND);
  assert.equal(c.hub.state, "open");
  assert.deepEqual(c.events.of("error").map((e) => e.code), ["token_failed", "token_failed"]);
  c.hub.close();
});

test("a token is renewed before it expires, over the link that is there", async () => {
  const jwt = (exp) => `h.${btoa(JSON.stringify({ exp })).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}.s`;
  let clock;
  const c = start({ client: { token: () => jwt(Math.floor((clock?.now() ?? Date.UTC(2026, 0, 1)) / SECOND) + 600) } });
  clock = c.clock;
  await c.clock.advance(32 * MINUTE);
  const renewals = c.server.received.filter((m) => m.type === "auth");
  assert.equal(renewals.length, 3); // every nine minutes
  assert.deepEqual(c.events.of("close"), []);
  c.hub.close();
});

test("what the hub says unasked is an error event, and unknown frames are ignored", async () => {
  const c = start();
  await c.clock.advance(SECOND);
  c.server.open[0].deliver({ type: "error", code: "invalid_option", message: "what?" });
  c.server.open[0].deliver({ type: "news", id: 99 });
  await c.clock.advance(SECOND);
  assert.deepEqual(c.events.of("error").map((e) => e.code), ["invalid_option"]);
  c.server.open[0].deliver("not JSON");
  await c.clock.advance(SECOND);
  assert.equal(c.events.of("close").length, 1);
  c.hub.close();
});

test("nothing of a closed hub goes on", async () => {
  const c = start();
  const states = record(c.hub, ["statechange"]);
  const room = c.hub.join("r");
  await c.clock.advance(SECOND);
  const publish = room.publish("x");
  c.hub.close();
  c.hub.close();
  await assert.rejects(publish, { code: "link_lost", maybePublished: true });
  await assert.rejects(room.publish("y"), { code: "closed", maybePublished: false });
  c.page.say("pagehide");
  c.page.say("pageshow");
  c.hub.reconnect();
  await c.clock.advance(10 * MINUTE);
  assert.deepEqual(states.of("statechange").map((s) => s.state), ["open", "closed"]);
  assert.equal(c.server.sockets.length, 1);
  assert.equal(room.state, "left");
});

test("options that cannot work are refused at once", () => {
  const WebSocket = class {};
  assert.throws(() => connect("ftp://x/", { WebSocket }), /http/);
  assert.throws(() => connect("http://x/", { WebSocket, transport: "udp" }), /transport/);
  assert.throws(() => connect("http://x/", { WebSocket, backoff: { base: 0 } }), /backoff/);
});

test("the hub may be below a path, and may be named by a ws URL", async () => {
  for (const [url, want] of [["wss://x.test/live", "wss://x.test/live/ws"], ["https://x.test/live/?q#f", "wss://x.test/live/ws"], ["ws://x.test", "ws://x.test/ws"]]) {
    const c = start();
    const hub = connect(url, { WebSocket: c.WebSocket, clock: c.clock, page: c.page, fetch: c.server.fetch });
    assert.equal(c.server.sockets.at(-1).url, want);
    hub.close();
    c.hub.close();
  }
});
