// Wires the client, the rooms and the operator's view to the page.

import { connect, HubdError } from '../client/hubd.js';
import { el, setText } from './dom.js';
import { explain, policyHints } from './format.js';
import { Operator } from './operator.js';
import { RoomView, shellExamples } from './room.js';

const byId = (id) => document.getElementById(id);
const views = new Map(); // room → RoomView
const options = new Map(); // room → what it was joined with

const hub = connect(document.baseURI);
hub.addEventListener('statechange', ({ detail }) => showState(detail));
hub.addEventListener('close', ({ detail }) => {
  if (detail.opened) for (const view of views.values()) view.lost(detail.reason);
});
hub.addEventListener('error', ({ detail }) => fail(explain(detail)));

const operator = new Operator({
  join: (room) => joinRoom(room, {}).catch((error) => fail(explain(error))),
  isJoined: (room) => views.has(room),
  onStats: (stats, rooms) => {
    setText(byId('version'), stats.version);
    byId('draining').hidden = !stats.draining;
    suggest(rooms.map((r) => r.room));
  },
  onUnavailable: () => (byId('draining').hidden = true),
});

// Connection state

let countdown = 0;
let wasWaiting = false;

function showState({ state, reason, at }) {
  const link = byId('link');
  const text = link.querySelector('.link-text');
  const wait = link.querySelector('.link-wait');
  link.dataset.state = state;
  link.querySelector('button').hidden = state !== 'waiting';
  byId('drop').disabled = state !== 'open';
  clearInterval(countdown);
  setText(wait, '');
  switch (state) {
    case 'connecting':
      if (!wasWaiting) setText(text, 'Connecting…'); // else it says why
      return;
    case 'open':
      setText(text, hub.transport === 'sse' ? 'Connected, without WebSocket' : 'Connected');
      break;
    case 'closed':
      setText(text, `Closed: ${reason}`);
      break;
    case 'waiting': {
      setText(text, `Reconnecting: ${reason}`);
      const show = () => setText(wait, `in ${Math.max(0, Math.ceil((at - Date.now()) / 1000))} s`);
      show();
      countdown = setInterval(show, 500);
      break;
    }
  }
  wasWaiting = state === 'waiting';
}

function fail(text) {
  byId('failure').querySelector('.failure-text').textContent = text;
  byId('failure').hidden = false;
}

// Rooms

async function joinRoom(name, { policy, queue_messages: queueMessages }) {
  if (views.has(name)) {
    views.get(name).node.scrollIntoView({ block: 'nearest' });
    throw new HubdError('already_joined', `This page is in ${name} already.`);
  }
  const room = hub.join(name, { policy, queueMessages });
  const view = new RoomView(room, leaveRoom);
  try {
    await room.ready;
  } catch (error) {
    room.leave(); // it may still be waiting for its turn
    throw error;
  }
  room.addEventListener('left', ({ detail }) => {
    if (!detail.error) return;
    closeRoom(name);
    fail(`${name}: ${explain(detail.error)}`);
  });
  options.set(name, { policy, queue_messages: queueMessages });
  views.set(name, view);
  byId('room-list').append(view.node);
  roomsChanged();
  return view;
}

function leaveRoom(room) {
  room.leave();
  closeRoom(room.name);
  byId('rooms').focus({ preventScroll: true });
}

function closeRoom(room) {
  views.get(room)?.node.remove();
  views.delete(room);
  options.delete(room);
  roomsChanged();
}

function roomsChanged() {
  byId('welcome').hidden = views.size > 0;
  byId('faults').hidden = views.size === 0;
  byId('room-list').classList.toggle('single', views.size === 1);
  document.title = views.size > 0 ? `${[...views.keys()].join(', ')} · hubd` : 'hubd';
  const list = [...views.keys()].map((room) => {
    const given = Object.entries(options.get(room)).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given).toString();
    return query ? `${room}?${query}` : room;
  });
  history.replaceState(null, '', list.length > 0 ? `#/${list.join(',')}` : location.pathname + location.search);
}

/** Joins the rooms that the address names, so that a reload or a bookmark brings them back. */
function joinFromAddress() {
  if (!location.hash.startsWith('#/')) return;
  for (const part of location.hash.slice(2).split(',')) {
    const [room, query] = part.split('?');
    if (!room || views.has(room)) continue;
    // A link chooses how to join and nothing else.
    const given = new URLSearchParams(query);
    const fields = {};
    if (given.has('policy')) fields.policy = given.get('policy');
    if (given.has('queue_messages')) fields.queue_messages = Number(given.get('queue_messages'));
    joinRoom(room, fields).catch((error) => fail(`${room}: ${explain(error)}`));
  }
}

function suggest(rooms) {
  const names = [...new Set([...rooms, 'lobby'])].filter((room) => !views.has(room)).slice(0, 6);
  const target = byId('suggestions');
  if (target.dataset.names === names.join(' ')) return;
  target.dataset.names = names.join(' ');
  target.replaceChildren(...names.map((room) => {
    const button = el('button', 'chip', room);
    button.type = 'button';
    button.addEventListener('click', () => {
      joinRoom(room, {}).then(focusMessage, (error) => fail(explain(error)));
    });
    return button;
  }));
}

const focusMessage = (view) => view.form.elements.message.focus({ preventScroll: true });

// The join form

const form = byId('join');
const problem = byId('join-error');

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const { room, policy, queue_messages: limit } = form.elements;
  const name = room.value.trim();
  const fields = {};
  if (policy.value) fields.policy = policy.value;
  if (limit.value.trim()) fields.queue_messages = Number(limit.value);
  problem.hidden = true;
  const button = form.querySelector('button');
  button.disabled = true;
  try {
    if (!name) throw new HubdError('invalid_room', 'A room needs a name, such as lobby.');
    if ('queue_messages' in fields && !(Number.isSafeInteger(fields.queue_messages) && fields.queue_messages > 0)) {
      throw new HubdError('invalid_option', 'The queue limit is a positive whole number of messages.');
    }
    const view = await joinRoom(name, fields);
    room.value = '';
    focusMessage(view);
  } catch (error) {
    problem.textContent = explain(error);
    problem.hidden = false;
    (error.code === 'invalid_option' ? limit : room).focus();
  } finally {
    button.disabled = false;
  }
});

const showHint = () => setText(byId('policy-hint'), policyHints[form.elements.policy.value]);
form.elements.policy.addEventListener('change', showHint);

// Faults to try out

const stall = 5_000;

byId('drop').addEventListener('click', () => hub.interrupt());
byId('stall').addEventListener('click', ({ target }) => {
  const text = target.textContent;
  target.textContent = 'Reading nothing…';
  // What a page that is busy does: while this loop runs, the browser hands it
  // no message, and soon stops taking any from the network. First the button's
  // new text must get onto the screen.
  requestAnimationFrame(() => setTimeout(() => {
    for (const end = performance.now() + stall; performance.now() < end; );
    target.textContent = text;
  }));
});

// Links within the page must not replace the rooms in the address.
for (const link of document.querySelectorAll('a[href^="#"]')) {
  link.addEventListener('click', (event) => {
    event.preventDefault();
    const target = document.querySelector(link.getAttribute('href'));
    target.scrollIntoView();
    target.focus({ preventScroll: true });
  });
}

byId('failure').querySelector('button').addEventListener('click', () => (byId('failure').hidden = true));
byId('link').querySelector('button').addEventListener('click', () => hub.reconnect());
document.querySelector('.welcome-shell').append(shellExamples('lobby')[0]);
addEventListener('hashchange', joinFromAddress);

showHint();
suggest([]);
joinFromAddress();
operator.start();
setInterval(() => {
  for (const view of views.values()) view.tick();
}, 1_000);
