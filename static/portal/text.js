// How values are written for people, and read from them.

import { brokerNow, hasToken } from "./api.js";
import { h, link } from "./dom.js";
import { dayOf, wall } from "./zone.js";

export const num = n => Number(n ?? 0).toLocaleString("en");
const two = n => String(n).padStart(2, "0");

// A date in the reader's zone: `2026-11-21 14:05:12`.
export function local(date) {
  const at = wall(date);
  return `${dayOf(at)} ${two(at.hour)}:${two(at.minute)}:${two(at.second)}`;
}

// An instant in the reader's zone; the title has it in UTC.
export function time(instant) {
  return instant ? h("time", { datetime: instant, title: instant }, local(new Date(instant))) : "";
}

// A sentence of the broker's: the UTC times in it become times in the reader's zone.
export const withLocalTimes = text => text.split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/).map((part, i) => (i % 2 ? time(part) : part));

const UNITS = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000], ["ms", 1]];

// Milliseconds as a length of time, roughly: for reading.
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min`;
  if (ms < 172800000) return `${(ms / 3600000).toFixed(1)} h`;
  return `${Math.floor(ms / 86400000)} days`;
}

// The same exactly, as a form shows it and `readSpan` reads it: `1h 30m`.
export function exactSpan(ms) {
  if (!ms) return "0";
  const parts = [];
  let rest = ms;
  for (const [unit, length] of UNITS) {
    if (rest >= length) parts.push(`${Math.floor(rest / length)}${unit}`);
    rest %= length;
  }
  return parts.join(" ");
}

// Milliseconds of `500ms`, `30s`, `1h 30m`, `2d`; a number alone is milliseconds. NaN if it is none of these.
export function readSpan(text) {
  if (/^\s*\d+\s*$/.test(text)) return Number(text);
  if (!/^(\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$/.test(text)) return NaN;
  const parts = text.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g);
  return Math.round([...parts].reduce((sum, [, n, unit]) => sum + Number(n) * UNITS.find(([name]) => name === unit)[1], 0));
}

// How far away an instant is: `in 3 min`, `2.0 s ago`.
export function distance(instant) {
  const ms = new Date(instant) - brokerNow();
  return ms >= 0 ? `in ${span(ms)}` : `${span(-ms)} ago`;
}

// An instant and how far away it is.
export const when = instant => (instant ? [time(instant), " ", h("span", { class: "soft" }, distance(instant))] : "");

export const badge = (state, title) => h("span", { class: `state ${state}`, title }, state);
const WAITS_FOR = { queue: "its turn", schedule: "its time", retry: "the next attempt", worker: "a worker", node: "a node" };
// What a pending run waits for.
export const waits = run => run.waitsFor && ` waits for ${WAITS_FOR[run.waitsFor] ?? run.waitsFor}`;
// Ids begin with the time at which they were made, so their ends tell them apart.
export const short = id => h("code", { title: id }, `${id.slice(0, 4)}…${id.slice(-6)}`);
// A peer by its name; its id is shown when one points at it.
export const named = (name, id) => h("span", { title: id }, name);
// Requests that the broker refused itself, because of robots.txt or a bound, belong to no node.
export const nodeName = (id, name) => (/^[0-]+$/.test(id) ? "the broker" : name ?? id.slice(-8));
export const runLink = id => (id ? link(`/runs/${id}`, short(id)) : "");
export const jobLink = (id, name) => h("span", { class: "wrap" }, link(`/jobs/${id}`, name));
export const json = value => h("pre", { class: "json", tabindex: 0 }, JSON.stringify(value, null, 2));

// What makes a job run, in a few words.
export function scheduleText(schedule) {
  const parts = (schedule?.triggers ?? []).map(trigger => {
    if (trigger.cron !== undefined) return trigger.cron;
    if (trigger.at !== undefined) return `at ${local(new Date(trigger.at))}`;
    if (trigger.every === 0) return "once";
    return `every ${exactSpan(trigger.every)}${trigger.afterEnd ? " after its end" : ""}`;
  });
  if (schedule?.longestSilence) parts.push(`at least every ${exactSpan(schedule.longestSilence)}`);
  return parts.length ? parts.join("; ") : "by hand";
}

// A command to copy. Where this page needs a token, the command does too: one of the role that is named.
export const command = (text, role) => h("pre", { tabindex: 0 }, hasToken() ? `WEBLOOM_TOKEN=YOUR-${role.toUpperCase()}-TOKEN ${text}` : text);
