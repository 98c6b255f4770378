// The calendar of a job: how often it fires on each of the next days, and the times of one day.

import { at, get } from "./api.js";
import { button, h, patch } from "./dom.js";
import { distance, num, time } from "./text.js";

const DAY = 86400000;
const WEEKS = 5;
// Fires that one call lists: a job that fires more often is shown as far as they reach.
const MOST = 1000;
const EVERY = 60000;
const NAMES = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const two = n => String(n).padStart(2, "0");
const keyOf = date => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

// The days of the calendar, from the Monday of this week on.
function days(now) {
  const monday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - (now.getDay() + 6) % 7);
  return Array.from({ length: 7 * WEEKS }, (_, i) => new Date(monday.getFullYear(), monday.getMonth(), monday.getDate() + i));
}

export function calendar(id, signal) {
  const grid = h("div");
  const list = h("div", { role: "status" });
  const root = h("div", {}, grid, list);
  let [version, looked] = [undefined, 0];
  let [chosen, fires] = ["", []];

  function show() {
    const now = new Date();
    const today = keyOf(now);
    const byDay = Map.groupBy(fires, fire => keyOf(new Date(fire.at)));
    // What lies behind the last fire of a full list is not known.
    const known = fires.length < MOST ? Infinity : Date.parse(fires.at(-1).at);
    const cell = date => {
      const key = keyOf(date);
      const some = byDay.get(key) ?? [];
      const isCut = date.getTime() + DAY > known;
      const isOut = date.getTime() > known;
      const name = h("span", { class: "soft" }, date.getDate() === 1 || key === today ? key.slice(5) : String(date.getDate()));
      const count = some.length ? `${num(some.length)}${isCut ? "+" : ""}` : isOut ? "?" : "";
      const says = `${key}: ${some.length || isOut ? `${count} ${some.length === 1 ? "time" : "times"}` : "no time"}`;
      return h("td", { "data-key": key, class: [key === today && "today", key < today && "past", some.every(fire => fire.blackout) && some.length && "blackout"].filter(Boolean).join(" ") || undefined },
        some.length ? button([name, " ", h("b", {}, count)], () => pick(key), key === chosen ? "chosen" : undefined) : h("span", { title: says }, name, " ", count));
    };
    const all = days(now);
    const weeks = Array.from({ length: WEEKS }, (_, i) => h("tr", {}, all.slice(7 * i, 7 * i + 7).map(cell)));
    patch(grid, fires.length > 0 && h("table", { class: "calendar", "aria-label": "Coming times by day" }, h("thead", {}, h("tr", {}, NAMES.map(name => h("th", { scope: "col" }, name)))), h("tbody", {}, weeks)),
      fires.length === MOST && h("p", { class: "soft" }, `It fires so often that the calendar reaches only to the next ${num(MOST)} times.`),
      !fires.length && h("p", { class: "soft" }, "No time is coming. Give the job a schedule, or trigger it."));
    const some = byDay.get(chosen) ?? [];
    patch(list, chosen && [h("h3", {}, `Times on ${chosen}`),
      some.length ? h("p", { class: "times" }, some.slice(0, 100).map(fire => h("span", { title: fire.blackout ? `no run: ${fire.blackout}` : distance(fire.at), class: fire.blackout ? "soft" : undefined }, time(fire.at), fire.blackout ? " (no run)" : "", " ")),
        some.length > 100 && h("span", { class: "soft" }, `and ${num(some.length - 100)} more`)) : h("p", { class: "soft" }, "No time is left on this day.")]);
    return undefined;
  }
  function pick(key) {
    chosen = chosen === key ? "" : key;
    show();
  }

  async function look(job) {
    if (job.version === version && Date.now() - looked < EVERY) return;
    fires = (await get(at(`/jobs/${id}/next`, { count: MOST }), signal)).fires.filter(fire => Date.parse(fire.at) < Date.now() + 7 * WEEKS * DAY);
    [version, looked] = [job.version, Date.now()];
    show();
  }
  return { root, look };
}
