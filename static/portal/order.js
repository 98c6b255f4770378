// Sorting by a click on the head of a column. The order is in the address.

import { address, link } from "./dom.js";

// The head of a column that sorts by `name`: `sort=name`, and `sort=-name` for the other direction.
export function sortable(path, query, name, text, { kind, usual = "" } = {}) {
  const now = query.sort || usual;
  const isUp = now === name;
  const isDown = now === `-${name}`;
  const to = address(path, { ...query, cursor: "", sort: isUp ? `-${name}` : name });
  return { text, kind, sort: isUp ? "ascending" : isDown ? "descending" : undefined, content: link(to, text, isUp ? " ▲" : isDown ? " ▼" : "") };
}

// Sorts what is all here by the values of a column. What has no value comes last.
export function sorted(items, query, columns, usual) {
  const asked = query.sort || usual;
  const name = asked.replace(/^-/, "");
  const of = columns[name];
  if (!of) return items;
  const sign = asked.startsWith("-") ? -1 : 1;
  const isNone = value => value === undefined || value === null || value === "";
  return items.toSorted((a, b) => {
    const [one, other] = [of(a), of(b)];
    if (isNone(one) || isNone(other)) return isNone(one) - isNone(other);
    return sign * (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);
  });
}
