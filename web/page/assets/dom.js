// Small helpers for building the page. Everything that a client chose goes
// through textContent; the page's Trusted Types policy refuses the rest.

/** Makes an element. Children are nodes or strings, which become text. */
export function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

const svgNamespace = 'http://www.w3.org/2000/svg';

/** Makes an SVG element with the given attributes. */
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** The first element child of a copy of a template. */
export function fromTemplate(id) {
  return document.getElementById(id).content.cloneNode(true).firstElementChild;
}

/** Sets text only where it differs, so that a poll a second disturbs neither layout nor selection. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Makes the children of parent those of items, in order, keeping the node of
 * an item that was there before: a button keeps its focus while rows move.
 */
export function reconcile(parent, items, { key, create, update }) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;

  const nodes = items.map((item) => {
    const id = key(item);
    const node = old.get(id) ?? create(item);
    old.delete(id);
    node.dataset.key = id;
    update(node, item);
    return node;
  });
  const kept = new Set(nodes);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let place = parent.firstElementChild;
  for (const node of nodes) {
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  // Moving a node in the document takes the focus from it.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/** Writes text to the clipboard; false where the browser does not allow it. */
export async function copyText(text, source) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without https, other than on loopback, there is no clipboard API.
    getSelection().selectAllChildren(source);
    return document.execCommand('copy');
  }
}
