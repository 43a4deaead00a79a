// Stand-ins for what the client lives in: time, randomness, the page, and a hub
// with its sockets. Everything happens on the fake clock, so no test waits.

import { connect } from "../hubd.js";

/** Lets everything that is ready run: promises, and what they lead to. */
export const settle = () => new Promise((resolve) => setImmediate(resolve));

/** A clock that is moved by hand. */
export class Clock {
  time = Date.UTC(2026, 0, 1);
  /** Timers fire at multiples of this only, as in a tab out of sight. */
  granularity = 1;
  #timers = new Map(); // id → {at, f}
  #lastId = 0;
  #end = 0;

  now = () => this.time;

  setTimeout = (f, ms) => {
    const id = ++this.#lastId;
    const due = this.time + Math.max(ms, 0);
    this.#timers.set(id, { at: Math.ceil(due / this.granularity) * this.granularity, f });
    return id;
  };

  clearTimeout = (id) => this.#timers.delete(id);

  /** The network has its own pace, whatever is done to the page's timers. */
  deliver(f, ms) {
    const id = ++this.#lastId;
    this.#timers.set(id, { at: this.time + ms, f });
    return id;
  }

  /** Runs what is due within the next ms, in order. */
  async advance(ms) {
    this.#end = this.time + ms;
    for (;;) {
      await settle();
      let first;
      for (const [id, timer] of this.#timers) {
        if (timer.at <= this.#end && (first === undefined || timer.at < this.#timers.get(first).at)) first = id;
      }
      if (first === undefined) break;
      const { at, f } = this.#timers.get(first);
      this.#timers.delete(first);
      this.time = Math.max(this.time, at);
      f();
    }
    this.time = this.#end;
    await settle();
  }

  /** The machine sleeps: time passes, and nothing runs. */
  sleep(ms) {
    this.time += ms;
    this.#end += ms;
  }
}

/** Numbers from 0 to 1 that are the same every time (mulberry32). */
export function seeded(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A page's window and document. */
export function fakePage() {
  const document = new EventTarget();
  document.visibilityState = "visible";
  const window = new EventTarget();
  return {
    window,
    document,
    say: (type) => window.dispatchEvent(new Event(type)),
    show(visible) {
      document.visibilityState = visible ? "visible" : "hidden";
      document.dispatchEvent(new Event("visibilitychange"));
    },
  };
}

const LATENCY = 5;

/** A hub at the other end of fake sockets, with rooms that remember everything. */
export class FakeHub {
  /**
   * What a handshake meets: "up", "down" (refused), "hang", or a Response's
   * fields. Asked again, without a socket, when the client asks over HTTP.
   */
  answer = (_socket, _Class) => "up";
  /** Called with each command; true: it was dealt with. */
  intercept = () => false;
  rooms = new Map();
  sockets = [];
  received = []; // every command
  attempts = []; // when a handshake was tried
  probes = 0;

  constructor(clock) {
    this.clock = clock;
  }

  /** The sockets that are up, as the hub sees them. */
  get open() {
    return this.sockets.filter((s) => s.readyState === 1);
  }

  /** The constructor for one client; live counts its sockets that connect or are open. */
  socketClass() {
    const hub = this;
    return class FakeSocket {
      static live = 0;
      static most = 0;
      readyState = 0;
      rooms = new Set();
      deaf = false; // nothing comes out any more, in either direction

      constructor(url, protocols) {
        Object.assign(this, { url, protocols });
        this.Class = FakeSocket;
        FakeSocket.most = Math.max(FakeSocket.most, ++FakeSocket.live);
        hub.accept(this);
      }

      send(text) {
        if (this.readyState !== 1) throw new Error("send on a socket that is not open");
        if (!this.deaf) hub.clock.deliver(() => hub.command(this, JSON.parse(text)), LATENCY);
      }

      close(code = 1005) {
        if (this.readyState >= 2) return;
        FakeSocket.live--;
        this.readyState = 2;
        if (!this.deaf) hub.clock.deliver(() => this.end(code), LATENCY);
      }

      /** The end, as the page is told. */
      end(code, reason = "") {
        if (this.readyState === 3) return;
        if (this.readyState < 2) FakeSocket.live--;
        this.readyState = 3;
        this.onclose?.({ code, reason });
      }

      deliver(frame) {
        hub.clock.deliver(() => {
          if (this.readyState === 1 && !this.deaf) this.onmessage?.({ data: typeof frame === "string" ? frame : JSON.stringify(frame) });
        }, LATENCY);
      }
    };
  }

  accept(socket) {
    this.attempts.push(this.clock.now());
    this.sockets.push(socket);
    const answer = this.answer(socket);
    if (answer === "hang") return;
    this.clock.deliver(() => {
      if (socket.readyState !== 0) return;
      if (answer !== "up") return socket.end(1006);
      socket.readyState = 1;
      socket.onopen?.({});
    }, LATENCY);
  }

  /** What the client asks over HTTP: /ws only. It is told what the last handshake was. */
  fetch = async (url, { signal } = {}, Class = undefined) => {
    this.probes++;
    const answer = this.answer(null, Class);
    if (answer === "hang" || answer === "down") {
      await new Promise((resolve, reject) => {
        signal?.addEventListener("abort", () => reject(new Error("aborted")));
        if (answer === "down") this.clock.deliver(() => reject(new TypeError("refused")), LATENCY);
      });
    }
    await new Promise((resolve) => this.clock.deliver(resolve, LATENCY));
    if (answer === "up") return new Response("{}", { status: 426 });
    return new Response(JSON.stringify({ code: answer.code, detail: answer.code }), answer);
  };

  room(name) {
    if (!this.rooms.has(name)) this.rooms.set(name, { epoch: "e1", seq: 0, messages: [] });
    return this.rooms.get(name);
  }

  /** The hub forgets a room, as after a restart. */
  forget(name, epoch = "e2") {
    this.rooms.set(name, { epoch, seq: 0, messages: [] });
  }

  publish(name, content) {
    const room = this.room(name);
    const frame = { type: "message", room: name, seq: ++room.seq, ...content };
    room.messages.push(frame);
    for (const s of this.open) if (s.rooms.has(name)) s.deliver(frame);
    return room.seq;
  }

  command(socket, command) {
    this.received.push(command);
    if (socket.readyState !== 1 || this.intercept(socket, command)) return;
    const { id, type, room: name } = command;
    switch (type) {
      case "ping":
        socket.deliver({ type: "pong", id });
        return;
      case "auth":
        socket.deliver({ type: "authenticated", id });
        return;
      case "leave":
        socket.rooms.delete(name);
        socket.deliver({ type: "left", id, room: name });
        return;
      case "publish": {
        const { data, text, base64 } = command;
        const seq = this.publish(name, data !== undefined ? { data } : text !== undefined ? { text } : { base64 });
        socket.deliver({ type: "published", id, room: name, seq });
        return;
      }
      case "join":
        this.join(socket, command);
    }
  }

  join(socket, { id, room: name, after }) {
    const room = this.room(name);
    const joined = { type: "joined", id, room: name, epoch: room.epoch, seq: room.seq, policy: "drop-newest", queue: { messages: 256, bytes: 1048576 } };
    let replay = [];
    if (after !== undefined) {
      const [epoch, seq] = after.split(":");
      joined.resumed = epoch === room.epoch && Number(seq) <= room.seq && Number(seq) >= (room.floor ?? 0);
      if (joined.resumed) replay = room.messages.filter((m) => m.seq > Number(seq));
      joined.replayed = replay.length;
    }
    socket.rooms.add(name);
    socket.deliver(joined);
    for (const frame of replay) socket.deliver(frame);
  }
}

/** A client of a fake hub, with all that it tells written down. */
export function start(options = {}) {
  const clock = options.clock ?? new Clock();
  const server = options.server ?? new FakeHub(clock);
  if (options.answer) server.answer = options.answer;
  const page = fakePage();
  const WebSocket = server.socketClass();
  const hub = connect("http://hub.test/", {
    clock, page, WebSocket, fetch: (url, init) => server.fetch(url, init, WebSocket), random: options.random ?? seeded(1), ...options.client,
  });
  const events = record(hub, ["open", "close", "reconnecting", "error"]);
  return { clock, server, page, hub, events, WebSocket };
}

/** Writes down what a target tells, as [type, detail]. */
export function record(target, types) {
  const events = [];
  for (const type of types) target.addEventListener(type, (event) => events.push([type, event.detail]));
  events.of = (type) => events.filter(([t]) => t === type).map(([, detail]) => detail);
  return events;
}

/** A room's whole story. */
export const recordRoom = (room) => record(room, ["joined", "message", "gap", "resumefailed", "left", "error"]);
