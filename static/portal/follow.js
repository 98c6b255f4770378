// The jobs that follow a job: a nested list, each with a link and what starts it.

import { at, get } from "./api.js";
import { h, link } from "./dom.js";
import { jobState } from "./jobs.js";

const DEEP = 5;
const WORDS = { success: "if it succeeds", failure: "if it fails", always: "however it ends" };
const isId = text => /^[0-9a-f]{32}$/i.test(text);

// A successor is named by its id or its name.
async function find(name, signal) {
  if (isId(name)) return get(at(`/jobs/${name}`), signal).catch(() => undefined);
  const { items } = await get(at("/jobs", { name, limit: 1000 }), signal);
  return items.find(job => job.name === name);
}

async function branch(job, above, known, signal) {
  const next = await Promise.all((job.successors ?? []).map(async one => {
    if (!known.has(one.job)) known.set(one.job, find(one.job, signal));
    return [one, await known.get(one.job)];
  }));
  if (!next.length) return null;
  const items = await Promise.all(next.map(async ([one, found]) => {
    const when = h("span", { class: "soft" }, ` ${WORDS[one.on] ?? `on ${one.on}`}`);
    if (!found) return h("li", {}, one.job, when, h("span", { class: "error" }, " — there is no such job"));
    const isAgain = above.includes(found.id);
    return h("li", {}, link(`/jobs/${found.id}`, found.name), " ", jobState(found), when, isAgain ? h("span", { class: "warn" }, " — a circle: it is above, too")
      : above.length < DEEP ? await branch(found, [...above, found.id], known, signal) : (found.successors ?? []).length > 0 && h("span", { class: "soft" }, " …"));
  }));
  return h("ul", {}, items);
}

export async function successors(job, signal) {
  const list = await branch(job, [job.id], new Map(), signal);
  return list && h("div", { class: "tree" }, h("p", {}, h("b", {}, job.name)), list);
}
