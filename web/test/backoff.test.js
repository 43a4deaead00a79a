import assert from "node:assert/strict";
import { test } from "node:test";

import { Clock, FakeHub, seeded, start } from "./fake.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/** The largest number of times within one second, over all seconds. */
function busiest(times) {
  const buckets = new Map();
  for (const t of times) buckets.set(Math.floor(t / SECOND), (buckets.get(Math.floor(t / SECOND)) ?? 0) + 1);
  return Math.max(0, ...buckets.values());
}

/** How the clients of one hub come back from an outage. */
async function outage(seed, clients) {
  const clock = new Clock();
  const server = new FakeHub(clock);
  const random = seeded(seed);
  const all = Array.from({ length: clients }, () => start({ clock, server, random }));
  const patience = new Map(); // client → it must not come before this
  const tries = new Map();
  const early = [];
  let down = false;
  let back = Infinity;
  const refusals = new Map(); // client → what its last handshake met
  server.answer = (socket, Class) => {
    if (down) return "down";
    if (socket === null) return refusals.get(Class) ?? "up";
    const c = socket.Class;
    if (clock.now() < (patience.get(c) ?? 0)) early.push(clock.now() - patience.get(c));
    refusals.delete(c);
    if (back === Infinity) return "up";
    const n = tries.get(c) ?? 0;
    tries.set(c, n + 1);
    const dice = random();
    if (n === 0 && dice < 0.2) {
      const refusal = { status: 503, headers: { "Retry-After": "20" }, code: "over_capacity" };
      refusals.set(c, refusal);
      patience.set(c, clock.now() + 20 * SECOND);
      return refusal;
    }
    if (n === 0 && dice < 0.4) {
      const code = dice < 0.3 ? 1012 : 1013;
      clock.deliver(() => {
        patience.set(c, clock.now() + 5 * SECOND);
        socket.end(code);
      }, 50);
    }
    return "up";
  };
  await clock.advance(MINUTE);
  assert.equal(server.open.length, clients);

  down = true;
  const began = clock.now();
  for (const socket of server.open) socket.end(1006);
  await clock.advance(10 * MINUTE);
  down = false;
  back = clock.now();
  const opened = [];
  for (const { hub } of all) hub.addEventListener("open", () => opened.push(clock.now()));
  await clock.advance(6 * MINUTE);
  for (const { hub, WebSocket } of all) {
    assert.equal(hub.state, "open");
    assert.equal(WebSocket.most, 1);
    hub.close();
  }
  return { opened, early, capped: server.attempts.filter((t) => t > began + 4 * MINUTE && t < back) };
}

test("500 clients come back from ten minutes without a hub spread over time", async (t) => {
  const clients = 500;
  for (const seed of [1, 2, 3]) {
    const { opened, early, capped } = await outage(seed, clients);
    assert.deepEqual(early, [], "a client came back before the hub had asked it to");
    const share = busiest(opened) / clients;
    const shareCapped = busiest(capped) / clients;
    t.diagnostic(`seed ${seed}: largest share in one second: ${(share * 100).toFixed(1)} % of the returns, ${(shareCapped * 100).toFixed(1)} % of the attempts at the cap`);
    assert.ok(share <= 0.05 && shareCapped <= 0.05);
  }
});

/** The delays of n attempts in a row at a hub that is away. */
async function delays(n, random, client) {
  const c = start({ random, client, answer: () => "down" });
  const seen = [];
  while (seen.length < n) {
    await c.clock.advance(MINUTE);
    seen.splice(0, seen.length, ...c.events.of("reconnecting").map((e) => e.delay));
  }
  c.hub.close();
  return seen.slice(0, n);
}

test("the first retry is anywhere from at once to the base, and the cap comes before the jitter", async () => {
  assert.deepEqual(await delays(9, () => 0), Array(9).fill(0));
  assert.deepEqual(await delays(9, () => 0.5), [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
  assert.deepEqual(await delays(3, () => 0.5, { backoff: { base: 10_000, cap: 15_000 } }), [5000, 7500, 7500]);
});

test("only a link that has been up for 30 s starts the backoff anew", async () => {
  const { clock, server, events, hub } = start({ random: () => 0.5 });
  for (const [up, delay] of [[29, 500], [29, 1000], [29, 2000], [31, 500], [5, 1000]]) {
    await clock.advance(10);
    assert.equal(hub.state, "open");
    await clock.advance(up * SECOND);
    server.open[0].end(1006);
    await clock.advance(0);
    assert.equal(events.of("reconnecting").at(-1).delay, delay);
    await clock.advance(delay);
  }
  hub.close();
});

test("every close but 4001 and 4003 is come back from", async () => {
  const { clock, server, events, hub } = start();
  for (const code of [1000, 1001, 1002, 1006, 1007, 1008, 1009, 1011, 1012, 1013, 4007, 4008, 4009, 4999]) {
    await clock.advance(2 * MINUTE);
    assert.equal(hub.state, "open");
    server.open[0].end(code, "because");
    assert.equal(hub.state, "waiting");
    const { code: told, reason, final } = events.of("close").at(-1);
    assert.deepEqual([told, reason, final], [code, "because", false]);
  }
  hub.close();
  assert.deepEqual(events.of("close").at(-1), { code: 1000, reason: "closed", opened: false, final: true });
});

test("Retry-After counts as a date too, and nobody can be sent away for longer than an hour", async () => {
  for (const [header, least, most] of [
    [(now) => new Date(now + 100 * SECOND).toUTCString(), 99 * SECOND, 161 * SECOND],
    [() => "864000", 3600 * SECOND, 3660 * SECOND],
    [() => "soon", 0, SECOND],
    [() => "-5", 0, SECOND],
  ]) {
    const clock = new Clock();
    const server = new FakeHub(clock);
    server.answer = () => ({ status: 503, headers: { "Retry-After": header(clock.now()) }, code: "draining" });
    const c = start({ clock, server, random: () => 0.999 });
    await clock.advance(SECOND / 10);
    const { delay } = c.events.of("reconnecting")[0];
    assert.ok(delay >= least && delay <= most, `${header(clock.now())}: ${delay}`);
    c.hub.close();
  }
});

test("somebody who looks, or a network that is back, brings the next attempt forward, but not what the hub asked for", async () => {
  let answer = "down";
  const { clock, page, hub } = start({ random: () => 0.9, answer: () => answer });
  await clock.advance(10 * MINUTE);
  const waiting = async () => {
    while (hub.state !== "waiting" || hub.retryAt - clock.now() < 20 * SECOND) await clock.advance(SECOND);
  };
  for (const act of [() => page.say("online"), () => page.show(true)]) {
    await waiting();
    act();
    assert.equal(hub.retryAt, clock.now() + 900);
  }
  answer = { status: 503, headers: { "Retry-After": "20" }, code: "draining" };
  hub.reconnect();
  await clock.advance(SECOND);
  const notBefore = clock.now() - SECOND + 20 * SECOND;
  page.say("online");
  assert.ok(hub.retryAt >= notBefore);
  hub.close();
});
