// What the runs of a job brought: by day and hour as a heat map, and each run's duration and lateness as plots. All from its
// newest stored runs.

import { at, get } from "./api.js";
import { h, patch, table } from "./dom.js";
import { plot } from "./plot.js";
import { svg } from "./svg.js";
import { num, span } from "./text.js";
import { dayOf, wall } from "./zone.js";

const DAYS = 14;
const MOST = 1000;
const EVERY = 30000;
const CELL = 16;
const LEFT = 44;
const two = n => String(n).padStart(2, "0");

// Runs counted by day and hour of the reader's zone: [{ day, hours: [{ success, failed, other }] }], the newest day last.
export function byHour(runs, now) {
  const { year, month, day: today } = wall(now);
  const days = Array.from({ length: DAYS }, (_, i) => {
    const day = new Date(Date.UTC(year, month - 1, today - DAYS + 1 + i)).toISOString().slice(0, 10);
    return { day, hours: Array.from({ length: 24 }, () => ({ success: 0, failed: 0, other: 0 })) };
  });
  const known = new Map(days.map(one => [one.day, one]));
  for (const run of runs) {
    const at_ = wall(new Date(run.plannedAt ?? run.creationTime));
    const cell = known.get(dayOf(at_))?.hours[at_.hour];
    if (cell) cell[run.state === "success" ? "success" : run.state === "failed" ? "failed" : "other"] += 1;
  }
  return days;
}

// How dark a cell is: by how many runs it has, in four steps.
const step = (count, most) => Math.min(4, Math.ceil(4 * count / most));
const says = ({ success, failed, other }) => [success && `${num(success)} succeeded`, failed && `${num(failed)} failed`, other && `${num(other)} stopped or not over`].filter(Boolean).join(", ") || "no run";

function drawing(days, tell) {
  const most = Math.max(1, ...days.flatMap(({ hours }) => hours.map(one => one.success + one.failed + one.other)));
  const cell = (day, row) => (one, hour) => {
    const count = one.success + one.failed + one.other;
    const [x, y] = [LEFT + hour * CELL, 14 + row * CELL];
    const kind = one.failed ? "bad" : one.success ? "ok" : count ? "other" : "none";
    return [svg("rect", { class: `heat ${kind} s${step(count, most)}`, x, y, width: CELL - 2, height: CELL - 2, rx: 2, "data-told": `${day} ${two(hour)}:00: ${says(one)}` }),
      one.failed > 0 && svg("text", { x: x + (CELL - 2) / 2, y: y + 11, class: "failed", "text-anchor": "middle" }, "×")];
  };
  return svg("svg", { class: "heatmap", viewBox: `0 0 ${LEFT + 24 * CELL} ${14 + DAYS * CELL}`, "aria-hidden": "true", onpointermove: event => tell(event.target.dataset.told), onpointerleave: () => tell() },
    [0, 6, 12, 18].map(hour => svg("text", { x: LEFT + hour * CELL, y: 10 }, `${two(hour)}:00`)),
    days.map(({ day, hours }, row) => [svg("text", { x: 0, y: 25 + row * CELL }, day.slice(5)), hours.map(cell(day, row))]));
}

const USUAL = "Each cell is an hour; × marks one with a failed run. Point at a cell to see its counts.";

export function heat(id, signal) {
  const [grid, words] = [h("div"), h("div")];
  const told = h("p", { class: "told soft" }, USUAL);
  const plots = h("div", { class: "plots" });
  const note = h("p", { class: "soft" });
  const root = h("div", {}, h("div", { class: "panel" }, grid, told), h("details", {}, h("summary", {}, "The same by day, in numbers"), words), plots, note);
  let [seen, looked, data] = ["", 0, undefined];
  let lines;

  async function look(mark) {
    if (mark === seen || (seen && Date.now() - looked < EVERY)) return;
    const { items, nextCursor } = await get(at("/runs", { jobId: id, limit: MOST }), signal);
    [seen, looked] = [mark, Date.now()];
    data = items.toReversed();
    const days = byHour(items, new Date());
    patch(grid, drawing(days, text => { told.textContent = text ?? USUAL; }));
    const sum = hours => hours.reduce((all, one) => ({ success: all.success + one.success, failed: all.failed + one.failed, other: all.other + one.other }));
    patch(words, table("Runs by day", ["Day", "Runs"], days.toReversed().map(({ day, hours }) => ({ key: day, cells: [day, says(sum(hours))] })), ""));
    note.textContent = nextCursor ? `From the newest ${num(MOST)} runs; there are more.` : "";
  }

  // Once it is on the page: a plot has the width of its place.
  function show() {
    if (!data) return;
    const over = data.filter(run => run.startTime && run.finishTime);
    // One run is no line.
    if (!lines && over.length > 1) {
      const none = () => {};
      lines = [plot({ title: "Duration", lines: [{ name: "ok", label: "success", color: "c-ok", total: "last" }, { name: "bad", label: "not success", color: "c-bad", total: "last" }], format: span, onZoom: none, signal }),
        plot({ title: "Lateness", lines: [{ name: "late", label: "from the scheduled time to the start", color: "c-accent", total: "last" }], format: span, onZoom: none, signal })];
      plots.append(...lines.map(one => one.root));
    }
    if (!lines) return;
    const took = run => new Date(run.finishTime) - new Date(run.startTime);
    const when = run => Date.parse(run.startTime) / 1000;
    over.sort((a, b) => when(a) - when(b));
    lines[0].show([over.map(when), over.map(run => (run.state === "success" ? took(run) : null)), over.map(run => (run.state === "success" ? null : took(run)))], "each run that is over");
    const planned = data.filter(run => run.plannedAt && run.startTime).sort((a, b) => when(a) - when(b));
    lines[1].root.hidden = planned.length < 2;
    if (planned.length > 1) lines[1].show([planned.map(when), planned.map(run => Math.max(0, new Date(run.startTime) - new Date(run.plannedAt)))], "each scheduled run");
  }
  return { root, look, show };
}
