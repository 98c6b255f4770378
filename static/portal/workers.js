// Workers: who is there, what they hold, and the operator's word on each.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, code, h, pages, patch, table } from "./dom.js";
import { filter } from "./filter.js";
import { badge, num, runLink, short, when } from "./text.js";

const ORDERS = {
  enable: ["Enable", "It gets work again."],
  disable: ["Disable", "It gets nothing new. What it has it may finish and report."],
  drain: ["Drain", "It gets nothing new, and is told to leave when it has finished what it has."],
  kick: ["Kick", "It is put out at once: what it has goes to others, and it is refused until it is allowed in again."],
  allow: ["Allow", "It may come in again."],
};
const REASON = { name: "reason", label: "Reason", hint: "For people; may be left out." };

// What can be ordered now.
function orders(worker) {
  if (worker.state === "kicked") return ["allow"];
  return [...(worker.state === "enabled" ? ["disable"] : ["enable"]), ...(worker.state === "draining" ? [] : ["drain"]), "kick"];
}

function actions(worker, again) {
  const name = worker.name ?? worker.id.slice(-6);
  const order = word => button(`${ORDERS[word][0]} …`, () => ask({
    title: `${ORDERS[word][0]} the worker ${name}?`, text: ORDERS[word][1], fields: [REASON], action: ORDERS[word][0], danger: word === "kick",
    act: ({ reason }) => post(at(`/workers/${worker.id}/${word}`), { reason: reason || undefined }),
  }).then(done => done && tell(`The worker ${name} is ${done.state}.`)).then(again));
  const forget = button("Forget …", () => ask({
    title: `Forget the worker ${name}?`, text: "It is not there. What you said of it is forgotten too; if it comes again, it is new.", action: "Forget",
    act: () => remove(at(`/workers/${worker.id}`)),
  }).then(done => done && tell(`The worker ${name} is forgotten.`)).then(again));
  return h("div", { class: "row" }, orders(worker).map(order), !worker.isOnline && forget);
}

function row(worker, again) {
  const runs = worker.tasks.slice(0, 5).map(task => [runLink(task.identity), " "]);
  return {
    key: worker.id,
    cells: [
      [worker.name ? `${worker.name} ` : "", short(worker.id)], worker.isOnline ? badge("online") : badge("offline"), badge(worker.state, worker.reason),
      h("span", { class: "wrap" }, worker.classNames.map(name => [code(name), " "])),
      [worker.group, worker.version && `version ${worker.version}`, worker.tags.join(", ")].filter(Boolean).join("; "),
      worker.slots === undefined ? "" : num(worker.slots), [num(worker.tasks.length), " ", runs], when(worker.lastSeen), actions(worker, again),
    ],
  };
}

function firstWorker() {
  return [
    h("p", {}, "No worker has come yet. A worker is a program of yours that watches names of classes or tasks. For one to try, from a clone of the project:"),
    h("pre", { tabindex: 0 }, `python3 examples/tasks.py ${location.origin}`),
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
      { name: "online", label: "There", options: [["", "any"], ["true", "yes"], ["false", "no"]] },
      { name: "state", label: "State", options: [["", "any"], ...states.map(state => [state, state])] },
      { name: "group", label: "Group" },
    ]),
    list,
  ];
  const isFiltered = Object.values(query).some(Boolean);
  await page.live(2000, async () => {
    const { items, nextCursor } = await get(at("/workers", query), signal);
    patch(list, table("Workers", ["Worker", "There", "State", "Watches", "Group, tags", ["Places", "n"], "In hand", "Heard", ""],
      items.map(worker => row(worker, () => page.wake?.())), isFiltered ? "No worker is like that." : firstWorker()), pages("/workers", query, nextCursor));
    page.mount(...body);
  });
}
