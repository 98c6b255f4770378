// One run: where it is and why, what it brought, its log while it grows.

import { at, brokerNow, get, getOnce, post } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, facts, h, link, patch, section, table } from "./dom.js";
import { failures } from "./failures.js";
import { logOf } from "./log.js";
import { took } from "./overview.js";
import { progress, rates } from "./progress.js";
import { failedRequests, pendingRequests } from "./requests.js";
import { blockResults, ownResult } from "./results.js";
import { runSites, sitesOf } from "./sites.js";
import { attemptTable, attemptsOf, timeline } from "./timeline.js";
import { badge, jobLink, named, nodeName, num, runLink, short, span, time, waits, withLocalTimes } from "./text.js";

const OVER = new Set(["success", "failed", "stopped"]);
// Blocks that the time line shows: one page of the list.
const BLOCKS = 1000;
const BLOCKS_EVERY = 5000;
// Characters of its arguments that are shown.
const ARGUMENTS = 2000;

function stop(run, again) {
  return ask({
    title: `Stop this run of ${run.jobName}?`, text: "Its work is cancelled, and what waits in its queue is dropped.", action: "Stop the run",
    danger: true, act: () => post(at(`/runs/${run.identity}/stop`)),
  }).then(done => done && tell("The run is stopping.")).then(again);
}

function retry(run) {
  return ask({
    title: `Run ${run.jobName} once more?`, text: "A new run with the same arguments; this one stays as it is.", action: "Run again",
    act: () => post(at(`/runs/${run.identity}/retry`)),
  }).then(made => { if (made) location.hash = `/runs/${made.identity}`; });
}

// It can be undone, so nothing is asked first.
function setPaused(run, word) {
  return post(at(`/runs/${run.identity}/${word}`)).then(() => tell(word === "pause" ? "The run is paused." : "The run goes on."), problem => tell(problem.message, "bad"));
}

function pauseButton(run, again) {
  const word = run.pausedAt ? "resume" : "pause";
  return button(run.pausedAt ? "Resume" : "Pause", () => setPaused(run, word).then(again));
}

// How long a task will still take, if it goes on as it did so far. When a later attempt began is not known here.
function timeLeft({ progress: percent, startTime, attempt }) {
  const soFar = brokerNow() - new Date(startTime);
  return percent > 0 && percent < 100 && attempt === 1 && soFar > 0 ? `; about ${span(soFar * (100 - percent) / percent)} left at this rate` : "";
}

function head(run, again) {
  const over = OVER.has(run.state);
  return [
    h("div", { class: "row title" }, h("h1", {}, "Run of ", jobLink(run.jobId, run.jobName)), badge(run.state), waits(run), run.pausedAt && badge("paused"),
      !over && run.kind === "block" && pauseButton(run, again), over ? button("Run again …", () => retry(run)) : button("Stop …", () => stop(run, again), "danger")),
    run.reason && h("p", { class: run.state === "failed" ? "error" : "" }, run.reason),
    !over && run.progress !== undefined && h("p", {}, h("progress", { max: 100, value: run.progress, "aria-label": `${run.progress} %` }),
      ` ${run.progress} % `, run.progressText ?? "", h("span", { class: "soft" }, timeLeft(run))),
  ];
}

const beginning = text => text.length > ARGUMENTS ? `${text.slice(0, ARGUMENTS)}…` : text;

function counters(run, worker) {
  const counted = run.kind === "block" ? [
    ["Blocks sent to nodes", `${num(run.blockTimes)} times`], ["URLs seen", num(run.seen)], ["Downloaded", `${num(run.bytes)} bytes`],
  ] : [];
  return facts([
    ["Identity", h("code", {}, run.identity)], ["Kind", run.kind], [run.kind === "callback" ? "Request" : "Name", run.className],
    ["Attempt", run.attempt || ""], ["Next attempt", time(run.notBefore)], ["Priority", run.priority],
    ["Scheduled for", time(run.plannedAt)], ["Created", time(run.creationTime)], ["Started", time(run.startTime)], ["Ended", time(run.finishTime)], ["Paused", time(run.pausedAt)],
    ["Took", took(run)], ["Worker", run.workerId && [link(`/workers/${run.workerId}`, worker ?? short(run.workerId)), worker && [" ", short(run.workerId)]]], ["Repeats", runLink(run.retryOf)],
    ["Follows", runLink(run.after)], ["Trace", run.traceId && h("code", {}, run.traceId)],
    ["Arguments", run.arguments !== undefined && h("code", { class: "wrap" }, beginning(JSON.stringify(run.arguments)))], ...counted, ...crawling(run),
  ]);
}

const ROBOTS = { obey: "obeyed", ignore: "ignored", public: "obeyed at public hosts" };

// How a block run treats sites, as it was when the run was created.
function crawling(run) {
  const of = run.crawling;
  if (!of) return [];
  return [
    ["robots.txt", ROBOTS[of.robots] ?? of.robots],
    ["Delay", of.delay === undefined ? "default" : `${num(of.delay)} ms`], ["At once per site", of.perSite ?? "default"], ["A site is a", of.siteBy],
    ["Redirects", `${of.redirects === "follow" ? "followed by the node" : "requests"}, at most ${of.maxRedirects}`],
    ["User agent", of.userAgent ?? ""], ["Headers go to", of.hosts?.join(", ") ?? ""], ["Depth limit", of.depthLimit ?? ""],
    ["Most requests", of.maxRequests && num(of.maxRequests)], ["Most per site", of.maxPerSite && num(of.maxPerSite)], ["Most bytes", of.maxBytes && num(of.maxBytes)],
  ];
}

function instanceTable(items) {
  return table("Instances", [["No", "n"], "Host", ["Attempt", "n"], "State", "Result", ["Lines", "n"], "Began", "Ended", "Reason"],
    items.map(one => ({
      key: one.instance,
      cells: [one.instance, one.peer ? named(one.peerName, one.peer) : "", one.attempt, badge(one.state), one.result ? h("code", { class: "wrap" }, JSON.stringify(one.result)) : "",
        num(one.lines), time(one.startTime), time(one.finishTime), h("span", { class: "reason" }, one.reason ?? "")],
    })), "");
}

function nodeTable(items) {
  return table("Nodes", ["Node", ["Left", "n"], ["Success", "n"], ["Error", "n"], ["Total", "n"], "Last report"],
    items.map(one => ({ key: one.nodeId ?? "all", cells: [one.nodeId ? named(nodeName(one.nodeId, one.nodeName), one.nodeId) : "all", num(one.left), num(one.success), num(one.error), num(one.total), time(one.updateTime)] })), "");
}

// A broker that stands by, or is building the run's actor, knows no sites; the rest of the page is shown all the same.
function noSites(error) {
  if (error.status !== 503) throw error;
}

// Where a URL is in the run: asked when the form is sent, not with each look.
function urlForm(id) {
  const url = h("input", { id: "u-url", type: "url", required: true, placeholder: "https://example.com/page", "aria-describedby": "u-answer" });
  const answer = h("div", { id: "u-answer", role: "status" });
  const show = (...lines) => answer.replaceChildren(...lines.map(([text, kind]) => h("p", { class: kind }, withLocalTimes(text))));
  return h("form", {
    class: "filter", onsubmit: async event => {
      event.preventDefault();
      try {
        const why = await get(at(`/runs/${id}/why-url`, { url: url.value }));
        show([`${why.verdict} (${why.rule})`], ...why.because.map(text => [text]));
      } catch (problem) {
        show([problem.message, "error"]);
      }
    },
  }, h("div", {}, h("label", { for: "u-url" }, "URL"), url), h("button", {}, "Find"), answer);
}

export async function run(page) {
  const { signal, parts: [id] } = page;
  const [top, numbers, attempts, moving, why, result, more, asked] = Array.from({ length: 8 }, () => h("div"));
  const line = timeline();
  const rate = rates();
  const failed = failures(id, () => isOver, () => page.wake?.());
  const readSites = sitesOf(id, noSites);
  let isOver = false;
  let [blocks, blocksAt] = [[], 0];

  const ofBlocks = () => [
    section("Progress", moving), section("Failed requests", failed.box, failedRequests(id, () => isOver), !isOver && pendingRequests(id)),
    section("Find a URL", urlForm(id)), section("Results", blockResults(id, () => isOver)),
  ];
  // The lanes of the nodes of a small run; a large one has too many blocks to draw, or to read each second.
  async function readBlocks(now) {
    if (now.kind !== "block" || now.blocks.total > BLOCKS || Date.now() - blocksAt < BLOCKS_EVERY) return;
    blocks = (await get(at(`/runs/${id}/blocks`, { limit: BLOCKS }), signal)).items;
    blocksAt = Date.now();
  }
  // The name of its worker. A worker may be gone, and a token that is limited to groups does not see workers.
  let worker = {};
  async function readWorker({ workerId }) {
    if (!workerId || worker.id === workerId) return;
    worker = { id: workerId, name: (await getOnce(at(`/workers/${workerId}`), signal).catch(() => ({}))).name };
  }
  const look = async () => {
    const now = await get(at(`/runs/${encodeURIComponent(id)}`), signal);
    await readWorker(now);
    isOver = OVER.has(now.state);
    page.title(`Run of ${now.jobName}`);
    patch(top, head(now, () => page.wake?.()));
    patch(numbers, counters(now, worker.name));
    const isBlock = now.kind === "block";
    const [reasons, instances, earlier, perNode, sites] = await Promise.all([
      get(at(`/runs/${id}/why`), signal),
      now.kind === "application" || now.kind === "task" ? get(at(`/runs/${id}/instances`, { limit: 1000 }), signal) : { items: [] },
      get(at(`/runs/${id}/attempts`, { limit: 1000 }), signal),
      isBlock ? get(at(`/runs/${id}/status`), signal) : [],
      isBlock && readSites(isOver, signal),
      readBlocks(now),
      isBlock && failed.look(now, signal),
    ]);
    const tried = attemptsOf(now, instances.items.length > 1 || !now.workerId ? instances.items : [], earlier.items, worker.name);
    patch(attempts, earlier.items.length > 0 && [h("h3", {}, "Attempts"), attemptTable(now, tried)]);
    patch(why, reasons.because.map(text => h("p", {}, withLocalTimes(text))));
    if (isBlock) patch(moving, progress(now, isOver ? undefined : rate(Date.now(), now.success + now.error, now.bytes)));
    patch(result, !isBlock && (now.result !== undefined || instances.items.some(one => one.result !== undefined)) && section("Result", ownResult(now, instances.items)));
    patch(more, instances.items.length > (now.workerId ? 1 : 0) && section("Instances", instanceTable(instances.items)), perNode.length > 1 && section("Nodes", nodeTable(perNode)));
    patch(asked, sites && now.blocks.total > 0 && section(sites.nextCursor ? "The first 100 sites" : "Sites", runSites(sites.items, () => page.wake?.())));
    page.mount(() => [top, numbers, section("Status explained", why), section("Time line", line.root, attempts), ...(isBlock ? ofBlocks() : []), result, more, asked, logOf(id, signal)]);
    line.show(now, tried, blocks);
    return isOver ? 15000 : undefined;
  };
  await page.live(1000, look);
}
