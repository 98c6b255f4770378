// Elements from data. Text goes in as text and never as HTML, so nothing that a job, a run or a log says is ever executed;
// the page's content security policy holds it to that.

// Makes an element. Attributes that are absent, null or false are left out; `on…` are handlers.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else if (name !== "value") element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false));
  // After the children: a select has to know its options.
  if (attributes.value !== undefined && attributes.value !== null) element.value = attributes.value;
  return element;
}

const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "ontoggle"];
const keyOf = node => node.dataset?.key;

function patchNode(old, fresh) {
  if (old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return undefined;
  }
  // Whether details are open is the reader's business.
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) old[name] = fresh[name];
  if (old.nodeName === "PROGRESS") old.value = fresh.value;
  return patch(old, [...fresh.childNodes]);
}

// Makes the children of an element like these, and leaves alone what is the same: neither the focus, nor a selection, nor
// a click that has begun is lost when a list is looked at again. Children with `data-key` are found by it.
export function patch(parent, ...wanted) {
  const fresh = wanted.flat(Infinity).filter(node => node !== undefined && node !== null && node !== false)
    .map(node => (node instanceof Node ? node : document.createTextNode(node)));
  const keys = new Set(fresh.map(keyOf).filter(Boolean));
  for (const node of [...parent.childNodes]) if (keyOf(node) && !keys.has(keyOf(node))) node.remove();
  const known = new Map([...parent.childNodes].filter(keyOf).map(node => [keyOf(node), node]));
  let at = parent.firstChild;
  for (const node of fresh) {
    const same = keyOf(node) ? known.get(keyOf(node)) : at && !keyOf(at) ? at : undefined;
    if (!same) {
      parent.insertBefore(node, at);
    } else {
      if (same === at) at = at.nextSibling;
      else parent.insertBefore(same, at);
      patchNode(same, node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// A table for people. Heads are texts, or [text, "n"] for numbers, or { text, kind, content, sort } where something else than the text is shown;
// a row is { key, cells }. On a narrow screen each row becomes a list, and its cells show their heads.
export function table(label, heads, rows, empty) {
  const names = heads.map(head => (Array.isArray(head) ? { text: head[0], kind: head[1] } : head.text === undefined ? { text: head } : head));
  const head = h("tr", {}, names.map(({ text, kind, content, sort }) => h("th", { scope: "col", class: kind, "aria-sort": sort }, content ?? text)));
  const cell = (content, i) => h("td", { class: names[i].kind, "data-label": names[i].text }, content ?? "");
  const body = rows.map(({ key, cells, kind }) => h("tr", { "data-key": key, class: kind }, cells.map(cell)));
  if (!rows.length) return h("div", { class: "empty" }, empty);
  return h("div", { class: "scroll" }, h("table", { "aria-label": label }, h("thead", {}, head), h("tbody", {}, body)));
}

// Names and values, one beneath the other; what has no value is left out.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// A section with a heading; what changes goes into its second child.
export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

export const link = (hash, ...text) => h("a", { href: `#${hash}` }, ...text);
export const button = (text, onclick, kind) => h("button", { type: "button", class: kind, onclick }, text);
export const code = text => h("code", {}, text);

// An address in this page, with a query of what is there.
export function address(path, query = {}) {
  const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return said.length ? `${path}?${new URLSearchParams(said)}` : path;
}

// Links to the pages of a list.
export function pages(path, query, nextCursor) {
  const first = query.cursor && link(address(path, { ...query, cursor: "" }), "First page");
  const next = nextCursor && link(address(path, { ...query, cursor: nextCursor }), "Next page");
  return first || next ? h("nav", { class: "pages", "aria-label": "Pages of the list" }, first, next) : null;
}
