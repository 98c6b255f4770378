// The one door to the broker: its public API, called as any other client calls it. The token lives in this tab's session
// storage and goes into the header `Token`, never into an address.

import { answered } from "./exact.js";
import { doubt, forget, known } from "./live.js";

const KEY = "token";

// What the API answered instead of success (RFC 9457). `status` is 0 if there was no answer.
export class Problem extends Error {
  constructor({ type = "", title = "", status = 0, detail = "", field }) {
    super(detail || title);
    Object.assign(this, { type, title, status, field });
  }

  is(word) {
    return this.type === `/problems/${word}`;
  }
}

export const token = () => sessionStorage.getItem(KEY);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

// Keeps a token for this tab; none if it is empty. A header cannot carry every text.
export function setToken(text) {
  forget();
  if (text === "") sessionStorage.removeItem(KEY);
  else if (/^[\x21-\x7e]+$/.test(text)) sessionStorage.setItem(KEY, text);
  else throw new Problem({ title: "That is no token", detail: "A token has no spaces and only letters, digits and signs of ASCII." });
}

// Milliseconds after which a call counts as not answered. Streams have none.
const PATIENCE = 30000;

// How much the clock of the broker is ahead of the browser's, in milliseconds, by its last answer.
let ahead = 0;
export const brokerNow = () => Date.now() + ahead;

async function send(method, path, { body, raw, headers, signal, patience = PATIENCE } = {}) {
  const all = { ...headers };
  const token = sessionStorage.getItem(KEY);
  if (token !== null) all.Token = token;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  const late = patience && AbortSignal.timeout(patience);
  const ends = [signal, late].filter(Boolean);
  try {
    answer = await fetch(path, {
      method, signal: AbortSignal.any(ends), headers: all, cache: "no-store", credentials: "omit", body: body === undefined ? raw : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (late?.aborted) {
      const detail = method === "GET" ? "" : " What was asked for may have been done: look before you ask again.";
      throw new Problem({ title: "The broker does not answer", detail: `The broker has not answered within ${patience / 1000} s.${detail}` });
    }
    throw new Problem({ title: "The broker does not answer", detail: "The broker does not answer." });
  }
  const told = Date.parse(answer.headers.get("Date"));
  // The header counts whole seconds.
  if (Math.abs(told - brokerNow()) > 2000) ahead = told - Date.now();
  if (answer.ok) return answer;
  // Of a token that was replaced meanwhile nothing is to be said.
  if (answer.status === 401 && token === sessionStorage.getItem(KEY)) window.dispatchEvent(new CustomEvent("token", { detail: token !== null }));
  const problem = await answer.json().catch(() => ({}));
  throw new Problem({ ...problem, status: answer.status, detail: problem.detail || `The broker answered ${answer.status}.` });
}

async function call(method, path, options) {
  const answer = await send(method, path, options).finally(() => { if (method !== "GET") doubt(); });
  return answer.status === 204 ? null : answered(await answer.text());
}

// What the page reads again and again comes by the live connection, if there is one.
export const get = async (path, signal) => known(path) ?? call("GET", path, { signal });
// What is not worth to be watched.
export const getOnce = (path, signal) => call("GET", path, { signal });
export const post = (path, body, options) => call("POST", path, { ...options, body });
export const put = (path, body, options) => call("PUT", path, { ...options, body });
// Sends a file as it is, however long that takes.
export const upload = (path, raw, type) => call("POST", path, { raw, patience: 0, headers: { "Content-Type": type } });
export const remove = (path, options) => call("DELETE", path, options);

// An address of the API, with a query of what is there.
export function at(path, query = {}) {
  const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `/api/v1${path}${said.length ? `?${new URLSearchParams(said)}` : ""}`;
}

// A key of its own for each thing that is to happen once, however often it is sent. `randomUUID` is missing where the page
// came by plain HTTP from another machine.
export function onceKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, "0")).join("");
}

// Server-sent events, read from a fetch, since an EventSource cannot send a token. Gives { name, id, data } until the
// answer ends.
export async function* events(path, signal) {
  const answer = await send("GET", path, { signal, patience: 0, headers: { Accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = { name: "message", id: undefined, data: "" };
      for (const line of part.split("\n")) {
        const [name, text] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trimStart()];
        if (name === "event") event.name = text;
        if (name === "id") event.id = text;
        if (name === "data") event.data += text;
      }
      if (event.data) yield { ...event, data: JSON.parse(event.data) };
    }
  }
}
