// The list of jobs.

import { at, get, getOnce, post } from "./api.js";
import { JOB_ACTIONS } from "./acts.js";
import { ask, tell } from "./dialog.js";
import { button, h, link, pages, patch, table } from "./dom.js";
import { KINDS, filter } from "./filter.js";
import { sortable } from "./order.js";
import { chooser } from "./several.js";
import { importJobs } from "./transfer.js";
import { badge, command, jobLink, scheduleText, time, when } from "./text.js";

const PAGE = 25;
const AT_ONCE = 6;
// Milliseconds between two reads of the latest runs: each is a call of its own, so they are not watched.
const RUNS_EVERY = 4000;

// The latest run of each job, a few calls at a time.
async function latestRuns(jobs, signal) {
  const left = [...jobs];
  const found = new Map();
  const work = async () => {
    for (let job = left.shift(); job; job = left.shift()) {
      const { items } = await getOnce(at("/runs", { jobId: job.id, limit: 1 }), signal);
      found.set(job.id, items[0]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

export const jobState = job => (job.isEnabled ? badge("enabled") : badge("disabled", job.disabledReason));

function lastRun(run) {
  return run ? [link(`/runs/${run.identity}`, badge(run.state, run.reason)), " ", time(run.creationTime)] : "";
}

function row(job, run, box) {
  return {
    key: job.id,
    cells: [box, jobLink(job.id, job.name), job.jobType, jobState(job), h("span", { class: "wrap" }, scheduleText(job.schedule)),
      job.isEnabled ? when(job.nextFire) : "", lastRun(run), job.group ?? ""],
  };
}

function deletedRow(job, again) {
  const restore = () => ask({
    title: `Restore ${job.name}`, text: "The deletion is taken back. The job is disabled until you enable it.", action: "Restore",
    act: () => post(at(`/jobs/${job.id}/restore`)),
  }).then(done => done && tell(`${job.name} is there again, and disabled.`)).then(again);
  const purge = () => ask({
    title: `Purge ${job.name}`, text: "The job and its past are taken out of the store. This cannot be taken back.",
    word: job.name, action: "Purge", danger: true, act: () => post(at(`/jobs/${job.id}/purge`)),
  }).then(done => done && tell(`${job.name} is gone.`)).then(again);
  return { key: job.id, cells: [job.name, job.jobType, time(job.updateTime), h("div", { class: "row" }, button("Restore", restore), button("Purge …", purge))] };
}

function firstJob() {
  return [
    h("p", {}, "No jobs yet. A job says what to run and when. ", link("/jobs/new", "Create the first one"), ", or from a shell:"),
    command(`webloom job create --broker ${location.origin} --name titles --class demo.Titles --cron '*/15 * * * *'`, "admin"),
  ];
}

export async function jobs(page) {
  page.title("Jobs");
  const { query, signal } = page;
  const list = h("div");
  const chosen = chooser({ noun: "jobs", key: job => job.id, nameOf: job => job.name, actions: JOB_ACTIONS, again: () => page.wake?.() });
  const deleted = query.enabled === "deleted";
  const isFiltered = ["name", "kind", "group", "enabled", "cursor"].some(name => query[name]);
  const bodyOf = groups => [
    h("div", { class: "row title" }, h("h1", {}, "Jobs"), h("a", { class: "button main", href: "#/jobs/new" }, "New job"), button("Import …", () => importJobs(() => page.wake?.()))),
    filter("/jobs", query, [
      { name: "name", label: "Name" },
      { name: "kind", label: "Kind", options: KINDS },
      { name: "group", label: "Group", options: [["", "any"], ...groups.items.map(({ name }) => [name, name])] },
      { name: "enabled", label: "State", options: [["", "any"], ["true", "enabled"], ["false", "disabled"], ["deleted", "deleted"]] },
      { name: "sort", label: "Order", options: [["name", "by name"], ["-name", "by name, backwards"], ["nextFire", "next fire first"], ["-nextFire", "next fire last"], ["-creationTime", "newest first"],
        ["creationTime", "oldest first"], ["-updateTime", "last changed first"], ["updateTime", "last changed last"]] },
    ]),
    chosen.bar, list,
  ];
  let [runs, runsAt] = [new Map(), 0];
  const look = async () => {
    const asked = { ...query, limit: PAGE, sort: query.sort || "name", ...(deleted && { enabled: "", deleted: true }) };
    const { items, nextCursor } = await get(at("/jobs", asked), signal);
    const again = () => look().catch(error => signal.aborted || tell(error.message, "bad"));
    let shown;
    if (deleted) {
      shown = table("Deleted jobs", ["Name", "Kind", "Deleted", "Actions"], items.map(job => deletedRow(job, again)), "No deleted jobs.");
    } else {
      if (Date.now() - runsAt >= RUNS_EVERY || items.some(job => !runs.has(job.id))) {
        runs = await latestRuns(items, signal);
        runsAt = Date.now();
      }
      shown = table("Jobs", [chosen.head(), sortable("/jobs", query, "name", "Name", { usual: "name" }), "Kind", "State", "Schedule", sortable("/jobs", query, "nextFire", "Next fire"), "Last run", "Group"],
        items.map(job => row(job, runs.get(job.id), chosen.cell(job))), isFiltered ? "No job matches the filter." : firstJob());
    }
    patch(list, shown, pages("/jobs", query, nextCursor));
    if (!page.isMounted) {
      const groups = await get(at("/groups", { limit: 1000 }), signal);
      page.mount(() => bodyOf(groups));
    }
    chosen.drawn(deleted ? [] : items);
  };
  await page.live(4000, look);
}
