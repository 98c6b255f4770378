// One node: what it has now, its load over time, its connections.

import { at, brokerNow, get } from "./api.js";
import { address, facts, h, link, patch, section, table } from "./dom.js";
import { actions, stateOf } from "./nodes.js";
import { plot } from "./plot.js";
import { badge, num, runLink, span, time, when } from "./text.js";

// Name, length and step of a period. A step is long enough for some 300 points.
const PERIODS = [["1h", 3600000, 12000, "1 hour"], ["24h", 86400000, 300000, "24 hours"], ["7d", 604800000, 1800000, "7 days"]];
const EVERY = 10000;

function head(node, again) {
  return [h("div", { class: "row title" }, h("h1", {}, node.name), badge(node.isOnline ? "online" : "offline"), badge(stateOf(node), node.reason), actions(node, again)),
    node.reason && h("p", { class: "warn" }, node.reason)];
}

const about = node => facts([
  ["Identity", h("code", {}, node.nodeId)], ["Group", node.group && link(address("/nodes", { text: node.group }), node.group)], ["Address", node.ipAddress], ["System", node.operatingSystem],
  ["Machine", `${num(node.processorCount)} CPU, ${num(node.memory)} MB`], ["CPU", node.load && `${node.load.cpu} %`], ["Free memory", node.load && `${num(node.load.freeMemory)} MB`],
  ["Blocks", `${num(node.holding)} of ${num(node.maxProcessCount)}`], ["Programs", node.maxPrograms === undefined ? num(node.programs) : `${num(node.programs)} of ${num(node.maxPrograms)}`],
  ["Last seen", when(node.lastOnlineTime)], ["First seen", time(node.creationTime)], ["Changed", [time(node.updateTime), node.updateBy ? ` by ${node.updateBy}` : ""]],
]);

const work = runs => table("What it has now", ["Run", "Job", ["Blocks", "n"], ["Programs", "n"]],
  runs.map(run => ({ key: run.identity, cells: [runLink(run.identity), run.jobName ?? "", num(run.blocks), num(run.programs)] })),
  ["It has nothing now. It gets work when a run has blocks for its group, or when a program is started on it. ", link("/runs", "All runs")]);

// Periods as a bar, and in words.
export const connections = items => table("Connections", ["Connected", "Until", ["For", "n"], "Address", "Why it ended"],
  items.map(one => ({
    key: one.connectTime,
    cells: [time(one.connectTime), one.disconnectTime ? time(one.disconnectTime) : badge("online"), span(new Date(one.disconnectTime ?? brokerNow()) - new Date(one.connectTime)), one.ipAddress ?? "",
      h("span", { class: "reason" }, one.reason ?? "")],
  })), "No connection is recorded yet.");

export async function node(page) {
  const { query, signal, parts: [id] } = page;
  const [top, summary, now, links] = Array.from({ length: 4 }, () => h("div"));
  const [name, length, step] = PERIODS.find(([key]) => key === query.period) ?? PERIODS[0];
  const path = `/nodes/${encodeURIComponent(id)}`;
  const choice = h("nav", { class: "row", "aria-label": "Period" }, PERIODS.map(([key, , , text]) => h("a", { href: `#${address(path, { period: key })}`, class: "button", "aria-current": key === name ? "true" : undefined }, text)));
  const percent = value => `${Math.round(value)} %`;
  const megabytes = value => `${num(Math.round(value))} MB`;
  const count = value => num(Math.round(value));
  const none = () => {};
  const cpu = plot({ title: "CPU of all processors", lines: [{ name: "cpu", label: "average", color: "c-accent", total: "last" }], format: percent, onZoom: none, signal });
  const memory = plot({ title: "Memory in use", lines: [{ name: "memory", label: "average", color: "c-violet", total: "last" }], format: megabytes, onZoom: none, signal });
  const tasks = plot({ title: "Blocks and programs", lines: [{ name: "work", label: "most", color: "c-teal", total: "last" }], format: count, onZoom: none, signal });
  const plots = h("div", { class: "plots" }, cpu.root, memory.root, tasks.root);
  let [steps, looked] = [undefined, 0];
  const again = () => page.wake?.();

  await page.live(2000, async () => {
    const isOld = Date.now() - looked >= Math.max(EVERY, step / 2);
    const from = new Date(brokerNow() - length).toISOString();
    const [one, loads, periods] = await Promise.all([get(at(path), signal), isOld && get(at(`${path}/statuses`, { from, step }), signal), isOld && get(at(`${path}/connections`, { limit: 100 }), signal)]);
    page.title(`Node ${one.name}`);
    patch(top, head(one, again));
    patch(summary, about(one));
    patch(now, work(one.runs ?? []));
    if (isOld) {
      looked = Date.now();
      patch(links, connections(periods.items));
      // A gap in the reports is a gap in the line.
      steps = [];
      for (const load of loads.items) {
        const moment = Date.parse(load.creationTime);
        if (steps.length && moment - steps.at(-1).moment > 3 * step) steps.push({ moment: moment - step, cpu: null, used: null, count: null });
        steps.push({ moment, cpu: load.cpu, used: Math.max(0, one.memory - load.freeMemory), count: load.processCount });
      }
    }
    page.mount(() => [h("p", {}, link("/nodes", "Nodes")), top, summary, section("What it has now", now), section("Load", choice, plots), section("Connections", links)]);
    if (!isOld) return;
    const times = steps.map(({ moment }) => moment / 1000);
    const note = times.length ? `steps of ${span(step)}` : "no report in this period";
    cpu.show([times, steps.map(one_ => one_.cpu)], note);
    memory.show([times, steps.map(one_ => one_.used)], note);
    tasks.show([times, steps.map(one_ => one_.count)], note);
  });
}

