// One joined room: its facts, its stream, and publishing to it.

import { copyText, fromTemplate, setText } from './dom.js';
import { bytes, count, explain, plural, rate } from './format.js';
import { Stream } from './stream.js';

/** How long a publish waits for a link, and then for the answer. */
const patience = 10_000;

/** The URL of a room on this hub. */
export const roomURL = (room) => new URL(`rooms/${room}`, document.baseURI).href;

/** A command line with a button that copies it. */
export function shell(command) {
  const node = fromTemplate('shell-template');
  const code = node.querySelector('code');
  const button = node.querySelector('button');
  code.textContent = command;
  button.addEventListener('click', async () => {
    button.textContent = (await copyText(command, code)) ? 'Copied' : 'Press Ctrl+C';
    setTimeout(() => (button.textContent = 'Copy'), 2_000);
  });
  return node;
}

/** Commands that publish to a room. */
export function shellExamples(room) {
  const url = roomURL(room);
  return [
    `curl -d 'hello from a shell' ${url}`,
    `curl --json '{"any":"json"}' ${url}`,
  ].map(shell);
}

export class RoomView {
  /**
   * @param {import('../../hubd.js').Room} room just joined: what comes is shown from the start
   * @param {(room: import('../../hubd.js').Room) => void} leave
   */
  constructor(room, leave) {
    this.room = room;
    this.leave = leave;
    this.node = fromTemplate('room-template');
    this.stream = new Stream(this.node.querySelector('.stream-frame'));
    this.seq = 0;
    this.received = 0;
    this.missed = 0;
    this.lastReceived = 0;
    this.facts = {};
    for (const name of ['policy', 'queue', 'seq', 'received', 'missed']) {
      this.facts[name] = this.node.querySelector(`.fact-${name}`);
    }
    this.#build();
    room.addEventListener('joined', ({ detail }) => this.#joined(detail));
    room.addEventListener('message', ({ detail }) => this.#message(detail));
    room.addEventListener('gap', ({ detail }) => this.#gap(detail));
    room.addEventListener('resumefailed', ({ detail }) => this.#resumeFailed(detail));
  }

  #build() {
    const { node } = this;
    const room = this.room.name;
    node.querySelector('h3').textContent = room;
    node.setAttribute('aria-label', `Room ${room}`);
    this.stream.log.setAttribute('aria-label', `Messages in ${room}`);
    node.querySelector('.empty-shell').append(...shellExamples(room));
    node.querySelector('.details-shell').append(...shellExamples(room), shell(`hubd tail ${room}`));

    const pause = node.querySelector('.pause');
    pause.addEventListener('click', () => this.stream.hold(!this.stream.held));
    this.stream.onHold = (held) => {
      pause.setAttribute('aria-pressed', String(held));
      pause.textContent = held ? 'Resume' : 'Pause';
    };
    node.querySelector('.leave').addEventListener('click', () => this.leave(this.room));

    this.form = node.querySelector('form');
    this.result = node.querySelector('.result');
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#publish();
    });
    const { message } = this.form.elements;
    message.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    message.addEventListener('input', () => this.#say(''));
    this.form.addEventListener('change', () => {
      const json = this.form.elements.format.value === 'json';
      message.placeholder = json ? '{"any":"json"}' : 'Write a message';
    });
  }

  async #publish() {
    const { message, format, key } = this.form.elements;
    const text = message.value;
    if (!text) {
      this.#say('Write a message first.', 'bad');
      return;
    }
    message.focus();
    message.value = ''; // for the next one, which may be typed before the answer is here
    try {
      const { seq } = await this.room.publish(text, { key: key.value, as: format.value === 'json' ? 'rawjson' : undefined, timeout: patience });
      this.#say(`Published as ${seq}`, 'good');
    } catch (error) {
      if (message.value === '') message.value = text;
      this.#say(explain(error), 'bad');
    }
  }

  #say(text, tone = '') {
    setText(this.result, text);
    this.result.dataset.tone = tone;
  }

  /** The hub has let this page in, for the first time or after a lost link. */
  #joined({ again, policy, queue, resumed, replayed, seq }) {
    setText(this.facts.policy, policy);
    setText(this.facts.queue, `${count(queue.messages)} / ${bytes(queue.bytes)}`);
    if (!resumed) {
      this.seq = seq;
    } else if (again) {
      this.stream.note(replayed > 0
        ? `Resumed after ${this.seq}: ${plural(replayed, 'message')} missed meanwhile, here they are.`
        : `Resumed at ${this.seq}: nothing was missed.`, 'good');
    }
    this.tick();
  }

  /** How much it was is not known: numbers may skip. */
  #resumeFailed({ after, position, restarted }) {
    const seq = (p) => p.slice(p.indexOf(':') + 1);
    this.stream.note(restarted
      ? `Could not resume: the numbering has restarted, now at ${seq(position)}. What was published meanwhile did not reach this page.`
      : `Could not resume after ${seq(after)}: the hub no longer has what came next. Now at ${seq(position)}.`, 'bad');
  }

  lost(reason) {
    this.stream.note(`Connection lost: ${reason}.`, 'bad');
  }

  #message(message) {
    this.seq = message.seq;
    this.received++;
    this.stream.message(message);
  }

  #gap(gap) {
    this.missed += gap.lost;
    this.stream.gap(gap);
  }

  /** Refreshes the figures; called once a second. */
  tick() {
    const perSecond = this.received - this.lastReceived;
    this.lastReceived = this.received;
    setText(this.facts.seq, count(this.seq));
    setText(this.facts.received, perSecond > 0 ? `${count(this.received)} · ${rate(perSecond)}/s` : count(this.received));
    setText(this.facts.missed, count(this.missed));
    this.facts.missed.classList.toggle('some', this.missed > 0);
  }
}
