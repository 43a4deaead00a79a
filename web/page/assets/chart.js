// Two small charts. Colours come from the style sheet.

import { el, setText, svg } from './dom.js';

/** A line of the last values, drawn from the right. */
export class Sparkline {
  constructor(capacity, label) {
    this.capacity = capacity;
    this.values = [];
    this.area = svg('path', { class: 'spark-area' });
    this.line = svg('path', { class: 'spark-line', 'vector-effect': 'non-scaling-stroke' });
    this.node = svg('svg', {
      class: 'spark', viewBox: `0 0 ${capacity - 1} 24`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label,
    }, this.area, this.line);
  }

  push(value) {
    this.values.push(value);
    if (this.values.length > this.capacity) this.values.shift();
    const top = Math.max(1, ...this.values);
    const start = this.capacity - this.values.length;
    const points = this.values.map((v, i) => `${start + i} ${(23 - (v / top) * 22).toFixed(2)}`);
    this.line.setAttribute('d', `M${points.join('L')}`);
    this.area.setAttribute('d', `M${start} 24L${points.join('L')}L${this.capacity - 1} 24Z`);
  }

  clear() {
    this.values = [];
  }
}

const quantiles = [
  ['p50', 'p50'],
  ['p90', 'p90'],
  ['p99', 'p99'],
  ['p999', 'p99.9'],
  ['max', 'max'],
];

/** Horizontal bars for the quantiles of one measure, each with its number. */
export class Quantiles {
  /** @param {(n: number) => string} format */
  constructor(title, format) {
    this.format = format;
    this.bars = new Map();
    const list = el('dl', 'bars');
    for (const [name, label] of quantiles) {
      const fill = svg('rect', { class: `bar-fill ${name}`, width: '0%', height: '100%', rx: 2 });
      const value = el('span', 'bar-value');
      const bar = svg('svg', { class: 'bar', 'aria-hidden': 'true' },
        svg('rect', { class: 'bar-track', width: '100%', height: '100%', rx: 2 }), fill);
      list.append(el('dt', '', label), el('dd', '', bar, value));
      this.bars.set(name, { fill, value });
    }
    this.node = el('div', 'quantiles', el('h4', '', title), list);
  }

  update(values) {
    const top = Math.max(1, values.max);
    for (const [name, { fill, value }] of this.bars) {
      const n = values[name] ?? 0;
      fill.setAttribute('width', `${(100 * Math.min(1, n / top)).toFixed(2)}%`);
      setText(value, this.format(n));
    }
  }
}
