// The command palette: `/` or Ctrl-K, a few letters, Enter. It finds pages, jobs, nodes, workers, sites, and runs by their id.

import { at, get } from "./api.js";
import { h } from "./dom.js";

const PAUSE = 150;
const MOST = 6;

const PAGES = [["Overview", "/"], ["Jobs", "/jobs"], ["New job", "/jobs/new"], ["Runs", "/runs"], ["Failed runs", "/runs?state=failed"], ["Running runs", "/runs?state=running"],
  ["Workers", "/workers"], ["Nodes", "/nodes"], ["Sites", "/sites"], ["Sites on hold", "/sites?held=true"], ["Groups", "/groups"], ["Alerts", "/alerts"],
  ["Packages", "/packages"], ["Brokers and settings", "/brokers"], ["Tokens", "/tokens"], ["Audit", "/audit"], ["Actors", "/actors"], ["Actors with errors", "/actors?errors=true"]];

const has = (text, part) => text.toLowerCase().includes(part.toLowerCase());

// What matches a text: { kind, name, to }. A part of the broker that does not answer finds nothing.
async function find(text, signal) {
  const some = path => get(path, signal).then(found => found.items ?? found, error => {
    if (error.name === "AbortError") throw error;
    return [];
  });
  const isId = /^[0-9a-f-]{4,36}$/i.test(text);
  const [jobs, nodes, workers, sites, runs] = await Promise.all([
    some(at("/jobs", { name: text, limit: MOST })), some(at("/actors", { kind: "node", text, limit: MOST })), some(at("/actors", { kind: "worker", text, limit: MOST })),
    some(at("/sites", { name: text, limit: MOST })), isId ? some(at("/runs", { id: text.replaceAll("-", ""), limit: MOST })) : [],
  ]);
  return [
    ...jobs.map(one => ({ kind: "job", name: one.name, to: `/jobs/${one.id}` })), ...runs.map(one => ({ kind: "run", name: `${one.jobName} ${one.identity}`, to: `/runs/${one.identity}` })),
    ...nodes.map(one => ({ kind: "node", name: one.label ?? one.name, to: `/nodes/${one.name}` })), ...workers.map(one => ({ kind: "worker", name: one.label ?? one.name, to: `/workers/${one.name}` })),
    ...sites.map(one => ({ kind: "site", name: one.name, to: `/sites?name=${encodeURIComponent(one.name)}` })),
  ];
}

// Opens it; a second time does nothing.
export function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  const input = h("input", { id: "palette", type: "text", autocomplete: "off", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Go to", placeholder: "A page, a job, a node, a worker, a site, the id of a run" });
  const list = h("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" });
  const dialog = h("dialog", { class: "palette", "aria-label": "Go to" }, input, list);
  let results = [];
  let chosen = 0;
  let timer;
  let asked = new AbortController();

  const go = to => {
    dialog.close();
    location.hash = to;
  };
  function draw() {
    chosen = Math.max(0, Math.min(chosen, results.length - 1));
    list.replaceChildren(...results.map(({ kind, name, to }, i) => h("li", { id: `palette-${i}`, role: "option", "aria-selected": String(i === chosen), onclick: () => go(to) },
      h("span", { class: "soft" }, kind), name)));
    if (!results.length) list.append(h("li", { class: "soft" }, "Nothing matches."));
    input.setAttribute("aria-activedescendant", results.length ? `palette-${chosen}` : "");
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }
  function look() {
    clearTimeout(timer);
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    const text = input.value.trim();
    const pages = PAGES.filter(([name]) => has(name, text)).map(([name, to]) => ({ kind: "page", name, to }));
    results = pages;
    draw();
    if (!text) return;
    timer = setTimeout(async () => {
      const found = await find(text, signal).catch(() => []);
      if (signal.aborted) return;
      // What was chosen meanwhile stays chosen.
      const kept = chosen > 0 && results[chosen];
      results = [...found, ...pages];
      if (kept) chosen = results.indexOf(kept);
      draw();
    }, PAUSE);
  }
  input.oninput = () => {
    chosen = 0;
    look();
  };
  input.onkeydown = event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : results.length - 1)) % Math.max(1, results.length);
      draw();
    } else if (event.key === "Enter" && results[chosen]) go(results[chosen].to);
    else return;
    event.preventDefault();
  };
  dialog.onclose = () => {
    clearTimeout(timer);
    asked.abort();
    dialog.remove();
  };
  dialog.onclick = event => event.target === dialog && dialog.close();
  document.body.append(dialog);
  dialog.showModal();
  look();
}

// `/` is typed into a field as itself; Ctrl-K opens the palette from everywhere.
export function listen() {
  document.addEventListener("keydown", event => {
    const isTyped = event.target.closest?.("input, textarea, select, [contenteditable]");
    const opens = (event.key === "/" && !isTyped && !event.ctrlKey && !event.metaKey && !event.altKey) || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey));
    if (!opens) return;
    event.preventDefault();
    openPalette();
  });
}
