// Jobs as files: one is saved, and several are read after a look at what would change.

import { at, upload } from "./api.js";
import { tell } from "./dialog.js";
import { button, h, patch, table } from "./dom.js";
import { saveJson } from "./save.js";
import { num } from "./text.js";

// Members of a job in a file, as `GET /api/v1/jobs/export` gives them.
const MEMBERS = ["name", "jobType", "description", "group", "priority", "isEnabled", "disabledReason", "properties", "schedule", "policies", "callback", "task", "successors"];

export function jobFile(job) {
  const exported = Object.fromEntries(MEMBERS.filter(member => job[member] !== undefined && job[member] !== null).map(member => [member, job[member]]));
  saveJson(`job-${job.name.replace(/[^\w.-]+/g, "_").slice(0, 60)}.json`, [exported]);
}

// Asks for a file, shows what it would do, and does it.
export function importJobs(again) {
  const found = h("div", { role: "status" });
  const go = button("Import", () => run(false), "main");
  go.disabled = true;
  let text = "";

  async function run(dryRun) {
    go.disabled = true;
    try {
      const items = await upload(at("/jobs/import", { dryRun }), text, /^\s*[[{]/.test(text) ? "application/json" : "application/yaml");
      patch(found, table("What the file does", ["Job", "Result"], items.map(({ name, action }, i) => ({ key: String(i), cells: [h("span", { class: "wrap" }, name), dryRun ? `would be ${action}` : action] })), "The file has no job."));
      go.disabled = !dryRun || !items.length;
      if (dryRun) return;
      tell(`${num(items.filter(({ action }) => action !== "unchanged").length)} of ${num(items.length)} jobs were changed.`);
      again();
      input.value = "";
    } catch (problem) {
      patch(found, h("p", { class: "error", role: "alert" }, problem.message, problem.field ? ` (${problem.field})` : ""));
    }
  }

  const input = h("input", { id: "jobs-file", type: "file", accept: ".json,.yaml,.yml", onchange: async event => {
    const [file] = event.target.files;
    if (!file) return;
    text = await file.text();
    await run(true);
  } });
  const dialog = h("dialog", { class: "results", "aria-labelledby": "import-title" }, h("h2", { id: "import-title" }, "Import jobs"),
    h("p", {}, "A JSON or YAML file of jobs, as \"Save as JSON\" and the export make them. A job that exists by its name is changed, others are created. First you see what the file would do."),
    h("div", { class: "field" }, h("label", { for: "jobs-file" }, "File"), input), found, h("div", { class: "row end" }, button("Close", () => dialog.close()), go));
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
}
