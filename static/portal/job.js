// One job: what it is, when it comes, what became of its instants, its runs; and what can be done with it.

import { at, get } from "./api.js";
import { tell } from "./dialog.js";
import { disableJob, deleteJob, enableJob, triggerJob } from "./acts.js";
import { calendar } from "./coming.js";
import { address, button, facts, h, link, patch, section, table } from "./dom.js";
import { successors } from "./follow.js";
import { heat } from "./heat.js";
import { hooks } from "./hooks.js";
import { runTable } from "./overview.js";
import { jobState } from "./jobs.js";
import { repair } from "./repair.js";
import { exactSpan, json, local, num, runLink, scheduleText, time, when, withLocalTimes } from "./text.js";
import { jobFile } from "./transfer.js";
import { versions } from "./versions.js";
import { instantOf, zoneHere } from "./zone.js";

const LEDGER = 15;

function head(job, again) {
  const act = (text, ask, kind) => button(text, () => ask(job).then(again), kind);
  return [
    h("div", { class: "row title" }, h("h1", {}, job.name), jobState(job),
      job.isEnabled && act("Trigger …", triggerJob, "main"), h("a", { class: "button", href: `#/jobs/${job.id}/edit` }, "Edit"),
      h("a", { class: "button", href: `#${address("/jobs/new", { from: job.id })}` }, "Clone"), button("Save as JSON", () => jobFile(job)),
      job.isEnabled ? act("Disable …", disableJob) : act("Enable", enableJob),
      button("Delete …", () => deleteJob(job).then(done => { if (done) location.hash = "/jobs"; }), "danger")),
    !job.isEnabled && h("p", { class: "warn" }, "This job is disabled", job.disabledReason ? `: ${job.disabledReason}` : "", ". Neither its schedule nor a trigger starts it."),
    job.description && h("p", {}, job.description),
  ];
}

function what(job) {
  if (job.jobType === "task") return ["Task", job.task?.handler ?? job.properties.FullClassName];
  if (job.jobType === "callback") return ["Request", `${job.callback.method ?? (job.callback.body ? "POST" : "GET")} ${job.callback.url}`];
  if (job.jobType === "application") return ["Program", job.properties.Application];
  return ["Class", job.properties.FullClassName ?? job.properties.Application];
}

function definition(job) {
  const { policies = {} } = job;
  return [facts([
    ["Kind", job.jobType], what(job), ["Schedule", scheduleText(job.schedule)], ["Zone", job.schedule && (job.schedule.zone ?? "UTC")],
    ["Next fire", job.isEnabled ? when(job.nextFire) : ""], ["Last fire", time(job.lastFire)], ["Scheduled runs", num(job.fires)],
    ["Failed in a row", job.failures ? num(job.failures) : ""], ["Group", job.group && link(address("/jobs", { group: job.group }), job.group)],
    ["Priority", job.priority || ""], ["Overlap", policies.overlap], ["Retries", policies.retry?.limit], ["Timeout", policies.timeout && exactSpan(policies.timeout)],
    ["Then", (job.successors ?? []).map(next => `${next.job} (on ${next.on})`).join(", ")], ["Version", job.version],
    ["Created", [time(job.creationTime), job.createBy ? ` by ${job.createBy}` : ""]], ["Changed", [time(job.updateTime), job.updateBy ? ` by ${job.updateBy}` : ""]],
  ]), h("details", {}, h("summary", {}, "The whole definition"), json(job))];
}

// The fires that come, in the job's zone and in the browser's. The job form shows the same.
export function preview({ zone, fires, understood, remarks = [] }) {
  // One column is enough where the job's zone and the browser's are the same.
  const isHere = zone === zoneHere;
  const rows = fires.map(fire => ({
    key: fire.at,
    cells: [fire.local.replace("T", " "), ...(isHere ? [] : [local(new Date(fire.at))]), h("span", { class: "wrap" }, [fire.kind === "plan" ? "" : fire.kind, fire.note, fire.blackout && `no run: ${fire.blackout}`].filter(Boolean).join("; "))],
  }));
  return [
    table("Next fires", [`In the job's zone, ${zone}`, ...(isHere ? [] : [`Here, ${zoneHere}`]), "Remarks"], rows, "The schedule has no coming times."),
    remarks.map(text => h("p", { class: "soft" }, text)),
    understood.length > 0 && h("p", { class: "soft" }, "Understood as ", understood.map(text => [h("code", {}, text), " "])),
  ];
}

// The ledger: pages of it beneath each other, and for each instant the whole reason.
function ledger(id, signal) {
  const box = h("div");
  const verdict = h("select", { id: "v", onchange: () => asked() }, ["", "fired", "skipped", "missed", "merged"].map(name => h("option", { value: name }, name || "any")));
  const news = h("p", { class: "soft", role: "status" });
  let rows = [];
  // Who has gone further down in it, or asked why, is left there.
  let isRead = false;

  const why = async (fire, at_) => {
    isRead = true;
    const answer = await get(at(`/jobs/${id}/why`, { at: fire.plannedAt }), signal).catch(error => ({ because: [error.message] }));
    at_.replaceWith(h("span", { class: "wrap" }, withLocalTimes(answer.because.join(" "))));
  };
  const row = fire => {
    const instants = fire.instants > 1 ? ` to ${local(new Date(fire.plannedUntil))} (${num(fire.instants)})` : "";
    const ask = button("Why?", event => why(fire, event.target));
    return {
      key: `${fire.plannedAt}/${fire.kind}`,
      cells: [[time(fire.plannedAt), instants], fire.kind, h("span", { class: `state ${fire.verdict}` }, fire.verdict), fire.rule ?? "",
        h("span", { class: "wrap" }, withLocalTimes(fire.reason ?? "")), runLink(fire.identity), ask],
    };
  };
  const look = async after => {
    if (after) isRead = true;
    const { items, nextCursor } = await get(at(`/jobs/${id}/fires`, { verdict: verdict.value, cursor: after, limit: LEDGER }), signal);
    rows = after ? [...rows, ...items] : items;
    isRead = Boolean(after);
    news.textContent = "";
    box.replaceChildren(table("Fire history", ["Scheduled for", "Kind", "Verdict", "Rule", "Reason", "Run", "Why"], rows.map(row), "No scheduled time has come yet."));
    if (nextCursor) box.append(button("Older", () => asked(nextCursor)));
  };
  const asked = after => look(after).catch(error => signal.aborted || tell(error.message, "bad"));
  const part = section("Fire history", h("div", { class: "filter" }, h("div", {}, h("label", { for: "v" }, "Verdict"), verdict),
    button("Refresh", () => asked()), news), box);
  const changed = () => {
    if (!isRead) return look();
    news.textContent = "There may be newer rows. Refresh to see them.";
    return undefined;
  };
  return { part, changed };
}

// Why any time made a run, or none: asked when the form is sent.
function explain(id, signal) {
  const when = h("input", { id: "w-at", type: "datetime-local", step: 1, required: true, value: local(new Date()).replace(" ", "T") });
  const answer = h("div", { role: "status" });
  return h("div", {}, h("form", {
    class: "filter", onsubmit: async event => {
      event.preventDefault();
      try {
        const why = await get(at(`/jobs/${id}/why`, { at: instantOf(when.value).toISOString() }), signal);
        patch(answer, h("p", {}, h("b", {}, why.verdict), ` (${why.rule}) `, runLink(why.identity)), why.because.map(text => h("p", {}, withLocalTimes(text))));
      } catch (problem) {
        patch(answer, h("p", { class: "error" }, problem.message));
      }
    },
  }, h("div", {}, h("label", { for: "w-at" }, `Time, here (${zoneHere})`), when), h("button", {}, "Explain this time")), answer);
}

export async function job(page) {
  const { signal, parts: [id] } = page;
  const [top, facts_, next, runs, after] = Array.from({ length: 5 }, () => h("div"));
  const fires = ledger(id, signal);
  const days = calendar(id, signal);
  const brought = heat(id, signal);
  const past = versions(id, signal);
  const hooked = hooks(id, signal);
  const again = () => page.wake?.();
  let [seen, followed] = [];
  const look = async () => {
    const now = await get(at(`/jobs/${encodeURIComponent(id)}`), signal);
    page.title(now.name);
    const [coming, latest] = await Promise.all([get(at(`/jobs/${id}/next`), signal), get(at("/runs", { jobId: id, limit: 10 }), signal), days.look(now)]);
    patch(top, head(now, again));
    patch(facts_, definition(now));
    patch(next, preview(coming));
    patch(runs, runTable(latest.items, "It has not run yet. Trigger it, or give it a schedule.", { named: false, counted: now.jobType === "block" }),
      latest.nextCursor && h("p", {}, link(address("/runs", { job: id }), "All its runs")));
    // What was decided or changed shows in these; else the ledger is left as the reader has it.
    const mark = `${now.version} ${now.fires} ${now.lastFire}`;
    if (mark !== seen) {
      await Promise.all([fires.changed(), past.look(), hooked.look()]);
      seen = mark;
    }
    if (followed !== now.version) {
      const tree = await successors(now, signal);
      patch(after, tree && section("Jobs that follow", tree));
      followed = now.version;
    }
    await brought.look(latest.items.map(run => `${run.identity} ${run.state}`).join());
    page.mount(() => [top, facts_, section("Next fires", next, section("Calendar", days.root)), section("Runs", runs), section("Results by hour", brought.root), after, fires.part,
      section("Why a time made a run, or none", explain(id, signal)), repair(now, again), hooked.part, section("Versions", past.root)]);
    brought.show();
  };
  await page.live(2000, look);
}
