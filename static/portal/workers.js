// Workers: who is there, what they hold, and the operator's word on each.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { address, button, code, h, link, patch, table } from "./dom.js";
import { filter } from "./filter.js";
import { sortable, sorted } from "./order.js";
import { chooser } from "./several.js";
import { badge, command, num, runLink, short, when } from "./text.js";

const ORDERS = {
  enable: ["Enable", "It gets work again."],
  disable: ["Disable", "It gets no new work. It may finish and report what it has."],
  drain: ["Drain", "It gets no new work, finishes what it has, and then the broker asks it to leave."],
  kick: ["Kick", "The broker disconnects it at once. Its work goes to other workers, and it is refused until you allow it again."],
  allow: ["Allow", "It may connect again."],
};
const REASON = { name: "reason", label: "Reason", hint: "For people; may be left out." };

// What can be ordered now.
function orders(worker) {
  if (worker.state === "kicked") return ["allow"];
  return [...(worker.state === "enabled" ? ["disable"] : ["enable"]), ...(worker.state === "draining" ? [] : ["drain"]), "kick"];
}

export function actions(worker, again) {
  const name = worker.name ?? worker.id.slice(-6);
  const order = word => button(`${ORDERS[word][0]} …`, () => ask({
    title: `${ORDERS[word][0]} the worker ${name}?`, text: ORDERS[word][1], fields: [REASON], action: ORDERS[word][0], danger: word === "kick",
    act: ({ reason }) => post(at(`/workers/${worker.id}/${word}`), { reason: reason || undefined }),
  }).then(done => done && tell(`The worker ${name} is ${done.state}.`)).then(again));
  const forget = button("Forget …", () => ask({
    title: `Forget the worker ${name}?`, text: "The worker is offline. The broker deletes its record, with what you ordered for it. If it connects again, it is new.", action: "Forget",
    act: () => remove(at(`/workers/${worker.id}`)),
  }).then(done => done && tell(`The worker ${name} is forgotten.`)).then(again));
  return h("div", { class: "row" }, orders(worker).map(order), !worker.isOnline && forget);
}

const several = (word, can) => ({
  name: ORDERS[word][0], can, text: ORDERS[word][1], fields: [REASON], danger: word === "kick",
  act: ({ id }, { reason }) => post(at(`/workers/${id}/${word}`), { reason: reason || undefined }),
});
const ACTIONS = [
  several("enable", ({ state }) => state === "disabled" || state === "draining"), several("disable", ({ state }) => state === "enabled"),
  several("drain", ({ state }) => state === "enabled" || state === "disabled"), several("allow", ({ state }) => state === "kicked"), several("kick", ({ state }) => state !== "kicked"),
  { name: "Forget", danger: true, can: worker => !worker.isOnline, text: "The broker deletes their records, with what you ordered for them.", act: ({ id }) => remove(at(`/workers/${id}`)) },
];
// Columns that sort, and their values.
const SORTS = {
  name: worker => worker.name ?? worker.id, online: worker => (worker.isOnline ? 0 : 1), state: worker => worker.state, group: worker => worker.group, slots: worker => worker.slots,
  running: worker => worker.tasks.length, seen: worker => Date.parse(worker.lastSeen),
};
// Workers that are read, and those that are drawn at first.
const MOST = 1000;
const ROWS = 50;

function matches(worker, text) {
  const words = [worker.name, worker.id, worker.group, worker.version, ...worker.tags, ...worker.classNames].join(" ").toLowerCase();
  return words.includes((text ?? "").trim().toLowerCase());
}

function row(worker, again, box) {
  const runs = worker.tasks.slice(0, 5).map(task => [runLink(task.identity), " "]);
  return {
    key: worker.id,
    cells: [
      box, h("span", { class: "wrap" }, link(`/workers/${worker.id}`, worker.name ?? short(worker.id)), worker.name && [" ", short(worker.id)]), worker.isOnline ? badge("online") : badge("offline"), badge(worker.state, worker.reason),
      h("span", { class: "wrap" }, worker.classNames.map(name => [code(name), " "])),
      [worker.group, worker.version && `version ${worker.version}`, worker.tags.join(", ")].filter(Boolean).join("; "),
      worker.slots === undefined ? "" : num(worker.slots), [num(worker.tasks.length), " ", runs], when(worker.lastSeen), actions(worker, again),
    ],
  };
}

function firstWorker() {
  return [
    h("p", {}, "No worker has connected yet. A worker is a program of yours that carries out tasks or parses pages. To try one, from a clone of the project:"),
    command(`python3 examples/tasks.py ${location.origin}`, "worker"),
  ];
}

export async function workers(page) {
  page.title("Workers");
  const { query, signal } = page;
  const list = h("div");
  const again = () => page.wake?.();
  const chosen = chooser({ noun: "workers", key: worker => worker.id, nameOf: worker => worker.name ?? worker.id.slice(-6), actions: ACTIONS, again });
  const head = (name, text, kind) => sortable("/workers", query, name, text, { kind });
  const states = ["enabled", "disabled", "draining", "kicked"];
  const body = [
    h("h1", {}, "Workers"),
    filter("/workers", query, [
      { name: "text", label: "Part of name, id, class, tag or version" },
      { name: "online", label: "Online", options: [["", "any"], ["true", "yes"], ["false", "no"]] },
      { name: "state", label: "State", options: [["", "any"], ...states.map(state => [state, state])] },
      { name: "group", label: "Group" },
    ]),
    chosen.bar, list,
  ];
  const { online, state, group, text } = query;
  const isFiltered = Boolean(online || state || group || text);
  await page.live(2000, async () => {
    const { items, nextCursor } = await get(at("/workers", { online, state, group, limit: MOST }), signal);
    const found = sorted(items.filter(worker => matches(worker, text)), query, SORTS, "");
    const shown = query.all ? found : found.slice(0, ROWS);
    patch(list, table("Workers", [chosen.head(), head("name", "Worker"), head("online", "Online"), head("state", "State"), "Watches", head("group", "Group, tags"), head("slots", "Slots", "n"), head("running", "Running"),
      head("seen", "Last seen"), "Actions"], shown.map(worker => row(worker, again, chosen.cell(worker))), isFiltered ? "No worker matches the filter." : firstWorker()),
    shown.length < found.length && h("p", {}, link(address("/workers", { ...query, all: "true" }), `The first ${num(shown.length)} of ${num(found.length)} workers; show all`)),
    nextCursor && h("p", { class: "soft" }, `Only the first ${num(MOST)} workers are read: filter by state or group to see others.`));
    page.mount(() => body);
    chosen.drawn(shown);
  });
}
