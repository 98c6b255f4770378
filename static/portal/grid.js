// All nodes at a glance: a cell for each, by group. Colour and sign say the state, the legend counts, and the table below is
// the same in words. The cells are left out of the order of the tab key: a thousand of them would be in the way.

import { h } from "./dom.js";
import { num } from "./text.js";

// Class, sign and name of a state, in the order of the legend.
const STATES = [
  ["busy", "■", "online, with work"], ["idle", "□", "online, idle"], ["disabled", "‖", "disabled"], ["draining", "▽", "draining or leaving"], ["offline", "×", "offline"],
];

export function kindOf(node) {
  if (!node.isOnline) return "offline";
  if (node.isDraining || node.isLeaving) return "draining";
  if (!node.isEnabled) return "disabled";
  return node.holding || node.programs ? "busy" : "idle";
}

const signs = Object.fromEntries(STATES.map(([kind, sign]) => [kind, sign]));
const names = Object.fromEntries(STATES.map(([kind, , name]) => [kind, name]));

function cell(node) {
  const kind = kindOf(node);
  const load = node.load ? `, CPU ${node.load.cpu} %` : "";
  const says = `${node.name}: ${names[kind]}, ${num(node.holding)} of ${num(node.maxProcessCount)} blocks, ${num(node.programs)} programs${load}`;
  return h("a", { "data-key": node.nodeId, class: `cell ${kind}`, href: `#/nodes/${node.nodeId}`, title: says, "aria-label": says, tabindex: -1 }, signs[kind]);
}

export function topology(nodes) {
  const counts = Map.groupBy(nodes, kindOf);
  const groups = [...Map.groupBy(nodes, node => node.group || "")].sort(([a], [b]) => a.localeCompare(b));
  return [
    h("ul", { class: "keys", "aria-label": "Nodes by state" }, STATES.map(([kind, sign, name]) => h("li", {}, h("span", { class: `cell ${kind}`, "aria-hidden": "true" }, sign), ` ${name} `, h("b", {}, num(counts.get(kind)?.length))))),
    groups.map(([group, some]) => h("section", { "data-key": `group ${group}`, class: "topology", "aria-label": `Group ${group || "without a name"}` },
      h("h3", {}, group || "no group", " ", h("span", { class: "soft" }, num(some.length))),
      h("div", { class: "cells" }, some.toSorted((a, b) => a.name.localeCompare(b.name)).map(cell)))),
  ];
}
