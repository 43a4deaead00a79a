/** Types of hubd.js, the client of the hubd broadcast hub. */

/** A place in a room's order, as `{epoch}:{seq}`. */
export type Position = string;

export type Policy = "drop-newest" | "drop-oldest" | "keep-latest" | "disconnect" | "reject-publish";

/** The hub's codes, and those of this client. */
export type ErrorCode =
  | "invalid_room" | "invalid_option" | "invalid_position" | "invalid_message" | "message_too_large"
  | "unauthorized" | "forbidden" | "origin_forbidden" | "host_forbidden" | "not_found"
  | "overflow" | "over_capacity" | "rate_limited" | "too_many_rooms" | "already_joined" | "not_joined"
  | "idempotency_conflict" | "draining" | "broker_unavailable"
  /** There was no link in time; nothing was sent. */
  | "not_connected"
  /** The link was lost before the hub answered. */
  | "link_lost"
  /** The hub did not answer in time. */
  | "timeout"
  /** More publishes without an answer than `maxPending`. */
  | "too_many_pending"
  /** More rooms than event streams that a browser allows; the room waits. */
  | "too_many_streams"
  /** The browser sent nothing or the hub did not answer; it is tried again. */
  | "no_answer"
  | "left" | "closed" | "token_failed"
  | (string & {});

export class HubdError extends Error {
  constructor(code: ErrorCode, message: string, more?: { maybePublished?: boolean; retryAfter?: number; cause?: unknown });
  readonly code: ErrorCode;
  /** A publish that failed so may have reached the room all the same. */
  readonly maybePublished: boolean;
  /** Milliseconds after which the hub may be asked again, where it said so. */
  readonly retryAfter?: number;
}

/** One message as it was published. */
export class Message<T = any> {
  private constructor();
  readonly room: string;
  readonly epoch: string;
  /** Rises by 1 or more from message to message within an epoch. */
  readonly seq: number;
  readonly kind: "json" | "text" | "binary";
  /** When it came in, in milliseconds since 1970. */
  readonly receivedAt: number;
  /** About what keeping it costs, in characters. */
  readonly size: number;
  /** Where to resume behind this message. */
  readonly position: Position;
  /** JSON as its value, text as a string, binary as a Uint8Array. */
  readonly data: T;
  /** Text; JSON as the publisher wrote it, no number rounded; binary as base64. */
  readonly text: string;
  /** The text parsed as JSON, whatever it was published as. */
  json(): T;
  /** The payload's bytes. */
  bytes(): Uint8Array;
}

/** Messages that did not come, where they would have stood. */
export class Gap {
  private constructor();
  readonly kind: "gap";
  readonly room: string;
  /** The seq before the loss. */
  readonly after: number;
  /** The seq behind it; 0 while there is none yet. */
  readonly before: number;
  readonly lost: number;
  /** `local`: a reader of this program was too slow for its buffer; all others are the hub's. */
  readonly reason: "overflow" | "conflated" | "expired" | "budget" | "broker" | "local";
}

/** What was asked for with `after` can no longer be had; how much that was is not known. */
export class ResumeFailed {
  private constructor();
  readonly kind: "resumefailed";
  readonly room: string;
  readonly after: Position;
  /** Where it goes on. */
  readonly position: Position;
  /** The numbering has restarted. */
  readonly restarted: boolean;
}

/** What a reader keeps that has not been read. Beyond it the oldest are dropped and told as a local gap. */
export interface Buffer {
  /** Default: 1024. */
  messages?: number;
  /** About; of text, in characters. Default: 8 MiB. */
  bytes?: number;
}

export interface JoinOptions {
  policy?: Policy;
  /** Limits of the queue at the hub. */
  queueMessages?: number;
  queueBytes?: number;
  /** A position to resume from, such as `room.position` that a page kept. */
  after?: Position;
  /** false: the hub tells no gaps. Default: true. */
  gaps?: boolean;
  buffer?: Buffer;
}

export interface Joined {
  room: string;
  epoch: string;
  /** The room's position at the moment of joining. */
  seq: number;
  policy: Policy;
  queue: { messages: number; bytes: number };
  /** Where `after` was given, as on every join but the first: whether what was missed comes. */
  resumed?: boolean;
  replayed?: number;
  /** Last values that come first, in a keep-latest room. */
  snapshot: number;
  /** Not for the first time. */
  again: boolean;
}

export interface Left {
  room: string;
  by: "client" | "hub";
  error?: HubdError;
}

export interface RoomEvents {
  joined: CustomEvent<Joined>;
  message: CustomEvent<Message>;
  gap: CustomEvent<Gap>;
  resumefailed: CustomEvent<ResumeFailed>;
  left: CustomEvent<Left>;
  error: CustomEvent<HubdError>;
}

export interface PublishOptions {
  /** Conflation key. */
  key?: string;
  /** `json`: a string or bytes as a JSON value; `rawjson`: a string that is JSON already, sent byte for byte. */
  as?: "json" | "rawjson";
  /** Milliseconds for all of it, waiting for a link included. */
  timeout?: number;
}

export interface Published {
  room: string;
  seq: number;
}

type Listener<E> = ((event: E) => void) | { handleEvent(event: E): void } | null;

export class Room extends EventTarget implements AsyncIterable<Message> {
  private constructor();
  readonly name: string;
  /** `joining` also while the link is down. */
  readonly state: "joining" | "joined" | "left";
  /** Behind the last message or gap; null before the first join. */
  readonly position: Position | null;
  /** Resolves when first joined, rejects with the first refusal. */
  readonly ready: Promise<Joined>;
  publish(data: unknown, options?: PublishOptions): Promise<Published>;
  /** Nothing of the room comes after this call. Resolves when the hub knows. */
  leave(): Promise<void>;
  /** The messages from now on; with `gaps` also what is missing between them. */
  messages(options: { gaps: true; buffer?: Buffer }): AsyncIterableIterator<Message | Gap | ResumeFailed>;
  messages(options?: { gaps?: false; buffer?: Buffer }): AsyncIterableIterator<Message>;
  [Symbol.asyncIterator](): AsyncIterableIterator<Message>;
  addEventListener<K extends keyof RoomEvents>(type: K, listener: Listener<RoomEvents[K]>, options?: boolean | AddEventListenerOptions): void;
  removeEventListener<K extends keyof RoomEvents>(type: K, listener: Listener<RoomEvents[K]>, options?: boolean | EventListenerOptions): void;
}

export type HubState = "connecting" | "open" | "waiting" | "suspended" | "closed";

export interface HubEvents {
  open: CustomEvent<{ transport: "websocket" | "sse" }>;
  /** A link, or an attempt at one, has ended. `opened`: it had been up; `final`: nothing follows. */
  close: CustomEvent<{ code: number; reason: string; opened: boolean; final: boolean }>;
  /** The next attempt is due in `delay` milliseconds, at `at` in milliseconds since 1970. */
  reconnecting: CustomEvent<{ attempt: number; delay: number; at: number }>;
  statechange: CustomEvent<{ state: HubState; reason?: string; code?: number; at?: number }>;
  error: CustomEvent<HubdError>;
}

export interface ConnectOptions {
  /**
   * A JWT, or what gets one: called for every link, with `refresh` when the
   * last one was refused (once) or is about to expire.
   */
  token?: string | ((context: { refresh: boolean }) => string | Promise<string>);
  /** Default: `auto`, WebSocket and where it is blocked event streams. */
  transport?: "auto" | "websocket" | "sse";
  /** For Node before 22: the one of the package ws. */
  WebSocket?: new (url: string, protocols: string[]) => any;
  fetch?: typeof fetch;
  /** Milliseconds. Default: 1,000 and 120,000. */
  backoff?: { base?: number; cap?: number };
  /** Milliseconds that a handshake may take. Default: 15,000. */
  connectTimeout?: number;
  /** Milliseconds that a publish may take, if it names no other. Default: 30,000. */
  publishTimeout?: number;
  /** Publishes without an answer at a time. Default: 1,000. */
  maxPending?: number;
  /** Event streams at a time, all tabs together; Infinity behind HTTP/2. Default: 5. */
  maxStreams?: number;
  /** For tests: the time, chance, and the page's events. */
  clock?: { now(): number; setTimeout(f: () => void, ms: number): any; clearTimeout(timer: any): void };
  random?: () => number;
  page?: { window?: EventTarget; document?: EventTarget & { visibilityState: string } };
}

export class Hub extends EventTarget {
  private constructor();
  /** The hub's base URL, with http or https. */
  readonly url: URL;
  readonly state: HubState;
  readonly transport: "websocket" | "sse" | null;
  /** When the next attempt is due, in milliseconds since 1970; 0 where none is. */
  readonly retryAt: number;
  /** Throws if the room is joined already. What the hub refuses is told by the room. */
  join(room: string, options?: JoinOptions): Room;
  /** A string as text, an ArrayBuffer or a view of one as binary, all else as JSON. */
  publish(room: string, data: unknown, options?: PublishOptions): Promise<Published>;
  /** Another token, for this link and later ones. */
  auth(token: string | ((context: { refresh: boolean }) => string | Promise<string>)): Promise<void>;
  /** Does not wait for the next attempt. */
  reconnect(): void;
  /** Loses the link as a fault in the network would, for trying out what then happens. */
  interrupt(): void;
  close(): void;
  addEventListener<K extends keyof HubEvents>(type: K, listener: Listener<HubEvents[K]>, options?: boolean | AddEventListenerOptions): void;
  removeEventListener<K extends keyof HubEvents>(type: K, listener: Listener<HubEvents[K]>, options?: boolean | EventListenerOptions): void;
}

/** Connects to a hub, for good: lost links are replaced until close() is called or the token is refused. */
export function connect(url?: string | URL, options?: ConnectOptions): Hub;
