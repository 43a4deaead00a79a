// One joined room: its facts, its stream, and publishing to it.

import { copyText, fromTemplate, setText } from './dom.js';
import { bytes, count, explain, rate } from './format.js';
import { Stream } from './stream.js';

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
   * @param {string} room
   * @param {{publish: Function, leave: Function}} actions
   */
  constructor(room, actions) {
    this.room = room;
    this.actions = actions;
    this.node = fromTemplate('room-template');
    this.stream = new Stream(this.node.querySelector('.stream-frame'));
    this.seq = 0;
    this.epoch = '';
    this.received = 0;
    this.missed = 0;
    this.lastReceived = 0;
    this.facts = {};
    for (const name of ['policy', 'queue', 'seq', 'received', 'missed']) {
      this.facts[name] = this.node.querySelector(`.fact-${name}`);
    }
    this.#build();
  }

  #build() {
    const { node, room } = this;
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
    node.querySelector('.leave').addEventListener('click', () => this.actions.leave(room));

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
    const content = format.value === 'json' ? { json: text } : { text };
    message.focus();
    message.value = ''; // for the next one, which may be typed before the answer is here
    try {
      const { seq } = await this.actions.publish(this.room, content, key.value);
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

  /** The hub has let this page in; again after a lost link. */
  joined(frame, again) {
    setText(this.facts.policy, frame.policy);
    setText(this.facts.queue, `${count(frame.queue.messages)} / ${bytes(frame.queue.bytes)}`);
    if (again) this.stream.note(this.#sinceThen(frame), 'warn');
    this.epoch = frame.epoch;
    this.seq = frame.seq;
    this.tick();
  }

  /** What a rejoin says about the time away. Numbers may skip, so it counts nothing. */
  #sinceThen({ epoch, seq }) {
    if (epoch !== this.epoch) return `Joined again. The numbering has restarted: now at ${seq}.`;
    if (seq === this.seq) return `Joined again at ${seq}: nothing was published meanwhile.`;
    return `Joined again at ${seq}. What was published after ${this.seq} did not reach this page.`;
  }

  lost(reason) {
    this.stream.note(`Connection lost: ${reason}.`, 'bad');
  }

  message(message) {
    this.seq = message.seq;
    this.received++;
    this.stream.message(message);
  }

  gap(frame) {
    this.missed += frame.lost;
    this.stream.gap(frame);
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
