// What an operator watches, read from /admin once a second while the page is
// in sight.

import { Quantiles, Sparkline } from './chart.js';
import { el, fromTemplate, reconcile, setText } from './dom.js';
import { bytes, compact, count, dropReasons, duration, plural, rate, timeOfDay } from './format.js';

const interval = 1_000;
const retryInterval = 5_000;
const confirmFor = 4_000;
const slowestLimit = 10;
const roomsLimit = 20;

const notices = {
  401: ['Not signed in', 'The state of this hub is for operators. It needs a token with the admin grant.'],
  403: ['Not permitted', 'The hub refused to show its state here. It may need a token with the admin grant, or another host name.'],
  404: ['On another address', 'This hub keeps its state on an admin listener of its own (--admin-addr), which this page cannot reach. Rooms work all the same.'],
};

const adminURL = (path) => new URL(`admin/${path}`, document.baseURI);

class AdminError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, signal, method = 'GET') {
  const response = await fetch(adminURL(path), { method, signal, cache: 'no-store', headers: { Accept: 'application/json' } });
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await response.json().catch(() => ({}));
  throw new AdminError(response.status, problem.detail || problem.title || `status ${response.status}`);
}

export class Operator {
  /** @param {{join: (room: string) => void, isJoined: (room: string) => boolean, onStats: (stats: object, rooms: object[]) => void, onUnavailable: () => void}} page */
  constructor(page) {
    this.page = page;
    this.timer = 0;
    this.abort = null;
    this.previous = null; // the sample before, for rates
    this.shown = false;
    this.kicks = new Map(); // id → moment until which a second press kicks
    const byId = (id) => document.getElementById(id);
    this.nodes = {
      polling: byId('polling'), pollingText: byId('polling').querySelector('.polling-text'),
      notice: byId('operator-notice'), body: byId('operator-body'), totals: byId('totals'), flows: byId('flows'),
      reasons: byId('reasons'), depths: byId('depths'), sort: byId('sort'), kickError: byId('kick-error'),
      slowest: byId('slowest'), slowestNone: byId('slowest-none'), rooms: byId('room-rows'), roomsNone: byId('room-rows-none'),
    };
    this.#build();
    document.addEventListener('visibilitychange', () => this.#visibility());
  }

  start() {
    if (document.visibilityState === 'visible') this.#poll();
    else this.#say('paused', 'Paused while the page is hidden');
  }

  #build() {
    const { nodes } = this;
    this.totals = facts(nodes.totals, ['Connections', 'Rooms', 'Subscriptions', 'Queued', 'Oldest queued', 'In flight', 'Retained', 'Up']);
    this.reasons = {};
    for (const [reason, why] of Object.entries(dropReasons)) {
      const value = el('dd');
      const item = el('div', '', el('dt', '', reason), value);
      item.title = why;
      nodes.reasons.append(item);
      this.reasons[reason] = { value, item };
    }
    this.flows = {};
    for (const name of ['published', 'offered', 'sent', 'dropped']) {
      const flow = { rate: el('span', 'flow-rate', '–'), total: el('span', 'flow-total'), spark: new Sparkline(60, `${name} a second, the last minute`) };
      nodes.flows.append(el('div', `flow ${name}`,
        el('span', 'flow-name', name), el('span', 'flow-now', flow.rate, ' /s'), flow.spark.node, flow.total));
      this.flows[name] = flow;
    }
    this.depthMessages = new Quantiles('Messages', compact);
    this.depthBytes = new Quantiles('Bytes', bytes);
    nodes.depths.append(this.depthMessages.node, this.depthBytes.node);
    nodes.sort.addEventListener('change', () => this.#poll());
    nodes.notice.querySelector('button').addEventListener('click', () => this.#poll());
  }

  #visibility() {
    if (document.visibilityState === 'visible') {
      this.#poll();
      return;
    }
    clearTimeout(this.timer);
    this.abort?.abort();
    this.#say('paused', 'Paused while the page is hidden');
  }

  async #poll() {
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    let next = interval;
    try {
      // One request finds out whether the rest is worth asking for.
      const stats = await request('stats', abort.signal);
      const [rooms, subscribers] = await Promise.all([
        request(`rooms?limit=${roomsLimit}`, abort.signal),
        request(`subscribers?sort=${this.nodes.sort.value}&limit=${slowestLimit}`, abort.signal),
      ]);
      if (abort.signal.aborted) return;
      this.#show(stats, rooms.rooms, subscribers.subscribers);
    } catch (error) {
      if (abort.signal.aborted) return;
      next = this.#failed(error);
    }
    if (next > 0) this.timer = setTimeout(() => this.#poll(), next);
  }

  /** Says what is wrong; returns when to ask again, 0 for not by itself. */
  #failed(error) {
    const notice = notices[error.status];
    this.page.onUnavailable();
    if (!notice) {
      const what = error.status ? `The hub answered: ${error.message}` : 'No answer from the hub';
      this.#say('stale', this.shown ? `${what}; figures of ${timeOfDay(this.shownAt).slice(0, 8)}` : what);
      this.previous = null;
      return retryInterval;
    }
    const { notice: node, body } = this.nodes;
    node.querySelector('h3').textContent = notice[0];
    node.querySelector('p').textContent = notice[1];
    node.hidden = false;
    body.hidden = true;
    this.previous = null;
    this.#say('off', 'Not available here');
    return 0;
  }

  #say(state, text) {
    this.nodes.polling.dataset.state = state;
    setText(this.nodes.pollingText, text);
  }

  #show(stats, rooms, subscribers) {
    this.#say('live', 'Updated every second');
    this.nodes.notice.hidden = true;
    this.nodes.body.hidden = false;
    this.shown = true;
    this.shownAt = Date.now();
    this.#showTotals(stats);
    this.#showFlow(stats);
    this.depthMessages.update(stats.depth.messages);
    this.depthBytes.update(stats.depth.bytes);
    this.#showSlowest(subscribers);
    this.#showRooms(rooms);
    this.page.onStats(stats, rooms);
  }

  #showTotals(stats) {
    const { websocket, sse } = stats.connections;
    const set = (name, value, extra = '') => {
      setText(this.totals[name].value, value);
      setText(this.totals[name].extra, extra);
    };
    set('Connections', count(websocket + sse), sse > 0 ? `${count(sse)} by SSE` : '');
    set('Rooms', count(stats.rooms));
    set('Subscriptions', count(stats.subscriptions));
    set('Queued', count(stats.queued.messages), bytes(stats.queued.bytes));
    set('Oldest queued', duration(stats.oldest_ms));
    set('In flight', count(stats.in_flight));
    set('Retained', bytes(stats.retained_bytes));
    set('Up', duration(Math.floor(stats.uptime_s) * 1000).replace('.0 s', ' s'));
  }

  #showFlow(stats) {
    const now = performance.now();
    const dropped = Object.values(stats.dropped).reduce((sum, n) => sum + n, 0);
    const values = { published: stats.published, offered: stats.offered, sent: stats.sent, dropped };
    for (const reason of Object.keys(dropReasons)) values[`dropped ${reason}`] = stats.dropped[reason] ?? 0;

    // A hub that restarted counts from zero again.
    const before = this.previous?.stats.uptime_s <= stats.uptime_s ? this.previous : null;
    const seconds = before ? (now - before.at) / 1000 : 0;
    const perSecond = (name) => (seconds > 0 ? Math.max(0, values[name] - before.values[name]) / seconds : 0);
    for (const [name, flow] of Object.entries(this.flows)) {
      setText(flow.rate, before ? rate(perSecond(name)) : '–');
      setText(flow.total, `${compact(values[name])} in all`);
      if (before) flow.spark.push(perSecond(name));
    }
    for (const [reason, { value, item }] of Object.entries(this.reasons)) {
      const n = values[`dropped ${reason}`];
      const r = perSecond(`dropped ${reason}`);
      setText(value, r > 0 ? `${compact(n)} · ${rate(r)}/s` : compact(n));
      item.classList.toggle('some', n > 0);
    }
    this.previous = { stats, at: now, values };
  }

  #showSlowest(subscribers) {
    const deepest = Math.max(1, ...subscribers.map((s) => s.queued.messages));
    this.nodes.slowestNone.hidden = subscribers.length > 0;
    reconcile(this.nodes.slowest, subscribers, {
      key: (s) => `${s.id} ${s.room}`,
      create: (s) => this.#subscriberRow(s),
      update: (row, s) => this.#updateSubscriber(row, s, deepest),
    });
    for (const [id, until] of this.kicks) if (until < Date.now()) this.kicks.delete(id);
  }

  #subscriberRow(subscriber) {
    const row = fromTemplate('slowest-template');
    row.querySelector('.kick').addEventListener('click', () => this.#kick(row, String(subscriber.id)));
    return row;
  }

  #updateSubscriber(row, s, deepest) {
    const set = (selector, text) => setText(row.querySelector(selector), text);
    set('.who-room', s.room);
    set('.who-detail', `${s.policy} · ${s.id}`);
    row.querySelector('.who').title = `${s.room}\n${s.transport} from ${s.remote}, since ${s.since}`;
    // Where the hub tells the limits, the meter shows how full the queue is,
    // by the limit that is nearer; else how deep beside the deepest here.
    const { limit } = s;
    set('.depth-messages', limit ? `${compact(s.queued.messages)} / ${compact(limit.messages)}` : compact(s.queued.messages));
    set('.depth-bytes', bytes(s.queued.bytes));
    row.querySelector('.depth').title = limit ? `Limit: ${plural(limit.messages, 'message')}, ${bytes(limit.bytes)}` : '';
    const full = limit
      ? Math.max(s.queued.messages / limit.messages, s.queued.bytes / limit.bytes)
      : s.queued.messages / deepest;
    row.querySelector('.meter-fill').setAttribute('width', String(100 * Math.min(1, full)));
    row.querySelector('.meter').classList.toggle('full', Boolean(limit) && full >= 0.9);
    set('.oldest', duration(s.oldest_ms));
    set('.lost', compact(s.dropped));
    row.querySelector('.lost').classList.toggle('some', s.dropped > 0);
    set('.unsent', bytes(s.unsent_bytes));
    this.#kickButton(row, s.id, s.room);
  }

  #kickButton(row, id, room) {
    const button = row.querySelector('.kick');
    const armed = (this.kicks.get(String(id)) ?? 0) > Date.now();
    setText(button, armed ? 'Sure?' : 'Kick');
    button.classList.toggle('armed', armed);
    button.setAttribute('aria-label', armed ? `Press again to kick subscriber ${id} in ${room}` : `Kick subscriber ${id} in ${room}`);
  }

  /** The first press arms, the second one kicks: rows move under the pointer. */
  async #kick(row, id) {
    const room = row.querySelector('.who-room').textContent;
    if (!((this.kicks.get(id) ?? 0) > Date.now())) {
      this.kicks.set(id, Date.now() + confirmFor);
      this.#kickButton(row, id, room);
      return;
    }
    this.kicks.delete(id);
    this.#kickButton(row, id, room);
    const { kickError } = this.nodes;
    try {
      await request(`subscribers/${encodeURIComponent(id)}`, undefined, 'DELETE');
      kickError.hidden = true;
    } catch (error) {
      kickError.textContent = error.status === 404 ? `Subscriber ${id} has left already.` : `Could not kick ${id}: ${error.message}`;
      kickError.hidden = false;
    }
    this.#poll();
  }

  #showRooms(rooms) {
    this.nodes.roomsNone.hidden = rooms.length > 0;
    reconcile(this.nodes.rooms, rooms, {
      key: (r) => r.room,
      create: (r) => {
        const row = fromTemplate('room-row-template');
        const button = row.querySelector('.join-room');
        button.setAttribute('aria-label', `Join ${r.room}`);
        button.addEventListener('click', () => this.page.join(r.room));
        return row;
      },
      update: (row, r) => {
        const set = (selector, text) => setText(row.querySelector(selector), text);
        set('.who-room', r.room);
        set('.who-detail', `${r.feed} · ${r.policy}`);
        set('.subscribers', count(r.subscribers));
        set('.position', count(r.seq));
        set('.queued', compact(r.queued.messages));
        set('.dropped', compact(r.dropped));
        const joined = this.page.isJoined(r.room);
        const button = row.querySelector('.join-room');
        button.disabled = joined;
        setText(button, joined ? 'Joined' : 'Join');
      },
    });
  }
}

/** A list of named figures with room for a second line. */
function facts(list, names) {
  const result = {};
  for (const name of names) {
    const value = el('span', 'total-value');
    const extra = el('span', 'total-extra');
    list.append(el('div', '', el('dt', '', name), el('dd', '', value, extra)));
    result[name] = { value, extra };
  }
  return result;
}
