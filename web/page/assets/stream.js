// The list of what happened in one room. It is bounded in rows and in
// characters, whatever the rate, and touches the document once a frame.

import { el } from './dom.js';
import { base64Bytes, bytes, count, gapText, plural, timeOfDay } from './format.js';

const maxRows = 500;
const maxSize = 4 << 20; // characters kept, in the list and before it
const previewLength = 1_000;
const previewLines = 10;

/** Above this many new rows a second, a screen reader is not told each. */
const speakable = 3;

export class Stream {
  /** @param {Element} root the .stream-frame of a room */
  constructor(root) {
    this.log = root.querySelector('.stream');
    this.rows = root.querySelector('.rows');
    this.empty = root.querySelector('.empty');
    this.trimmed = root.querySelector('.trimmed');
    this.latest = root.querySelector('.latest');
    this.sizes = []; // of the rows shown, oldest first
    this.size = 0;
    this.pending = [];
    this.pendingSize = 0;
    this.unseen = 0;
    this.total = 0;
    this.scheduled = false;
    this.held = false;
    this.spokenAt = 0;
    this.onHold = () => {};

    this.log.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.latest.addEventListener('click', () => this.hold(false));
    new ResizeObserver(() => this.#stick()).observe(this.log);
  }

  message(message) {
    this.#push({ size: message.size, build: () => messageRow(message, this) });
  }

  gap(frame) {
    const time = Date.now();
    this.#push({ size: 100, build: () => gapRow(frame, time) });
  }

  /** A line about the subscription itself. */
  note(text, tone = '') {
    const time = Date.now();
    this.#push({ size: text.length, build: () => noteRow(text, tone, time) });
  }

  /** Stops or resumes showing what arrives. */
  hold(held) {
    if (this.held === held) return;
    this.held = held;
    this.onHold(held);
    if (held) {
      this.#showLatest();
      return;
    }
    this.latest.hidden = true;
    this.#schedule();
  }

  #push(entry) {
    this.pending.push(entry);
    this.pendingSize += entry.size;
    this.unseen++;
    this.total++;
    // Twice the bound, so that cutting is rare; a hidden tab draws no frames.
    if (this.pending.length > 2 * maxRows || this.pendingSize > 2 * maxSize) this.#cutPending();
    this.#schedule();
  }

  #cutPending() {
    let rows = 0;
    let size = 0;
    let first = this.pending.length;
    while (first > 0 && rows < maxRows) {
      const next = this.pending[first - 1].size;
      if (rows > 0 && size + next > maxSize) break;
      size += next;
      rows++;
      first--;
    }
    this.pending.splice(0, first);
    this.pendingSize = size;
  }

  #schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (this.held) this.#showLatest();
      else this.#flush();
    });
  }

  #flush() {
    this.#cutPending();
    this.#setSpoken(this.pending.length);
    const fragment = document.createDocumentFragment();
    for (const { size, build } of this.pending) {
      fragment.append(build());
      this.sizes.push(size);
      this.size += size;
    }
    this.pending = [];
    this.pendingSize = 0;
    this.unseen = 0;
    this.empty.hidden = this.empty.hidden || this.sizes.length > 0;
    this.rows.append(fragment);
    this.#cutRows();
    this.#stick();
  }

  #cutRows() {
    let cut = 0;
    while (this.sizes.length - cut > 1 && (this.sizes.length - cut > maxRows || this.size > maxSize)) {
      this.size -= this.sizes[cut++];
      this.rows.firstElementChild.remove();
    }
    this.sizes.splice(0, cut);
    if (this.total > this.sizes.length) {
      this.trimmed.hidden = false;
      this.trimmed.textContent = `This page keeps the last ${count(this.sizes.length)} lines of ${count(this.total)}.`;
    }
  }

  #setSpoken(rows) {
    const now = performance.now();
    if (rows > speakable) {
      this.spokenAt = now;
      this.log.setAttribute('aria-live', 'off');
    } else if (now - this.spokenAt > 1_000) {
      this.log.setAttribute('aria-live', 'polite');
    }
  }

  #stick() {
    if (!this.held) this.log.scrollTop = this.log.scrollHeight;
  }

  #scrolled() {
    const below = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
    this.hold(below > 40);
  }

  #showLatest() {
    this.latest.hidden = false;
    this.latest.textContent = this.unseen > 0 ? `Latest (${plural(this.unseen, 'new line')})` : 'Latest';
  }
}

function row(className, time, seq, ...body) {
  const at = el('time', '', timeOfDay(time));
  at.dateTime = new Date(time).toISOString();
  return el('div', `row ${className}`, at, el('span', 'seq', seq), ...body);
}

function messageRow(message, stream) {
  const body = el('span', 'body');
  body.dir = 'auto'; // isolates text that would turn the line around
  if (message.kind === 'binary') {
    body.append(el('span', 'tag', `binary, ${bytes(base64Bytes(message.text))}`), ' ');
  }
  const text = message.text;
  const preview = cut(text);
  const content = document.createTextNode(preview);
  body.append(content);
  if (preview.length < text.length) {
    const more = el('button', 'small more', `Show all ${count(text.length)} characters`);
    const rest = el('span', '', '… ', more);
    more.type = 'button';
    more.addEventListener('click', () => {
      stream.hold(true);
      content.data = text;
      rest.remove();
      stream.log.focus({ preventScroll: true });
    });
    body.append(rest);
  }
  return row(message.kind, message.receivedAt, String(message.seq), body);
}

/** The beginning of a long text, never half a character. */
function cut(text) {
  let end = Math.min(text.length, previewLength);
  let line = -1;
  for (let lines = 0; lines < previewLines; lines++) {
    line = text.indexOf('\n', line + 1);
    if (line < 0 || line >= end) break;
  }
  if (line >= 0) end = Math.min(end, line);
  if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end--;
  return text.slice(0, end);
}

function gapRow(frame, time) {
  const { text, why } = gapText(frame);
  const body = el('span', 'body', el('strong', '', text));
  if (why) body.append(el('span', 'why', ` (${why})`));
  return row('gap', time, '!', body);
}

function noteRow(text, tone, time) {
  return row(`note ${tone}`, time, '', el('span', 'body', text));
}
