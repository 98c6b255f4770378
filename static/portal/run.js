// One run: where it is and why, what it brought, its log while it grows.

import { at, events, get, post } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, facts, h, patch, section, table } from "./dom.js";
import { took } from "./overview.js";
import { badge, jobLink, json, num, runLink, short, time } from "./text.js";

const OVER = new Set(["success", "failed", "stopped"]);
// Lines that the page keeps; the broker keeps more.
const MOST_LINES = 2000;
const LEVELS = ["trace", "debug", "info", "warning", "error", "critical"];

function stop(run, again) {
  return ask({
    title: `Stop this run of ${run.jobName}?`, text: "What it is at is ended, and what waits in it is dropped.", action: "Stop the run",
    danger: true, act: () => post(at(`/runs/${run.identity}/stop`)),
  }).then(done => done && tell("The run is told to stop.")).then(again);
}

function retry(run) {
  return ask({
    title: `Run ${run.jobName} once more?`, text: "A new run with the same arguments; this one stays as it is.", action: "Run again",
    act: () => post(at(`/runs/${run.identity}/retry`)),
  }).then(made => { if (made) location.hash = `/runs/${made.identity}`; });
}

function head(run, again) {
  const over = OVER.has(run.state);
  return [
    h("div", { class: "row title" }, h("h1", {}, "Run of ", jobLink(run.jobId, run.jobName)), badge(run.state),
      over ? button("Run again …", () => retry(run)) : button("Stop …", () => stop(run, again), "danger")),
    run.reason && h("p", { class: run.state === "failed" ? "error" : "" }, run.reason),
    !over && run.progress !== undefined && h("p", {}, h("progress", { max: 100, value: run.progress, "aria-label": `${run.progress} %` }),
      ` ${run.progress} % `, run.progressText ?? ""),
  ];
}

function counters(run) {
  const counted = run.kind === "block" ? [
    ["Requests", `${num(run.success)} well, ${num(run.error)} with an error, ${num(run.left)} left, ${num(run.total)} in all`],
    ["Blocks", `${num(run.blocks.ready)} ready, ${num(run.blocks.using)} at nodes, ${num(run.blocks.answered)} answered, ${num(run.blocks.total)} in all; ${num(run.blockTimes)} hand-outs`],
    ["Addresses seen", num(run.seen)],
  ] : [];
  return facts([
    ["Identity", h("code", {}, run.identity)], ["Kind", run.kind], [run.kind === "callback" ? "Request" : "Name", run.className],
    ["Attempt", run.attempt || ""], ["Next attempt", time(run.notBefore)], ["Priority", run.priority],
    ["Planned for", time(run.plannedAt)], ["Made", time(run.creationTime)], ["Began", time(run.startTime)], ["Ended", time(run.finishTime)],
    ["Took", took(run)], ["Worker", run.workerId ? short(run.workerId) : ""], ["Repeats", runLink(run.retryOf)],
    ["Follows", runLink(run.after)], ["Trace", run.traceId && h("code", {}, run.traceId)], ...counted,
  ]);
}

function instanceTable(items) {
  return table("Instances", [["No", "n"], "Where", ["Attempt", "n"], "State", "Result", ["Lines", "n"], "Began", "Ended", "Reason"],
    items.map(one => ({
      key: one.instance,
      cells: [one.instance, one.peer ? short(one.peer) : "", one.attempt, badge(one.state), one.result ? h("code", { class: "wrap" }, JSON.stringify(one.result)) : "",
        num(one.lines), time(one.startTime), time(one.finishTime), h("span", { class: "reason" }, one.reason ?? "")],
    })), "");
}

function nodeTable(items) {
  return table("Nodes", ["Node", ["Left", "n"], ["Success", "n"], ["Error", "n"], ["Total", "n"], "Last report"],
    items.map(one => ({ key: one.nodeId ?? "all", cells: [one.nodeId ? short(one.nodeId) : "all", num(one.left), num(one.success), num(one.error), num(one.total), time(one.updateTime)] })), "");
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
            say(count ? "the run is over, and so is its log" : "the run is over; its log has no such lines");
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
    h("div", {}, h("label", { for: "l-level" }, "Level and worse"), level), h("div", {}, h("label", { for: "l-text" }, "With the text"), text), state);
  read();
  return section("Log", form, lines);
}

export async function run(page) {
  const { signal, parts: [id] } = page;
  const [top, numbers, why, result, more] = Array.from({ length: 5 }, () => h("div"));
  const look = async () => {
    const now = await get(at(`/runs/${encodeURIComponent(id)}`), signal);
    page.title(`Run of ${now.jobName}`);
    patch(top, head(now, () => page.wake?.()));
    patch(numbers, counters(now));
    const [reasons, instances, perNode] = await Promise.all([
      get(at(`/runs/${id}/why`), signal),
      now.kind === "application" || now.kind === "task" ? get(at(`/runs/${id}/instances`, { limit: 1000 }), signal) : { items: [] },
      now.kind === "block" ? get(at(`/runs/${id}/status`), signal) : [],
    ]);
    patch(why, reasons.because.map(text => h("p", {}, text)));
    patch(result, now.result !== undefined && section("Result", json(now.result)));
    patch(more, instances.items.length > 0 && section("Instances", instanceTable(instances.items)), perNode.length > 1 && section("Nodes", nodeTable(perNode)));
    // The log is asked for once, with the page.
    if (!page.isMounted) page.mount(top, numbers, section("Why it is where it is", why), result, more, logOf(id, signal));
    return OVER.has(now.state) ? 15000 : undefined;
  };
  await page.live(1000, look);
}
