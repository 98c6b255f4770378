// The time zone in which the pages show times: the browser's, unless the reader chose another one, which this browser keeps.

import { ask } from "./dialog.js";
import { h } from "./dom.js";

const KEY = "zone";
const browser = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";

function formatOf(zone) {
  return new Intl.DateTimeFormat("en", {
    timeZone: zone, calendar: "gregory", numberingSystem: "latn", hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric",
  });
}

// A browser may keep nothing for a page, or something that is no zone.
function stored() {
  try {
    const zone = localStorage.getItem(KEY) || undefined;
    if (zone) formatOf(zone);
    return zone;
  } catch {
    return undefined;
  }
}

const chosen = stored();
const format = chosen && formatOf(chosen);
export const zoneHere = chosen ?? browser;

// The date and the time of day of an instant in that zone; the month from 1 on.
export function wall(date) {
  if (!format || Number.isNaN(date.getTime())) {
    return { year: date.getFullYear(), month: date.getMonth() + 1, day: date.getDate(), hour: date.getHours(), minute: date.getMinutes(), second: date.getSeconds() };
  }
  return Object.fromEntries(format.formatToParts(date).filter(({ type }) => type !== "literal").map(({ type, value }) => [type, Number(value)]));
}

const two = n => String(n).padStart(2, "0");

// `2026-11-21` of a date as `wall` gives it.
export const dayOf = ({ year, month, day }) => `${year}-${two(month)}-${two(day)}`;

// The instant of `2026-11-21T14:05:12` in that zone. A time that a change of clocks leaves out is read with the offset before the change.
export function instantOf(text) {
  if (!format) return new Date(text);
  const asUtc = date => {
    const { year, month, day, hour, minute, second } = wall(date);
    return Date.UTC(year, month - 1, day, hour, minute, second);
  };
  const wanted = Date.parse(`${text}Z`);
  let at = wanted;
  for (let i = 0; i < 2; i += 1) at = wanted - (asUtc(new Date(at)) - at);
  return new Date(at);
}

// Asks for the zone. The page is loaded again, so that all that it shows is in the new one.
export function chooseZone() {
  const names = Intl.supportedValuesOf?.("timeZone") ?? [];
  const options = [["", `the browser's (${browser})`], ["UTC", "UTC"], ...names.filter(name => name !== "UTC").map(name => [name, name])];
  return ask({
    title: "Time zone", text: "All times are shown in this zone. This browser keeps the choice.", action: "Use it",
    fields: [{ name: "zone", label: "Zone", kind: "select", options, value: chosen ?? "" }],
    act: async ({ zone }) => {
      if (zone) localStorage.setItem(KEY, zone);
      else localStorage.removeItem(KEY);
      location.reload();
    },
  });
}

// The word on the zone at the end of each page.
export const zoneNote = () => [chosen ? "Times are in the zone that you chose, " : "Times are in the zone of your browser, ", h("span", { id: "zone" }, zoneHere), ", unless another one stands beside them. ",
  h("button", { type: "button", class: "plain", onclick: chooseZone }, "Change the zone …")];
