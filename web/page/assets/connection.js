// One WebSocket to /ws, many rooms over it. This module knows the protocol and
// nothing of the page, so that another client can take its place.

const subprotocol = 'hubd.v1.json';

// Full jitter: the wait is random between 0 and a ceiling that doubles up to
// the cap. The ceiling falls back only after the link has stayed up a while,
// or a hub that accepts and then closes would be tried without pause.
const firstCeiling = 1_000;
const lastCeiling = 30_000;
const stableAfter = 30_000;

// A link that is silent this long is probed, and given up without an answer.
const probeAfter = 30_000;
const probeTimeout = 10_000;

const finalCodes = new Set([4001, 4003]);

const closeReasons = {
  1000: 'closed',
  1001: 'the node is draining',
  1002: 'protocol error',
  1006: 'the link broke',
  1007: 'invalid data',
  1009: 'message too large',
  1011: 'server fault',
  1013: 'the node is at capacity',
  4001: 'not authorized',
  4003: 'forbidden',
  4007: 'ping timeout',
  4008: 'slow consumer: this page fell too far behind',
  4009: 'kicked by an operator',
};

/** A refusal by the hub (code as in its error frames) or by this module. */
export class HubError extends Error {
  constructor(code, message) {
    super(message || code);
    this.code = code;
  }
}

/** A message as it arrived. */
class Message {
  constructor(frame, raw) {
    this.room = frame.room;
    this.seq = frame.seq;
    this.key = frame.key;
    this.time = Date.now();
    this.kind = 'text' in frame ? 'text' : 'base64' in frame ? 'binary' : 'json';
    this.frame = frame;
    this.raw = raw;
    /** Characters that keeping this message costs. */
    this.size = raw.length;
  }

  /**
   * The content as text. JSON is the publisher's own text: numbers beyond
   * 2^53 and spacing would not survive a parse.
   */
  get content() {
    if (this.kind === 'text') return this.frame.text;
    if (this.kind === 'binary') return this.frame.base64;
    const own = this.raw.slice(this.raw.indexOf('"data":') + 7, this.raw.lastIndexOf('}')).trim();
    try {
      JSON.parse(own);
      return own;
    } catch {
      return JSON.stringify(this.frame.data);
    }
  }
}

/**
 * @typedef {object} Handlers All are optional.
 * @property {(s: {state: 'connecting'|'open'|'waiting'|'closed', reason: string, retryAt: number}) => void} onState
 * @property {(frame: object, again: boolean) => void} onJoined  again: after a lost link
 * @property {(message: Message) => void} onMessage
 * @property {(frame: object) => void} onGap
 * @property {(room: string, error?: HubError) => void} onLeft
 * @property {(error: HubError) => void} onError  errors that answer no request
 */

/** A connection that comes back by itself and joins its rooms again. */
export class Connection {
  /** @param {string|URL} url of /ws @param {Handlers} handlers */
  constructor(url, handlers = {}) {
    this.url = url;
    this.handlers = handlers;
    this.socket = null;
    this.isOpen = false;
    this.isWaiting = false; // for the next attempt
    this.failures = 0;
    this.openedAt = 0;
    this.heardAt = 0;
    this.nextId = 1;
    this.requests = new Map(); // id → {room, resolve, reject}
    this.rooms = new Map(); // room → {options, joined, resolve, reject}
    this.retryTimer = 0;
    this.probeTimer = 0;
    addEventListener('online', () => {
      if (this.isWaiting) this.open();
    });
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible') this.#probe();
    });
  }

  /** Connects now; does nothing if that is under way. */
  open() {
    if (this.socket) return;
    clearTimeout(this.retryTimer);
    this.isWaiting = false;
    this.#state('connecting');
    const socket = new WebSocket(this.url, subprotocol);
    this.socket = socket;
    socket.onopen = () => this.#opened(socket);
    socket.onmessage = (event) => this.#received(event.data);
    socket.onclose = (event) => this.#closed(event.code, event.reason);
  }

  /**
   * Joins a room, now or when there is a link. Resolves with the joined frame.
   * @param {{policy?: string, queue_messages?: number}} options
   */
  join(room, options = {}) {
    if (this.rooms.has(room)) {
      return Promise.reject(new HubError('already_joined', `This page is in ${room} already.`));
    }
    return new Promise((resolve, reject) => {
      this.rooms.set(room, { options, joined: false, resolve, reject });
      if (this.isOpen) this.#sendJoin(room);
    });
  }

  /** Leaves a room. Resolves when the hub has said so. */
  async leave(room) {
    this.rooms.delete(room);
    if (this.isOpen) await this.#request({ type: 'leave', room });
  }

  /**
   * Publishes text, or JSON given as text. Resolves with the published frame.
   * @param {{text: string}|{json: string}} content
   */
  publish(room, content, key) {
    if (!this.isOpen) return Promise.reject(new HubError('not_connected', 'There is no connection at the moment.'));
    const head = { type: 'publish', room };
    if (key) head.key = key;
    if ('text' in content) return this.#request({ ...head, text: content.text });
    try {
      JSON.parse(content.json);
    } catch (error) {
      return Promise.reject(new HubError('invalid_message', `This is not JSON: ${error.message}`));
    }
    return this.#request(head, content.json);
  }

  /** Sends a command with an id. json, if given, is put in as it is. */
  #request(command, json) {
    return new Promise((resolve, reject) => {
      const id = this.nextId++;
      this.requests.set(id, { room: command.room, resolve, reject });
      const text = JSON.stringify({ ...command, id });
      this.socket.send(json === undefined ? text : `${text.slice(0, -1)},"data":${json}}`);
    });
  }

  #sendJoin(room) {
    const entry = this.rooms.get(room);
    const { policy, queue_messages } = entry.options;
    this.#request({ type: 'join', room, policy, queue_messages }).then(
      (frame) => {
        if (this.rooms.get(room) !== entry) return;
        const again = entry.joined;
        entry.joined = true;
        entry.resolve(frame);
        this.handlers.onJoined?.(frame, again);
      },
      (error) => {
        if (error.code === 'link_lost' || this.rooms.get(room) !== entry) return;
        this.rooms.delete(room);
        entry.reject(error);
        if (entry.joined) this.handlers.onLeft?.(room, error);
      },
    );
  }

  #opened() {
    this.isOpen = true;
    this.openedAt = this.heardAt = Date.now();
    this.#watch();
    this.#state('open');
    for (const room of this.rooms.keys()) this.#sendJoin(room);
  }

  #received(raw) {
    this.heardAt = Date.now();
    const frame = JSON.parse(raw);
    switch (frame.type) {
      case 'message':
        this.handlers.onMessage?.(new Message(frame, raw));
        return;
      case 'gap':
        this.handlers.onGap?.(frame);
        return;
    }
    const request = this.requests.get(frame.id);
    this.requests.delete(frame.id);
    if (frame.type === 'error') {
      const error = new HubError(frame.code, frame.message);
      if (request) request.reject(error);
      else this.handlers.onError?.(error);
    } else if (request) {
      request.resolve(frame);
    } else if (frame.type === 'left' && this.rooms.delete(frame.room)) {
      this.handlers.onLeft?.(frame.room);
    }
  }

  #closed(code, reason) {
    const wasOpen = this.isOpen;
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket = null;
    this.isOpen = false;
    clearTimeout(this.probeTimer);
    for (const request of this.requests.values()) {
      request.reject(new HubError('link_lost', 'The connection was lost before the hub answered.'));
    }
    this.requests.clear();

    let why = closeReasons[code] ?? (reason || `close code ${code}`);
    if (code === 1006 && !wasOpen) why = 'no answer from the hub';
    if (finalCodes.has(code)) {
      this.#state('closed', why);
      return;
    }
    if (wasOpen && Date.now() - this.openedAt >= stableAfter) this.failures = 0;
    const ceiling = Math.min(lastCeiling, firstCeiling * 2 ** Math.min(this.failures++, 10));
    const delay = Math.random() * (code === 1013 ? lastCeiling : ceiling);
    this.retryTimer = setTimeout(() => this.open(), delay);
    this.isWaiting = true;
    this.#state('waiting', why, Date.now() + delay);
  }

  /** Looks again when the link may have fallen silent. */
  #watch() {
    clearTimeout(this.probeTimer);
    this.probeTimer = setTimeout(() => this.#probe(), probeAfter);
  }

  /** Asks for a sign of life. Late timers of a hidden tab do no harm: what counts is what was heard. */
  #probe() {
    if (!this.isOpen) return;
    this.#watch();
    if (Date.now() - this.heardAt < probeAfter) return;
    const { socket } = this;
    const asked = Date.now();
    this.#request({ type: 'ping' }).catch(() => {});
    clearTimeout(this.probeTimer);
    this.probeTimer = setTimeout(() => {
      if (this.socket !== socket) return;
      if (this.heardAt >= asked) {
        this.#watch();
        return;
      }
      // The close handshake of a dead link takes the browser minutes.
      socket.close();
      this.#closed(1006, '');
    }, probeTimeout);
  }

  #state(state, reason = '', retryAt = 0) {
    this.handlers.onState?.({ state, reason, retryAt });
  }
}
