// The versions of a job: who changed what, and any two of them side by side.

import { at, get } from "./api.js";
import { code, h, patch, table } from "./dom.js";
import { time } from "./text.js";

const MOST = 100;
// Members that each change changes.
const LEFT_OUT = new Set(["version", "updateTime", "updateBy", "nextFire", "lastFire", "lastRunTime", "fires", "failures", "activity"]);

// The leaves of a value by their paths.
function leaves(value, path = "", into = new Map()) {
  if (value !== null && typeof value === "object" && Object.keys(value).length) {
    for (const [key, one] of Object.entries(value)) if (path || !LEFT_OUT.has(key)) leaves(one, Array.isArray(value) ? `${path}[${key}]` : path ? `${path}.${key}` : key, into);
  } else if (value !== undefined) into.set(path, JSON.stringify(value));
  return into;
}

// What differs: [path, before, after]; undefined where a side has none.
export function differences(before, after) {
  const [old, fresh] = [leaves(before), leaves(after)];
  return [...new Set([...old.keys(), ...fresh.keys()])].sort().filter(path => old.get(path) !== fresh.get(path)).map(path => [path, old.get(path), fresh.get(path)]);
}

export function versions(id, signal) {
  const list = h("div");
  const [from, to] = ["from", "to"].map(name => h("select", { id: `v-${name}`, onchange: () => compare() }));
  const found = h("div", { role: "status" });
  const form = h("div", { class: "filter" }, h("div", {}, h("label", { for: "v-from" }, "Version"), from), h("div", {}, h("label", { for: "v-to" }, "compared with"), to));
  const root = h("div", {}, list, form, found);
  let items = [];

  const side = text => (text === undefined ? h("span", { class: "soft" }, "not there") : h("code", { class: "wrap" }, text));
  function compare() {
    const [one, other] = [from, to].map(select => items.find(change => String(change.id) === select.value));
    if (!one || !other) return;
    const rows = differences(one.job, other.job).map(([path, before, after]) => ({ key: path, cells: [code(path), side(before), side(after)] }));
    patch(found, table("Differences", ["Member", `Version ${one.version}`, `Version ${other.version}`], rows, "The two do not differ."));
  }

  async function look() {
    const fresh = (await get(at(`/jobs/${id}/history`, { limit: MOST }), signal)).items;
    if (fresh[0]?.id === items[0]?.id) return;
    items = fresh;
    patch(list, table("Changes", ["When", "What", "By", ["Version", "n"]], items.slice(0, 10).map(change => ({ key: change.id, cells: [time(change.at), change.action, change.by ?? "", change.version] })), "none"));
    const options = () => items.map(change => h("option", { value: change.id }, `${change.version}: ${change.action}`));
    [from, to].forEach(select => select.replaceChildren(...options()));
    [from.value, to.value] = [String((items[1] ?? items[0])?.id), String(items[0]?.id)];
    form.hidden = items.length < 2;
    if (items.length > 1) compare();
  }
  return { root, look };
}
