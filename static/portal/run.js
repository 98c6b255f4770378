// One run: where it is and why, what it brought, its log while it grows.

import { at, events, get, post } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, facts, h, patch, section, table } from "./dom.js";
import { took } from "./overview.js";
import { failedRequests, pendingRequests } from "./requests.js";
import { runSites } from "./sites.js";
import { badge, jobLink, json, named, num, runLink, short, time, waits, withLocalTimes } from "./text.js";

const OVER = new Set(["success", "failed", "stopped"]);
// Lines that the page keeps; the broker keeps more.
const MOST_LINES = 2000;
const LEVELS = ["trace", "debug", "info", "warning", "error", "critical"];

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

function head(run, again) {
  const over = OVER.has(run.state);
  return [
    h("div", { class: "row title" }, h("h1", {}, "Run of ", jobLink(run.jobId, run.jobName)), badge(run.state), waits(run), run.pausedAt && badge("paused"),
      !over && run.kind === "block" && pauseButton(run, again), over ? button("Run again …", () => retry(run)) : button("Stop …", () => stop(run, again), "danger")),
    run.reason && h("p", { class: run.state === "failed" ? "error" : "" }, run.reason),
    !over && run.progress !== undefined && h("p", {}, h("progress", { max: 100, value: run.progress, "aria-label": `${run.progress} %` }),
      ` ${run.progress} % `, run.progressText ?? ""),
  ];
}

function counters(run) {
  const counted = run.kind === "block" ? [
    ["Requests", `${num(run.success)} succeeded, ${num(run.error)} failed, ${num(run.left)} left, ${num(run.total)} in total`],
    ["Blocks", `${num(run.blocks.ready)} ready, ${num(run.blocks.using)} at nodes, ${num(run.blocks.answered)} answered, ${num(run.blocks.total)} in total; sent to nodes ${num(run.blockTimes)} times`],
    ["URLs seen", num(run.seen)], ["Downloaded", `${num(run.bytes)} bytes`],
  ] : [];
  return facts([
    ["Identity", h("code", {}, run.identity)], ["Kind", run.kind], [run.kind === "callback" ? "Request" : "Name", run.className],
    ["Attempt", run.attempt || ""], ["Next attempt", time(run.notBefore)], ["Priority", run.priority],
    ["Scheduled for", time(run.plannedAt)], ["Created", time(run.creationTime)], ["Started", time(run.startTime)], ["Ended", time(run.finishTime)], ["Paused", time(run.pausedAt)],
    ["Took", took(run)], ["Worker", run.workerId ? short(run.workerId) : ""], ["Repeats", runLink(run.retryOf)],
    ["Follows", runLink(run.after)], ["Trace", run.traceId && h("code", {}, run.traceId)], ...counted,
  ]);
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
    items.map(one => ({ key: one.nodeId ?? "all", cells: [one.nodeId ? named(one.nodeName, one.nodeId) : "all", num(one.left), num(one.success), num(one.error), num(one.total), time(one.updateTime)] })), "");
}

// A broker that stands by, or is building the run's actor, knows no sites; the rest of the page is shown all the same.
function noSites(error) {
  if (error && error.status !== 503) throw error;
  return { items: [] };
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

// Waits until the page can be seen.
async function seen(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise(resolve => {
      for (const [target, name] of [[document, "visibilitychange"], [signal, "abort"]]) target.addEventListener(name, resolve, { once: true });
    });
  }
}

// The log, followed from its first line. It is begun anew when the filter changes.
function logOf(id, signal) {
  const lines = h("div", { class: "log", role: "log", tabindex: 0, "aria-label": "Log of the run", "aria-live": "off" });
  const state = h("span", { class: "soft" });
  const level = h("select", { id: "l-level", value: "trace" }, LEVELS.map(name => h("option", { value: name }, name)));
  const text = h("input", { id: "l-text", type: "search" });
  let reading = new AbortController();

  const lineOf = ({ at: instant, level: name, source, text: said }) =>
    h("div", { class: `line ${name}` }, time(instant), " ", h("span", { class: "level" }, name), " ", h("span", { class: "soft" }, source), " ", said);
  // What has come is shown once a frame: to ask for the layout at each line takes a tab's every moment.
  let [come, count, frame, word] = [[], 0, 0, ""];
  const say = text => {
    word = text;
    state.textContent = count > MOST_LINES ? `the last ${num(MOST_LINES)} of ${num(count)} lines; ${word}` : word;
  };
  const flush = () => {
    frame = 0;
    // Who reads further up is left there.
    const follows = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 20;
    const fresh = document.createDocumentFragment();
    fresh.append(...come.slice(-MOST_LINES).map(lineOf));
    come = [];
    for (let over = lines.childElementCount + fresh.childElementCount - MOST_LINES; over > 0 && lines.firstChild; over -= 1) lines.firstChild.remove();
    lines.append(fresh);
    if (follows) lines.scrollTop = lines.scrollHeight;
    say(word);
  };
  const add = line => {
    count += 1;
    come.push(line);
    // A hidden page has no frames.
    if (come.length > 2 * MOST_LINES) come = come.slice(-MOST_LINES);
    frame ||= requestAnimationFrame(flush);
  };
  const clear = () => {
    come = [];
    count = 0;
    lines.replaceChildren();
  };

  const read = async () => {
    reading.abort();
    reading = new AbortController();
    const mine = AbortSignal.any([reading.signal, signal]);
    clear();
    const own = new Set();
    for (let last; !mine.aborted;) {
      await seen(mine);
      // A page that nobody sees gives its connection back: a browser has six for all pages of a host.
      const stream = new AbortController();
      const hide = () => document.hidden && stream.abort();
      document.addEventListener("visibilitychange", hide);
      try {
        say("following");
        for await (const event of events(at(`/runs/${id}/logs/stream`, { level: level.value, text: text.value, after: last }), AbortSignal.any([mine, stream.signal]))) {
          // Lines of the id 0 come from the run's row, and come anew with each call: they do not say where to go on.
          const isOwn = !(Number(event.id) > 0);
          const again = isOwn && own.has(JSON.stringify(event.data));
          if (event.name === "line" && isOwn) own.add(JSON.stringify(event.data));
          if (event.name === "line" && !again) add(event.data);
          if (!isOwn) last = event.id;
          if (event.name === "problem") throw new Error(event.data.detail);
          if (event.name === "end") {
            say(count ? "the run is over; the log is complete" : "the run is over; no line of its log matches");
            return;
          }
        }
      } catch (error) {
        if (mine.aborted) return;
        if (!stream.signal.aborted) say(`cut off (${error.message}); trying again`);
      } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      if (!stream.signal.aborted) await new Promise(resolve => { setTimeout(resolve, 1000); });
    }
  };
  const form = h("form", { class: "filter", onsubmit: event => { event.preventDefault(); read(); }, onchange: read },
    h("div", {}, h("label", { for: "l-level" }, "Minimum level"), level), h("div", {}, h("label", { for: "l-text" }, "Containing"), text), state);
  read();
  return section("Log", form, lines);
}

const ofBlocks = (id, isOver) => [
  section("Find a URL", urlForm(id)), section("Requests", failedRequests(id, isOver), !isOver() && pendingRequests(id)),
];

export async function run(page) {
  const { signal, parts: [id] } = page;
  const [top, numbers, why, result, more, asked] = Array.from({ length: 6 }, () => h("div"));
  let isOver = false;
  const look = async () => {
    const now = await get(at(`/runs/${encodeURIComponent(id)}`), signal);
    isOver = OVER.has(now.state);
    page.title(`Run of ${now.jobName}`);
    patch(top, head(now, () => page.wake?.()));
    patch(numbers, counters(now));
    const [reasons, instances, perNode, sites] = await Promise.all([
      get(at(`/runs/${id}/why`), signal),
      now.kind === "application" || now.kind === "task" ? get(at(`/runs/${id}/instances`, { limit: 1000 }), signal) : { items: [] },
      now.kind === "block" ? get(at(`/runs/${id}/status`), signal) : [],
      now.kind === "block" && !OVER.has(now.state) ? get(at(`/runs/${id}/sites`, { limit: 100 }), signal).catch(noSites) : noSites(),
    ]);
    patch(why, reasons.because.map(text => h("p", {}, withLocalTimes(text))));
    patch(result, now.result !== undefined && section("Result", json(now.result)));
    patch(more, instances.items.length > (now.workerId ? 1 : 0) && section("Instances", instanceTable(instances.items)), perNode.length > 1 && section("Nodes", nodeTable(perNode)));
    patch(asked, sites.items.length > 0 && section(sites.nextCursor ? "The first 100 sites" : "Sites", runSites(sites.items, () => page.wake?.())));
    page.mount(() => [top, numbers, section("Status explained", why), ...(now.kind === "block" ? ofBlocks(id, () => isOver) : []), result, more, asked, logOf(id, signal)]);
    return OVER.has(now.state) ? 15000 : undefined;
  };
  await page.live(1000, look);
}
