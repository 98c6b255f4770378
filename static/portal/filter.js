// The filter above a list. It lives in the address, so that a list can be linked to, and Back goes back.

import { address, h } from "./dom.js";

// Fields are { name, label, options } for a choice, { name, label, type } for another kind of input, else a text.
export function filter(path, query, fields) {
  const go = form => {
    const said = Object.fromEntries(fields.map(({ name }) => [name, form.elements[name].value.trim()]));
    location.hash = address(path, { sort: query.sort, ...said });
  };
  const shown = fields.map(({ name, label, options, type = "search" }) => {
    const id = `f-${name}`;
    const input = options
      ? h("select", { id, name, value: query[name] || options[0][0], onchange: event => go(event.target.form) },
        options.map(([value, text]) => h("option", { value }, text)))
      : h("input", { id, name, type, step: type === "datetime-local" ? 1 : undefined, value: query[name] ?? "" });
    return h("div", {}, h("label", { for: id }, label), input);
  });
  return h("form", {
    class: "filter", role: "search", onsubmit: event => {
      event.preventDefault();
      go(event.target);
    },
  }, shown, h("button", {}, "Filter"));
}

export const KINDS = [["", "any"], ["block", "block"], ["task", "task"], ["application", "application"], ["callback", "callback"]];
