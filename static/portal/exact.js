// JSON whose numbers stay as they were written. JavaScript has doubles only: it would make 9007199254740993123 of one job's
// arguments into 9007199254740993000, and 1.0 into 1. Numbers that it cannot hold become raw JSON, which goes out as it came.

import { Problem } from "./api.js";

const NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
// Members that are other people's JSON. All else the page counts with.
const THEIRS = new Set(["arguments", "result"]);

const isRaw = value => Boolean(JSON.isRawJSON?.(value));
const isLost = source => String(Number(source)) !== source;
const lost = text => (text.match(NUMBER) ?? []).find(one => !one.startsWith("\"") && isLost(one));

export const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value) && !isRaw(value);

// A copy of plain JSON, raw numbers included.
export function copy(value) {
  if (Array.isArray(value)) return value.map(copy);
  return isObject(value) ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, copy(one)])) : value;
}

function withRaw(text) {
  return JSON.parse(text, (_, value, context) => (typeof value === "number" && isLost(context.source) ? JSON.rawJSON(context.source) : value));
}

// What a person typed. A browser that cannot keep a number as it is says so instead of changing it.
export function typed(text) {
  const value = JSON.parse(text);
  const number = lost(text);
  if (number === undefined) return value;
  if (JSON.rawJSON) return withRaw(text);
  throw new Problem({ detail: `this browser would change the number ${number}; write it as a text, or use the command line` });
}

function take(plain, exact) {
  for (const key of Object.keys(plain)) {
    if (THEIRS.has(key)) plain[key] = exact[key];
    else if (plain[key] !== null && typeof plain[key] === "object") take(plain[key], exact[key]);
  }
  return plain;
}

const isTheirs = path => path.split("/").some(step => THEIRS.has(step));

// A message with a difference: what it sets in other people's JSON stays as it was written.
export function patched(text) {
  const plain = answered(text);
  if (!JSON.rawJSON || lost(text) === undefined) return plain;
  const exact = withRaw(text).v.patch;
  plain.v.patch.forEach((step, i) => { if (isTheirs(step.path)) step.value = exact[i].value; });
  return plain;
}

// What the broker answered.
export function answered(text) {
  const value = JSON.parse(text);
  if (!JSON.rawJSON || value === null || typeof value !== "object" || lost(text) === undefined) return value;
  return take(value, withRaw(text));
}
