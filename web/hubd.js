// hubd: the client of the hubd broadcast hub, for browsers and Node.
//
//   import { connect } from "./hubd.js";
//   const hub = connect("https://hub.example.com/");
//   const room = hub.join("chat.lobby");
//   for await (const message of room) console.log(message.seq, message.data);
//
// The model: a Hub owns at most one Link at a time (a WebSocket, or where that
// is blocked a set of event streams) and any number of Subscriptions, one a
// room. A link that ends is never revived: its requests are answered with an
// error and another link takes its place, on which every subscription asks for
// what came after its position. What a subscription has been given is either a
// message or was told as lost, each once.
//
// Time, randomness, the network and the page's events all come through the
// options, so that tests can stand in for them.

const PROTOCOL = "hubd.v1.json";
const TOKEN_PROTOCOL = "hubd.token.";

const SECOND = 1000;

/** A link that has been up this long was no failure: the backoff starts anew. */
const STABLE = 30 * SECOND;

/** A silent WebSocket is asked for a sign of life after this. */
const QUIET_SOCKET = 25 * SECOND;

/** An event stream has a comment line at least every 15 s. */
const QUIET_STREAM = 35 * SECOND;

/** How long the sign of life may take; less where somebody is looking. */
const PONG = 10 * SECOND;
const PONG_NOW = 5 * SECOND;

const PROBE = 5 * SECOND;

/** How long event streams are used before WebSocket is tried again. */
const FALLBACK = 5 * 60 * SECOND;

/** Handshakes that fail in a row, while the hub answers over HTTP, before WebSocket counts as blocked. */
const BLOCKED = 2;

/** A token is renewed this long before it expires. */
const RENEW = 60 * SECOND;

const MAX_TIMER = 2 ** 31 - 1;
const MAX_RETRY_AFTER = 60 * 60 * SECOND;

/** Joins refused with one of these may be granted later. */
const TRANSIENT = new Set(["draining", "over_capacity", "rate_limited", "overflow", "broker_unavailable"]);

/** Why a link ended, where the server gave no text. */
const REASONS = {
  1000: "closed",
  1001: "the node is shutting down",
  1002: "protocol error",
  1006: "the link broke",
  1009: "message too large",
  1011: "server fault",
  1012: "the node restarts",
  1013: "the node is at capacity",
  4001: "unauthorized",
  4003: "forbidden",
  4007: "ping timeout",
  4008: "slow consumer",
  4009: "kicked by an operator",
};

/**
 * What went wrong. `code` is one of the hub's codes, or one of this client's:
 * not_connected, link_lost, timeout, too_many_pending, too_many_streams,
 * no_answer, left, closed, token_failed.
 */
export class HubdError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {{maybePublished?: boolean, retryAfter?: number, cause?: unknown}} [more]
   */
  constructor(code, message, more = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.name = "HubdError";
    this.code = code;
    /** A publish that failed so may have reached the room all the same. */
    this.maybePublished = more.maybePublished ?? false;
    /** Milliseconds after which the hub may be asked again, where it said so. */
    this.retryAfter = more.retryAfter;
  }
}

/** One message as it was published. */
export class Message {
  #text;
  #raw;
  #value;

  /** @param {{room: string, epoch: string, seq: number, kind: string, text?: string, raw?: string, value?: unknown, receivedAt: number}} m */
  constructor(m) {
    this.room = m.room;
    this.epoch = m.epoch;
    this.seq = m.seq;
    /** "json", "text" or "binary" */
    this.kind = m.kind;
    /** When it came in, in milliseconds since 1970. */
    this.receivedAt = m.receivedAt;
    this.#text = m.text;
    this.#raw = m.raw;
    this.#value = m.value;
    /** About what keeping it costs, in characters. */
    this.size = (m.raw ?? m.text).length;
  }

  /** Where to resume behind this message: the `after` of a join. */
  get position() {
    return `${this.epoch}:${this.seq}`;
  }

  /** JSON as its value, text as a string, binary as a Uint8Array. */
  get data() {
    if (this.kind === "text") return this.#text;
    if (this.#value === undefined) this.#value = this.kind === "binary" ? decodeBase64(this.#text) : JSON.parse(this.text);
    return this.#value;
  }

  /** Text, JSON as the publisher wrote it (no number rounded), binary as base64. */
  get text() {
    if (this.#text === undefined) {
      this.#text = jsonIn(this.#raw, this.#value);
      this.#raw = undefined;
    }
    return this.#text;
  }

  /** The text parsed as JSON, whatever it was published as. */
  json() {
    return this.kind === "json" ? this.data : JSON.parse(this.text);
  }

  /** The payload's bytes. */
  bytes() {
    return this.kind === "binary" ? this.data : new TextEncoder().encode(this.text);
  }
}

/** The payload's own text out of a message frame, whose last field it is. */
function jsonIn(raw, value) {
  const own = raw.slice(raw.indexOf('"data":') + 7, raw.lastIndexOf("}")).trim();
  try {
    JSON.parse(own);
    return own;
  } catch {
    return JSON.stringify(value); // another field came behind it
  }
}

function encodeBase64(bytes) {
  if (bytes.toBase64) return bytes.toBase64();
  let s = "";
  for (let i = 0; i < bytes.length; i += 0x8000) s += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(s);
}

function decodeBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Messages that did not come, where they would have stood. */
export class Gap {
  constructor({ room, after, before, lost, reason }) {
    this.kind = "gap";
    this.room = room;
    /** The seq before the loss and the one behind it, 0 while there is none yet. */
    this.after = after;
    this.before = before;
    this.lost = lost;
    /** overflow, conflated, expired, budget, broker; local: this program was too slow. */
    this.reason = reason;
  }
}

/** What a join asked for with `after` can no longer be had. */
export class ResumeFailed {
  constructor({ room, after, position, restarted }) {
    this.kind = "resumefailed";
    this.room = room;
    /** The position asked for, and the one where it goes on. */
    this.after = after;
    this.position = position;
    /** The numbering has restarted: the hub has, or the room had been forgotten. */
    this.restarted = restarted;
  }
}

const fire = (target, type, detail) => target.dispatchEvent(new CustomEvent(type, { detail }));

/** What one reader of a room has not taken yet: bounded, the oldest go first. */
class Reader {
  #subscription;
  #limits;
  #gaps;
  #items = [];
  #head = 0;
  #messages = 0;
  #size = 0;
  #dropped = 0; // messages this reader was too slow for, ahead of #items
  #missed = null; // the hub's gaps among those, as one
  #after = 0;
  #waiting = []; // reads that wait for an item
  #end = null; // {error} once nothing more will come

  constructor(subscription, limits, gaps) {
    this.#subscription = subscription;
    this.#limits = limits;
    this.#gaps = gaps;
  }

  push(item) {
    if (item.kind === "gap" || item.kind === "resumefailed") {
      if (!this.#gaps) return;
    } else {
      this.#messages++;
      this.#size += item.size;
    }
    if (this.#waiting.length > 0) {
      this.#account(item);
      this.#waiting.shift().resolve({ value: item, done: false });
      return;
    }
    this.#items.push(item);
    // At least one message is kept, whatever its size.
    while (this.#messages > 1 && (this.#messages > this.#limits.messages || this.#size > this.#limits.bytes)) this.#drop();
  }

  #account(item) {
    if (!(item instanceof Message)) return;
    this.#messages--;
    this.#size -= item.size;
    this.#after = item.seq;
  }

  #shift() {
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined;
    if (this.#head > 64 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  #drop() {
    const after = this.#after;
    const item = this.#shift();
    if (item instanceof Message) {
      this.#account(item);
      this.#after = after; // it was not given to anybody
      this.#dropped++;
    } else if (item instanceof Gap) {
      const lost = (this.#missed?.lost ?? 0) + item.lost;
      this.#missed = new Gap({ ...item, after: this.#missed?.after ?? item.after, lost });
    }
  }

  /** What is next, or null. */
  #take() {
    if (this.#missed) {
      const gap = this.#missed;
      this.#missed = null;
      return gap;
    }
    if (this.#dropped > 0) {
      const before = this.#items.find((item, i) => i >= this.#head && item instanceof Message);
      const gap = new Gap({ room: this.#subscription.name, after: this.#after, before: before.seq, lost: this.#dropped, reason: "local" });
      this.#dropped = 0;
      fire(this.#subscription.room, "gap", gap);
      if (this.#gaps) return gap;
    }
    if (this.#head === this.#items.length) return null;
    const item = this.#shift();
    this.#account(item);
    return item;
  }

  next() {
    const item = this.#take();
    if (item) return Promise.resolve({ value: item, done: false });
    if (this.#end) return this.#finish();
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  #finish() {
    const { error } = this.#end;
    this.#end.error = undefined; // told once
    return error ? Promise.reject(error) : Promise.resolve({ value: undefined, done: true });
  }

  end(error) {
    this.#end ??= { error };
    for (const { resolve, reject } of this.#waiting.splice(0)) this.#finish().then(resolve, reject);
  }

  return(value) {
    this.#subscription.readers.delete(this);
    this.#items = [];
    this.#head = this.#messages = this.#size = this.#dropped = 0;
    this.#missed = null;
    this.#end = {};
    this.end();
    return Promise.resolve({ value, done: true });
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

/** A room that was joined. Events: message, gap, joined, resumefailed, left, error. */
export class Room extends EventTarget {
  #subscription;

  constructor(subscription) {
    super();
    this.#subscription = subscription;
    this.name = subscription.name;
  }

  /** "joining" (also while the link is down), "joined" or "left" */
  get state() {
    return this.#subscription.state;
  }

  /** The position behind the last message, to keep and to resume from; null before the first join. */
  get position() {
    const { epoch, seq } = this.#subscription;
    return epoch ? `${epoch}:${seq}` : null;
  }

  /** Resolves when first joined, rejects when that is refused. */
  get ready() {
    return this.#subscription.ready;
  }

  /** Publishes to this room; see Hub.publish. */
  publish(data, options) {
    return this.#subscription.hub.publish(this.name, data, options);
  }

  /** Leaves. Nothing of the room comes after this call. */
  leave() {
    return this.#subscription.hub.leaveRoom(this.#subscription);
  }

  /**
   * The messages from now on, each reader with a buffer of its own. With `gaps`
   * the iterator also yields Gap and ResumeFailed where they belong.
   */
  messages({ gaps = false, buffer } = {}) {
    return this.#subscription.reader(gaps, buffer);
  }

  [Symbol.asyncIterator]() {
    return this.messages();
  }
}

/** This client's membership of one room, over all links. */
class Subscription {
  state = "joining";
  epoch = "";
  seq = 0;
  readers = new Set();
  #asked = null; // the position that the join under way asked for
  #wasJoined = false;
  #failures = 0;
  #retry = 0;
  #settle;
  #end = null;

  constructor(hub, name, options) {
    this.hub = hub;
    this.name = name;
    this.options = options;
    if (options.after) {
      const at = options.after.lastIndexOf(":");
      this.epoch = options.after.slice(0, at);
      this.seq = Number(options.after.slice(at + 1));
      if (at < 1 || !Number.isSafeInteger(this.seq)) throw new HubdError("invalid_position", "after is a position, as room.position gives it");
    }
    this.ready = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.ready.catch(() => {}); // who does not look is told by events
    this.room = new Room(this);
  }

  /** The join's fields, as a command and a query have them. */
  fields() {
    const { policy, queueMessages, queueBytes, gaps } = this.options;
    this.#asked = this.epoch ? { epoch: this.epoch, seq: this.seq } : null;
    return {
      policy,
      queue_messages: queueMessages,
      queue_bytes: queueBytes,
      gaps: gaps === false ? false : undefined,
      after: this.#asked ? `${this.epoch}:${this.seq}` : undefined,
    };
  }

  reader(gaps, buffer) {
    const reader = new Reader(this, { messages: 1024, bytes: 8 << 20, ...this.options.buffer, ...buffer }, gaps);
    if (this.#end) reader.end(this.#end.error);
    else this.readers.add(reader);
    return reader;
  }

  #give(type, item) {
    for (const reader of this.readers) reader.push(item);
    fire(this.room, type, item);
  }

  joined(frame) {
    const asked = this.#asked;
    const from = this.position();
    this.#asked = null;
    this.state = "joined";
    this.#failures = 0;
    if (!frame.resumed) {
      this.epoch = frame.epoch;
      // A snapshot comes behind, oldest first, with numbers up to this one.
      this.seq = frame.snapshot > 0 ? 0 : frame.seq;
    }
    const detail = {
      room: this.name, epoch: frame.epoch, seq: frame.seq, policy: frame.policy, queue: frame.queue,
      resumed: frame.resumed, replayed: frame.replayed, snapshot: frame.snapshot ?? 0, again: this.#wasJoined,
    };
    this.#wasJoined = true;
    this.#settle.resolve(detail);
    fire(this.room, "joined", detail);
    if (asked && !frame.resumed) {
      this.#give("resumefailed", new ResumeFailed({
        room: this.name, after: from, position: `${frame.epoch}:${frame.seq}`, restarted: asked.epoch !== frame.epoch,
      }));
    }
  }

  position() {
    return `${this.epoch}:${this.seq}`;
  }

  /** @param {{seq: number, kind: string, text?: string, raw?: string, value?: unknown}} m */
  message(m) {
    // Of a subscription that was left, or a second time: neither is ours.
    if (this.state !== "joined" || m.seq <= this.seq) return;
    this.seq = m.seq;
    this.#give("message", new Message({ ...m, room: this.name, epoch: this.epoch, receivedAt: this.hub.clock.now() }));
  }

  gap(frame) {
    if (this.state !== "joined") return;
    // Told once, and no longer asked for: `before` is the next to come, and
    // without one at least as many numbers were used as messages were lost.
    this.seq = Math.max(this.seq, frame.before > 0 ? frame.before - 1 : frame.after + frame.lost);
    this.#give("gap", new Gap({ ...frame, room: this.name }));
  }

  /** The link is gone. */
  lost() {
    this.hub.clock.clearTimeout(this.#retry);
    this.#asked = null;
    if (this.state === "joined") this.state = "joining";
  }

  /** The join was refused; again, if not for good, when `retry` is called. */
  refused(error, retry) {
    if (this.state === "left") return;
    this.#asked = null;
    if (!TRANSIENT.has(error.code)) {
      this.end(error);
      return;
    }
    this.trouble(error);
    this.later(retry, error.retryAfter);
  }

  /** Calls retry after a backoff of this room's own, unless the link ends before. */
  later(retry, atLeast = 0) {
    const { clock } = this.hub;
    clock.clearTimeout(this.#retry);
    this.#retry = clock.setTimeout(retry, atLeast + this.hub.backoff(++this.#failures));
  }

  /** Reports what goes on being tried. */
  trouble(error) {
    this.#settle.reject(error);
    fire(this.room, "error", error);
  }

  /** It is over; with an error, unless it was left. */
  end(error, by = "client") {
    if (this.#end) return;
    this.lost();
    this.state = "left";
    this.#end = { error };
    this.hub.forget(this);
    this.#settle.reject(error ?? new HubdError("left", "the room was left before it was joined"));
    if (error) fire(this.room, "error", error);
    for (const reader of this.readers) reader.end(error);
    this.readers.clear();
    fire(this.room, "left", { room: this.name, by: error ? "hub" : by, error });
  }
}

/**
 * One WebSocket, from its handshake to its end.
 *
 * @typedef {object} Ended Why a link ended.
 * @property {number} code  close code; 1006 where there was none
 * @property {string} reason
 * @property {number} [retryAfter] milliseconds, where the hub said so
 * @property {boolean} [refused]   no WebSocket could be made at all
 */
class SocketLink {
  transport = "websocket";
  quiet = QUIET_SOCKET;
  #hub;
  #socket;
  #timer;
  #requests = new Map(); // id → what answers it
  #lastId = 0;

  /** @param {(why: Ended) => void} ended */
  constructor(hub, token, opened, ended) {
    this.#hub = hub;
    this.heardAt = hub.clock.now();
    this.ended = ended;
    const protocols = token ? [PROTOCOL, TOKEN_PROTOCOL + token] : [PROTOCOL];
    const url = new URL("ws", hub.url);
    url.protocol = url.protocol.replace("http", "ws");
    try {
      this.#socket = new hub.options.WebSocket(url.href, protocols);
    } catch (error) {
      // Blocked by a policy; told later, as every other end is.
      this.#timer = hub.clock.setTimeout(() => this.#end({ code: 1006, reason: String(error?.message ?? error), refused: true }), 0);
      return;
    }
    const socket = this.#socket;
    this.#timer = hub.clock.setTimeout(() => this.#end({ code: 1006, reason: "the hub did not answer" }), hub.options.connectTimeout);
    let open = false;
    socket.onopen = () => {
      open = true;
      hub.clock.clearTimeout(this.#timer);
      this.heardAt = hub.clock.now();
      opened();
    };
    socket.onmessage = (event) => this.#received(event.data);
    socket.onclose = (event) => this.#end({ code: event.code || 1006, reason: event.reason || REASONS[event.code] || `close code ${event.code}` });
    // A close follows, but not in every Node when the handshake has failed.
    socket.onerror = () => {
      if (!open) this.#end({ code: 1006, reason: "the WebSocket handshake failed" });
    };
  }

  #end(why) {
    const { ended } = this;
    this.close();
    ended?.(why);
  }

  /** Ends it without a word to the hub's owner. Nothing is heard of it again. */
  close() {
    this.ended = null;
    this.#hub.clock.clearTimeout(this.#timer);
    if (this.#socket) {
      this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
      this.#socket.onerror = () => {}; // closing may be an error, and with the package ws one needs a listener
      this.#socket.close(1000);
    }
    const lost = new HubdError("link_lost", "the link was lost before the hub answered", { maybePublished: true });
    for (const answer of this.#requests.values()) answer(lost);
    this.#requests.clear();
  }

  /** Says that the link is dead, which a socket may not notice for minutes. */
  fail(reason) {
    this.#end({ code: 1006, reason });
  }

  /** Sends a command; answer gets an error, or null and the frame. */
  #request(command, answer, json) {
    const id = ++this.#lastId;
    if (answer) this.#requests.set(id, answer);
    const text = JSON.stringify({ ...command, id });
    this.#socket.send(json === undefined ? text : `${text.slice(0, -1)},"data":${json}}`);
    return id;
  }

  #received(raw) {
    this.heardAt = this.#hub.clock.now();
    let frame;
    try {
      frame = JSON.parse(raw);
    } catch {
      this.fail("the hub sent what is no JSON");
      return;
    }
    const { type, id } = frame;
    const subscription = this.#hub.subscription(frame.room);
    if (type === "message") {
      if ("data" in frame) subscription?.message({ seq: frame.seq, kind: "json", raw, value: frame.data });
      else if ("text" in frame) subscription?.message({ seq: frame.seq, kind: "text", text: frame.text });
      else subscription?.message({ seq: frame.seq, kind: "binary", text: frame.base64 });
      return;
    }
    if (type === "gap") {
      subscription?.gap(frame);
      return;
    }
    const answer = this.#requests.get(id);
    this.#requests.delete(id);
    if (type === "error") {
      const error = new HubdError(frame.code, frame.message);
      if (answer) answer(error);
      else if (id === undefined) fire(this.#hub, "error", error);
    } else if (answer) {
      answer(null, frame);
    } else if (type === "left") {
      subscription?.end(new HubdError("forbidden", "the hub took this connection out of the room"));
    }
  }

  join(subscription) {
    this.#request({ type: "join", room: subscription.name, ...subscription.fields() }, (error, frame) => {
      // A lost link is no answer, and what was left meanwhile needs none.
      if (subscription.state === "left" || error?.code === "link_lost") return;
      if (error) subscription.refused(error, () => this.join(subscription));
      else subscription.joined(frame);
    });
  }

  leave(subscription, done) {
    this.#request({ type: "leave", room: subscription.name }, done);
  }

  /** Returns how to give up waiting. */
  publish(room, content, key, answer) {
    const command = { type: "publish", room, key: key || undefined };
    const { kind, text } = content;
    const id = kind === "json" ? this.#request(command, answer, text) : this.#request({ ...command, [kind === "text" ? "text" : "base64"]: text }, answer);
    return () => this.#requests.delete(id);
  }

  auth(token, answer) {
    this.#request({ type: "auth", token }, answer);
  }

  ping() {
    this.#request({ type: "ping" });
  }
}

/** Parses an event stream (HTML standard, section 9.2.6) as it comes in. */
class EventParser {
  #decoder = new TextDecoder();
  #rest = "";
  #event = {};
  #lines = null;
  #onEvent;

  constructor(onEvent) {
    this.#onEvent = onEvent;
  }

  feed(bytes) {
    let text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    // A \r at the end may be half of a \r\n.
    const held = text.endsWith("\r") ? "\r" : "";
    text = text.slice(0, text.length - held.length);
    const lines = text.split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + held;
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") {
      if (this.#lines) this.#onEvent({ ...this.#event, data: this.#lines.join("\n") });
      this.#event = {};
      this.#lines = null;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (name === "data") (this.#lines ??= []).push(value);
    else if (name === "event" || name === "id" || name === "kind") this.#event[name] = value;
  }
}

/** Milliseconds of a Retry-After header, in seconds or as a date; undefined without one. */
function retryAfterOf(response, now) {
  const text = response.headers.get("Retry-After");
  if (!text) return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * SECOND : Date.parse(text) - now;
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), MAX_RETRY_AFTER) : undefined;
}

/** A refusal over HTTP as an error. */
async function problemOf(response, now, more = {}) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Not the hub's own words: something between.
  }
  return new HubdError(problem.code ?? "error", problem.detail ?? `the hub answered ${response.status}`, { ...more, retryAfter: retryAfterOf(response, now) });
}

/** A name that is none must not get into a URL: /rooms/.. is another place. */
const isRoom = (name) => /^[A-Za-z0-9._~:@-]{1,128}$/.test(name) && name !== "." && name !== "..";

const invalidRoom = () => new HubdError("invalid_room", "a room is 1 to 128 of A-Z a-z 0-9 . _ ~ : @ -, and not . or ..");

/**
 * The rooms as event streams, one request each, and publishes as POSTs: for
 * where WebSocket is blocked. What ends one stream ends them all; resuming
 * makes that safe.
 */
class StreamLink {
  transport = "sse";
  quiet = QUIET_STREAM;
  #hub;
  #token;
  #streams = new Map(); // subscription → AbortController
  #heard = new Map(); // subscription → when something came in
  #probe = new AbortController();

  /** @param {(why: Ended) => void} ended */
  constructor(hub, token, opened, ended) {
    this.#hub = hub;
    this.#token = token;
    this.ended = ended;
    hub.probe(token, this.#probe.signal).then((why) => {
      if (this.ended === null) return;
      if (why.answered) opened();
      else this.#end(why);
    });
  }

  get heardAt() {
    return Math.min(this.#hub.clock.now(), ...this.#heard.values());
  }

  #end(why) {
    const { ended } = this;
    this.close();
    ended?.(why);
  }

  close() {
    this.ended = null;
    this.#probe.abort();
    for (const controller of this.#streams.values()) controller.abort();
    this.#streams.clear();
    this.#heard.clear();
  }

  fail(reason) {
    this.#end({ code: 1006, reason });
  }

  #headers(more) {
    return this.#token ? { ...more, Authorization: `Bearer ${this.#token}` } : more;
  }

  #url(room, fields) {
    const url = new URL(`rooms/${encodeURIComponent(room)}`, this.#hub.url);
    for (const [name, value] of Object.entries(fields)) if (value !== undefined) url.searchParams.set(name, String(value));
    return url.href;
  }

  join(subscription) {
    if (!isRoom(subscription.name)) {
      queueMicrotask(() => subscription.refused(invalidRoom()));
      return;
    }
    const again = () => this.join(subscription);
    const { maxStreams } = this.#hub.options;
    if (this.#streams.size >= maxStreams) {
      this.#tooMany(subscription, again);
      return;
    }
    const controller = new AbortController();
    this.#streams.set(subscription, controller);
    this.#hub.slots(maxStreams, controller.signal, () => this.#stream(subscription, controller)).then((granted) => {
      if (granted || this.#streams.get(subscription) !== controller) return;
      this.#streams.delete(subscription);
      this.#tooMany(subscription, again);
    });
  }

  /** Browsers open six connections to a host over HTTP/1.1, all tabs together: a seventh would hang without a word. */
  #tooMany(subscription, again) {
    subscription.trouble(new HubdError("too_many_streams",
      `event streams in use: ${this.#hub.options.maxStreams}, as many as browsers allow over HTTP/1.1 and leave one connection for the page; the room waits for one to end`));
    subscription.later(again, PROBE);
  }

  /** Reads one stream to its end. Never rejects. */
  async #stream(subscription, controller) {
    const { clock, options } = this.#hub;
    const again = () => this.join(subscription);
    let answered = false;
    const timer = clock.setTimeout(() => {
      if (answered) return;
      this.#streams.delete(subscription);
      controller.abort();
      subscription.trouble(new HubdError("no_answer",
        "the hub did not answer; over HTTP/1.1 a browser opens at most six connections to a host, all tabs together, and the others wait"));
      subscription.later(again);
    }, options.connectTimeout);
    try {
      const response = await options.fetch(this.#url(subscription.name, subscription.fields()), {
        headers: this.#headers({ Accept: "text/event-stream" }), signal: controller.signal, cache: "no-store",
      });
      answered = true;
      clock.clearTimeout(timer);
      if (!(response.headers.get("Content-Type") ?? "").startsWith("text/event-stream")) {
        const error = await problemOf(response, clock.now());
        if (controller.signal.aborted) return;
        if (response.status === 401) this.#end({ code: 4001, reason: REASONS[4001] });
        else if (response.ok || response.status === 429 || response.status >= 500) this.#end({ code: 1006, reason: error.message, retryAfter: error.retryAfter });
        else {
          this.#streams.delete(subscription);
          subscription.refused(error, again);
        }
        return;
      }
      await this.#read(subscription, controller, response.body);
      if (!controller.signal.aborted) this.#end({ code: 1006, reason: "the event stream ended" });
    } catch (error) {
      if (!controller.signal.aborted) this.#end({ code: 1006, reason: `the event stream broke: ${error?.message ?? error}` });
    } finally {
      clock.clearTimeout(timer);
    }
  }

  async #read(subscription, controller, body) {
    const parser = new EventParser((event) => {
      if (!controller.signal.aborted) this.#event(subscription, event);
    });
    for (const reader = body.getReader(); ; ) {
      this.#heard.set(subscription, this.#hub.clock.now());
      const { value, done } = await reader.read();
      if (done || controller.signal.aborted) return;
      parser.feed(value);
    }
  }

  #event(subscription, { event, id, data, kind }) {
    if (event === "joined") subscription.joined(JSON.parse(data));
    else if (event === "gap") subscription.gap(JSON.parse(data));
    else if (event === "message" || event === "binary") {
      const seq = Number(id.slice(id.lastIndexOf(":") + 1));
      subscription.message({ seq, kind: event === "binary" ? "binary" : kind === "json" ? "json" : "text", text: data });
    }
  }

  leave(subscription, done) {
    this.#streams.get(subscription)?.abort();
    this.#streams.delete(subscription);
    this.#heard.delete(subscription);
    done(null);
  }

  publish(room, content, key, answer) {
    if (!isRoom(room)) {
      answer(invalidRoom());
      return () => {};
    }
    const controller = new AbortController();
    const types = { json: "application/json", text: "text/plain;charset=utf-8", binary: "application/octet-stream" };
    const { posts } = this.#hub;
    posts.open.add(controller);
    // One after the other, so that they keep their order. A stream that ends
    // does not end them.
    const post = posts.last.then(() => this.#post(this.#url(room, { key: key || undefined }), {
      method: "POST", signal: controller.signal, cache: "no-store",
      headers: this.#headers({ "Content-Type": types[content.kind] }),
      body: content.kind === "binary" ? decodeBase64(content.text) : content.text,
    }));
    posts.last = post.then((frame) => answer(null, frame), answer).finally(() => posts.open.delete(controller));
    return () => controller.abort();
  }

  async #post(url, request) {
    let response;
    try {
      response = await this.#hub.options.fetch(url, request);
      if (response.ok) return await response.json();
    } catch (cause) {
      throw new HubdError("link_lost", "the hub could not be reached, or the link was lost before it answered", { maybePublished: true, cause });
    }
    throw await problemOf(response, this.#hub.clock.now());
  }

  auth(token, answer) {
    this.#token = token; // for what is asked from now on
    answer(null, {});
  }

  ping() {} // the hub's comments are the sign of life
}

/** Checks the options and fills in what stands here by itself. */
function complete(options) {
  const all = {
    transport: "auto", connectTimeout: 15 * SECOND, publishTimeout: 30 * SECOND, maxPending: 1000, maxStreams: 5, ...options,
  };
  all.backoff = { base: SECOND, cap: 120 * SECOND, ...options.backoff };
  all.WebSocket ??= globalThis.WebSocket;
  all.fetch ??= globalThis.fetch?.bind(globalThis);
  if (!["auto", "websocket", "sse"].includes(all.transport)) throw new TypeError("hubd: transport is auto, websocket or sse");
  if (!all.WebSocket && (all.transport === "websocket" || !all.fetch)) throw new TypeError("hubd: there is no WebSocket here; give one with the option WebSocket");
  if (!(all.backoff.base > 0 && all.backoff.cap >= all.backoff.base)) throw new TypeError("hubd: backoff.base is more than 0 and at most backoff.cap");
  return all;
}

const defaultClock = {
  now: () => Date.now(),
  setTimeout: (f, ms) => globalThis.setTimeout(f, ms),
  clearTimeout: (timer) => globalThis.clearTimeout(timer),
};

/** When a JWT expires, in milliseconds since 1970; 0 where that cannot be read. */
function expiryOf(token) {
  try {
    return JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"))).exp * SECOND || 0;
  } catch {
    return 0;
  }
}

/** What a publish sends: its kind, and the text that stands for it. */
function contentOf(data, as) {
  if (as === "rawjson") {
    try {
      JSON.parse(data);
    } catch (cause) {
      throw new HubdError("invalid_message", `this is not JSON: ${cause.message}`, { cause });
    }
    return { kind: "json", text: data };
  }
  if (as === undefined && typeof data === "string") return { kind: "text", text: data };
  if (as === undefined && data instanceof ArrayBuffer) return { kind: "binary", text: encodeBase64(new Uint8Array(data)) };
  if (as === undefined && ArrayBuffer.isView(data)) {
    return { kind: "binary", text: encodeBase64(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) };
  }
  if (as !== undefined && as !== "json") throw new HubdError("invalid_option", "as is json or rawjson");
  const text = JSON.stringify(data);
  if (text === undefined) throw new HubdError("invalid_message", "undefined and functions are no JSON");
  return { kind: "json", text };
}

/** A hub, over one link at a time. Events: open, close, reconnecting, statechange, error. */
export class Hub extends EventTarget {
  #state = "connecting";
  #link = null;
  #turn = 0; // of the attempt that counts; all others are stale
  #subscriptions = new Map();
  #pending = new Set(); // publishes without an answer
  #waiting = new Set(); // those among them that were not sent yet
  #failures = 0;
  #openedAt = 0;
  #retry = { timer: 0, at: 0, notBefore: 0 };
  #beat = 0;
  #question = { asked: 0, due: 0 }; // when a sign of life was asked for last
  #blocked = 0;
  #fallbackSince = 0; // when event streams took over; 0: they have not
  #refresh = false; // ask for another token
  #refreshed = false; // it was asked for, and the link has not been stable since
  #renewal = 0;
  #listening = new AbortController();

  constructor(url, options) {
    super();
    this.options = complete(options);
    this.clock = options.clock ?? defaultClock;
    this.random = options.random ?? Math.random;
    /** Publishes over HTTP: those under way, and the end of the last one. */
    this.posts = { open: new Set(), last: Promise.resolve() };
    this.url = new URL(url, globalThis.document?.baseURI);
    this.url.protocol = this.url.protocol.replace(/^ws/, "http");
    if (!/^https?:$/.test(this.url.protocol)) throw new TypeError("hubd: the hub's URL begins with http, https, ws or wss");
    this.url.search = this.url.hash = "";
    if (!this.url.pathname.endsWith("/")) this.url.pathname += "/";
    this.#watchPage(options.page ?? { window: globalThis.document ? globalThis : undefined, document: globalThis.document });
    this.#attempt();
  }

  /** "connecting", "open", "waiting" (for the next attempt), "suspended" (in the page cache) or "closed" */
  get state() {
    return this.#state;
  }

  /** "websocket" or "sse" while open, else null */
  get transport() {
    return this.#state === "open" ? this.#link.transport : null;
  }

  /** When the next attempt is due, in milliseconds since 1970; 0 where none is. */
  get retryAt() {
    return this.#state === "waiting" ? this.#retry.at : 0;
  }

  /** Joins a room, now or when there is a link, and again after every lost one. */
  join(name, options = {}) {
    if (this.#state === "closed") throw new HubdError("closed", "this hub was closed");
    if (this.#subscriptions.has(name)) throw new HubdError("already_joined", `${name} is joined already`);
    const subscription = new Subscription(this, name, options);
    this.#subscriptions.set(name, subscription);
    if (this.#state === "open") this.#link.join(subscription);
    return subscription.room;
  }

  /**
   * Publishes: a string as text, an ArrayBuffer or a view as binary, all else
   * as JSON. Resolves with the message's seq when the hub has taken it. Without
   * a link it waits for one, within the timeout. It is never sent twice: where
   * the link was lost first, the error's maybePublished is true.
   */
  publish(room, data, { key, as, timeout = this.options.publishTimeout } = {}) {
    return new Promise((resolve, reject) => {
      const content = contentOf(data, as);
      if (this.#state === "closed") throw new HubdError("closed", "this hub was closed");
      if (this.#pending.size >= this.options.maxPending) {
        throw new HubdError("too_many_pending", `${this.options.maxPending} publishes have no answer yet: wait for some`);
      }
      const p = { room, content, key, cancel: null, settle: null };
      const timer = this.clock.setTimeout(() => {
        const sent = !this.#waiting.has(p);
        p.cancel?.();
        p.settle(sent
          ? new HubdError("timeout", "the hub did not answer in time", { maybePublished: true })
          : new HubdError("not_connected", "there was no link to the hub in time"));
      }, timeout);
      p.settle = (error, frame) => {
        if (!this.#pending.delete(p)) return;
        this.#waiting.delete(p);
        this.clock.clearTimeout(timer);
        if (error) reject(error);
        else resolve({ room, seq: frame.seq });
      };
      this.#pending.add(p);
      if (this.#state === "open") this.#send(p);
      else this.#waiting.add(p);
    });
  }

  #send(p) {
    this.#waiting.delete(p);
    p.cancel = this.#link.publish(p.room, p.content, p.key, p.settle);
  }

  /** Gives the hub another token, for now and for later links. */
  auth(token) {
    this.options.token = token;
    return typeof token === "function" ? this.#renew() : this.#authenticate(token);
  }

  /** Does not wait for the next attempt. Does nothing while connected or connecting. */
  reconnect() {
    if (this.#state === "waiting" || this.#state === "suspended") this.#attempt();
  }

  /** Loses the link as a fault in the network would: for trying out what then happens. */
  interrupt() {
    this.#link?.fail("interrupted");
  }

  /** Leaves every room and ends. */
  close() {
    this.#finish({ code: 1000, reason: REASONS[1000] });
  }

  // What links and subscriptions use.

  subscription(name) {
    return this.#subscriptions.get(name);
  }

  forget(subscription) {
    if (this.#subscriptions.get(subscription.name) === subscription) this.#subscriptions.delete(subscription.name);
  }

  leaveRoom(subscription) {
    return new Promise((resolve) => {
      const there = this.#subscriptions.get(subscription.name) === subscription;
      // A join under way must be undone too. A room that was refused is neither.
      if (there && this.#state === "open") this.#link.leave(subscription, () => resolve());
      else resolve();
      subscription.end();
    });
  }

  /** A random time up to a ceiling that doubles with each failure, up to the cap: full jitter. */
  backoff(failures) {
    const { base, cap } = this.options.backoff;
    return this.random() * Math.min(cap, base * 2 ** Math.min(failures, 30));
  }

  /**
   * Asks over HTTP what a handshake is told, which browsers keep from pages.
   * Never rejects.
   * @returns {Promise<Ended & {answered?: boolean}>} answered: the hub would have taken it
   */
  async probe(token, signal) {
    const controller = new AbortController();
    const timer = this.clock.setTimeout(() => controller.abort(), PROBE);
    signal?.addEventListener("abort", () => controller.abort());
    try {
      const response = await this.options.fetch(new URL("ws", this.url).href, {
        cache: "no-store", signal: controller.signal, headers: token ? { Authorization: `Bearer ${token}` } : {},
      });
      if (response.status === 426) return { code: 1006, reason: "the WebSocket handshake failed", answered: true };
      const error = await problemOf(response, this.clock.now());
      const code = { 401: 4001, 403: 4003 }[response.status] ?? 1006;
      return { code, reason: error.message, retryAfter: error.retryAfter };
    } catch {
      return { code: 1006, reason: "the hub cannot be reached" };
    } finally {
      this.clock.clearTimeout(timer);
    }
  }

  /**
   * Runs use with one of n places that all tabs of this origin share, where the
   * browser can do that. Resolves with false if none was free.
   */
  async slots(n, signal, use) {
    const locks = this.options.locks ?? (globalThis.document && globalThis.navigator?.locks);
    if (!locks || !Number.isFinite(n)) {
      await use();
      return true;
    }
    try {
      for (let i = 0; i < n && !signal.aborted; i++) {
        const granted = await locks.request(`hubd ${this.url.host} stream ${i}`, { ifAvailable: true }, async (lock) => {
          if (lock && !signal.aborted) await use();
          return lock !== null;
        });
        if (granted) return true;
      }
      return signal.aborted;
    } catch {
      await use(); // a page that may not use locks
      return true;
    }
  }

  // The life of links.

  #setState(state, detail) {
    this.#state = state;
    fire(this, "statechange", { state, ...detail });
  }

  #attempt() {
    const turn = ++this.#turn;
    this.clock.clearTimeout(this.#retry.timer);
    this.#setState("connecting");
    const { token } = this.options;
    if (typeof token !== "function") {
      this.#connect(turn, token);
      return;
    }
    const refresh = this.#refresh;
    this.#refresh = false;
    this.#callToken(refresh).then(
      (fresh) => this.#connect(turn, fresh),
      (error) => {
        if (turn !== this.#turn) return;
        this.#refresh = refresh;
        fire(this, "error", error);
        this.#schedule({ code: 1006, reason: error.message });
      },
    );
  }

  async #callToken(refresh) {
    try {
      return await this.options.token({ refresh });
    } catch (cause) {
      throw new HubdError("token_failed", `the token callback failed: ${cause?.message ?? cause}`, { cause });
    }
  }

  #connect(turn, token) {
    if (turn !== this.#turn) return;
    const Link = this.#useStreams() ? StreamLink : SocketLink;
    const link = new Link(this, token, () => this.#opened(token), (why) => this.#ended(link, token, why));
    this.#link = link;
  }

  #useStreams() {
    const { transport, WebSocket } = this.options;
    if (transport !== "auto") return transport === "sse";
    if (!WebSocket) return true;
    return this.#fallbackSince > 0 && this.clock.now() - this.#fallbackSince < FALLBACK;
  }

  #opened(token) {
    this.#openedAt = this.clock.now();
    if (this.#link.transport === "websocket") this.#blocked = this.#fallbackSince = 0;
    this.#state = "open";
    this.#watch(this.#link.quiet);
    this.#renewBefore(expiryOf(token));
    for (const subscription of this.#subscriptions.values()) this.#link.join(subscription);
    for (const p of [...this.#waiting]) this.#send(p);
    fire(this, "open", { transport: this.#link.transport });
    this.#setState("open");
  }

  /** Forgets the link and lets everything know. */
  #dropLink() {
    this.clock.clearTimeout(this.#beat);
    this.clock.clearTimeout(this.#renewal);
    const link = this.#link;
    this.#link = null;
    link?.close();
    for (const subscription of this.#subscriptions.values()) subscription.lost();
  }

  async #ended(link, token, why) {
    if (link !== this.#link) return;
    const opened = this.#state === "open";
    const turn = ++this.#turn;
    const stable = opened && this.clock.now() - this.#openedAt >= STABLE;
    if (stable) {
      this.#failures = 0;
      this.#refreshed = false;
    }
    if (opened) this.#state = "connecting"; // publishes from now on wait
    this.#dropLink();
    if (!opened && link.transport === "websocket" && this.options.fetch) {
      const told = await this.probe(token);
      if (turn !== this.#turn) return;
      if (told.answered) this.#noteBlocked(why);
      else why = { ...why, ...told };
    }
    this.#schedule({ ...why, opened });
  }

  /** The hub answers over HTTP, but no WebSocket comes about. */
  #noteBlocked(why) {
    this.#blocked++;
    if (this.options.transport !== "auto" || (this.#blocked < BLOCKED && !why.refused)) return;
    this.#fallbackSince = this.clock.now();
    this.#failures = 0;
  }

  /** Decides what comes after a link, or an attempt at one, has ended. */
  #schedule(why) {
    if (why.code === 4001 || why.code === 4003) {
      if (typeof this.options.token !== "function" || this.#refreshed) {
        this.#finish(why, new HubdError(why.code === 4001 ? "unauthorized" : "forbidden", why.reason));
        return;
      }
      this.#refresh = this.#refreshed = true;
    }
    const now = this.clock.now();
    // Where the hub asks for patience, all that it asked at once must not come
    // back at once: the random part grows with what was asked for.
    let least = why.retryAfter ?? 0;
    let spread = Math.min(3 * least, 60 * SECOND);
    if (why.code === 1012) [least, spread] = [Math.max(least, 5 * SECOND), Math.max(spread, 25 * SECOND)];
    if (why.code === 1013) [least, spread] = [Math.max(least, 5 * SECOND), Math.max(spread, 60 * SECOND)];
    const random = this.backoff(this.#failures);
    const { base, cap } = this.options.backoff;
    const ceiling = Math.min(cap, base * 2 ** Math.min(this.#failures, 30));
    this.#failures++;
    const delay = least + (spread > ceiling ? (random / ceiling) * spread : random);
    this.#retry.notBefore = now + least;
    this.#wait(delay);
    const detail = { code: why.code, reason: why.reason, opened: why.opened ?? false, final: false };
    this.#state = "waiting";
    fire(this, "close", detail);
    if (this.#state !== "waiting") return; // a listener had other plans
    fire(this, "reconnecting", { attempt: this.#failures, delay, at: this.#retry.at });
    if (this.#state === "waiting") this.#setState("waiting", { reason: why.reason, code: why.code, at: this.#retry.at });
  }

  #wait(delay) {
    this.clock.clearTimeout(this.#retry.timer);
    this.#retry.at = this.clock.now() + delay;
    this.#retry.timer = this.clock.setTimeout(() => this.#attempt(), delay);
  }

  #finish(why, error) {
    if (this.#state === "closed") return;
    this.#turn++;
    this.clock.clearTimeout(this.#retry.timer);
    this.#listening.abort();
    this.#dropLink();
    for (const post of this.posts.open) post.abort();
    this.#state = "closed";
    for (const p of [...this.#pending]) p.settle(new HubdError("closed", "this hub was closed", { maybePublished: !this.#waiting.has(p) }));
    for (const subscription of [...this.#subscriptions.values()]) subscription.end(error);
    fire(this, "close", { code: why.code, reason: why.reason, opened: why.opened ?? false, final: true });
    this.#setState("closed", { reason: why.reason, code: why.code });
  }

  // Tokens.

  #renewBefore(expires) {
    this.clock.clearTimeout(this.#renewal);
    if (!expires || typeof this.options.token !== "function") return;
    const delay = Math.max(expires - RENEW - this.clock.now(), 5 * SECOND);
    this.#renewal = this.clock.setTimeout(() => this.#renew().catch((error) => fire(this, "error", error)), Math.min(delay, MAX_TIMER));
  }

  async #renew() {
    const turn = this.#turn;
    const token = await this.#callToken(true);
    if (turn === this.#turn) await this.#authenticate(token);
  }

  #authenticate(token) {
    return new Promise((resolve, reject) => {
      if (this.#state !== "open") {
        resolve(); // the next link has it
        return;
      }
      this.#link.auth(token, (error, frame) => {
        if (error) {
          reject(error);
          return;
        }
        this.#renewBefore(frame.expires ? frame.expires * SECOND : expiryOf(token));
        resolve();
      });
    });
  }

  // Signs of life.

  /** Looks at the link after delay. */
  #watch(delay) {
    this.clock.clearTimeout(this.#beat);
    this.#beat = this.clock.setTimeout(() => this.#look(), delay);
  }

  /** Asks a link for a sign of life that has been silent for too long. */
  #look() {
    const now = this.clock.now();
    const silent = Math.max(0, now - this.#link.heardAt); // a clock set back is no silence
    if (silent < this.#link.quiet) this.#watch(this.#link.quiet - silent);
    else this.#ask(PONG);
  }

  /**
   * A link is dead that gives none. Where the timer comes late the page may have
   * been asleep, with the answer still waiting to be handed over: then it is
   * asked once more. Nothing here needs a timer to be on time.
   */
  #ask(patience, again = false) {
    const link = this.#link;
    const asked = this.clock.now();
    link.ping();
    this.#question = { asked, due: asked + patience };
    this.clock.clearTimeout(this.#beat);
    this.#beat = this.clock.setTimeout(() => {
      const now = this.clock.now();
      if (link.heardAt >= asked) this.#look();
      else if (!again && now - asked > 2 * patience) this.#ask(patience, true);
      else if (link.transport === "sse" && now - link.heardAt < QUIET_STREAM) this.#look(); // it cannot be asked
      else link.fail("the hub fell silent");
    }, patience);
  }

  // The page.

  #watchPage({ window, document }) {
    const { signal } = this.#listening;
    const on = (target, type, f) => target?.addEventListener(type, f, { signal });
    on(window, "online", () => this.#check());
    on(window, "offline", () => this.#check());
    on(window, "pageshow", () => {
      if (this.#state === "suspended") this.#attempt();
    });
    // A page with an open connection is not kept, and one that is kept must not
    // hold it: the hub would queue for a page that does not read.
    on(window, "pagehide", () => this.#suspend());
    on(document, "resume", () => this.#check());
    on(document, "visibilitychange", () => {
      if (document.visibilityState === "visible") this.#check();
    });
  }

  /** Somebody is looking, or the network has changed: find out now how things are. */
  #check() {
    if (this.#state === "open") {
      const { asked, due } = this.#question;
      const wait = due - this.clock.now();
      if (asked <= this.#link.heardAt || wait < 0 || wait > PONG_NOW) this.#ask(PONG_NOW);
      return;
    }
    if (this.#state !== "waiting") return;
    // Others may have got their network back in the same instant.
    const now = this.clock.now();
    const at = Math.max(now + this.random() * this.options.backoff.base, this.#retry.notBefore);
    if (at < this.#retry.at) this.#wait(at - now);
  }

  #suspend() {
    if (this.#state === "closed" || this.#state === "suspended") return;
    this.#turn++;
    this.clock.clearTimeout(this.#retry.timer);
    this.#dropLink();
    for (const post of this.posts.open) post.abort();
    this.#setState("suspended");
  }
}

/**
 * Connects to a hub, for good: lost links are replaced until close() is called
 * or the hub refuses the token.
 * @param {string | URL} [url] of the hub; a page's own by default
 * @param {object} [options] see hubd.d.ts
 */
export function connect(url = "./", options = {}) {
  return new Hub(url, options);
}
