// Packages: the files that programs are delivered in; uploaded by choice or by drop.

import { at, get, remove, upload } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, h, patch, table } from "./dom.js";
import { bytes } from "./plots.js";
import { short, when } from "./text.js";

const SUFFIX = /\.(zip|tar\.gz|tgz)$/i;

export async function packages(page) {
  page.title("Packages");
  const list = h("div");
  const again = () => page.wake?.();
  const note = h("p", { class: "hint", role: "status" }, "A .zip or .tar.gz; the same bytes are stored once.");

  async function send(files) {
    const done = [];
    const say = text => {
      done.push(text);
      note.textContent = done.join(" ");
    };
    for (const file of files) {
      if (!SUFFIX.test(file.name)) {
        say(`${file.name} is neither a .zip nor a .tar.gz.`);
        continue;
      }
      note.textContent = `${done.join(" ")} Sending ${file.name}, ${bytes(file.size)} …`;
      try {
        const made = await upload(at("/packages", { name: file.name }), file, /\.zip$/i.test(file.name) ? "application/zip" : "application/gzip");
        say(`${made.name ?? file.name} is stored.`);
      } catch (problem) {
        say(`${file.name}: ${problem.message}`);
      }
      again();
    }
  }

  const input = h("input", { id: "package", type: "file", multiple: true, accept: ".zip,.tar.gz,.tgz", onchange: event => {
    send([...event.target.files]);
    // So that the same file may be chosen again.
    event.target.value = "";
  } });
  const drop = h("div", { class: "drop" }, h("label", { for: "package" }, "Upload a package: choose files, or drop them here"), input, note);
  drop.ondragover = event => {
    event.preventDefault();
    drop.classList.add("over");
  };
  drop.ondragleave = () => drop.classList.remove("over");
  drop.ondrop = event => {
    event.preventDefault();
    drop.classList.remove("over");
    send([...event.dataTransfer.files]);
  };
  const forget = one => ask({
    title: `Delete the package ${one.name ?? one.sha256.slice(0, 12)}?`, text: "The broker refuses this while a job or a run that is not over names it.", action: "Delete", danger: true,
    act: () => remove(at(`/packages/${one.sha256}`)),
  }).then(done => done && tell("The package is deleted.")).then(again);
  const copy = one => navigator.clipboard?.writeText(one.sha256).then(() => tell("The SHA-256 is copied."), () => tell("The browser does not allow to copy.", "bad"));

  const body = [h("h1", {}, "Packages"), drop, list];
  await page.live(2000, async () => {
    const { items } = await get(at("/packages"), page.signal);
    patch(list, table("Packages", ["Name", "SHA-256", ["Size", "n"], "Kind", "Uploaded", "By", "Actions"], items.map(one => ({
      key: one.sha256,
      cells: [h("span", { class: "wrap" }, one.name ?? ""), short(one.sha256), bytes(one.size), one.mediaType, when(one.creationTime), one.createBy ?? "",
        h("div", { class: "row" }, navigator.clipboard && button("Copy SHA-256", () => copy(one)), button("Delete …", () => forget(one)))],
    })), "No package yet. A package holds a program that runs on nodes; an application job names it."));
    page.mount(() => body);
  });
}
