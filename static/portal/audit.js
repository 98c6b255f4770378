// Who changed what, from where, and with which result.

import { at, get } from "./api.js";
import { h, pages, patch, table } from "./dom.js";
import { filter } from "./filter.js";
import { badge, jobLink, runLink, time } from "./text.js";
import { instantOf, zoneHere } from "./zone.js";

const isId = text => /^[0-9a-f]{32}$/.test(text ?? "");

function objectText({ kind, object }) {
  if (kind === "job" && isId(object)) return jobLink(object, object);
  if (kind === "run" && isId(object)) return runLink(object);
  return h("span", { class: "wrap" }, object ?? "");
}

function resultText(status) {
  if (status === undefined) return badge("unknown", "The broker ended before the call was answered, or it is still at work.");
  return badge(status < 400 ? "success" : "failed", `HTTP ${status}`);
}

// A time of the filter, which is in the reader's zone. The second in which the period ends is part of it.
function instant(text, more = 0) {
  const at = text ? instantOf(text) : NaN;
  return Number.isNaN(Number(at)) ? undefined : new Date(Number(at) + more).toISOString();
}

export async function audit(page) {
  page.title("Audit");
  const { query, signal } = page;
  const list = h("div");
  const body = [
    h("h1", {}, "Audit"),
    filter("/audit", query, [{ name: "caller", label: "Caller" }, { name: "kind", label: "Kind" }, { name: "object", label: "Object" }, { name: "operation", label: "Operation" },
      { name: "from", label: `From (${zoneHere})`, type: "datetime-local" }, { name: "to", label: "To", type: "datetime-local" }]),
    list,
  ];
  await page.live(4000, async () => {
    const { caller, kind, object, operation, cursor } = query;
    const { items, nextCursor } = await get(at("/audit", { caller, kind, object, operation, from: instant(query.from), to: instant(query.to, 999), cursor, limit: 50 }), signal);
    patch(list, table("Audit", ["When", "Caller", "Role", "From", "Operation", "Kind", "Object", "Members", "Result"], items.map(one => ({
      key: one.id,
      cells: [time(one.at), one.caller ?? "", one.role ?? "", one.forwardedFor ? `${one.forwardedFor} via ${one.address}` : one.address ?? "", one.operation, one.kind, objectText(one),
        h("span", { class: "wrap" }, one.members ?? ""), resultText(one.status)],
    })), "No call matches. Calls that change something are listed here; calls that make runs are not: each run shows who made it."), pages("/audit", query, nextCursor));
    page.mount(() => body);
  });
}
