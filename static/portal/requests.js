// The requests of a block run: those that failed and those that have no result yet, looked at when they are asked for, since
// a run may have millions.

import { at, get, post } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, h, table } from "./dom.js";
import { num, runLink, time } from "./text.js";

const KINDS = [
  "dns", "connect", "tls", "timeout", "too-large", "body", "redirect", "protocol", "change-ip", "invalid", "refused", "robots", "discarded",
  "not-reported", "node-lost", "block", "other",
];
const LIMIT = 50;

// What was filled in, numbers as numbers.
function said(form) {
  const filled = [...form.elements].filter(field => field.name && field.value.trim() !== "");
  return Object.fromEntries(filled.map(field => [field.name, field.type === "number" ? Number(field.value) : field.value.trim()]));
}

// A list that is closed at first. Its filter is read when it is sent, and again for the action on all that match.
function list({ id, title, path, fields, heads, row, empty, action, act }) {
  const rows = h("div");
  const note = h("p", { class: "error", role: "alert", hidden: true });
  const word = path.replace("/", "-");
  const shown = fields.map(({ name, label, options, kind = "search" }) => {
    const of = `${word}-${name}`;
    const input = options
      ? h("select", { id: of, name }, h("option", { value: "" }, "any"), options.map(text => h("option", { value: text }, text)))
      : h("input", { id: of, name, type: kind, min: kind === "number" ? 0 : undefined });
    return h("div", {}, h("label", { for: of }, label), input);
  });
  const show = async cursor => {
    note.hidden = true;
    try {
      const { items, nextCursor } = await get(at(`/runs/${id}${path}`, { ...said(form), cursor, limit: LIMIT }));
      const next = nextCursor && button("Next page", () => show(nextCursor));
      rows.replaceChildren(table(title, heads, items.map(row), empty), ...(next ? [next] : []));
    } catch (problem) {
      note.textContent = problem.message;
      note.hidden = false;
    }
  };
  const form = h("form", { class: "filter", onsubmit: event => { event.preventDefault(); show(); } },
    shown, h("button", {}, "Show"), button(action, () => act(said(form)).then(done => done && show())));
  return h("details", { ontoggle: event => event.target.open && !rows.hasChildNodes() && show() }, h("summary", {}, title), form, note, rows);
}

const url = ({ url: text, method }) => h("span", { class: "wrap" }, method ? `${method} ${text}` : text);
const conditions = filter => Object.entries(filter).map(([name, value]) => `${name} ${value}`).join(", ");

// Asks, and queues the failed requests that a filter takes again.
export function requeue(id, isOver, filter) {
  return ask({
    title: "Queue failed requests again?", action: "Queue again",
    text: [
      Object.keys(filter).length ? `Those with ${conditions(filter)}, at most 1,000 at a time; each once.` : "All of them, at most 1,000 at a time; each once.",
      isOver() ? "The run is over: a new run of its job begins with them instead of its first requests." : "They become new requests of this run.",
    ],
    act: () => post(at(`/runs/${id}/requests/requeue`), filter),
  }).then(done => {
    if (!done) return undefined;
    tell(`${num(done.queued)} of ${num(done.found)} failed requests are queued again${done.more ? "; there are more" : ""}.`);
    if (done.identity) location.hash = `/runs/${done.identity}`;
    return done;
  });
}

export function failedRequests(id, isOver) {
  const act = filter => requeue(id, isOver, filter);
  return list({
    id, title: "Failed requests", path: "/requests", action: "Queue again …", act, empty: "No failed request matches.",
    fields: [{ name: "site", label: "Site" }, { name: "kind", label: "Error", options: KINDS }, { name: "status", label: "Status", kind: "number" }],
    heads: ["URL", "Error", ["Status", "n"], ["Tries", "n"], "At", "Message", "Queued again"],
    row: one => ({
      key: one.requestId,
      cells: [url(one), one.kind ?? "status", one.status, one.tries, time(one.finishTime), h("span", { class: "reason" }, one.message ?? ""),
        one.requeuedIn ? runLink(one.requeuedIn) : one.requeuedAs ? "yes" : ""],
    }),
  });
}

export function pendingRequests(id) {
  const act = filter => ask({
    title: "Discard pending requests?", action: "Discard", danger: true,
    text: [
      Object.keys(filter).length ? `Those with ${conditions(filter)}, at most 1,000 at a time.` : "All of them, at most 1,000 at a time.",
      "Each fails with the kind discarded, and can be queued again. Those at nodes are left alone.",
    ],
    act: () => post(at(`/runs/${id}/requests/discard`), Object.keys(filter).length ? filter : { all: true }),
  }).then(done => {
    if (done) tell(`${num(done.discarded)} of ${num(done.found)} pending requests are discarded${done.more ? "; there are more" : ""}.`);
    return done;
  });
  return list({
    id, title: "Pending requests", path: "/requests/pending", action: "Discard …", act, empty: "No pending request matches.",
    fields: [
      { name: "site", label: "Site" }, { name: "url", label: "Part of the URL" }, { name: "minDepth", label: "Minimum depth", kind: "number" },
      { name: "maxDepth", label: "Maximum depth", kind: "number" },
    ],
    heads: ["URL", "Site", ["Depth", "n"], ["Priority", "n"], ["Tries", "n"]],
    row: one => ({ key: one.requestId, cells: [url(one), one.site ?? "", one.depth, one.priority, one.tries] }),
  });
}
