// The brokers of the database: who leads since when, and the settings in force.

import { at, get } from "./api.js";
import { h, patch, section, table } from "./dom.js";
import { badge, num, when } from "./text.js";

export async function brokers(page) {
  page.title("Brokers");
  const [list, settings] = [h("div"), h("div")];
  const body = [h("div", { class: "row title" }, h("h1", {}, "Brokers")), list, section("Settings in force", settings)];
  await page.live(2000, async () => {
    const [all, { items }] = await Promise.all([get(at("/brokers"), page.signal), get(at("/settings"), page.signal)]);
    patch(list, table("Brokers", ["Address", "Role", ["Open runs", "n"], "Leads since", ["Term", "n"], "Version", "Started", "Last seen"], all.map(one => ({
      key: one.id,
      cells: [[one.url, one.isThis && h("span", { class: "soft" }, " (this one)")], badge(one.role), one.executes ? num(one.runs) : h("span", { class: "soft" }, "executes none"), when(one.leadsSince), one.term === undefined ? "" : num(one.term), one.version,
        when(one.startedAt), when(one.lastSeen)],
    })), "no brokers"));
    patch(settings, table("Settings", ["Setting", "Value", "What it does"], items.map(one => ({
      key: one.name, cells: [h("code", {}, one.name), one.value, h("span", { class: "wrap" }, one.description)],
    })), ""));
    page.mount(() => body);
  });
}
