// The time line of a run: when it was scheduled, made and sent, its attempts per worker or node, its end. Instances that run
// beside each other are lanes. What is under the pointer is told with its exact times; the table below says the same to all.

import { brokerNow } from "./api.js";
import { h, patch, table } from "./dom.js";
import { percent, svg } from "./svg.js";
import { badge, local, named, nodeName, num, span, time } from "./text.js";

// Lanes that are drawn.
const LANES = 60;

const ms = instant => (instant ? Date.parse(instant) : undefined);
// With milliseconds: what happens in a run is often shorter than a second.
// A time on the scale, as exact as its length asks for.
const label = (at, length) => (length < 10000 ? exact(at) : local(new Date(at))).slice(length > 86400000 ? 0 : 11);
const exact = at => `${local(new Date(at))}.${String(new Date(at).getMilliseconds()).padStart(3, "0")}`;

// All attempts of a run, as { lane, label, attempt, peer, peerName, state, reason, from, to }. Earlier ones are in their own
// list; the last one of an instance in that of the instances, or in the run itself.
export function attemptsOf(run, instances, attempts, workerName) {
  const all = new Map();
  const put = (instance, one) => {
    const key = `${instance}/${one.attempt}`;
    const known = Object.fromEntries(Object.entries(one).filter(([, value]) => value !== undefined && value !== null));
    all.set(key, { instance, ...all.get(key), ...known });
  };
  for (const one of attempts) put(one.instance, one);
  for (const one of instances) put(one.instance, { attempt: one.attempt, peer: one.peer, peerName: one.peerName, state: one.state, reason: one.reason, startTime: one.startTime, finishTime: one.finishTime });
  if (!instances.length && run.startTime) {
    const isFirst = run.attempt <= 1;
    const waits = run.state === "pending" && !isFirst;
    if (!waits) put(0, { attempt: Math.max(run.attempt, 1), peer: run.workerId, peerName: workerName, state: run.state, reason: run.reason, startTime: isFirst ? run.startTime : undefined, finishTime: run.finishTime });
  }
  return [...all.values()].sort((a, b) => a.instance - b.instance || a.attempt - b.attempt);
}

function nameOf(one, run) {
  if (one.peerName) return one.peerName;
  if (one.peer) return `worker …${one.peer.slice(-6)}`;
  return run.kind === "callback" ? "broker" : "";
}

// The lanes below that of the run: one for each instance, or, of a run with one instance, for each worker that had it.
function lanesOf(run, attempts, blocks) {
  const several = attempts.some(one => one.instance > 0);
  const lanes = new Map();
  for (const one of attempts) {
    const peer = nameOf(one, run);
    const key = several ? one.instance : peer;
    const label = several ? `${one.instance}${peer && ` · ${peer}`}` : peer || "attempts";
    if (!lanes.has(key)) lanes.set(key, { label, bars: [], ticks: [] });
    const text = `attempt ${one.attempt}${peer && ` at ${peer}`}: ${one.state}${one.reason ? `, ${one.reason}` : ""}`;
    lanes.get(key).label = label;
    lanes.get(key).bars.push({ from: ms(one.startTime), to: ms(one.finishTime), kind: one.state, text });
  }
  for (const block of blocks) {
    if (!block.finishTime || !block.nodeId) continue;
    const key = `node ${block.nodeId}`;
    if (!lanes.has(key)) lanes.set(key, { label: nodeName(block.nodeId, block.nodeName), bars: [], ticks: [] });
    lanes.get(key).ticks.push({ at: ms(block.finishTime), kind: block.error ? "failed" : "success", text: `block of ${num(block.requests)} requests answered by ${lanes.get(key).label}: ${num(block.success)} succeeded, ${num(block.error)} failed` });
  }
  return [...lanes.values()];
}

// The lane of the run itself: it waits until it is sent, and then it runs.
function ownLane(run, now) {
  const [planned, made, sent, end] = [run.plannedAt, run.creationTime, run.startTime, run.finishTime].map(ms);
  const first = Math.min(planned ?? made, made);
  const bars = [
    { from: first, to: sent ?? end ?? now, kind: "waiting", text: "waited to be sent" },
    sent !== undefined && { from: sent, to: end ?? now, kind: run.state, text: end ? `the run: ${run.state}` : "the run, so far" },
  ].filter(Boolean);
  const ticks = [
    planned !== undefined && { at: planned, kind: "event", text: "scheduled for" }, { at: made, kind: "event", text: "decided: the run was made" },
    sent !== undefined && { at: sent, kind: "event", text: "first attempt sent" }, end !== undefined && { at: end, kind: "event", text: `ended: ${run.state}` },
    run.state === "pending" && run.notBefore && { at: ms(run.notBefore), kind: "event", text: "next attempt not before" },
  ].filter(Boolean);
  return { label: "run", bars, ticks };
}

// The drawing. It is made once; its `show` takes what was read last.
export function timeline() {
  const lanes = h("div", { class: "lanes" });
  const told = h("p", { class: "told soft" });
  const scale = h("div", { class: "scale soft", "aria-hidden": "true" });
  const root = h("figure", { class: "timeline", "aria-label": "Time line of the run" }, lanes, scale, told);
  let [from, to] = [0, 1];
  const rest = () => { told.textContent = `From ${exact(from)} to ${exact(to)}: ${span(to - from)}. Point at a part to see its times.`; };

  // Under the pointer: the time, and what is drawn there.
  lanes.onpointermove = event => {
    const drawing = event.target.closest("svg");
    if (!drawing) return rest();
    const box = drawing.getBoundingClientRect();
    const at = from + (to - from) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const text = event.target.dataset.told;
    told.textContent = text ? `${text} (pointer at ${exact(at)})` : exact(at);
    return undefined;
  };
  lanes.onpointerleave = rest;

  const place = at => (at - from) / (to - from);
  const bar = (one, now) => {
    const [begin, end] = [one.from ?? one.to, one.to ?? now];
    if (begin === undefined) return null;
    const text = `${one.text}: ${one.from === undefined ? "beginning not known" : exact(one.from)} to ${one.to === undefined ? "now" : exact(one.to)}, ${span(end - begin)}`;
    return svg("rect", { class: `bar ${one.kind}`, x: percent(place(begin)), width: percent(Math.max(0.002, place(end) - place(begin))), y: 4, height: 12, "data-told": text });
  };
  const tick = one => svg("rect", { class: `tick ${one.kind}`, x: percent(place(one.at)), width: 2, y: one.kind === "event" ? 0 : 3, height: one.kind === "event" ? 20 : 14, "data-told": `${one.text}: ${exact(one.at)}` });
  const lane = ({ label, bars, ticks }, now) => h("div", { class: "lane" }, h("span", { class: "label", title: label }, label),
    svg("svg", { class: "track", height: 20, "aria-hidden": "true" }, bars.map(one => bar(one, now)), ticks.map(tick)));

  function show(run, attempts, blocks = []) {
    const now = brokerNow();
    const own = ownLane(run, now);
    const all = lanesOf(run, attempts, blocks);
    const times = [own, ...all].flatMap(one => [...one.bars.flatMap(({ from: a, to: b }) => [a, b]), ...one.ticks.map(({ at }) => at)]).filter(at => at !== undefined);
    from = Math.min(...times);
    // A little room, so that what ended last is seen.
    to = Math.max(...times, run.finishTime ? 0 : now, from + 1);
    to += (to - from) * 0.01;
    patch(lanes, lane(own, now), all.slice(0, LANES).map(one => lane(one, now)),
      all.length > LANES && h("p", { class: "soft" }, `The first ${LANES} of ${num(all.length)} lanes; the table of instances has all.`));
    patch(scale, [0, 0.5, 1].map(part => h("span", {}, label(from + part * (to - from), to - from))));
    if (!lanes.matches(":hover")) rest();
  }
  return { root, show };
}

// The same in words, where there was more than one attempt.
export function attemptTable(run, attempts) {
  const several = attempts.some(one => one.instance > 0);
  return table("Attempts", [...(several ? [["Instance", "n"]] : []), ["Attempt", "n"], "Worker or node", "State", "Began", "Ended", ["Took", "n"], "Reason"],
    attempts.map(one => ({
      key: `${one.instance}/${one.attempt}`,
      cells: [...(several ? [one.instance] : []), one.attempt, one.peer ? named(nameOf(one, run), one.peer) : nameOf(one, run), badge(one.state), one.startTime ? time(one.startTime) : "not known",
        time(one.finishTime), one.startTime ? span(new Date(one.finishTime ?? brokerNow()) - new Date(one.startTime)) : "", h("span", { class: "reason" }, one.reason ?? "")],
    })), "");
}
