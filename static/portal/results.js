// The results of a run: of a block run those that no worker has acknowledged yet, read without taking them; of others what the
// run or its instances left. To look at, and to save.

import { at, get } from "./api.js";
import { button, h, table } from "./dom.js";
import { bytes } from "./plots.js";
import { saveButton, saveJson } from "./save.js";
import { json, num, span, time } from "./text.js";
import { warcInfo, warcRecord } from "./warc.js";

const BLOCKS = 4;
// Characters of a body that are shown.
const SHOWN = 4000;

const raw = content => Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
const sizeOf = content => Math.floor(content.length * 3 / 4) - (content.endsWith("==") ? 2 : content.endsWith("=") ? 1 : 0);
const typeOf = one => one.headers.find(([name]) => name.toLowerCase() === "content-type")?.[1] ?? "";
const isText = type => /^(text\/|application\/(json|xml|javascript|xhtml|ld\+json)|image\/svg)/.test(type) || !type;

function body(one) {
  if (!one.content) return h("p", { class: "soft" }, "No body.");
  const type = typeOf(one);
  if (!isText(type)) return h("p", { class: "soft" }, `${bytes(sizeOf(one.content))} of ${type}: not text.`);
  const text = new TextDecoder().decode(raw(one.content));
  return h("pre", { tabindex: 0 }, text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${num(text.length - SHOWN)} more characters` : text);
}

// Opened when it is asked for: a body may be large.
function detail(one) {
  const box = h("div");
  return h("details", { ontoggle: event => event.target.open && !box.hasChildNodes() && box.append(h("pre", { tabindex: 0 }, one.headers.map(([name, value]) => `${name}: ${value}\n`)), body(one)) },
    h("summary", {}, "headers and body"), box);
}

const row = one => ({
  key: one.requestId,
  cells: [h("span", { class: "wrap" }, one.request.url), one.error ? one.error.kind : one.status, h("span", { class: "wrap" }, typeOf(one)), bytes(sizeOf(one.content)), span(one.time), time(one.fetchedAt), detail(one)],
});

// Of a block run: a list that is closed at first.
export function blockResults(id, isOver) {
  const rows = h("div");
  const note = h("p", { class: "error", role: "alert", hidden: true });
  const path = cursor => at(`/runs/${id}/results`, { cursor, limit: BLOCKS });
  const show = async cursor => {
    note.hidden = true;
    try {
      const { items, nextCursor } = await get(path(cursor));
      const next = nextCursor && button("Next page", () => show(nextCursor));
      const empty = isOver() ? "The run is over, so its results are deleted." : "There is no result that its worker has not acknowledged. Acknowledged results are deleted: the worker has them.";
      rows.replaceChildren(table("Results", ["URL", ["Status", "n"], "Type", ["Size", "n"], ["Time", "n"], "At", "Content"], items.flatMap(block => block.results).map(row), empty), ...(next ? [next] : []));
    } catch (problem) {
      note.textContent = problem.message;
      note.hidden = false;
    }
  };
  async function* lines() {
    for (let cursor; ;) {
      const page = await get(path(cursor));
      yield page.items.flatMap(({ blockId, results }) => results.map(one => JSON.stringify({ blockId, ...one })));
      if (!page.nextCursor) return;
      cursor = page.nextCursor;
    }
  }
  async function* records() {
    for (let cursor, isFirst = true; ;) {
      const page = await get(path(cursor));
      const some = page.items.flatMap(({ results }) => results.map(one => warcRecord(one, raw(one.content ?? ""))));
      // A file without a page is not made.
      if (some.length) {
        yield [...(isFirst ? [warcInfo()] : []), ...some];
        isFirst = false;
      }
      if (!page.nextCursor) return;
      cursor = page.nextCursor;
    }
  }
  return h("details", { ontoggle: event => event.target.open && !rows.hasChildNodes() && show() }, h("summary", {}, "Results that wait for the worker"),
    h("p", { class: "soft" }, "Looking at them takes nothing away from the worker. Bodies are base64 in JSON Lines. A WARC file has the pages as a web archive."),
    h("div", { class: "row" }, button("Refresh", () => show()), saveButton("Save as JSON Lines", `results-${id}.jsonl`, "application/jsonl", lines),
      saveButton("Save as WARC", `results-${id}.warc`, "application/warc", records, "records")), note, rows);
}

// Of any other run.
export function ownResult(run, instances) {
  const several = instances.filter(one => one.result !== undefined);
  const lines = several.map(one => JSON.stringify({ instance: one.instance, peer: one.peer, state: one.state, result: one.result }));
  async function* pages() { yield lines; }
  return [
    run.result !== undefined && json(run.result),
    h("div", { class: "row" }, run.result !== undefined && button("Save as JSON", () => saveJson(`result-${run.identity}.json`, run.result)),
      several.length > 1 && saveButton("Save the results of the instances as JSON Lines", `results-${run.identity}.jsonl`, "application/jsonl", pages)),
  ];
}
