// Keys for lists: the row above and below, to choose it, to open it; and what all keys do.

import { h, table } from "./dom.js";

const KEYS = [["/ or Ctrl-K", "Go to a page, a job, a node, a worker, a site or a run"], ["j, k", "The next and the previous row of a list"], ["x", "Choose the row, or take the choice back"],
  ["Enter", "Open what has the focus"], ["f", "To the filter of the list"], ["?", "These keys"], ["Escape", "Close a dialog"],
  ["← →, Home, End", "In a plot: the numbers of another time"]];

const rows = () => [...document.querySelectorAll("main table tbody tr")].filter(row => row.checkVisibility() && row.querySelector("a[href]"));
const rowOf = element => element?.closest?.("main table tbody tr");

function move(by) {
  const all = rows();
  const at = all.indexOf(rowOf(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.querySelector("a[href]").focus();
  next?.scrollIntoView({ block: "nearest" });
}

function help() {
  const dialog = h("dialog", { "aria-labelledby": "keys-title" }, h("h2", { id: "keys-title" }, "Keys"),
    table("Keys", ["Key", "What it does"], KEYS.map(([key, text]) => ({ key, cells: [h("kbd", {}, key), text] })), ""),
    h("form", { method: "dialog", class: "row end" }, h("button", { class: "main" }, "Close")));
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
}

const ACTS = {
  j: () => move(1), k: () => move(-1), "?": help, f: () => document.querySelector("main form.filter input, main form.filter select")?.focus(),
  x: () => rowOf(document.activeElement)?.querySelector("input.choose")?.click(),
};

export function listKeys() {
  document.addEventListener("keydown", event => {
    const isTyped = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (isTyped || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const act = ACTS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
