// The list of runs.

import { at, get, post } from "./api.js";
import { h, link, pages, patch } from "./dom.js";
import { KINDS, filter } from "./filter.js";
import { sortable } from "./order.js";
import { runTable } from "./overview.js";
import { chooser } from "./several.js";

const isOver = run => ["success", "failed", "stopped"].includes(run.state);
const ACTIONS = [
  { name: "Run again", can: isOver, text: "A new run of each, with the same arguments.", act: run => post(at(`/runs/${run.identity}/retry`)) },
  { name: "Stop", danger: true, can: run => !isOver(run), text: "Their work is cancelled, and what waits in their queues is dropped.", act: run => post(at(`/runs/${run.identity}/stop`)) },
];
const STATES = ["pending", "scheduled", "running", "success", "failed", "stopped"];

// The job of this name or id: its id, or none.
async function jobNamed(text, signal) {
  if (/^[0-9a-f-]{32,36}$/i.test(text)) return text;
  const { items } = await get(at("/jobs", { name: text, sort: "name", limit: 1000 }), signal);
  const same = items.find(job => job.name === text) ?? (items.length === 1 ? items[0] : undefined);
  return same?.id;
}

export async function runs(page) {
  page.title("Runs");
  const { query, signal } = page;
  const list = h("div");
  const chosen = chooser({ noun: "runs", key: run => run.identity, nameOf: run => `${run.jobName} …${run.identity.slice(-6)}`, actions: ACTIONS, again: () => page.wake?.() });
  let shown = [];
  let jobId = query.job ? null : "";
  const groups = await get(at("/groups", { limit: 1000 }), signal).catch(() => ({ items: [] }));
  const body = [
    h("h1", {}, "Runs"),
    filter("/runs", query, [
      { name: "job", label: "Job, by name or id" },
      { name: "state", label: "State", options: [["", "any"], ...STATES.map(state => [state, state])] },
      { name: "kind", label: "Kind", options: KINDS },
      { name: "group", label: "Group", options: [["", "any"], ...groups.items.map(({ name }) => [name, name])] },
      { name: "sort", label: "Order", options: [["", "newest first"], ["creationTime", "oldest first"]] },
    ]),
    chosen.bar, list,
  ];
  const isFiltered = query.job || query.state || query.kind || query.group || query.cursor;
  const empty = isFiltered ? "No run matches the filter." : h("p", {}, "Nothing has run yet. Trigger ", link("/jobs", "a job"), ".");
  await page.live(2000, async () => {
    if (jobId === null) jobId = await jobNamed(query.job, signal);
    if (jobId === undefined) {
      patch(list, h("div", { class: "empty" }, "No job has this name or id. Use the id to find a deleted job."));
    } else {
      const { state, kind, group, sort, cursor } = query;
      const { items, nextCursor } = await get(at("/runs", { state, kind, group, sort, cursor, jobId, limit: 50 }), signal);
      const made = sortable("/runs", query, "creationTime", "Made", { usual: "-creationTime" });
      patch(list, runTable(items, empty, { first: chosen, made, counted: items.some(run => run.kind === "block") }), pages("/runs", query, nextCursor));
      shown = items;
    }
    page.mount(() => body);
    chosen.drawn(shown);
  });
}
