// One plot of values over time: lines, the numbers under the pointer, and a choice of a period by dragging.

import uPlot from "./uplot.js";
import { h } from "./dom.js";
import { local } from "./text.js";

const HEIGHT = 150;
const SYNC = uPlot.sync("overview");
const two = n => String(n).padStart(2, "0");

// Labels of times: hours and minutes, or days where the lines are that far apart.
function timeLabels(u, splits, axis, space, step) {
  const day = date => `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return splits.map((at, i) => {
    const date = new Date(at * 1000);
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
    if (step >= 86400) return day(date);
    return i === 0 || clock === "00:00" ? `${clock}\n${day(date)}` : clock;
  });
}

// A color of the style sheet. Canvases do not resolve `light-dark()`, so an element is asked.
const colorOf = element => getComputedStyle(element).color;

// Makes a plot, until the signal: it listens to the window and to the pointer over the other plots. { title, unit, lines: [{ name, label, color, total }], format, onZoom }. `total` tells what is shown without a pointer:
// "sum" of the period, or the "last" value. Its `show` takes times in seconds and the values of each line.
export function plot({ title, lines, format, onZoom, signal }) {
  const note = h("span", { class: "soft" });
  const values = lines.map(() => h("b", {}));
  const marks = lines.map(({ color }) => h("span", { class: `mark ${color}` }));
  const box = h("div", { class: "canvas" });
  const none = h("span", {}, "none in this period");
  const legend = h("div", { class: "legend" }, none, lines.map(({ label }, i) => h("span", {}, marks[i], label, " ", values[i])));
  const root = h("figure", { class: "plot", "aria-label": title }, h("figcaption", {}, h("span", { class: "name" }, title), note), box, legend);
  let chart;
  let data = [[], ...lines.map(() => [])];
  let totals = [];
  let caption = "";
  let made = "";

  const shown = value => (value === null || value === undefined ? "–" : format(value));
  const summary = (column, total) => {
    const known = column.filter(value => value !== null && value !== undefined);
    if (!known.length) return null;
    return total === "sum" ? known.reduce((sum, value) => sum + value, 0) : total === "max" ? Math.max(...known) : known.at(-1);
  };

  function tell(index) {
    const at = index === null || index === undefined ? undefined : data[0][index];
    note.textContent = at === undefined ? caption : local(new Date(at * 1000)).slice(0, 16);
    lines.forEach(({ total }, i) => {
      values[i].textContent = shown(at === undefined ? summary(totals[i], total) : data[i + 1][index]);
    });
  }

  function make() {
    const text = colorOf(note);
    const line = getComputedStyle(root).borderTopColor;
    chart?.destroy();
    chart = new uPlot({
      width: Math.max(box.clientWidth, 200), height: HEIGHT, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: { y: false, sync: { key: SYNC.key }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      select: { show: true },
      scales: { y: { range: (u, min, max) => [0, Math.max(max ?? 0, 1) * 1.05] } },
      axes: [
        { stroke: text, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 38, font: "11px system-ui, sans-serif", values: timeLabels, space: 70 },
        {
          stroke: text, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 58, font: "11px system-ui, sans-serif", space: 34,
          values: (u, splits) => splits.map(value => format(value)),
        },
      ],
      series: [{}, ...lines.map((one, i) => {
        const stroke = colorOf(marks[i]);
        return { label: one.label, stroke, width: 1.5, fill: i ? undefined : `color-mix(in srgb, ${stroke} 14%, transparent)`, points: { size: 4, fill: stroke } };
      })],
      hooks: {
        setCursor: [u => tell(u.cursor.idx)],
        setSelect: [u => {
          if (u.select.width < 6) return;
          const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          onZoom(from * 1000, to * 1000);
        }],
      },
    }, data, box);
  }

  // The last step may not be over: then its sums are part of the total, but a line to them would seem to fall.
  function show([times, ...columns], text, isOpen) {
    totals = columns;
    const hasMore = columns.some(column => column.filter(value => value !== null).length > 1);
    data = [times, ...columns.map(column => (isOpen && hasMore ? [...column.slice(0, -1), null] : column))];
    caption = text;
    none.hidden = lines.length > 0;
    const scheme = `${box.clientWidth} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
    if (scheme !== made) {
      made = scheme;
      make();
    } else chart.setData(data);
    if (chart.cursor.idx === null || chart.cursor.idx === undefined || chart.cursor.left < 0) tell(null);
    else tell(chart.cursor.idx);
  }

  const destroy = () => chart?.destroy();
  signal.addEventListener("abort", destroy);
  return { root, show, destroy };
}
