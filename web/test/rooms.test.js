import assert from "node:assert/strict";
import { test } from "node:test";

import { Gap, HubdError, Message, ResumeFailed } from "../hubd.js";
import { recordRoom, settle, start } from "./fake.js";

const SECOND = 1000;

/** A client in a room, joined. */
async function joined(options = {}) {
  const c = start(options);
  const room = c.hub.join("r", options.join);
  const events = recordRoom(room);
  await c.clock.advance(SECOND);
  return { ...c, room, events };
}

/** Loses the link, and waits for the next one. */
async function reconnect(c, meanwhile = () => {}) {
  c.server.open[0].end(1006);
  meanwhile();
  await c.clock.advance(2 * SECOND);
  assert.equal(c.hub.state, "open");
}

const data = (events) => events.of("message").map((m) => m.data);
const joins = (c) => c.server.received.filter((m) => m.type === "join");

test("a room is resumed where it was, and what was published meanwhile comes once", async () => {
  const c = await joined();
  c.server.publish("r", { data: 1 });
  c.server.publish("r", { data: 2 });
  await c.clock.advance(SECOND);
  assert.equal(c.room.position, "e1:2");
  await reconnect(c, () => c.server.publish("r", { data: 3 }));
  c.server.publish("r", { data: 4 });
  await c.clock.advance(SECOND);
  assert.deepEqual(data(c.events), [1, 2, 3, 4]);
  assert.deepEqual(joins(c).map((j) => j.after), [undefined, "e1:2"]);
  const [first, again] = c.events.of("joined");
  assert.deepEqual([first.again, again.again, again.resumed, again.replayed], [false, true, true, 1]);
  c.hub.close();
});

test("a first join may resume too, from a position that was kept", async () => {
  const c = start();
  for (let i = 1; i <= 5; i++) c.server.publish("r", { data: i });
  const events = recordRoom(c.hub.join("r", { after: "e1:3" }));
  await c.clock.advance(SECOND);
  assert.deepEqual(data(events), [4, 5]);
  assert.throws(() => c.hub.join("s", { after: "nonsense" }), { code: "invalid_position" });
  c.hub.close();
});

test("a resume that fails is told, with what became of the numbering", async () => {
  const c = await joined();
  c.server.publish("r", { data: 1 });
  await c.clock.advance(SECOND);
  await reconnect(c, () => c.server.forget("r"));
  await reconnect(c, () => {
    c.server.publish("r", { data: 2 });
    c.server.publish("r", { data: 3 });
    c.server.room("r").floor = 2;
  });
  c.server.publish("r", { data: 4 });
  await c.clock.advance(SECOND);
  assert.deepEqual(c.events.of("resumefailed").map(({ after, position, restarted }) => ({ after, position, restarted })), [
    { after: "e1:1", position: "e2:0", restarted: true },
    { after: "e2:0", position: "e2:2", restarted: false },
  ]);
  assert.deepEqual(data(c.events), [1, 4]);
  c.hub.close();
});

test("what was told as lost is not asked for again", async () => {
  const c = await joined();
  const gap = (after, before, lost) => c.server.open[0].deliver({ type: "gap", room: "r", after, before, lost, reason: "overflow" });
  for (let i = 1; i <= 9; i++) c.server.room("r").messages.push({ type: "message", room: "r", seq: (c.server.room("r").seq = i), data: i });
  gap(0, 4, 3); // and the link is gone before 4 came
  await c.clock.advance(SECOND);
  await reconnect(c);
  assert.equal(joins(c).at(-1).after, "e1:3");
  assert.deepEqual(data(c.events), [4, 5, 6, 7, 8, 9]);
  gap(9, 0, 2); // nothing behind it yet
  c.server.room("r").seq = 11;
  await c.clock.advance(SECOND);
  await reconnect(c, () => c.server.publish("r", { data: 12 }));
  assert.equal(joins(c).at(-1).after, "e1:11");
  assert.deepEqual(data(c.events), [4, 5, 6, 7, 8, 9, 12]);
  assert.deepEqual(c.events.of("gap").map((g) => g.lost), [3, 2]);
  assert.ok(c.events.of("gap")[0] instanceof Gap);
  c.hub.close();
});

test("a link lost in the middle of a snapshot takes the rest of it afterwards", async () => {
  const c = start();
  c.server.room("r").seq = 10;
  c.server.intercept = (socket, command) => {
    if (command.type !== "join") return false;
    const from = Number(command.after?.split(":")[1] ?? 0);
    const values = [7, 8, 10].filter((seq) => seq > from);
    const resumed = command.after && { resumed: true, replayed: values.length };
    socket.deliver({ type: "joined", id: command.id, room: "r", epoch: "e1", seq: 10, policy: "keep-latest", queue: {}, snapshot: resumed ? undefined : 3, ...resumed });
    for (const seq of resumed ? values : values.slice(0, 1)) socket.deliver({ type: "message", room: "r", seq, data: seq });
    return true;
  };
  const events = recordRoom(c.hub.join("r"));
  await c.clock.advance(SECOND);
  await reconnect(c);
  assert.deepEqual(data(events), [7, 8, 10]);
  assert.equal(events.of("joined")[0].snapshot, 3);
  c.hub.close();
});

test("a message that comes twice is given once", async () => {
  const c = await joined();
  for (const seq of [1, 2, 2, 1, 3]) c.server.open[0].deliver({ type: "message", room: "r", seq, data: seq });
  await c.clock.advance(SECOND);
  assert.deepEqual(data(c.events), [1, 2, 3]);
  c.hub.close();
});

test("nothing comes after leave, and a room joined anew does not get what was the old one's", async () => {
  const c = await joined();
  c.server.publish("r", { data: 1 });
  const left = c.room.leave();
  assert.equal(c.room.state, "left");
  const again = c.hub.join("r", { policy: "drop-oldest", queueMessages: 5, queueBytes: 6, gaps: false });
  const events = recordRoom(again);
  await c.clock.advance(SECOND);
  await left;
  assert.deepEqual(c.events.map(([type]) => type), ["joined", "left"]);
  assert.deepEqual(data(events), []); // 1 belongs to the subscription that was left
  const { id, type, ...fields } = joins(c).at(-1);
  assert.deepEqual(fields, { room: "r", policy: "drop-oldest", queue_messages: 5, queue_bytes: 6, gaps: false });
  c.server.publish("r", { data: 2 });
  await c.clock.advance(SECOND);
  assert.deepEqual(data(events), [2]);
  assert.throws(() => c.hub.join("r"), { code: "already_joined" });
  again.leave();
  await c.clock.advance(SECOND);
  await reconnect(c);
  assert.equal(joins(c).length, 2);
  c.hub.close();
});

test("joins wait for the link, and leaving before it comes leaves nothing behind", async () => {
  const c = start();
  const room = c.hub.join("r");
  const events = recordRoom(room);
  await room.leave();
  await c.clock.advance(SECOND);
  assert.deepEqual(joins(c), []);
  assert.deepEqual(events.map(([type]) => type), ["left"]);
  await assert.rejects(room.ready, { code: "left" });
  c.hub.close();
});

test("a refused join is final, or tried again where it may be granted later", async () => {
  const c = start();
  let refusals = ["invalid_option"];
  c.server.intercept = (socket, { id, type }) => {
    if (type !== "join" || refusals.length === 0) return false;
    socket.deliver({ type: "error", id, code: refusals.shift(), message: "no" });
    return true;
  };
  const refused = c.hub.join("r");
  const events = recordRoom(refused);
  await c.clock.advance(SECOND);
  assert.deepEqual(events.map(([type]) => type), ["error", "left"]);
  assert.equal(refused.state, "left");
  await assert.rejects(refused.ready, { name: "HubdError", code: "invalid_option", message: "no" });
  await assert.rejects(refused.messages().next(), { code: "invalid_option" });
  refusals = ["draining", "rate_limited"];
  const later = c.hub.join("r");
  const told = recordRoom(later);
  await c.clock.advance(30 * SECOND);
  assert.equal(later.state, "joined");
  assert.deepEqual(told.of("error").map((e) => e.code), ["draining", "rate_limited"]);
  await assert.rejects(later.ready, { code: "draining" });
  c.hub.close();
});

test("a room that the hub takes away ends with an error", async () => {
  const c = await joined();
  const reader = c.room.messages();
  c.server.open[0].deliver({ type: "left", room: "r" });
  await c.clock.advance(SECOND);
  assert.equal(c.events.of("left")[0].by, "hub");
  assert.equal(c.events.of("error")[0].code, "forbidden");
  await assert.rejects(reader.next(), { code: "forbidden" });
  assert.deepEqual(await reader.next(), { value: undefined, done: true });
  c.hub.close();
});

// Publishing

test("publishes are answered with the seq, in the order of the calls", async () => {
  const c = await joined();
  const answers = [];
  for (const value of ["text", { a: 1 }, new Uint8Array([0, 255]), new Uint16Array([1]).buffer, null, 7]) {
    c.room.publish(value, { key: "k" }).then((p) => answers.push(p));
  }
  c.room.publish("quoted", { as: "json" }).then((p) => answers.push(p));
  c.room.publish('{"n": 12345678901234567890}', { as: "rawjson" }).then((p) => answers.push(p));
  await c.clock.advance(SECOND);
  assert.deepEqual(answers, Array.from({ length: 8 }, (_, i) => ({ room: "r", seq: i + 1 })));
  const sent = c.server.received.filter((m) => m.type === "publish").map(({ type, id, room, key, ...content }) => content);
  assert.deepEqual(sent.slice(0, 7), [{ text: "text" }, { data: { a: 1 } }, { base64: "AP8=" }, { base64: "AQA=" }, { data: null }, { data: 7 }, { data: "quoted" }]);
  c.hub.close();
});

test("what cannot be sent is refused, and raw JSON cannot break out of its frame", async () => {
  const c = await joined();
  for (const bad of ['1,"room":"other"', "", "{", "1}{"]) await assert.rejects(c.room.publish(bad, { as: "rawjson" }), { code: "invalid_message" });
  await assert.rejects(c.room.publish(undefined), { code: "invalid_message" });
  await assert.rejects(c.room.publish("x", { as: "xml" }), { code: "invalid_option" });
  await c.clock.advance(SECOND);
  assert.deepEqual(c.server.received.filter((m) => m.type === "publish"), []);
  c.hub.close();
});

test("a refused publish rejects with the hub's code", async () => {
  const c = await joined();
  c.server.intercept = (socket, { id, type }) => type === "publish" && (socket.deliver({ type: "error", id, code: "message_too_large", message: "at most 5" }), true);
  const publish = assert.rejects(c.room.publish("x"), { name: "HubdError", code: "message_too_large", message: "at most 5", maybePublished: false });
  await c.clock.advance(SECOND);
  await publish;
  c.hub.close();
});

test("a publish whose link is lost is never sent again, and says that it may have arrived", async () => {
  const c = await joined();
  const lost = c.room.publish("once");
  const told = assert.rejects(lost, { code: "link_lost", maybePublished: true });
  await c.clock.advance(6); // it is there, the answer is on its way
  await reconnect(c);
  await told;
  await c.clock.advance(60 * SECOND);
  assert.equal(c.server.received.filter((m) => m.type === "publish").length, 1);
  assert.deepEqual(data(c.events), ["once"]); // and here it had
  c.hub.close();
});

test("a publish without a link waits for one, but not for ever", async () => {
  let answer = "up";
  const c = await joined({ answer: () => answer });
  answer = "down";
  c.server.open[0].end(1006);
  await c.clock.advance(SECOND);
  const short = assert.rejects(c.room.publish("a", { timeout: SECOND }), { code: "not_connected", maybePublished: false });
  await c.clock.advance(2 * SECOND);
  await short;
  const first = c.room.publish("b", { timeout: 600 * SECOND });
  const second = c.room.publish("c", { timeout: 600 * SECOND });
  answer = "up";
  await c.clock.advance(120 * SECOND);
  assert.deepEqual([await first, await second], [{ room: "r", seq: 1 }, { room: "r", seq: 2 }]);
  c.server.open[0].deaf = true;
  const silent = assert.rejects(c.room.publish("d", { timeout: 3 * SECOND }), { code: "timeout", maybePublished: true });
  await c.clock.advance(3 * SECOND);
  await silent;
  c.hub.close();
});

test("publishes without an answer are bounded", async () => {
  const c = await joined({ client: { maxPending: 3 } });
  const all = [1, 2, 3, 4].map((n) => c.room.publish(n));
  await assert.rejects(all[3], { code: "too_many_pending", maybePublished: false });
  await c.clock.advance(SECOND);
  assert.deepEqual((await Promise.all(all.slice(0, 3))).map((p) => p.seq), [1, 2, 3]);
  assert.equal((await Promise.all([c.room.publish(5), c.clock.advance(SECOND)]))[0].seq, 4);
  c.hub.close();
});

// Reading

test("for await gets every message, and break ends it", async () => {
  const c = await joined();
  const got = [];
  const loop = (async () => {
    for await (const message of c.room) {
      got.push(message.data);
      if (message.data === 3) break;
    }
  })();
  for (let i = 1; i <= 5; i++) c.server.publish("r", { data: i });
  await c.clock.advance(SECOND);
  await loop;
  assert.deepEqual(got, [1, 2, 3]);
  assert.equal(c.room.state, "joined");
  c.hub.close();
});

test("leaving ends every reader behind what it has not read yet", async () => {
  const c = await joined();
  const reader = c.room.messages();
  const waiting = c.room.messages();
  for (let i = 1; i <= 2; i++) c.server.publish("r", { data: i });
  await c.clock.advance(SECOND);
  await waiting.next();
  await waiting.next();
  const last = waiting.next();
  c.room.leave();
  assert.equal((await reader.next()).value.data, 1);
  assert.equal((await reader.next()).value.data, 2);
  assert.deepEqual(await reader.next(), { value: undefined, done: true });
  assert.deepEqual(await last, { value: undefined, done: true });
  assert.deepEqual(await c.room.messages().next(), { value: undefined, done: true });
  c.hub.close();
});

test("a reader that is too slow loses the oldest, and is told how many", async () => {
  for (const inline of [false, true]) {
    const c = await joined({ join: { buffer: { messages: 3 } } });
    const reader = c.room.messages({ gaps: inline });
    const fast = [];
    (async () => {
      for await (const message of c.room.messages({ buffer: { messages: 100 } })) fast.push(message.seq);
    })();
    const next = async () => (await reader.next()).value;
    const publish = async (n) => {
      for (let i = 0; i < n; i++) c.server.publish("r", { text: "x" });
      await c.clock.advance(SECOND);
    };
    await publish(1);
    assert.equal((await next()).seq, 1);
    await publish(10); // 2 to 11, of which 9 to 11 are kept
    const local = { after: 1, before: 9, lost: 7, reason: "local" };
    const plain = ({ after, before, lost, reason }) => ({ after, before, lost, reason });
    if (inline) assert.deepEqual(plain(await next()), local);
    assert.equal((await next()).seq, 9);
    assert.deepEqual(c.events.of("gap").map(plain), [local]);
    await publish(2); // 12 and 13, and 10 is lost
    if (inline) assert.deepEqual(plain(await next()), { after: 9, before: 11, lost: 1, reason: "local" });
    assert.deepEqual([(await next()).seq, (await next()).seq, (await next()).seq], [11, 12, 13]);
    assert.equal(c.events.of("gap").reduce((sum, g) => sum + g.lost, 0), 8);
    assert.deepEqual(fast, Array.from({ length: 13 }, (_, i) => i + 1));
    c.hub.close();
  }
});

test("a reader's buffer is bounded in size too, but holds at least one message", async () => {
  const c = await joined({ join: { buffer: { bytes: 100 } } });
  const reader = c.room.messages();
  for (const n of [40, 40, 40, 500]) c.server.publish("r", { text: "x".repeat(n) });
  await c.clock.advance(SECOND);
  assert.equal((await reader.next()).value.seq, 4);
  c.server.publish("r", { text: "y" });
  await c.clock.advance(SECOND);
  assert.equal((await reader.next()).value.text, "y");
  assert.deepEqual(c.events.of("gap").map((g) => g.lost), [3]);
  c.hub.close();
});

test("readers that ask for it get gaps and failed resumes in their places, and lose none of them", async () => {
  const c = await joined();
  const reader = c.room.messages({ gaps: true, buffer: { messages: 2 } });
  const slower = c.room.messages({ gaps: true, buffer: { messages: 1 } });
  c.server.publish("r", { data: 1 });
  c.server.open[0].deliver({ type: "gap", room: "r", after: 1, before: 5, lost: 3, reason: "overflow" });
  c.server.room("r").seq = 4;
  c.server.publish("r", { data: 5 });
  await c.clock.advance(SECOND);
  await reconnect(c, () => c.server.forget("r"));
  c.server.publish("r", { data: 6 });
  await c.clock.advance(SECOND);
  const kinds = async (from, n) => {
    const all = [];
    while (all.length < n) {
      const { value } = await from.next();
      all.push(value instanceof Message ? value.data : value instanceof ResumeFailed ? "failed" : `${value.lost} ${value.reason}`);
    }
    return all;
  };
  assert.deepEqual(await kinds(reader, 5), ["1 local", "3 overflow", 5, "failed", 6]);
  assert.deepEqual(await kinds(slower, 4), ["3 overflow", "2 local", "failed", 6]);
  c.hub.close();
});

test("a message has its content in each form", async () => {
  const c = await joined();
  const socket = c.server.open[0];
  socket.deliver('{"type":"message","room":"r","seq":1,"data":{"n": 12345678901234567890}}');
  socket.deliver('{"type":"message","room":"r","seq":2,"data":[1, 2],"later":"}"}');
  socket.deliver('{"type":"message","room":"r","seq":3,"text":"{\\"a\\":1}"}');
  socket.deliver('{"type":"message","room":"r","seq":4,"base64":"AP8="}');
  socket.deliver('{"type":"message","room":"r","seq":5,"data":null}');
  await c.clock.advance(SECOND);
  const [json, more, text, binary, none] = c.events.of("message");
  assert.equal(json.kind, "json");
  assert.equal(json.text, '{"n": 12345678901234567890}');
  assert.equal(json.data.n, 12345678901234567890);
  assert.equal(json.position, "e1:1");
  assert.equal(more.text, "[1,2]");
  assert.deepEqual([text.kind, text.data, text.json()], ["text", '{"a":1}', { a: 1 }]);
  assert.deepEqual([binary.kind, binary.text, [...binary.data], [...binary.bytes()]], ["binary", "AP8=", [0, 255], [0, 255]]);
  assert.equal(none.data, null);
  assert.equal(json.receivedAt, c.clock.now() - SECOND + 5);
  c.hub.close();
});

test("errors are errors", async () => {
  const c = await joined();
  c.room.leave();
  c.hub.close();
  await settle();
  const error = await c.room.publish("x").catch((e) => e);
  assert.ok(error instanceof HubdError && error instanceof Error);
  assert.equal(String(error), "HubdError: this hub was closed");
});
