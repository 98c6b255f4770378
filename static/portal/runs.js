// The list of runs.

import { at, get } from "./api.js";
import { h, link, pages, patch } from "./dom.js";
import { KINDS, filter } from "./filter.js";
import { runTable } from "./overview.js";

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
  let jobId = query.job ? null : "";
  const body = [
    h("h1", {}, "Runs"),
    filter("/runs", query, [
      { name: "job", label: "Job, by name or id" },
      { name: "state", label: "State", options: [["", "any"], ...STATES.map(state => [state, state])] },
      { name: "kind", label: "Kind", options: KINDS },
    ]),
    list,
  ];
  const isFiltered = query.job || query.state || query.kind || query.cursor;
  const empty = isFiltered ? "No run matches the filter." : h("p", {}, "Nothing has run yet. Trigger ", link("/jobs", "a job"), ".");
  await page.live(2000, async () => {
    if (jobId === null) jobId = await jobNamed(query.job, signal);
    if (jobId === undefined) {
      patch(list, h("div", { class: "empty" }, "No job has this name or id. Use the id to find a deleted job."));
    } else {
      const { state, kind, cursor } = query;
      const { items, nextCursor } = await get(at("/runs", { state, kind, cursor, jobId, limit: 50 }), signal);
      patch(list, runTable(items, empty), pages("/runs", query, nextCursor));
    }
    page.mount(() => body);
  });
}
