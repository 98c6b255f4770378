// Nodes: machines with an agent, what they hold, and the operator's word on each.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { address, button, h, link, patch, section, table } from "./dom.js";
import { filter } from "./filter.js";
import { kindOf, topology } from "./grid.js";
import { badge, command, num, when } from "./text.js";

const ORDERS = {
  enable: ["Enable", "It gets work again."],
  disable: ["Disable", "It gets no more work, and finishes what it has."],
  drain: ["Drain", "It gets no more work, finishes what it has, and then its agent ends."],
  exit: ["End", "Its agent ends now, and so do its programs. Its unfinished blocks go to other nodes."],
};
const REASON = { name: "reason", label: "Reason", hint: "For people; may be left out." };

export function stateOf(node) {
  if (node.isLeaving) return "leaving";
  if (node.isDraining) return "draining";
  return node.isEnabled ? "enabled" : "disabled";
}

export function actions(node, again) {
  const id = node.nodeId;
  const name = `${node.name} (${id.slice(0, 8)})`;
  const order = word => button(`${ORDERS[word][0]} …`, () => ask({
    title: `${ORDERS[word][0]} the node ${name}?`, text: ORDERS[word][1], fields: word === "enable" ? [] : [REASON], action: ORDERS[word][0],
    danger: word === "exit", act: ({ reason }) => post(at(`/nodes/${id}/${word}`), word === "enable" ? undefined : { reason: reason || undefined }),
  }).then(done => done && tell(`The node ${name} is ${stateOf(done)}.`)).then(again));
  const forget = button("Remove …", () => ask({
    title: `Remove the node ${name}?`, text: "The node is offline. The broker deletes its record and its history.", action: "Remove",
    act: () => remove(at(`/nodes/${id}`)),
  }).then(done => done && tell(`The node ${name} is removed.`)).then(again));
  const state = stateOf(node);
  const words = [...(state === "enabled" ? ["disable", "drain"] : ["enable"]), ...(state === "leaving" ? [] : ["exit"])];
  return h("div", { class: "row" }, words.map(order), !node.isOnline && forget);
}

function row(node, again) {
  const { load } = node;
  return {
    key: node.nodeId,
    cells: [
      h("span", { class: "wrap", title: node.nodeId }, link(`/nodes/${node.nodeId}`, node.name)), node.isOnline ? badge("online") : badge("offline"), badge(stateOf(node), node.reason), node.group,
      [node.ipAddress, node.operatingSystem].filter(Boolean).join(", "), `${num(node.processorCount)} CPU, ${num(node.memory)} MB`,
      load ? `${load.cpu} % CPU, ${num(load.freeMemory)} MB free` : "", `${num(node.holding)} of ${num(node.maxProcessCount)}`, num(node.programs),
      when(node.lastOnlineTime), actions(node, again),
    ],
  };
}

function firstNode() {
  return [
    h("p", {}, "No node has connected yet. A node downloads pages and runs programs. Start an agent on each machine of the fleet:"),
    command(`webloom agent --broker ${location.origin}`, "agent"),
  ];
}

// Rows that are drawn at first: the grid above has all.
const ROWS = 25;
const KINDS = [["", "any"], ["online", "online"], ["busy", "online, with work"], ["idle", "online, idle"], ["disabled", "disabled"], ["draining", "draining or leaving"], ["offline", "offline"]];

function matches(node, { text = "", state = "" }) {
  const isKind = !state || kindOf(node) === state || (state === "online" && node.isOnline);
  const words = [node.name, node.nodeId, node.group, node.ipAddress, node.operatingSystem].join(" ").toLowerCase();
  return isKind && words.includes(text.trim().toLowerCase());
}

export async function nodes(page) {
  page.title("Nodes");
  const { query } = page;
  const [grid, list] = [h("div"), h("div")];
  const body = [h("h1", {}, "Nodes"), filter("/nodes", query, [
    { name: "text", label: "Part of name, id, group, address or system" }, { name: "state", label: "State", options: KINDS },
  ]), grid, list];
  const isFiltered = Boolean(query.text || query.state);
  await page.live(2000, async () => {
    const { items } = await get(at("/nodes"), page.signal);
    const found = items.filter(node => matches(node, query));
    const shown = query.all ? found : found.slice(0, ROWS);
    patch(grid, found.length > 0 && section("At a glance", topology(found)));
    patch(list, table("Nodes", ["Node", "Online", "State", "Group", "Host", "Machine", "Load", ["Blocks", "n"], ["Programs", "n"], "Last seen", "Actions"],
      shown.map(node => row(node, () => page.wake?.())), isFiltered ? "No node matches the filter." : firstNode()),
    shown.length < found.length && h("p", {}, link(address("/nodes", { ...query, all: "true" }), `The first ${num(shown.length)} of ${num(found.length)} nodes; show all`)));
    page.mount(() => body);
  });
}
