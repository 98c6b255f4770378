// The actors: the tree of supervision, folded by kind, and a page for each actor.

import { at, get } from "./api.js";
import { address, button, code, facts, h, link, patch, section, table } from "./dom.js";
import { filter } from "./filter.js";
import { badge, num, span, when } from "./text.js";

// Rows of a kind that are shown at first, and that one more click adds.
const SOME = 50;
const MOST = 200;
const SINGLE = 4;

// Kind, and the page of what an actor of it stands for.
const STANDS_FOR = {
  job: name => `/jobs/${name}`, run: name => `/runs/${name}`, task: name => `/runs/${name}`, callback: name => `/runs/${name}`,
  application: name => `/runs/${name}`, node: name => `/nodes/${name}`, worker: name => `/workers/${name}`, scheduler: () => "/jobs", alerts: () => "/alerts", persistence: () => "/brokers",
};
// Kinds of which there may be many: what one is called, and several.
const PLURALS = {
  job: ["job", "jobs"], run: ["run of a block job", "runs of block jobs"], task: ["run of a task", "runs of tasks"],
  callback: ["run of a callback", "runs of callbacks"], application: ["run of an application", "runs of applications"], node: ["node", "nodes"],
  worker: ["worker", "workers"], session: ["session (socket)", "sessions (sockets)"],
};
const counted = ({ kind, count }) => `${num(count)} ${PLURALS[kind]?.[count === 1 ? 0 : 1] ?? kind}`;

// The broker is named if it is not the leader.
const pathOf = ({ kind, name, brokerId }) => address(`/actors/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`, { brokerId });
const keyOf = ({ kind, name, brokerId = "" }) => `${kind}/${name} ${brokerId}`;
const micros = us => (us < 1000 ? `${Math.round(us)} µs` : span(us / 1000));

// Messages a second, from two looks at the counts.
export function rates() {
  const before = new Map();
  return {
    // Of one actor or kind: the last rates, the newest last.
    note(key, messages) {
      const now = performance.now();
      const { last, recent = [] } = before.get(key) ?? {};
      if (last && now - last.now < 900) return recent;
      if (last) recent.push(Math.max(0, (messages - last.messages) * 1000 / (now - last.now)));
      before.set(key, { last: { now, messages }, recent: recent.slice(-30) });
      return recent;
    },
  };
}

// A small line of the last rates.
export function spark(recent) {
  if (recent.length < 2) return null;
  const most = Math.max(...recent, 1);
  const points = recent.map((rate, i) => `${(i * 60 / 29).toFixed(1)},${(15 - 14 * rate / most).toFixed(1)}`).join(" ");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["viewBox", "0 0 60 16"], ["width", "60"], ["height", "16"], ["class", "spark"], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points);
  svg.append(line);
  return svg;
}

const rateText = recent => (recent.length ? (recent.at(-1) < 10 ? recent.at(-1).toFixed(1) : num(Math.round(recent.at(-1)))) : "");
const rate = recent => h("span", { class: "rate" }, spark(recent), rateText(recent));

const HEADS = ["Actor", "State", ["Age", "n"], ["Restarts", "n"], ["Queue", "n"], ["Messages", "n"], ["Messages/s", "n"], ["Time/message", "n"], "Last error"];

function cells(actor, recent) {
  const broker = actor.brokerId && [" at broker ", h("code", { title: actor.brokerId }, `…${actor.brokerId.slice(-6)}`)];
  const name = actor.label ? [link(pathOf(actor), actor.label), " ", h("code", { title: actor.name }, `…${actor.name.slice(-6)}`)] : link(pathOf(actor), actor.name);
  return [[name, broker || ""].flat(), badge(actor.state), span(actor.age), num(actor.restarts), num(actor.queueDepth), num(actor.messagesHandled), rate(recent),
    actor.timePerMessage === undefined ? "" : micros(actor.timePerMessage), h("span", { class: "reason" }, actor.lastError ?? "")];
}

const row = (actor, seen, kind) => ({
  key: keyOf(actor), kind, cells: cells(actor, seen.note(keyOf(actor), actor.messagesHandled)),
});

// A kind with many actors: its sums, and a button that opens it.
function kindRow(sum, isOpen, seen, toggle) {
  const head = button(`${isOpen ? "▾" : "▸"} ${counted(sum)}`, toggle, "fold");
  head.setAttribute("aria-expanded", isOpen);
  return {
    key: `kind ${sum.kind}`, kind: sum.parent && "child",
    cells: [head, sum.restarting ? badge("restarting", `${sum.restarting} of them`) : badge("running"), "", num(sum.restarts), num(sum.queueDepth), num(sum.messagesHandled),
      rate(seen.note(`kind ${sum.kind}`, sum.messagesHandled)), sum.timePerMessage === undefined ? "" : micros(sum.timePerMessage),
      sum.withErrors ? link(address("/actors", { kind: sum.kind, errors: "true" }), `${num(sum.withErrors)} with an error`) : ""],
  };
}

const ask = query => at("/actors", query);

export async function actors(page) {
  page.title("Actors");
  const { query, signal } = page;
  const { kind, text, errors, after } = query;
  const list = h("div");
  const seen = rates();
  const open = new Map();
  const first = await get(at("/actors/kinds"), signal).catch(() => ({ items: [] }));
  const kinds = [["", "any"], ...first.items.map(sum => [sum.kind, sum.kind])];
  const body = [h("h1", {}, "Actors"),
    h("p", { class: "soft" }, "The broker is made of actors: each does one thing at a time and is restarted from stored data if it fails. ",
      "A growing queue or a rising time per message is where the broker is slow."),
    filter("/actors", query, [
      { name: "text", label: "Part of the name or id" }, { name: "kind", label: "Kind", options: kinds },
      { name: "errors", label: "Errors", options: [["", "any"], ["true", "with an error or a restart"]] },
    ]), list];

  async function found() {
    const items = await get(ask({ kind, text, errors, after, limit: 100 }), signal);
    const last = items.at(-1);
    const more = items.length >= 100 && link(address("/actors", { ...query, after: `${last.kind}/${last.name}` }), "Next page");
    const back = after && link(address("/actors", { ...query, after: "" }), "First page");
    patch(list, table("Actors", ["Kind", ...HEADS], items.map(actor => {
      const { key, cells: own } = row(actor, seen);
      return { key, cells: [actor.kind, ...own] };
    }), "No actor matches the filter."), (more || back) && h("nav", { class: "pages", "aria-label": "Pages of the list" }, back, more));
  }

  // One kind is read only while it is open, so ten thousand actors cost as little as ten.
  async function tree() {
    // What is opened meanwhile is drawn the next time.
    const limits = new Map(open);
    const { items: sums } = await get(at("/actors/kinds"), signal);
    const rows = [];
    const order = [...sums].sort((a, b) => (b.kind === "registry") - (a.kind === "registry") || (a.parent === undefined) - (b.parent === undefined) || a.count - b.count || a.kind.localeCompare(b.kind));
    const parts = await Promise.all(order.map(sum => {
      const isFew = sum.count <= SINGLE && !(sum.kind in PLURALS);
      return isFew || limits.has(sum.kind) ? get(ask({ kind: sum.kind, limit: limits.get(sum.kind) ?? SINGLE }), signal) : [];
    }));
    order.forEach((sum, i) => {
      const isFew = sum.count <= SINGLE && !(sum.kind in PLURALS);
      const level = sum.parent ? "child" : undefined;
      if (isFew) return rows.push(...parts[i].map(actor => row(actor, seen, level)));
      const toggle = () => {
        if (!open.delete(sum.kind)) open.set(sum.kind, SOME);
        page.wake?.();
      };
      rows.push(kindRow(sum, limits.has(sum.kind), seen, toggle));
      rows.push(...parts[i].map(actor => row(actor, seen, "grandchild")));
      if (limits.has(sum.kind) && sum.count > parts[i].length) {
        const isFull = limits.get(sum.kind) >= MOST;
        const more = isFull ? link(address("/actors", { kind: sum.kind }), `All ${num(sum.count)}, page by page`)
          : button(`Show more of ${num(sum.count)}`, () => { open.set(sum.kind, MOST); page.wake?.(); });
        rows.push({ key: `more ${sum.kind}`, kind: "grandchild", cells: [more, ...HEADS.slice(1).map(() => "")] });
      }
      return undefined;
    });
    patch(list, table("Actors", HEADS, rows, "no actors"));
  }

  const isFiltered = kind || text || errors || after;
  await page.live(2000, async () => {
    await (isFiltered ? found() : tree());
    page.mount(() => body);
  });
}

export async function actor(page) {
  const [kind, name] = page.parts;
  const path = at(`/actors/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`, { brokerId: page.query.brokerId });
  const [top, summary, messages, recent, depths, restarts] = [h("h1"), h("div"), h("div"), h("div"), h("div"), h("div")];
  const seen = rates();
  const body = [h("p", {}, link("/actors", "Actors")), top, summary, section("Messages by type", messages), section("Last messages", recent), section("Waiting messages", depths), section("Restarts", restarts)];
  await page.live(2000, async () => {
    const one = await get(path, page.signal);
    page.title(`${kind} ${one.label ?? name}`);
    const to = STANDS_FOR[kind]?.(name);
    patch(top, `Actor: ${kind} ${one.label ?? (name === kind ? "" : name)}`);
    patch(summary, facts([
      ["State", badge(one.state)], ["Id", one.label || name !== kind ? code(name) : ""], ["Supervised by", one.parent && link(pathOf({ kind: one.parent, name: one.parent, brokerId: one.brokerId }), one.parent)],
      ["Broker", one.brokerId && link("/brokers", code(one.brokerId))],
      ["Stands for", to && link(to, one.label ?? `the ${kind}`)], ["Running for", span(one.age)], ["Restarts", num(one.restarts)], ["Messages that wait", num(one.queueDepth)],
      ["Messages handled", num(one.messagesHandled)], ["Messages per second", rate(seen.note("all", one.messagesHandled))],
      ["Time per message", one.timePerMessage === undefined ? "" : micros(one.timePerMessage)], ["Work that waits", one.waiting ? `${num(one.waiting)} requests` : ""], ["Last error", one.lastError],
    ]));
    patch(messages, table("Messages by type", ["Type", ["Handled", "n"], ["Messages/s", "n"], ["Time each", "n"]],
      one.messages.map(({ type, count, time }) => ({ key: type, cells: [code(type), num(count), rate(seen.note(type, count)), time === undefined ? "" : micros(time)] })),
      "It has handled no message yet."));
    patch(recent, table("Last messages", ["When", "Type", ["Time", "n"]], one.recent.map(({ type, at: instant, time }, i) => ({ key: `${instant}/${i}`, cells: [when(instant), code(type), micros(time)] })),
      "It has handled no message yet."));
    const handled = one.depths.reduce((sum, { count }) => sum + count, 0);
    const share = count => (handled ? `${(100 * count / handled).toFixed(count && count < handled ? 1 : 0)} %` : "");
    patch(depths, table("Waiting messages", [["Messages in the queue", "n"], ["When one was handled", "n"], ["Share", "n"]],
      one.depths.filter(({ count }) => count).map(({ upTo, count }) => ({ key: upTo ?? "more", cells: [upTo ? `up to ${num(upTo)}` : "more", num(count), share(count)] })),
      "It has handled no message yet."));
    patch(restarts, table("Restarts", ["When", "Reason"], one.crashes.map(({ at: instant, reason }, i) => ({ key: `${instant}/${i}`, cells: [when(instant), h("span", { class: "reason" }, reason)] })),
      "It has not been restarted."));
    page.mount(() => body);
  });
}
