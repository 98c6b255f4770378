// Fields of forms: each shows a value of the API's JSON, reads it back, and shows what is wrong with it beside itself.

import { Problem } from "./api.js";
import { button, h } from "./dom.js";
import { typed } from "./exact.js";
import { exactSpan, local, readSpan } from "./text.js";
import { instantOf } from "./zone.js";

let count = 0;

const wrong = (path, detail) => new Problem({ detail, field: path });

// How each kind is written into an input, and read from it; an empty one is absent.
const KINDS = {
  text: { write: value => value, read: text => text },
  area: { write: value => value, read: text => text },
  secret: { write: value => value, read: text => text },
  select: { write: value => value, read: text => text },
  int: { write: String, read: text => (/^\s*-?\d+\s*$/.test(text) ? Number(text) : NaN), expects: "a whole number is expected" },
  number: { write: String, read: text => Number(text), expects: "a number is expected" },
  span: { write: exactSpan, read: readSpan, expects: "a length of time is expected: 500ms, 30s, 1h 30m, 2d" },
  instant: { write: value => local(new Date(value)).replace(" ", "T"), read: text => instantOf(text).toISOString() },
  json: { write: value => JSON.stringify(value, null, 2), read: typed, expects: "this is not JSON" },
  words: { write: value => value.join(", "), read: text => text.split(",").map(word => word.trim()).filter(Boolean) },
  codes: { write: value => value.join(", "), read: text => text.split(",").map(Number), expects: "numbers are expected, with commas" },
};

function inputOf({ kind = "text", options, placeholder, list }, id) {
  const common = { id, placeholder, autocomplete: "off", "aria-describedby": `${id}-hint ${id}-error` };
  if (kind === "select") return h("select", common, options.map(([value, text]) => h("option", { value }, text)));
  if (kind === "area" || kind === "json") return h("textarea", { ...common, rows: kind === "json" ? 4 : 2, spellcheck: "false" });
  const type = { instant: "datetime-local", secret: "password" }[kind] ?? "text";
  const mode = { int: "numeric", number: "decimal" }[kind];
  return h("input", { ...common, type, inputmode: mode, list, step: kind === "instant" ? 1 : undefined, spellcheck: kind === "text" ? undefined : "false" });
}

// One field: { path, label, kind, hint, options, placeholder, list, wide }.
export function field(spec) {
  const { path, label, kind = "text", hint, wide } = spec;
  count += 1;
  const id = `j${count}`;
  const input = inputOf(spec, id);
  const error = h("p", { id: `${id}-error`, class: "error", "aria-live": "polite", hidden: true });
  const parts = [h("label", { for: id }, label), input, h("p", { id: `${id}-hint`, class: "hint" }, hint), error];
  const element = h("div", { class: wide || kind === "json" || kind === "area" ? "field wide" : "field", "data-field": path }, parts);
  const { write, read, expects } = KINDS[kind];
  let before = { value: undefined, text: "" };
  return {
    path, element, input,
    write(value) {
      input.value = value === undefined || value === null ? "" : write(value);
      // What is not touched goes back as it came, to the last millisecond.
      before = { value: value ?? undefined, text: input.value };
    },
    read() {
      // A date that is not whole reads as none: it would take a bound away unseen.
      if (input.validity.badInput) throw wrong(path, "the date is not complete");
      if (input.value === before.text) return before.value;
      if (input.value.trim() === "") return undefined;
      try {
        const value = read(input.value);
        if ([value].flat().some(Number.isNaN)) throw new Error();
        return value;
      } catch (cause) {
        throw wrong(path, [expects ?? "a value is expected", cause.message].filter(Boolean).join(": "));
      }
    },
    fail(text) {
      error.textContent = text;
      error.hidden = text === "";
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    },
  };
}

// A box to tick; absent when it is not.
export function tick({ path, label }) {
  count += 1;
  const input = h("input", { type: "checkbox", id: `j${count}` });
  return {
    path, input, element: h("div", { class: "field tick", "data-field": path }, input, h("label", { for: `j${count}` }, label)),
    write(value) { input.checked = Boolean(value); },
    read: () => (input.checked ? true : undefined),
    fail() {},
  };
}

// Several of the same, each on a line of its own. `make(value)` gives { element, fields }, where the paths of fields are
// the parts after the index.
export function lines({ path, title, add: addText, empty = "", make }) {
  const all = [];
  const box = h("div", { class: "lines" });
  const none = h("p", { class: "soft" }, empty);
  const draw = () => { none.hidden = all.length > 0; };
  // The form around it takes a line that comes or goes for something typed.
  const changed = () => box.dispatchEvent(new Event("input", { bubbles: true }));
  const add = value => {
    const line = make(value);
    const drop = button("Remove", () => {
      all.splice(all.indexOf(line), 1);
      line.outer.remove();
      more.focus();
      draw();
      changed();
    });
    drop.setAttribute("aria-label", `Remove line of ${title.toLowerCase()}`);
    line.outer = h("div", { class: "line-item" }, line.element, drop);
    all.push(line);
    box.append(line.outer);
    draw();
    return line;
  };
  const more = button(addText, () => {
    add().fields[0].input.focus();
    changed();
  });
  draw();
  return {
    path, all,
    element: h("fieldset", { class: "field wide plain", "data-field": path }, h("legend", {}, title), none, box, more),
    write(values) {
      box.replaceChildren();
      all.length = 0;
      values.forEach(add);
      draw();
    },
    // The fields as they stand, under their whole paths.
    fields: () => all.flatMap((line, i) => line.fields.map(one => ({ ...one, path: `${path}[${i}].${one.path}` }))),
  };
}

// Names and texts, as properties and headers are.
export function pairs({ path, title, add, empty, keyLabel, valueLabel }) {
  const list = lines({
    path, title, add, empty,
    make([key, value] = []) {
      const fields = [field({ path: "key", label: keyLabel }), field({ path: "value", label: valueLabel })];
      fields[0].write(key);
      fields[1].write(value);
      return { element: h("div", { class: "pair" }, fields.map(one => one.element)), fields };
    },
  });
  return {
    ...list,
    write: (object = {}) => list.write(Object.entries(object)),
    read() {
      const out = {};
      for (const [key, value] of list.all.map(line => line.fields.map(one => one.read()))) {
        if (key === undefined && value !== undefined) throw wrong(path, `“${value}” has no name`);
        if (key === undefined) continue;
        if (Object.keys(out).some(other => other.toLowerCase() === key.toLowerCase())) throw wrong(`${path}.${key}`, `“${key}” is named twice`);
        out[key] = value ?? "";
      }
      return Object.keys(out).length ? out : undefined;
    },
    // An error names the key: `properties.ThreadNum`.
    fields: () => list.all.map(({ fields: [key, value] }) => ({ ...value, path: `${path}.${key.input.value}` })),
  };
}
