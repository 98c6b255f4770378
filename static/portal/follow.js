// The jobs that follow a job: as a graph, and the same as a nested list, each with a link and what starts it.

import { at, get } from "./api.js";
import { h, link } from "./dom.js";
import { jobState } from "./jobs.js";
import { svg } from "./svg.js";

const DEEP = 5;
const WORDS = { success: "if it succeeds", failure: "if it fails", always: "however it ends" };
const isId = text => /^[0-9a-f]{32}$/i.test(text);

// A successor is named by its id or its name.
async function find(name, signal) {
  if (isId(name)) return get(at(`/jobs/${name}`), signal).catch(() => undefined);
  const { items } = await get(at("/jobs", { name, limit: 1000 }), signal);
  return items.find(job => job.name === name);
}

async function branch(job, above, known, graph, signal) {
  const next = await Promise.all((job.successors ?? []).map(async one => {
    if (!known.has(one.job)) known.set(one.job, find(one.job, signal));
    return [one, await known.get(one.job)];
  }));
  if (!next.length) return null;
  const items = await Promise.all(next.map(async ([one, found]) => {
    const when = h("span", { class: "soft" }, ` ${WORDS[one.on] ?? `on ${one.on}`}`);
    const id = found?.id ?? `missing ${one.job}`;
    // A job that is reached by several ways stands where the longest one ends, so that lines lead to the right.
    const box = graph.boxes.get(id) ?? { id, name: found?.name ?? one.job, isThere: Boolean(found), depth: above.length };
    if (!above.includes(id)) box.depth = Math.max(box.depth, above.length);
    graph.boxes.set(id, box);
    graph.edges.set(`${job.id} ${id} ${one.on}`, { from: job.id, to: id, on: one.on });
    if (!found) return h("li", {}, one.job, when, h("span", { class: "error" }, " — there is no such job"));
    const isAgain = above.includes(found.id);
    return h("li", {}, link(`/jobs/${found.id}`, found.name), " ", jobState(found), when, isAgain ? h("span", { class: "warn" }, " — a circle: it is above, too")
      : above.length < DEEP ? await branch(found, [...above, found.id], known, graph, signal) : (found.successors ?? []).length > 0 && h("span", { class: "soft" }, " …"));
  }));
  return h("ul", {}, items);
}

const [WIDE, HIGH, STEP_X, STEP_Y, LETTERS] = [180, 28, 260, 48, 24];

// Boxes in columns by their distance from the first; a line for each way, with its condition.
function drawing({ boxes, edges }) {
  const columns = [...Map.groupBy(boxes.values(), ({ depth }) => depth)].sort(([a], [b]) => a - b);
  for (const [depth, some] of columns) some.forEach((box, i) => Object.assign(box, { x: 4 + depth * STEP_X, y: 4 + i * STEP_Y }));
  const most = Math.max(...columns.map(([, some]) => some.length));
  const [width, height] = [(columns.at(-1)[0]) * STEP_X + WIDE + 8, most * STEP_Y + 20];
  const edge = ({ from, to, on }) => {
    const [a, b] = [boxes.get(from), boxes.get(to)];
    const [x1, y1, x2, y2] = [a.x + WIDE, a.y + HIGH / 2, b.x, b.y + HIGH / 2];
    // A line back, or past a column, goes around the boxes.
    const low = Math.max(a.y, b.y) + HIGH + 16;
    const path = b.depth <= a.depth ? `M${a.x + WIDE / 2},${a.y + HIGH} C${a.x + WIDE / 2},${low} ${b.x + WIDE / 2},${low} ${b.x + WIDE / 2},${b.y + HIGH + 6}`
      : b.depth > a.depth + 1 ? `M${x1},${y1} C${x1 + 40},${low + 12} ${x2 - 40},${low + 12} ${x2 - 7},${y2}` : `M${x1},${y1} C${x1 + 40},${y1} ${x2 - 40},${y2} ${x2 - 7},${y2}`;
    return svg("path", { class: on, d: path, "marker-end": "url(#arrow)" }, svg("title", {}, `${b.name} ${WORDS[on] ?? on}`));
  };
  const node = ({ id, name, isThere, depth, x, y }) => {
    const text = svg("text", { x: x + 8, y: y + HIGH / 2 + 4 }, name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name, svg("title", {}, isThere ? name : `${name}: there is no such job`));
    return [svg("rect", { x, y, width: WIDE, height: HIGH, rx: 4, class: depth ? undefined : "own" }), isThere && depth ? svg("a", { href: `#/jobs/${id}` }, text) : text];
  };
  return h("div", { class: "graph" }, svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Graph of the jobs that follow" },
    svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8" }))),
    [...edges.values()].map(edge), [...boxes.values()].map(node)),
  h("ul", { class: "keys" }, [["success", "c-ok"], ["failure", "c-bad"], ["any end", "c-soft"]].map(([word, color]) => h("li", {}, h("span", { class: `mark ${color}` }), `after ${word}`))));
}

export async function successors(job, signal) {
  const graph = { boxes: new Map([[job.id, { id: job.id, name: job.name, isThere: true, depth: 0 }]]), edges: new Map() };
  const list = await branch(job, [job.id], new Map(), graph, signal);
  return list && [drawing(graph), h("details", {}, h("summary", {}, "The same as a list"), h("div", { class: "tree" }, h("p", {}, h("b", {}, job.name)), list))];
}
