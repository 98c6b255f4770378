// The overview: what needs attention, plots of a period, and the latest runs, live.

import { at, brokerNow, get } from "./api.js";
import { h, link, patch, section, table } from "./dom.js";
import { plots } from "./plots.js";
import { badge, command, jobLink, num, runLink, span, time, waits, when, withLocalTimes } from "./text.js";

function bar(run) {
  // A task says how far it is; of a block job the requests are counted.
  const [done, all] = run.total ? [run.success + run.error, run.total] : [run.progress ?? (run.state === "success" ? 100 : 0), 100];
  const text = run.total ? `${num(done)} of ${num(all)}` : `${done} %`;
  return h("progress", { max: all, value: done, title: text, "aria-label": text });
}

export function took(run) {
  return run.startTime ? span(new Date(run.finishTime ?? brokerNow()) - new Date(run.startTime)) : "";
}

// A list of runs: here, of all, or of one job, which need not be named then. Only runs of block jobs count requests.
export function runTable(items, empty, { named = true, counted = true, first, made = "Made" } = {}) {
  const count = (run, n) => (run.kind === "block" ? num(n) : "");
  const columns = [
    first && [first.head(), first.cell], ["Run", run => runLink(run.identity)], named && ["Job", run => jobLink(run.jobId, run.jobName)], ["State", run => [badge(run.state), waits(run), run.pausedAt && badge("paused")]], ["Done", bar],
    ...(counted ? [[["Left", "n"], run => count(run, run.left)], [["Success", "n"], run => count(run, run.success)], [["Error", "n"], run => count(run, run.error)],
      [["Total", "n"], run => count(run, run.total)], [["Out", "n"], run => count(run, run.consuming)]] : []),
    [["Priority", "n"], run => run.priority], [made, run => time(run.creationTime)], [["Took", "n"], took], ["Reason", run => h("span", { class: "reason" }, run.reason ?? "")],
  ].filter(Boolean);
  return table("Runs", columns.map(([head]) => head), items.map(run => ({ key: run.identity, cells: columns.map(([, cell]) => cell(run)) })), empty);
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

// Kind of a warning, what it is called, and where it leads.
const WARNINGS = {
  disk: ["Disk nearly full", () => "/brokers"],
  "failed-job": ["Failed", one => `/runs/${one.runId}`],
  "silent-job": ["Silent", one => `/jobs/${one.jobId}`],
  "missed-job": ["Missed", one => `/jobs/${one.jobId}`],
  "late-job": ["Late", one => `/runs/${one.runId}`],
  "waiting-run": ["Waiting", one => `/runs/${one.runId}`],
  "lost-node": ["Node lost", one => (one.nodeId ? `/nodes/${one.nodeId}` : "/nodes")],
  "held-site": ["Site on hold", one => `/sites?name=${encodeURIComponent(one.name)}`],
};
// Entries of each kind that are shown; the others are folded.
const SHOWN = 3;

function warningRow(one) {
  const [word, target] = WARNINGS[one.kind] ?? [one.kind, () => undefined];
  const to = target(one);
  return h("li", { "data-key": `${one.kind}/${one.jobId ?? one.nodeId ?? one.name}/${one.runId ?? ""}` },
    h("span", { class: `kind ${one.kind}` }, word), " ", to ? link(to, one.name) : one.name,
    one.reason && h("span", { class: "soft" }, " ", withLocalTimes(one.reason)), " ", one.at && when(one.at));
}

function warningList(items) {
  if (!items.length) return h("p", { class: "fine" }, "Nothing needs attention.");
  return Object.keys(WARNINGS).map(kind => {
    const some = items.filter(one => one.kind === kind);
    if (!some.length) return null;
    const rest = some.slice(SHOWN);
    return h("div", { "data-key": kind }, h("ul", { class: "warnings" }, some.slice(0, SHOWN).map(warningRow)),
      rest.length > 0 && h("details", {}, h("summary", {}, `${rest.length} more: ${WARNINGS[kind][0].toLowerCase()}`), h("ul", { class: "warnings" }, rest.map(warningRow))));
  });
}

const latest = column => column?.findLast(value => value !== null);
const total = column => (column ?? []).reduce((sum, value) => sum + (value ?? 0), 0);

// The most important numbers, in figures.
function tiles({ values }, { values: now }) {
  const tile = (name, value, to, kind) => h("div", { "data-key": name, class: `tile ${kind || ""}` },
    h("a", { href: `#${to}` }, h("b", {}, value === undefined ? "–" : num(Math.round(value))), h("span", {}, name)));
  const failed = total(values["runs.failed"]);
  return [
    tile("running", latest(now["runs.running.max"]), "/runs?state=running"), tile("waiting", latest(now["runs.waiting.max"]), "/runs?state=pending"),
    tile("succeeded", total(values["runs.success"]), "/runs?state=success"), tile("failed", failed, "/runs?state=failed", failed && "bad"),
    tile("missed", total(values["fires.missed"]), "/jobs", total(values["fires.missed"]) && "bad"),
    tile("nodes", latest(now["nodes.online.max"]), "/nodes"), tile("workers", latest(now["workers.online.max"]), "/workers"),
  ];
}

// A token that is limited to groups sees its runs, but not what concerns the whole broker.
const unlessForbidden = answer => answer.catch(error => {
  if (error.status !== 403) throw error;
});

export async function overview(page) {
  page.title("Overview");
  const [warnings, figures, runs] = [h("div"), h("div", { class: "tiles" }), h("div")];
  const shown = plots(page.query, page.signal);
  const body = [h("div", { class: "row title" }, h("h1", {}, "Overview"), shown.choice), section("Needs attention", warnings),
    section("In this period", figures, shown.grid), section("Runs", runs)];
  let series;
  let loaded = 0;
  await page.live(2000, async () => {
    const isOld = Date.now() - loaded >= shown.every;
    const [recent, fresh, list, lastHour] = await Promise.all([get(at("/runs", { limit: 10 }), page.signal),
      isOld && unlessForbidden(shown.load(page.signal)), isOld && unlessForbidden(get(at("/warnings"), page.signal)), isOld && !shown.isFine && unlessForbidden(get(at("/series"), page.signal))]);
    if (isOld) {
      series = fresh;
      loaded = Date.now();
      patch(warnings, list ? warningList(list.items) : h("p", { class: "soft" }, "This token is limited to groups of jobs. It does not see what concerns the whole broker."));
      patch(figures, series && tiles(series, lastHour || series));
    }
    patch(runs, runTable(recent.items, firstSteps(), { counted: recent.items.some(run => run.kind === "block") }), recent.nextCursor && h("p", {}, link("/runs", "All runs")));
    page.mount(() => body);
    if (isOld && series) shown.show(series);
  });
}
