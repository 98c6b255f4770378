// One worker: what it has now, its work over time, what it watches and watched.

import { at, brokerNow, get } from "./api.js";
import { code, facts, h, link, patch, section, table } from "./dom.js";
import { plot } from "./plot.js";
import { badge, num, runLink, span, time, when } from "./text.js";
import { actions } from "./workers.js";

const EVERY = 10000;

function head(worker, again) {
  return [h("div", { class: "row title" }, h("h1", {}, worker.name ?? `Worker …${worker.id.slice(-6)}`), badge(worker.isOnline ? "online" : "offline"), badge(worker.state, worker.reason), actions(worker, again)),
    worker.reason && h("p", { class: "warn" }, worker.reason)];
}

const about = worker => facts([
  ["Identity", code(worker.id)], ["Group", worker.group], ["Version", worker.version], ["Tags", worker.tags.join(", ")], ["Slots", worker.slots === undefined ? "" : num(worker.slots)],
  ["Connects by", worker.isOnline && (worker.hasSocket ? "WebSocket" : "HTTP")], ["Last seen", when(worker.lastSeen)], ["First seen", time(worker.creationTime)],
  ["State changed", [time(worker.updateTime), worker.updateBy ? ` by ${worker.updateBy}` : ""]],
]);

const tasks = list => table("What it has now", ["Run", ["Instance", "n"], ["Attempt", "n"]],
  list.map(one => ({ key: `${one.identity}/${one.instance}`, cells: [runLink(one.identity), one.instance ?? 0, one.attempt] })),
  "It has no task now. It gets one when a job of a name that it watches is triggered.");

const watches = items => table("Connections", ["Watches", "From", "Until", ["For", "n"]],
  items.map(one => ({
    key: one.id,
    cells: [h("span", { class: "wrap" }, code(one.fullClassName)), time(one.connectTime), one.disconnectTime ? time(one.disconnectTime) : badge("online"), span(new Date(one.disconnectTime ?? brokerNow()) - new Date(one.connectTime))],
  })), "It has watched nothing yet.");

export async function worker(page) {
  const { signal, parts: [id] } = page;
  const [top, summary, now, past] = Array.from({ length: 4 }, () => h("div"));
  const path = `/workers/${encodeURIComponent(id)}`;
  const count = value => num(Math.round(value));
  const none = () => {};
  const held = plot({ title: "Tasks at one moment", lines: [{ name: "running", label: "most", color: "c-accent", total: "last" }], format: count, onZoom: none, signal });
  const ended = plot({ title: "Tasks that ended", lines: [{ name: "success", label: "success", color: "c-ok", total: "sum" }, { name: "failed", label: "not success", color: "c-bad", total: "sum" }], format: count, onZoom: none, signal });
  const note = h("p", { class: "soft" });
  let looked = 0;

  await page.live(2000, async () => {
    const isOld = Date.now() - looked >= EVERY;
    const [one, work, list] = await Promise.all([get(at(path), signal), isOld && get(at(`${path}/work`), signal), isOld && get(at("/workers/watches", { worker: id, limit: 100 }), signal)]);
    page.title(`Worker ${one.name ?? one.id.slice(-6)}`);
    patch(top, head(one, () => page.wake?.()));
    patch(summary, about(one));
    patch(now, tasks(one.tasks));
    if (isOld) patch(past, watches(list.items));
    page.mount(() => [h("p", {}, link("/workers", "Workers")), top, summary, section("What it has now", now), section("Work", h("div", { class: "plots" }, held.root, ended.root), note), section("Connections", past)]);
    if (!isOld) return;
    looked = Date.now();
    const start = Date.parse(work.from) / 1000;
    const times = work.running.map((_, i) => start + i * work.step / 1000);
    held.show([times, work.running], "per minute");
    ended.show([times, work.success, work.failed], "per minute", true);
    note.textContent = times.length ? "Since it connected, six hours at most. A worker reports no CPU and no memory; its node or machine does." : "It is not connected, so the broker has no minutes of it.";
  });
}
