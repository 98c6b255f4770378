// Runs that are missing are made, and runs that failed for good are repeated: each first shows what it would do.

import { at, post } from "./api.js";
import { tell } from "./dialog.js";
import { button, h, patch, section, table } from "./dom.js";
import { local, num, runLink, time } from "./text.js";
import { instantOf, zoneHere } from "./zone.js";

const MOST = 1000;
const field = (id, label, input) => h("div", {}, h("label", { for: id }, label), input);
const stamp = date => local(date).replace(" ", "T").slice(0, 16);

// A form whose second button does what the first one has shown, and only that.
function rehearsed({ fields, first, ask, shown, go, act }) {
  const box = h("div", { role: "status" });
  const problem = error => patch(box, h("p", { class: "error", role: "alert" }, error.message));
  const form = h("form", {
    class: "filter", oninput: () => patch(box), onsubmit: async event => {
      event.preventDefault();
      try {
        const plan = await ask();
        const doIt = async ({ target }) => {
          target.disabled = true;
          try {
            patch(box, act(await plan.run()));
          } catch (error) {
            problem(error);
          }
        };
        patch(box, shown(plan.answer), plan.count > 0 && h("p", {}, button(go(plan.count), doIt, "main")));
      } catch (error) {
        problem(error);
      }
    },
  }, fields, h("button", {}, first));
  return h("div", {}, form, box);
}

function backfill(id, again) {
  const now = new Date();
  const from = h("input", { id: "b-from", type: "datetime-local", required: true, value: stamp(new Date(now - 86400000)) });
  const to = h("input", { id: "b-to", type: "datetime-local", required: true, value: stamp(now) });
  const limit = h("input", { id: "b-limit", type: "number", min: 1, max: MOST, required: true, value: 100 });
  const call = input => post(at(`/jobs/${id}/backfill`), input);
  const note = ({ already, more }) => h("p", { class: "soft" }, `${num(already)} scheduled times in the range already have a run${more ? "; there are more times than the limit" : ""}.`);
  return rehearsed({
    fields: [field("b-from", `From (${zoneHere})`, from), field("b-to", "To", to), field("b-limit", "At most", limit)], first: "Show what it would make",
    ask: async () => {
      const input = { from: instantOf(from.value).toISOString(), to: instantOf(to.value).toISOString(), limit: Number(limit.value) };
      const answer = await call({ ...input, dryRun: true });
      return { answer, count: answer.fires.length, run: () => call(input) };
    },
    shown: answer => [note(answer), table("Runs that it would make", ["Scheduled for"], answer.fires.map(fire => ({ key: fire.plannedAt, cells: [time(fire.plannedAt)] })), "No scheduled time in this range lacks a run.")],
    go: count => `Make ${count === 1 ? "this run" : `these ${num(count)} runs`}`,
    act: done => {
      tell(`${num(done.fires.length)} ${done.fires.length === 1 ? "run is" : "runs are"} made.`);
      again();
      return table("Runs that were made", ["Scheduled for", "Run"], done.fires.map(fire => ({ key: fire.plannedAt, cells: [time(fire.plannedAt), runLink(fire.identity)] })), "Meanwhile all of them had a run.");
    },
  });
}

function redrive(id, again) {
  const call = dryRun => post(at(`/jobs/${id}/redrive`), { dryRun });
  return rehearsed({
    fields: [], first: "Show what it would repeat",
    ask: async () => {
      const answer = await call(true);
      return { answer, count: answer.dead.length, run: () => call(false) };
    },
    shown: answer => [table("Runs that it would repeat", ["Failed run"], answer.dead.map(run => ({ key: run, cells: [runLink(run)] })), "No run has failed for good that was not repeated."),
      answer.more && h("p", { class: "soft" }, "There are more: repeat these first.")],
    go: count => `Repeat ${count === 1 ? "this run" : `these ${num(count)} runs`}`,
    act: done => {
      tell(`${num(done.runs.length)} ${done.runs.length === 1 ? "run is" : "runs are"} repeated.`);
      again();
      const refused = new Map((done.refused ?? []).map(run => [run.retryOf, run.refused]));
      const made = done.runs[Symbol.iterator]();
      const cells = run => [runLink(run), refused.get(run) ?? runLink(made.next().value)];
      return table("Runs that were repeated", ["Failed run", "New run"], done.dead.map(run => ({ key: run, cells: cells(run) })), "Meanwhile all of them were repeated.");
    },
  });
}

export const repair = (job, again) => section("Repair", h("details", {}, h("summary", {}, "Repeat failed runs (redrive)"), redrive(job.id, again)),
  Boolean(job.schedule) && h("details", {}, h("summary", {}, "Make missing runs of a past time (backfill)"), backfill(job.id, again)));
