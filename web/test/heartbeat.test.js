import assert from "node:assert/strict";
import { test } from "node:test";

import { record, recordRoom, start } from "./fake.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;

test("half an hour in the background loses neither the link nor a message", async () => {
  const c = start();
  const room = c.hub.join("quiet");
  const events = recordRoom(room);
  await c.clock.advance(SECOND);
  c.page.show(false);
  c.clock.granularity = MINUTE;
  await c.clock.advance(30 * MINUTE);
  for (let i = 0; i < 300; i++) {
    c.server.publish("quiet", { data: i });
    await c.clock.advance(2 * SECOND);
  }
  c.clock.granularity = 1;
  c.page.show(true);
  await c.clock.advance(SECOND);
  assert.deepEqual(c.events.of("close"), []);
  assert.deepEqual(events.map(([type]) => type), ["joined", ...Array(300).fill("message")]);
  assert.equal(c.server.sockets.length, 1);
  const pings = c.server.received.filter((m) => m.type === "ping").length;
  assert.ok(pings >= 10, `only ${pings} signs of life were asked for`);
  c.hub.close();
});

test("a dead link is found: in sight within 36 s, in the background within three minutes, at once on return", async () => {
  for (const [granularity, act, most] of [
    [1, () => {}, 36 * SECOND],
    [MINUTE, () => {}, 3 * MINUTE],
    [MINUTE, (c) => { c.clock.granularity = 1; c.page.show(true); }, 5 * SECOND],
    [MINUTE, (c) => { c.clock.granularity = 1; c.page.say("online"); }, 5 * SECOND],
    [MINUTE, (c) => { c.clock.granularity = 1; c.page.say("offline"); }, 5 * SECOND],
    [MINUTE, (c) => { c.clock.granularity = 1; c.page.document.dispatchEvent(new Event("resume")); }, 5 * SECOND],
  ]) {
    const c = start();
    await c.clock.advance(SECOND);
    c.clock.granularity = granularity;
    await c.clock.advance(90 * SECOND);
    c.server.open[0].deaf = true; // no close arrives either
    act(c);
    await c.clock.advance(most);
    const [why] = c.events.of("close");
    assert.equal(why?.reason, "the hub fell silent");
    await c.clock.advance(2 * MINUTE);
    assert.equal(c.hub.state, "open");
    assert.equal(c.server.sockets.length, 2);
    assert.equal(c.WebSocket.most, 1);
    c.hub.close();
  }
});

test("a link that has something to say is not asked", async () => {
  const c = start();
  c.hub.join("busy");
  for (let i = 0; i < 60; i++) {
    await c.clock.advance(10 * SECOND);
    c.server.publish("busy", { text: "x" });
  }
  assert.equal(c.server.received.filter((m) => m.type === "ping").length, 0);
  c.hub.close();
});

test("a machine that slept does not take the first late timer for the link's death", async () => {
  const c = start();
  await c.clock.advance(SECOND);
  for (let i = 0; i < 20; i++) {
    // Asleep in each part of the cycle, with an answer under way in some.
    await c.clock.advance(24 * SECOND + i * 137);
    c.clock.sleep(45 * MINUTE);
  }
  await c.clock.advance(MINUTE);
  assert.deepEqual(c.events.of("close"), []);
  c.server.open[0].deaf = true;
  c.clock.sleep(45 * MINUTE);
  await c.clock.advance(90 * SECOND);
  assert.equal(c.events.of("close").length, 1);
  c.hub.close();
});

test("an answer that waits behind the timer counts", async () => {
  const c = start();
  await c.clock.advance(SECOND);
  let asked = 0;
  c.server.intercept = (socket, command) => {
    if (command.type !== "ping") return false;
    // The page falls asleep with the answer in its queue, and the timer is
    // served first when it wakes.
    if (asked++ === 0) {
      c.clock.sleep(10 * MINUTE);
      c.clock.deliver(() => socket.onmessage?.({ data: `{"type":"pong","id":${command.id}}` }), 100);
      return true;
    }
    return false;
  };
  await c.clock.advance(2 * MINUTE);
  assert.ok(asked > 1);
  assert.deepEqual(c.events.of("close"), []);
  c.hub.close();
});

test("a clock that is set back or forth is no silence", async () => {
  const c = start();
  await c.clock.advance(SECOND);
  c.clock.time -= 60 * MINUTE;
  // Timers go by another clock; here they have to be waited for.
  await c.clock.advance(61 * MINUTE);
  c.clock.time += 600 * MINUTE;
  await c.clock.advance(MINUTE);
  assert.deepEqual(c.events.of("close"), []);
  c.server.open[0].deaf = true;
  await c.clock.advance(MINUTE);
  assert.equal(c.events.of("close").length, 1);
  c.hub.close();
});

test("listeners see the states in order", async () => {
  const c = start();
  const states = record(c.hub, ["statechange"]);
  await c.clock.advance(SECOND);
  c.hub.interrupt();
  await c.clock.advance(2 * SECOND);
  c.page.say("pagehide");
  c.page.say("pageshow");
  await c.clock.advance(SECOND);
  c.hub.close();
  assert.deepEqual(states.of("statechange").map((s) => s.state), ["open", "waiting", "connecting", "open", "suspended", "connecting", "open", "closed"]);
});
