// How numbers, times and reasons are written.

const integer = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });

/** 12345 → 12,345 */
export const count = (n) => integer.format(n);

/** 1234567 → 1.23M; below 100,000 in full. */
export const compact = (n) => (n < 100_000 ? integer.format(n) : short.format(n));

/** A rate per second: 0.4, 12, 1,204. */
export function rate(n) {
  if (n > 0 && n < 10) return n.toFixed(1);
  return compact(Math.round(n));
}

/** 1048576 → 1 MiB */
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  const digits = unit === 0 || n >= 100 || Number.isInteger(n) ? 0 : 1;
  return `${n.toFixed(digits)} ${units[unit]}`;
}

/** Milliseconds: 0 ms, 850 ms, 12.3 s, 4 min 05 s, 2 h 10 min. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, '0')} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, '0')} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

/** Time of day with milliseconds, in the reader's zone. */
export function timeOfDay(ms) {
  const d = new Date(ms);
  const two = (n) => String(n).padStart(2, '0');
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

/** 1 message, 2 messages. */
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

/** What a policy does, in a sentence. */
export const policyHints = {
  '': 'If this page reads too slowly and its queue is full, the room’s feed decides what is lost.',
  'drop-newest': 'If this page reads too slowly and its queue is full, the arriving message is lost.',
  'drop-oldest': 'If this page reads too slowly and its queue is full, the oldest queued messages are lost.',
  'keep-latest': 'If this page reads too slowly, only the newest message (of each key) is kept for it.',
  disconnect: 'If this page reads too slowly and its queue is full, it is disconnected. It then comes back.',
  'reject-publish': 'If this page reads too slowly and its queue is full, publishers are refused. Few feeds allow it.',
};

/** Why frames were dropped, in the order of display. */
export const dropReasons = {
  overflow: 'the queue was full',
  conflated: 'replaced by a newer one',
  expired: 'waited too long',
  budget: 'the memory budget was used up',
  closed: 'queued when the subscription ended',
};

const gapReasons = { ...dropReasons, broker: 'lost between nodes' };

/** A gap notice in words. */
export function gapText({ after, lost, reason }) {
  const where = after > 0 ? `after ${after}` : 'before the first';
  return { text: `${plural(lost, 'message')} missed ${where}: ${reason}`, why: gapReasons[reason] ?? '' };
}

/** A refusal as a sentence, with the code that programs see. */
export function explain({ code, message }) {
  const text = message[0].toUpperCase() + message.slice(1);
  return `${text}${/[.!?]$/.test(text) ? '' : '.'} (${code})`;
}

/** The bytes that a base64 text stands for. */
export function base64Bytes(text) {
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  return Math.floor(text.length / 4) * 3 - padding;
}
