// One plot of values over time: lines, the numbers under the pointer, and a choice of a period by dragging.

import uPlot from "./uplot.js";
import { h } from "./dom.js";
import { tell as announce } from "./dialog.js";
import { local } from "./text.js";
import { wall, zoneHere } from "./zone.js";

const HEIGHT = 150;
const SYNC = uPlot.sync("overview");
const two = n => String(n).padStart(2, "0");

// Labels of times: hours and minutes, or days where the lines are that far apart.
function timeLabels(u, splits, axis, space, step) {
  const day = date => `${two(date.month)}-${two(date.day)}`;
  return splits.map((at, i) => {
    const date = wall(new Date(at * 1000));
    const clock = `${two(date.hour)}:${two(date.minute)}${step < 60 ? `:${two(date.second)}` : ""}`;
    if (step >= 86400) return day(date);
    return i === 0 || clock.startsWith("00:00") && step >= 60 ? `${clock}\n${day(date)}` : clock;
  });
}

// One point alone, or none, is shown in an hour.
function periodOf(u, min, max) {
  if (min === null || min === undefined) return [Date.now() / 1000 - 3600, Date.now() / 1000];
  return min === max ? [min - 1800, max + 1800] : [min, max];
}

// Points without neighbours are drawn, since no line shows them; `null`: all are drawn, or none.
export function alone(u, series, show) {
  if (show) return null;
  const column = u.data[series];
  const is = value => value !== null && value !== undefined;
  const found = column.flatMap((value, i) => (is(value) && !is(column[i - 1]) && !is(column[i + 1]) ? [i] : []));
  return found.length ? found : null;
}

// A color of the style sheet. Canvases do not resolve `light-dark()`, so an element is asked.
const colorOf = element => getComputedStyle(element).color;

// Makes a plot, until the signal: it listens to the window and to the pointer over the other plots. { title, unit, lines: [{ name, label, color, total }], format, onZoom }. `total` tells what is shown without a pointer:
// "sum" of the period, or the "last" value. Its `show` takes times in seconds and the values of each line.
export function plot({ title, lines, format, onZoom, signal }) {
  const note = h("span", { class: "soft" });
  const values = lines.map(() => h("b", {}));
  const marks = lines.map(({ color }) => h("span", { class: `mark ${color}` }));
  // Keys move the pointer: a step, ten steps, to the ends. Enter has the numbers read out.
  const box = h("div", { class: "canvas", tabindex: 0, role: "img", "aria-label": `${title}: plot. The arrow keys move the pointer, Enter reads the numbers.`, onkeydown: event => point(event) });
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

  function point(event) {
    const end = data[0].length - 1;
    if (!chart || end < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = chart.cursor.idx ?? end;
    const steps = event.shiftKey ? 10 : 1;
    const to = { ArrowLeft: now - steps, ArrowRight: now + steps, Home: 0, End: end }[event.key];
    if (event.key === "Enter") announce(`${title}, ${note.textContent}: ${lines.map(({ label }, i) => `${label} ${values[i].textContent}`).join(", ")}`);
    else if (event.key === "Escape") chart.setCursor({ left: -10, top: -10 }, true, true);
    else if (to === undefined) return;
    else chart.setCursor({ left: chart.valToPos(data[0][Math.min(end, Math.max(0, to))], "x"), top: 10 }, true, true);
    event.preventDefault();
  }

  function make() {
    const text = colorOf(note);
    const line = getComputedStyle(root).borderTopColor;
    chart?.destroy();
    chart = new uPlot({
      width: Math.max(box.clientWidth, 200), height: HEIGHT, legend: { show: false }, padding: [8, 20, 0, 0],
      // Ticks stand at whole hours and days of the reader's zone.
      tzDate: at => uPlot.tzDate(new Date(at * 1000), zoneHere),
      cursor: { y: false, sync: { key: SYNC.key }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      select: { show: true },
      scales: { x: { range: periodOf }, y: { range: (u, min, max) => [0, Math.max(max ?? 0, 1) * 1.05] } },
      axes: [
        { stroke: text, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 38, font: "11px system-ui, sans-serif", values: timeLabels, space: 70 },
        {
          stroke: text, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 58, font: "11px system-ui, sans-serif", space: 34,
          // Where several have the same text, the last one shows it.
          values: (u, splits) => splits.map(value => format(value)).map((text, i, all) => (text === all[i + 1] ? "" : text)),
        },
      ],
      series: [{}, ...lines.map((one, i) => {
        const stroke = colorOf(marks[i]);
        return { label: one.label, stroke, width: 1.5, fill: i ? undefined : `color-mix(in srgb, ${stroke} 14%, transparent)`, points: { size: 4, fill: stroke, filter: alone } };
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

  // A window that was made wider or narrower does not wait for new data.
  const size = new ResizeObserver(() => {
    if (chart && box.clientWidth && Math.max(box.clientWidth, 200) !== chart.width) chart.setSize({ width: Math.max(box.clientWidth, 200), height: HEIGHT });
  });
  size.observe(box);

  const destroy = () => {
    size.disconnect();
    chart?.destroy();
  };
  signal.addEventListener("abort", destroy);
  return { root, show, destroy };
}
