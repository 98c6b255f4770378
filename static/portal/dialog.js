// Questions before something is done. The dialog is the browser's own: it keeps the focus, and Escape leaves it.

import { h } from "./dom.js";
import { Problem } from "./api.js";

let count = 0;

// A name may hold white space that cannot be typed, or seen.
const fold = text => text.replace(/\s+/g, " ").trim();

// One field of a dialog: { name, label, kind, hint, options, value, check }.
function field({ name, label, kind = "text", hint, options, value }) {
  const id = `d${count}-${name}`;
  const common = { id, name, value, autocomplete: "off", "aria-describedby": `${id}-note` };
  let input;
  if (kind === "select") input = h("select", common, options.map(([key, text]) => h("option", { value: key }, text)));
  else if (kind === "area") input = h("textarea", { ...common, rows: 5, spellcheck: "false" });
  else input = h("input", { ...common, type: kind });
  const note = h("p", { id: `${id}-note`, class: "hint" }, hint);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, note);
}

// Asks, and does it. `act` gets the values by name; while it throws a problem, the dialog stays and shows it. `word` must
// be typed, where it is given. The answer is what `act` gave, or undefined if the dialog was left before. Then the signal is aborted that
// `act` gets too: what was sent is done all the same.
export function ask({ title, text = [], fields = [], word, action, danger = false, act }) {
  count += 1;
  const all = word === undefined ? fields : [...fields, { name: "word", label: `To confirm, type ${word}` }];
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const go = h("button", { class: danger ? "danger" : "main", disabled: word !== undefined }, action);
  const form = h("form", { method: "dialog" },
    h("h2", { id: `d${count}` }, title), [text].flat().map(line => h("p", {}, line)), all.map(field), error,
    h("div", { class: "row end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
  const dialog = h("dialog", { "aria-labelledby": `d${count}` }, form);
  if (word !== undefined) form.elements.word.oninput = () => { go.disabled = fold(form.elements.word.value) !== fold(word); };

  return new Promise(resolve => {
    const left = new AbortController();
    form.onsubmit = async event => {
      event.preventDefault();
      go.disabled = true;
      error.hidden = true;
      try {
        resolve(await act(Object.fromEntries(all.map(({ name }) => [name, form.elements[name].value])), left.signal) ?? true);
        dialog.close();
      } catch (problem) {
        if (!(problem instanceof Problem)) console.error(problem);
        error.textContent = problem.message;
        error.hidden = false;
        go.disabled = false;
        form.elements[problem.field]?.focus();
      }
    };
    dialog.onclose = () => {
      left.abort();
      dialog.remove();
      resolve(undefined);
    };
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A word on what was done, read out by screen readers; gone after a while.
export function tell(text, kind = "") {
  const box = document.getElementById("told");
  box.textContent = text;
  box.className = kind;
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { box.textContent = ""; }, 6000);
}
