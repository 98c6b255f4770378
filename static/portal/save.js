// Files that the page makes from what it reads: the browser saves them as if they were downloaded.

import { tell } from "./dialog.js";
import { button } from "./dom.js";
import { num } from "./text.js";

// Bytes after which a file is cut: it is made in the memory of the tab.
const MOST = 256 << 20;

export function save(name, parts, type) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

export const saveJson = (name, value) => save(name, [JSON.stringify(value, null, 2), "\n"], "application/json");

// Copies a text; whether it could. Where the page came by plain HTTP from another machine there is no
// clipboard, and a browser may refuse it: then a field is copied.
export async function copyText(text) {
  if (navigator.clipboard && await navigator.clipboard.writeText(text).then(() => true, () => false)) return true;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "skip";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

// A button that reads a list page by page and saves each item: a text as a line, a blob as it is. `pages` gives lists of them.
export function saveButton(text, name, type, pages, noun = "lines") {
  const run = async event => {
    const own = event.target;
    const parts = [];
    let [size, count] = [0, 0];
    own.disabled = true;
    try {
      for await (const page of pages()) {
        for (const item of page) {
          const isBlob = item instanceof Blob;
          parts.push(isBlob ? item : `${item}\n`);
          size += isBlob ? item.size : item.length + 1;
        }
        count += page.length;
        tell(`${num(count)} ${noun} read`);
        if (size > MOST) break;
      }
      if (!count) tell("There is nothing to save.");
      else {
        save(name, parts, type);
        tell(`${num(count)} ${noun} saved as ${name}${size > MOST ? "; the file was cut at 256 MB" : ""}.`);
      }
    } catch (problem) {
      tell(problem.message, "bad");
    } finally {
      own.disabled = false;
    }
  };
  return button(text, run);
}
