// The live answers of a window: the broker sends the answers to the paths that the page shows, and then what changes in them. While there
// is no connection, the page asks for them as before.

import { answered, copy, patched } from "./exact.js";

// Milliseconds without a message after which the connection counts as lost; an idle broker sends one every ten seconds.
const SILENCE = 25000;
// Milliseconds without a message for which what came before counts as new.
const FRESH = 12000;
// Milliseconds for which answers are asked for after a change: they may be older than it. The broker may have looked at an answer just
// before it (10 s at most), pause (30 s at most), look again (10 s) and send what is new.
const DOUBT = 51000;
// Milliseconds until a path that the broker refused is tried again.
const REFUSED = 30000;
// Paths of one window.
const MOST = 64;

// By path: its number, its answer once it has come, when it was refused.
const paths = new Map();
let [socket, silence, number, doubted, heard, retryAt, failures] = [undefined, undefined, 0, 0, 0, 0, 0];
let current;
let changed = () => {};
let waking;

// Makes the difference of an answer. It throws if it does not fit.
export function applied(value, patch) {
  let root = value;
  for (const { op, path, value: given } of patch) {
    const steps = path.split("/").slice(1).map(step => step.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = steps.pop();
    if (last === undefined) {
      root = given;
      continue;
    }
    // Own members only: `__proto__` of other people's JSON is a name like any other.
    const place = steps.reduce((at, step) => {
      if (!Object.hasOwn(at, step)) throw new Error(`nothing is at ${path}`);
      return at[step];
    }, root);
    if (Array.isArray(place) && op !== "replace") place.splice(Number(last), op === "remove" ? 1 : 0, ...(op === "add" ? [given] : []));
    else if (op === "remove") delete place[last];
    else Object.defineProperty(place, last, { value: given, configurable: true, enumerable: true, writable: true });
  }
  return root;
}

const say = (t, v) => socket.send(JSON.stringify({ t, v }));

function close() {
  clearTimeout(silence);
  const old = socket;
  socket = undefined;
  old?.close();
  paths.clear();
}

// A connection may be lost without a word.
const isFresh = () => Date.now() - heard < FRESH;
const isDoubted = () => Date.now() < doubted;

const find = id => [...paths.values()].find(entry => entry.id === id);

function take(text) {
  clearTimeout(silence);
  silence = setTimeout(lost, SILENCE);
  heard = Date.now();
  failures = 0;
  const { t, v } = text.startsWith("{\"t\":\"patch\"") ? patched(text) : answered(text);
  const entry = v && find(v.id);
  if (!entry) return;
  if (t === "value") entry.answer = { value: v.value };
  else if (t === "patch") entry.answer = { value: applied(entry.answer.value, v.patch) };
  else if (t === "problem") {
    entry.answer = undefined;
    entry.refused = Date.now();
  }
  // Several paths change together.
  waking ??= setTimeout(() => {
    waking = undefined;
    // What is asked for meanwhile is asked for at its time.
    if (!isDoubted()) changed();
  }, 100);
}

function lost() {
  failures += 1;
  retryAt = Date.now() + Math.min(30000, 500 * 2 ** failures) * (0.5 + Math.random());
  close();
}

// Opens the connection. A browser cannot set headers of a socket, so the token is in a subprotocol.
function open(token) {
  const coded = token === null ? [] : [`webloom.token.${btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`];
  const mine = new WebSocket(`${location.origin.replace(/^http/, "ws")}/live`, ["webloom.live", ...coded]);
  socket = mine;
  mine.onopen = () => {
    if (mine !== socket) return;
    for (const [path, { id }] of paths) say("watch", { id, path });
    silence = setTimeout(lost, SILENCE);
  };
  mine.onmessage = event => {
    if (mine !== socket) return;
    try {
      take(event.data);
    } catch (error) {
      console.warn(error);
      lost();
    }
  };
  mine.onclose = () => { if (mine === socket) lost(); };
}

function watch(path) {
  number += 1;
  const entry = { id: number };
  paths.set(path, entry);
  if (socket?.readyState === WebSocket.OPEN) say("watch", { id: entry.id, path });
}

function unwatch(path) {
  const { id } = paths.get(path);
  paths.delete(path);
  if (socket?.readyState === WebSocket.OPEN) say("unwatch", { id });
}

// The answer to a path, if the broker keeps it up to date here.
export function known(path) {
  if (!current) return undefined;
  current.used.add(path);
  const answer = isDoubted() || !isFresh() ? undefined : paths.get(path)?.answer;
  return answer && copy(answer.value);
}

// Something was changed: answers may be older than that for a moment.
export function doubt() {
  doubted = Date.now() + DOUBT;
}

// A page begins to read what it shows. What it reads twice in a row is watched from then on.
export function begin(before) {
  const pass = { used: new Set(), before: before?.used };
  current = pass;
  return pass;
}

// It has read everything. Without a token (null: the broker needs none) it failed.
export function end(pass, token) {
  if (!pass || pass !== current) return;
  current = undefined;
  for (const path of [...paths.keys()]) {
    const { refused } = paths.get(path);
    if (!pass.used.has(path) || Date.now() - refused > REFUSED) unwatch(path);
  }
  for (const path of pass.used) if (pass.before?.has(path) && !paths.has(path) && paths.size < MOST) watch(path);
  // It has been answered, so there is a broker, and it takes the token.
  if (token !== undefined && !socket && paths.size > 0 && !document.hidden && Date.now() >= retryAt) open(token);
}

// Whether what the page has read comes by the connection.
export const isLive = pass => isFresh() && [...pass.used].some(path => paths.get(path)?.answer);

// The page is left.
export function leave() {
  current = undefined;
  for (const path of [...paths.keys()]) unwatch(path);
}

// The token is another one.
export const forget = close;

// What to do when an answer has changed.
export function onChange(work) {
  changed = work;
}

// A window that is not visible watches nothing.
document.addEventListener("visibilitychange", () => { if (document.hidden) close(); });
