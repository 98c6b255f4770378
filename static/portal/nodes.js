// Nodes: machines with an agent, what they hold, and the operator's word on each.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, h, patch, table } from "./dom.js";
import { badge, command, named, num, when } from "./text.js";

const ORDERS = {
  enable: ["Enable", "It gets work again."],
  disable: ["Disable", "It gets no more work, and finishes what it has."],
  drain: ["Drain", "It gets no more work, finishes what it has, and then its agent ends."],
  exit: ["End", "Its agent ends now, and so do its programs. Its unfinished blocks go to other nodes."],
};
const REASON = { name: "reason", label: "Reason", hint: "For people; may be left out." };

function stateOf(node) {
  if (node.isLeaving) return "leaving";
  if (node.isDraining) return "draining";
  return node.isEnabled ? "enabled" : "disabled";
}

function actions(node, again) {
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
      named(node.name, node.nodeId), node.isOnline ? badge("online") : badge("offline"), badge(stateOf(node), node.reason), node.group,
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

export async function nodes(page) {
  page.title("Nodes");
  const list = h("div");
  const body = [h("h1", {}, "Nodes"), list];
  await page.live(2000, async () => {
    const { items } = await get(at("/nodes"), page.signal);
    patch(list, table("Nodes", ["Node", "Online", "State", "Group", "Host", "Machine", "Load", ["Blocks", "n"], ["Programs", "n"], "Last seen", "Actions"],
      items.map(node => row(node, () => page.wake?.())), firstNode()));
    page.mount(() => body);
  });
}
