// The calendar of a job: how often it fires on each of the next days, and the times of one day.

import { at, get } from "./api.js";
import { button, h, patch } from "./dom.js";
import { distance, num, time } from "./text.js";
import { dayOf, wall } from "./zone.js";

const DAY = 86400000;
const WEEKS = 5;
// Fires that one call lists: a job that fires more often is shown as far as they reach.
const MOST = 1000;
const EVERY = 60000;
const NAMES = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const keyOf = date => dayOf(wall(date));

// The days of the calendar, from the Monday of this week on: `2026-11-21`.
function days(now) {
  const { year, month, day } = wall(now);
  const today = new Date(Date.UTC(year, month - 1, day));
  const monday = day - (today.getUTCDay() + 6) % 7;
  return Array.from({ length: 7 * WEEKS }, (_, i) => new Date(Date.UTC(year, month - 1, monday + i)).toISOString().slice(0, 10));
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
    const known = fires.length < MOST ? "9999" : keyOf(new Date(fires.at(-1).at));
    const cell = key => {
      const some = byDay.get(key) ?? [];
      const isCut = key >= known;
      const isOut = key > known;
      const name = h("span", { class: "soft" }, key.endsWith("-01") || key === today ? key.slice(5) : String(Number(key.slice(8))));
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
