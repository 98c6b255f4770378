// Rows that can be chosen, and what is done with all that are chosen: asked for in one dialog, with a result for each.

import { ask } from "./dialog.js";
import { button, h, patch, table } from "./dom.js";
import { num } from "./text.js";

const AT_ONCE = 4;

// Does something with each, a few at a time, until the signal: [{ item, error }].
async function each(items, act, told, signal) {
  const left = items.map((item, i) => [item, i]);
  const results = [];
  const work = async () => {
    for (let next = left.shift(); next; next = left.shift()) {
      const [item, i] = next;
      const error = signal.aborted ? new Error("Not done: it was cancelled before.") : await act(item).then(() => undefined, problem => problem);
      results[i] = { item, error };
      told(results.filter(Boolean).length);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
  return results;
}

// Shows what became of each.
function show(title, results, nameOf) {
  const failed = results.filter(({ error }) => error).length;
  const close = button("Close", () => dialog.close(), "main");
  const rows = results.map(({ item, error }, i) => ({
    key: String(i), cells: [h("span", { class: "wrap" }, nameOf(item)), error ? h("span", { class: "error wrap" }, error.message) : h("span", { class: "state success" }, "done")],
  }));
  const dialog = h("dialog", { class: "results", "aria-labelledby": "several-title" },
    h("h2", { id: "several-title" }, title), h("p", { class: failed ? "error" : "" }, `${num(results.length - failed)} of ${num(results.length)} done${failed ? `, ${num(failed)} failed` : ""}.`),
    table("Results", ["Name", "Result"], rows, ""), h("div", { class: "row end" }, close));
  return new Promise(resolve => {
    dialog.onclose = () => {
      dialog.remove();
      resolve();
    };
    document.body.append(dialog);
    dialog.showModal();
    close.focus();
  });
}

// Rows of one list that can be chosen. { noun, key, nameOf, actions, again }: an action is { name, text, fields, danger, can, act }, where `can`
// says for which objects it makes sense and `act` gets an object and what was filled in. A dangerous one wants the number of objects typed.
export function chooser({ noun, key, nameOf, actions, again }) {
  const chosen = new Set();
  const bar = h("div", { class: "row several", role: "group", "aria-label": `Chosen ${noun}` });
  let items = [];
  // The noun is a plural that ends with s.
  const counted = count => `${num(count)} ${count === 1 ? noun.slice(0, -1) : noun}`;

  async function start(action, some) {
    const title = `${action.name} ${counted(some.length)}`;
    const progress = h("span", { role: "status" });
    let work;
    await ask({
      title: `${title}?`, fields: action.fields ?? [], action: action.name, danger: action.danger, word: action.danger ? String(some.length) : undefined,
      text: [action.text, some.slice(0, 5).map(nameOf).join(", ") + (some.length > 5 ? ` and ${num(some.length - 5)} more` : ""), progress].filter(Boolean),
      act: (values, signal) => {
        work = each(some, item => action.act(item, values), done => { progress.textContent = `${num(done)} of ${num(some.length)}`; }, signal);
        return work;
      },
    });
    // Of what was begun the results are shown, also if it was cancelled.
    const results = await work;
    if (!results) return;
    again();
    await show(title, results, nameOf);
    for (const { item, error } of results) if (!error) chosen.delete(key(item));
    sync();
  }

  function draw() {
    const some = items.filter(item => chosen.has(key(item)));
    bar.hidden = !some.length;
    patch(bar, h("span", {}, `${counted(some.length)} chosen:`), actions.map(action => {
      const able = action.can ? some.filter(action.can) : some;
      return h("button", { type: "button", class: action.danger ? "danger" : undefined, disabled: !able.length, onclick: () => start(action, able) }, `${action.name} …`);
    }), button("None", () => {
      chosen.clear();
      sync();
    }));
  }
  const boxes = () => [...document.querySelectorAll("input.choose")];
  // What is drawn says what is chosen.
  function sync() {
    const known = new Set(items.map(key));
    for (const one of [...chosen]) if (!known.has(one)) chosen.delete(one);
    for (const box of boxes()) box.checked = chosen.has(box.value);
    const all = document.querySelector("input.choose-all");
    if (all) {
      all.checked = items.length > 0 && chosen.size === items.length;
      all.indeterminate = chosen.size > 0 && chosen.size < items.length;
    }
    draw();
  }
  const toggle = event => {
    if (event.target.checked) chosen.add(event.target.value);
    else chosen.delete(event.target.value);
    sync();
  };
  return {
    bar,
    // The head and the cell of the first column.
    head: () => ({ text: "", kind: "pick", content: h("input", { type: "checkbox", class: "choose-all", "aria-label": `Choose all ${noun} of this page`, onchange: event => {
      chosen.clear();
      if (event.target.checked) for (const item of items) chosen.add(key(item));
      sync();
    } }) }),
    cell: item => h("input", { type: "checkbox", class: "choose", value: key(item), "aria-label": `Choose ${nameOf(item)}`, onchange: toggle }),
    // To be called with what is listed, after it was drawn.
    drawn(listed) {
      items = listed;
      sync();
    },
  };
}
