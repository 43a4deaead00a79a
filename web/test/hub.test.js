// The client against the real hub: its binary, built here, and real sockets
// through a proxy that cuts them.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as dial, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { connect } from "../hubd.js";
import { record, recordRoom, seeded } from "./fake.js";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const dir = mkdtempSync(join(tmpdir(), "hubd-"));
const binary = join(dir, "hubd");

/** The WebSocket of this Node, or of the package ws. */
const WebSocket = globalThis.WebSocket ?? (await import("ws").then((ws) => ws.default, () => undefined));
const buildable = existsSync(join(root, "cmd", "hubd"));
const skip = buildable ? false : "the hub's sources are not here";
const skipSockets = skip || (WebSocket ? false : "no WebSocket: npm install, or Node 22");

before(() => {
  if (!skip) execFileSync("go", ["build", "-o", binary, "./cmd/hubd"], { cwd: root });
});
after(() => rmSync(dir, { recursive: true }));

const config = `feeds:
  - name: kept
    match: ["kept.*"]
    queue: {messages: 10000, bytes: 16MiB}
    history: {messages: 10000, bytes: 16MiB, age: 1h}
  - name: latest
    match: ["latest.*"]
    policy: keep-latest
`;

/** Starts a hub; port 0 takes a free one. */
async function serve(t, { port = 0, args = [] } = {}) {
  const file = join(dir, "hubd.yaml");
  writeFileSync(file, config);
  const child = spawn(binary, ["serve", "--addr", `127.0.0.1:${port}`, "--config", file, "--drain-window", "0", ...args], { stdio: ["ignore", "ignore", "pipe"] });
  const gone = once(child, "exit");
  t.after(() => child.kill("SIGKILL"));
  let log = "";
  const url = await new Promise((resolve, reject) => {
    child.stderr.setEncoding("utf8").on("data", (text) => {
      log += text;
      const found = /msg=listening .*url=(\S+)/.exec(log);
      if (found) resolve(found[1]);
    });
    gone.then(() => reject(new Error(`the hub ended: ${log}`)));
  });
  return {
    url, port: Number(new URL(url).port),
    async stop(signal = "SIGKILL") {
      child.kill(signal);
      await gone;
    },
  };
}

/** A TCP proxy whose links can be cut. */
async function proxy(t, port) {
  const pairs = new Set();
  const server = createServer((near) => {
    const far = dial(port, "127.0.0.1");
    const pair = { near, far };
    pairs.add(pair);
    for (const [one, other] of [[near, far], [far, near]]) {
      one.on("error", () => {});
      one.on("close", () => {
        other.destroy();
        pairs.delete(pair);
      });
      one.pipe(other);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const p = {
    url: `http://127.0.0.1:${server.address().port}/`,
    cut() {
      for (const { near, far } of pairs) {
        near.resetAndDestroy();
        far.destroy();
      }
    },
  };
  t.after(() => (p.cut(), server.close()));
  return p;
}

/** A client that is closed with the test, and retries without much waiting. */
function client(t, url, options = {}) {
  const hub = connect(url, { WebSocket, backoff: { base: 20, cap: 50 }, ...options });
  t.after(() => hub.close());
  return hub;
}

const next = (target, type) => new Promise((resolve) => target.addEventListener(type, (event) => resolve(event.detail), { once: true }));

for (const transport of ["websocket", "sse"]) {
  const options = { skip: transport === "websocket" ? skipSockets : skip };

  test(`${transport}: every kind of message comes back as it was published`, options, async (t) => {
    const { url } = await serve(t);
    const hub = client(t, url, { transport });
    const room = hub.join("a.b:c@d~e");
    const got = room.messages();
    await room.ready;
    const all = ["text\nof two lines", '{"text":"of a text"}', { text: "of JSON" }, 42, null, "", new Uint8Array([0, 128, 255])];
    for (const value of all) await room.publish(value);
    await room.publish("a string", { as: "json" });
    await room.publish('{"n": 12345678901234567890}', { as: "rawjson" });
    for (const value of all) assert.deepEqual((await got.next()).value.data, value);
    assert.deepEqual((await got.next()).value.data, "a string");
    const last = (await got.next()).value;
    assert.equal(last.text, '{"n": 12345678901234567890}');
    assert.deepEqual([last.seq, last.position, room.position], [9, `${last.epoch}:9`, `${last.epoch}:9`]);
    await assert.rejects(room.publish("x".repeat(100_000)), { code: "message_too_large", maybePublished: false });
    await assert.rejects(hub.publish("no room", "x"), { code: "invalid_room" });
    const refused = hub.join("..");
    await assert.rejects(refused.ready, { code: "invalid_room" });
    await assert.rejects(hub.join("r", { policy: "reject-publish" }).ready, { code: "invalid_option" });
    await room.leave();
    assert.deepEqual(await got.next(), { value: undefined, done: true });
    assert.equal(hub.transport, transport);
  });

  test(`${transport}: over many lost links every message comes once, in order`, options, async (t) => {
    const { url, port } = await serve(t);
    const through = await proxy(t, port);
    const random = seeded(7);
    const publisher = client(t, url, { transport });
    const hub = client(t, through.url, { transport, backoff: { base: 1, cap: 4 } });
    // An empty room is forgotten when nobody is in it, and its numbering with it.
    for (const name of ["kept.a", "kept.b"]) await publisher.publish(name, 0);
    const rooms = ["kept.a", "kept.b"].map((name) => hub.join(name));
    const events = rooms.map(recordRoom);
    await Promise.all(rooms.map((room) => room.ready));
    const links = record(hub, ["open"]);
    const total = 1500;
    const publishing = (async () => {
      for (let i = 1; i <= total; i++) await Promise.all(rooms.map((room) => publisher.publish(room.name, i)));
    })();
    let done = false;
    publishing.then(() => (done = true));
    let cuts = 0;
    while (!done) {
      // At a random moment of the stream, and of what follows a cut.
      for (let n = Math.floor(random() * 40); n > 0 && !done; n--) await new Promise((resolve) => setImmediate(resolve));
      if (hub.state === "open" || random() < 0.1) {
        through.cut();
        cuts++;
      }
    }
    await publishing;
    for (const [i, room] of rooms.entries()) {
      while (events[i].of("message").at(-1)?.data !== total) await next(room, "message");
      assert.deepEqual(events[i].of("message").map((m) => m.data), Array.from({ length: total }, (_, n) => n + 1));
      assert.deepEqual([...events[i].of("gap"), ...events[i].of("resumefailed"), ...events[i].of("error")], []);
    }
    t.diagnostic(`${transport}: ${cuts} cuts, ${links.length} links`);
    assert.ok(links.length >= 10, `only ${links.length} links came about`);
  });

  test(`${transport}: a restarted hub is come back to, and the resume fails aloud`, options, async (t) => {
    const first = await serve(t);
    const hub = client(t, first.url, { transport });
    const room = hub.join("kept.r");
    await room.ready;
    await room.publish("x");
    const failed = next(room, "resumefailed");
    await first.stop("SIGTERM");
    await serve(t, { port: first.port });
    assert.deepEqual([(await failed).restarted, room.state], [true, "joined"]);
    const message = next(room, "message");
    await room.publish("y");
    assert.equal((await message).data, "y");
  });
}

test("keep-latest: a joiner gets the last value of each key, also over a second link", { skip: skipSockets }, async (t) => {
  const { url } = await serve(t);
  const hub = client(t, url);
  for (let i = 0; i < 10; i++) await hub.publish("latest.r", i, { key: `k${i % 3}` });
  const room = hub.join("latest.r");
  const events = recordRoom(room);
  const got = room.messages();
  assert.equal((await room.ready).snapshot, 3);
  const values = [];
  for (let i = 0; i < 3; i++) values.push((await got.next()).value.data);
  assert.deepEqual(values, [7, 8, 9]);
  const again = next(room, "joined");
  hub.interrupt();
  assert.equal((await again).resumed, true);
  await room.publish(10);
  assert.equal((await got.next()).value.data, 10);
  assert.deepEqual(events.of("resumefailed"), []);
});

test("a hub at capacity says when to come back, though WebSocket hides it", { skip: skipSockets }, async (t) => {
  const { url } = await serve(t, { args: ["--max-connections", "1"] });
  const first = client(t, url);
  await next(first, "open");
  const second = client(t, url);
  const { delay } = await next(second, "reconnecting");
  assert.ok(delay >= 5000, `it comes back after ${delay} ms`);
});

test("where WebSocket is blocked event streams take over", { skip }, async (t) => {
  const { url } = await serve(t);
  class Blocked {
    constructor() {
      queueMicrotask(() => this.onclose({ code: 1006, reason: "" }));
    }
    close() {}
  }
  class Forbidden {
    constructor() {
      throw new Error("by a policy");
    }
  }
  for (const WebSocket of [Blocked, Forbidden]) {
    const hub = client(t, url, { WebSocket });
    const room = hub.join("r");
    await room.ready;
    assert.equal(hub.transport, "sse");
    const message = next(room, "message");
    await room.publish({ n: 1 });
    assert.deepEqual((await message).data, { n: 1 });
  }
});

test("more rooms than event streams are told of, and get their turn", { skip }, async (t) => {
  const { url } = await serve(t);
  const hub = client(t, url, { transport: "sse", maxStreams: 2 });
  const [a, b, c] = ["a", "b", "c"].map((name) => hub.join(name));
  await Promise.all([a.ready, b.ready]);
  await assert.rejects(c.ready, { code: "too_many_streams" });
  assert.equal(c.state, "joining");
  await c.publish("works all the same");
  await a.leave();
  hub.interrupt(); // which tries all of them at once
  await next(c, "joined");
});
