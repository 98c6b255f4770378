// Nodes: machines with an agent, what they hold, and the operator's word on each.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { address, button, h, link, patch, section, table } from "./dom.js";
import { filter } from "./filter.js";
import { kindOf, topology } from "./grid.js";
import { sortable, sorted } from "./order.js";
import { chooser } from "./several.js";
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

const several = (word, can) => ({
  name: ORDERS[word][0], can, text: ORDERS[word][1], fields: word === "enable" ? [] : [REASON], danger: word === "exit",
  act: ({ nodeId }, { reason }) => post(at(`/nodes/${nodeId}/${word}`), word === "enable" ? undefined : { reason: reason || undefined }),
});
const ACTIONS = [
  several("enable", node => stateOf(node) !== "enabled"), several("disable", node => stateOf(node) === "enabled"), several("drain", node => stateOf(node) === "enabled"),
  several("exit", node => node.isOnline),
  { name: "Remove", danger: true, can: node => !node.isOnline, text: "The broker deletes their records and their histories.", act: ({ nodeId }) => remove(at(`/nodes/${nodeId}`)) },
];
// Columns that sort, and their values.
const SORTS = {
  name: node => node.name, online: node => (node.isOnline ? 0 : 1), state: stateOf, group: node => node.group, host: node => node.ipAddress, cpu: node => node.load?.cpu,
  blocks: node => node.holding, programs: node => node.programs, seen: node => Date.parse(node.lastOnlineTime),
};

function row(node, again, box) {
  const { load } = node;
  return {
    key: node.nodeId,
    cells: [
      box,
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
  const again = () => page.wake?.();
  const chosen = chooser({ noun: "nodes", key: node => node.nodeId, nameOf: node => node.name, actions: ACTIONS, again });
  const head = (name, text, kind) => sortable("/nodes", query, name, text, { kind });
  const body = [h("h1", {}, "Nodes"), filter("/nodes", query, [
    { name: "text", label: "Part of name, id, group, address or system" }, { name: "state", label: "State", options: KINDS },
  ]), grid, chosen.bar, list];
  const isFiltered = Boolean(query.text || query.state);
  await page.live(2000, async () => {
    const { items } = await get(at("/nodes"), page.signal);
    const found = sorted(items.filter(node => matches(node, query)), query, SORTS, "");
    const shown = query.all ? found : found.slice(0, ROWS);
    patch(grid, found.length > 0 && section("At a glance", topology(found)));
    patch(list, table("Nodes", [chosen.head(), head("name", "Node"), head("online", "Online"), head("state", "State"), head("group", "Group"), head("host", "Host"), "Machine", head("cpu", "Load"), head("blocks", "Blocks", "n"),
      head("programs", "Programs", "n"), head("seen", "Last seen"), "Actions"], shown.map(node => row(node, again, chosen.cell(node))), isFiltered ? "No node matches the filter." : firstNode()),
    shown.length < found.length && h("p", {}, link(address("/nodes", { ...query, all: "true" }), `The first ${num(shown.length)} of ${num(found.length)} nodes; show all`)));
    page.mount(() => body);
    chosen.drawn(shown);
  });
}
