// What the overview plots, and for which period. The period is in the address, so that it can be linked to and Back goes back.

import { at, brokerNow, get } from "./api.js";
import { address, h, link } from "./dom.js";
import { plot } from "./plot.js";
import { local, num, span } from "./text.js";

const HOUR = 3600000;
export const PERIODS = [["1h", HOUR, "1 hour"], ["6h", 6 * HOUR, "6 hours"], ["24h", 24 * HOUR, "24 hours"], ["7d", 168 * HOUR, "7 days"],
  ["30d", 720 * HOUR, "30 days"], ["1y", 8760 * HOUR, "1 year"]];
const STEPS = { 60000: "minute", 900000: "15 minutes", 21600000: "6 hours" };
const COLORS = ["c-bad", "c-busy", "c-accent", "c-violet", "c-teal", "c-soft"];

const sum = (name, label, color) => ({ name, label, color, total: "sum" });
const last = (name, label, color) => ({ name, label, color, total: "last" });
const most = (name, label, color) => ({ name, label, color, total: "max" });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const count = value => (value < 10000 ? num(Math.round(value * 10) / 10) : short.format(value));

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, n < 1 ? 0 : Math.floor(Math.log10(n) / 3));
  const value = n / 1000 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : Math.round(value * 10) / 10} ${units[power]}`;
}

// Title, what its numbers are per step or "", how they are written, and the lines.
const PLOTS = [
  ["Runs that ended", true, count, [sum("runs.success", "success", "c-ok"), sum("runs.failed", "failed", "c-bad"), sum("runs.stopped", "stopped", "c-soft")]],
  ["Scheduled times", true, count, [sum("fires.fired", "fired", "c-ok"), sum("fires.missed", "missed", "c-bad"), sum("fires.skipped", "skipped", "c-busy"), sum("fires.merged", "merged", "c-soft")]],
  ["Lateness", false, span, [most("lateness.p99", "made, p99", "c-accent"), most("lateness.p50", "made, p50", "c-teal"), most("delay.p99", "sent, p99", "c-busy"), most("delay.p50", "sent, p50", "c-soft")]],
  ["Active runs", false, count, [last("runs.running", "running", "c-accent"), last("runs.waiting", "waiting", "c-busy")]],
  ["Requests", true, count, [sum("requests.success", "success", "c-ok"), sum("requests.failed", "failed", "c-bad")]],
  ["Bytes downloaded", true, bytes, [sum("bytes", "bytes", "c-accent")]],
  ["Errors by kind", true, count, "errors."],
  ["Time to answer", false, span, [most("answer.p99", "p99", "c-accent"), most("answer.p50", "p50", "c-teal")]],
  ["Requests that wait", false, count, [last("requests.waiting", "requests", "c-accent")]],
  ["Nodes and workers online", false, count, [last("nodes.online", "nodes", "c-accent"), last("workers.online", "workers", "c-teal")]],
];

// The period of an address: a length up to now, or two times.
function periodOf(query) {
  const [from, to] = [Date.parse(query.from), Date.parse(query.to)];
  if (from < to) return { from, to, isFixed: true, name: "" };
  const [name, length] = PERIODS.find(([key]) => key === query.period) ?? PERIODS[0];
  return { length, name };
}

// The choice of a period, and the plots of it, until the page is left.
export function plots(query, signal) {
  const period = periodOf(query);
  const grid = h("div", { class: "plots" });
  const choice = h("nav", { class: "row periods", "aria-label": "Period" },
    PERIODS.map(([name, , text]) => h("a", { href: `#${address("/", { period: name })}`, class: "button", "aria-current": name === period.name ? "true" : undefined }, text)),
    period.isFixed && h("span", { class: "soft" }, `${local(new Date(period.from)).slice(0, 16)} to ${local(new Date(period.to)).slice(0, 16)}`),
    h("span", { class: "soft" }, period.isFixed ? link("/", "Back to now") : "Drag over a plot to zoom in."));
  const zoom = (from, to) => { location.hash = address("/", { from: new Date(from).toISOString(), to: new Date(to).toISOString() }); };
  const made = new Map();

  // A plot is made once; that of the errors again when there is another kind.
  function plotOf(title, lines, format) {
    const key = `${title} ${lines.map(({ name }) => name).join(" ")}`;
    if (made.get(title)?.key !== key) {
      const fresh = plot({ title, lines, format, onZoom: zoom, signal });
      const old = made.get(title);
      if (old) {
        old.plot.root.replaceWith(fresh.root);
        old.plot.destroy();
      } else grid.append(fresh.root);
      made.set(title, { key, plot: fresh });
    }
    return made.get(title).plot;
  }

  async function load(signal) {
    const ask = period.isFixed ? { from: new Date(period.from).toISOString(), to: new Date(period.to).toISOString() }
      : { from: new Date(brokerNow() - period.length).toISOString() };
    return get(at("/series", ask), signal);
  }

  // Once the grid is on the page, since a plot has the width of its place.
  function show({ from, to, step, values }) {
    const start = Date.parse(from) / 1000;
    const steps = values.bytes?.length ?? 0;
    const times = Array.from({ length: steps }, (_, i) => start + (i * step) / 1000);
    const none = times.map(() => null);
    const isOpen = Date.parse(to) > brokerNow();
    for (const [title, isPerStep, format, given] of PLOTS) {
      const kinds = typeof given === "string" ? Object.keys(values).filter(name => name.startsWith(given)) : [];
      const lines = typeof given === "string"
        ? kinds.map((name, i) => sum(name, name.slice(given.length), COLORS[i % COLORS.length])) : given;
      plotOf(title, lines, format).show([times, ...lines.map(({ name }) => values[name] ?? none)], isPerStep ? `per ${STEPS[step] ?? span(step)}` : "", isPerStep && isOpen);
    }
  }

  // How often it is worth to look again.
  const every = period.isFixed ? 60000 : Math.max(5000, Math.min(60000, period.length / 720));
  // Whether the last step is the present minute.
  const isFine = !period.isFixed && period.length <= 24 * HOUR;
  return { choice, grid, load, show, every, isFine };
}
