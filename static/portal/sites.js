// Sites: which are asked, which are held and why, and the operator's word on each.

import { at, get, getOnce, post } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, h, pages, patch, table } from "./dom.js";
import { filter } from "./filter.js";
import { num, runLink, when } from "./text.js";

const TIMES = [[600_000, "10 minutes"], [3_600_000, "1 hour"], [86_400_000, "1 day"], [604_800_000, "1 week"]];
const TIME = { name: "for", label: "For how long", kind: "select", options: TIMES };
const SITE = { name: "name", label: "Site", hint: "A host, an address, or an origin like http://127.0.0.1:8000." };

const EVERY = 10000;

const path = (name, word) => at(`/sites/${encodeURIComponent(name)}/${word}`);

// Holds this site, or one that is asked for.
function hold(site, again) {
  return ask({
    title: site ? `Hold ${site}?` : "Hold a site", text: "No run begins a request to it until the time is over, and nodes drop what they have of it.",
    fields: site ? [TIME] : [SITE, TIME], action: "Hold", danger: true,
    act: ({ name, for: ms }) => post(path(site ?? name.trim(), "hold"), { for: Number(ms) }),
  }).then(done => done && tell(`The site ${done.name} is held.`)).then(again);
}

function release(site, again) {
  return ask({
    title: `Release ${site}?`, text: "Runs ask it again at once, at its pace.", action: "Release", act: () => post(path(site, "release")),
  }).then(done => done && tell(`The site ${done.name} is ${done.held ? "still held" : "released"}.`)).then(again);
}

export const heldText = ({ held }) => (held ? [`${held.why}${held.by ? ` (${held.by})` : ""}, until `, when(held.until)] : "");

export const siteActions = ({ name, held }, again) =>
  h("div", { class: "row" }, button(held ? "Hold longer …" : "Hold …", () => hold(name, again)), held && button("Release …", () => release(name, again)));

const DELAYS = { default: "default", job: "job", operator: "operator", robots: "robots.txt", slowAnswers: "slow answers" };

const kinds = errors => errors.map(one => `${one.failed} ${one.kind ?? `HTTP ${one.status}`}`).join(", ");

// Reads the first sites of a run. The failed requests by kind are counted anew when more have failed, and not more often than every ten seconds.
export function sitesOf(id, noSites) {
  let [kindsOf, seen, looked, ended] = [new Map(), 0, 0];
  const list = query => at(`/runs/${id}/sites`, { limit: 100, ...query });
  async function count(failed, signal) {
    const { items } = await getOnce(list({ errors: true }), signal);
    kindsOf = new Map(items.map(site => [site.name, site.errors]));
    [seen, looked] = [failed, Date.now()];
  }
  async function read(isOver, signal) {
    const { items, nextCursor } = await (isOver ? getOnce(list(), signal) : get(list(), signal));
    const failed = items.reduce((sum, site) => sum + site.error, 0);
    if (failed !== seen && (isOver || Date.now() - looked >= EVERY)) await count(failed, signal);
    return { items: items.map(site => ({ ...site, errors: kindsOf.get(site.name) })), nextCursor };
  }
  return async (isOver, signal) => {
    if (isOver && ended) return ended;
    try {
      const sites = await read(isOver, signal);
      if (isOver) ended = sites;
      return sites;
    } catch (error) {
      return noSites(error);
    }
  };
}

const NONE = "No sites are listed. A host without a pace is listed only if its robots.txt is obeyed, its requests are limited, or it is or was on hold.";

// The sites of a run, for its page.
export const runSites = (items, again) => table("Sites",
  ["Site", ["Left", "n"], ["Successful", "n"], ["Failed", "n"], "By kind", ["Blocks at nodes", "n"], "Next request", ["Delay, ms", "n"], "Delay from",
    ["Connections", "n"], "Held", "Actions"],
  items.map(site => ({
    key: site.name,
    cells: [site.name, num(site.left), num(site.success), num(site.error), kinds(site.errors ?? []), num(site.atNodes), when(site.nextAt), site.delay === undefined ? "" : num(site.delay),
      DELAYS[site.delayBy] ?? "", site.connections === undefined ? "" : num(site.connections), heldText(site), siteActions(site, again)],
  })), NONE);

export async function sites(page) {
  page.title("Sites");
  const { query, signal } = page;
  const again = () => page.wake?.();
  const list = h("div");
  const body = [
    h("div", { class: "row title" }, h("h1", {}, "Sites"), button("Hold a site …", () => hold(undefined, again))),
    filter("/sites", query, [
      { name: "name", label: "Part of the name" }, { name: "held", label: "Held", options: [["", "any"], ["true", "held"], ["false", "not held"]] },
    ]),
    list,
  ];
  const isFiltered = query.name || query.held || query.cursor;
  const empty = isFiltered ? "No site matches the filter." : h("p", {}, "No run has asked a site with a pace yet, and none is held.");
  await page.live(2000, async () => {
    const { name, held, cursor } = query;
    const { items, nextCursor } = await get(at("/sites", { name, held, cursor, limit: 50 }), signal);
    patch(list, table("Sites", ["Site", "Held", "Next request", ["Delay, ms", "n"], ["Failures in a row", "n"], "Run whose turn it is", "Actions"],
      items.map(site => ({
        key: site.name,
        cells: [site.name, heldText(site), when(site.nextAt), site.delay === undefined ? "" : num(site.delay), num(site.failures), runLink(site.run),
          siteActions(site, again)],
      })), empty), pages("/sites", query, nextCursor));
    page.mount(() => body);
  });
}
