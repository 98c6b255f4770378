// Workers: who is there, what they hold, and the operator's word on each.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, code, h, link, pages, patch, table } from "./dom.js";
import { filter } from "./filter.js";
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

function row(worker, again) {
  const runs = worker.tasks.slice(0, 5).map(task => [runLink(task.identity), " "]);
  return {
    key: worker.id,
    cells: [
      h("span", { class: "wrap" }, link(`/workers/${worker.id}`, worker.name ?? short(worker.id)), worker.name && [" ", short(worker.id)]), worker.isOnline ? badge("online") : badge("offline"), badge(worker.state, worker.reason),
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
  const states = ["enabled", "disabled", "draining", "kicked"];
  const body = [
    h("h1", {}, "Workers"),
    filter("/workers", query, [
      { name: "online", label: "Online", options: [["", "any"], ["true", "yes"], ["false", "no"]] },
      { name: "state", label: "State", options: [["", "any"], ...states.map(state => [state, state])] },
      { name: "group", label: "Group" },
    ]),
    list,
  ];
  const isFiltered = Object.values(query).some(Boolean);
  await page.live(2000, async () => {
    const { items, nextCursor } = await get(at("/workers", query), signal);
    patch(list, table("Workers", ["Worker", "Online", "State", "Watches", "Group, tags", ["Slots", "n"], "Running", "Last seen", "Actions"],
      items.map(worker => row(worker, () => page.wake?.())), isFiltered ? "No worker matches the filter." : firstWorker()), pages("/workers", query, nextCursor));
    page.mount(() => body);
  });
}
