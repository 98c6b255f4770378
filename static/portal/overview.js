// The overview: runs with their counters, and the tree of actors, live.

import { at, get } from "./api.js";
import { code, h, link, patch, section, table } from "./dom.js";
import { badge, command, jobLink, num, runLink, span, time, waits } from "./text.js";

function bar(run) {
  // A task says how far it is; of a block job the requests are counted.
  const [done, all] = run.total ? [run.success + run.error, run.total] : [run.progress ?? (run.state === "success" ? 100 : 0), 100];
  const text = run.total ? `${num(done)} of ${num(all)}` : `${done} %`;
  return h("progress", { max: all, value: done, title: text, "aria-label": text });
}

export function took(run) {
  return run.startTime ? span(new Date(run.finishTime ?? Date.now()) - new Date(run.startTime)) : "";
}

// A list of runs: here, of all, or of one job, which need not be named then. Only runs of block jobs count requests.
export function runTable(items, empty, { named = true, counted = true } = {}) {
  const count = (run, n) => (run.kind === "block" ? num(n) : "");
  const columns = [
    ["Run", run => runLink(run.identity)], named && ["Job", run => jobLink(run.jobId, run.jobName)], ["State", run => [badge(run.state), waits(run), run.pausedAt && badge("paused")]], ["Done", bar],
    ...(counted ? [[["Left", "n"], run => count(run, run.left)], [["Success", "n"], run => count(run, run.success)], [["Error", "n"], run => count(run, run.error)],
      [["Total", "n"], run => count(run, run.total)], [["Out", "n"], run => count(run, run.consuming)]] : []),
    [["Priority", "n"], run => run.priority], ["Made", run => time(run.creationTime)], [["Took", "n"], took], ["Reason", run => h("span", { class: "reason" }, run.reason ?? "")],
  ].filter(Boolean);
  return table("Runs", columns.map(([head]) => head), items.map(run => ({ key: run.identity, cells: columns.map(([, cell]) => cell(run)) })), empty);
}

const ORDER = { registry: 0, dispatcher: 1, persistence: 2 };
const byKind = (a, b) => (ORDER[a.kind] ?? 9) - (ORDER[b.kind] ?? 9) || a.kind.localeCompare(b.kind);

// Parents first, each followed by its children.
function tree(actors) {
  const names = new Set(actors.map(actor => actor.name));
  const roots = actors.filter(actor => !actor.parent || !names.has(actor.parent)).sort(byKind);
  return roots.flatMap(root => [root, ...actors.filter(actor => actor.parent === root.name).sort(byKind)]);
}

function actorRow(actor) {
  return {
    key: `${actor.kind}/${actor.name}`,
    kind: actor.parent ? "child" : undefined,
    cells: [actor.kind, actor.label ? [actor.label, " ", code(actor.name)] : code(actor.name), badge(actor.state), span(actor.age), num(actor.restarts), num(actor.queueDepth),
      num(actor.messagesHandled), h("span", { class: "reason" }, actor.lastError ?? "")],
  };
}

function firstSteps() {
  const broker = location.origin;
  return [
    h("p", {}, "Nothing has run yet. Make a ", link("/jobs/new", "job"), " and trigger it. To see one run, start the example worker from a clone of the project, and create a job for it:"),
    command(`python3 examples/tasks.py ${broker} &`, "worker"),
    command(`webloom job create --broker ${broker} --name walk --handler python.walk --payload '{"steps":30}'`, "admin"),
    h("p", {}, "Then open the job ", link("/jobs", "in the list"), " and trigger it."),
  ];
}

export async function overview(page) {
  page.title("Overview");
  const runs = h("div");
  const actors = h("div");
  const body = [h("h1", {}, "Overview"), section("Runs", runs), section("Actors", actors)];
  await page.live(1000, async () => {
    const [all, latest] = await Promise.all([get(at("/actors"), page.signal), get(at("/runs", { limit: 25 }), page.signal)]);
    patch(runs, runTable(latest.items, firstSteps()), latest.nextCursor && h("p", {}, link("/runs", "All runs")));
    patch(actors, table("Actors",
      ["Kind", "Name", "State", ["Age", "n"], ["Restarts", "n"], ["Queue", "n"], ["Messages", "n"], "Last error"],
      tree(all).map(actorRow), "no actors"));
    page.mount(() => body);
  });
}
