// How far a block run is, how fast it goes, and what its blocks do. The rate is that of the last half minute, from what the
// page has seen itself.

import { brokerNow } from "./api.js";
import { h } from "./dom.js";
import { bytes } from "./plots.js";
import { percent, svg } from "./svg.js";
import { num, span } from "./text.js";

const WINDOW = 30000;
const FEW = 3000;

// Keeps what was seen: { done, bytes } at times. Gives both per second, or undefined before there is enough.
export function rates() {
  let seen = [];
  return (now, done, loaded) => {
    if (seen.length && (done < seen.at(-1).done || loaded < seen.at(-1).loaded)) seen = [];
    seen.push({ now, done, loaded });
    seen = seen.filter((one, i) => now - one.now <= WINDOW || i >= seen.length - 2);
    const first = seen[0];
    const seconds = (now - first.now) / 1000;
    return seconds * 1000 >= FEW ? { done: (done - first.done) / seconds, loaded: (loaded - first.loaded) / seconds } : undefined;
  };
}

const perSecond = n => (n >= 10 ? num(Math.round(n)) : n.toFixed(1));

// A bar of parts [name, count, class], with a legend that says the numbers.
export function parts(label, list) {
  const all = list.reduce((sum, [, count]) => sum + count, 0);
  let before = 0;
  const piece = ([name, count, kind]) => {
    const x = before / all;
    before += count;
    return count > 0 && svg("rect", { class: kind, x: percent(x), width: percent(count / all), height: 12 });
  };
  return h("div", { class: "parts" }, all > 0 && svg("svg", { class: "stack", height: 12, "aria-hidden": "true" }, list.map(piece)),
    h("ul", { "aria-label": label }, list.map(([name, count, kind]) => h("li", {}, h("span", { class: `mark ${kind}` }), `${name} `, h("b", {}, num(count))))));
}

export function progress(run, rate) {
  const done = run.success + run.error;
  const isOver = Boolean(run.finishTime);
  const seconds = run.startTime ? (new Date(run.finishTime ?? brokerNow()) - new Date(run.startTime)) / 1000 : 0;
  const speed = isOver ? seconds > 0 && `${perSecond(done / seconds)} requests/s on average, ${bytes(run.bytes / seconds)}/s`
    : run.pausedAt ? "paused" : rate ? `${perSecond(rate.done)} requests/s, ${bytes(rate.loaded)}/s` : "measuring the rate";
  const remains = !isOver && !run.pausedAt && run.left > 0 && rate
    && (rate.done > 0 ? `about ${span(1000 * run.left / rate.done)} left for the requests that are known` : "no request has ended in the last half minute");
  const { ready, using = 0, answered, total } = run.blocks;
  return [
    run.total > 0 && h("p", {}, h("progress", { class: "wide", max: run.total, value: done, "aria-label": `${num(done)} of ${num(run.total)} requests` }),
      ` ${num(done)} of ${num(run.total)} requests (${Math.floor(100 * done / run.total)} %)`),
    h("p", { class: "soft" }, [speed, remains].filter(Boolean).join("; ")),
    run.sites && h("p", {}, `${num(run.sites.total)} ${run.sites.total === 1 ? "site" : "sites"}: ${num(run.sites.active)} active, ${num(run.sites.held)} held`),
    h("h3", {}, "Blocks by state"),
    parts("Blocks by state", [["waiting for a node", ready, "c-busy"], ["at nodes", using, "c-accent"], ["answered, not yet acknowledged", answered, "c-violet"], ["acknowledged", Math.max(0, total - ready - using - answered), "c-ok"]]),
    run.total > 0 && [h("h3", {}, "Requests"), parts("Requests by result", [["succeeded", run.success, "c-ok"], ["failed", run.error, "c-bad"], ["left", run.left, "c-soft"]])],
    run.total === 0 && h("p", { class: "soft" }, isOver ? "Its worker pushed no request." : "Its worker has pushed no request yet."),
  ];
}
