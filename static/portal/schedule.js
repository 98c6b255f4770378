// The schedule in the form of a job: triggers, a zone, and what would come of them, asked of the broker while it is typed.

import { Problem, at, post } from "./api.js";
import { h, patch } from "./dom.js";
import { field, lines, tick } from "./fields.js";
import { preview } from "./job.js";
import { SCHEDULE } from "./jobspec.js";
import { zoneHere } from "./zone.js";

const WAIT = 300;
const TRIGGERS = [["cron", "by cron"], ["every", "at intervals"], ["at", "at one time"]];

// One trigger: a choice of its kind, and the fields of that kind.
function trigger(value = { cron: "" }) {
  const fields = {
    cron: field({ path: "cron", label: "Cron expression", placeholder: "30 2 * * MON-FRI", hint: "Minute, hour, day, month, weekday; six fields begin with seconds. Also @daily and its kin." }),
    every: field({ path: "every", label: "Every", kind: "span", placeholder: "15m", hint: "500ms, 30s, 1h 30m; 0: once, then the job is disabled." }),
    anchor: field({ path: "anchor", label: "Counted from", kind: "instant", hint: "Empty: from now." }),
    afterEnd: tick({ path: "afterEnd", label: "Count from the end of the last run" }),
    at: field({ path: "at", label: "At", kind: "instant", hint: `In ${zoneHere}, as all times of this page.` }),
  };
  const shown = { cron: ["cron"], every: ["every", "anchor", "afterEnd"], at: ["at"] };
  const kind = field({ path: "kind", label: "Runs", kind: "select", options: TRIGGERS });
  const show = () => {
    for (const [name, one] of Object.entries(fields)) one.element.hidden = !shown[kind.input.value].includes(name);
  };
  kind.write(TRIGGERS.map(([name]) => name).find(name => value[name] !== undefined) ?? "cron");
  for (const [name, one] of Object.entries(fields)) one.write(value[name]);
  kind.input.onchange = show;
  show();
  return {
    element: h("div", { class: "grid" }, kind.element, Object.values(fields).map(one => one.element)),
    fields: [kind, ...Object.values(fields)],
    read() {
      const names = shown[kind.input.value];
      const out = Object.fromEntries(names.map(name => [name, fields[name].read()]));
      // What is missing is missing in the field that is shown; of a cron expression the broker says so.
      if (kind.input.value === "cron") out.cron ??= "";
      else if (out[names[0]] === undefined) throw new Problem({ detail: "a value is expected", field: names[0] });
      return out;
    },
    isEmpty() {
      const { input } = fields[shown[kind.input.value][0]];
      return input.value.trim() === "" && !input.validity.badInput;
    },
  };
}

export function scheduleOf() {
  const coming = h("div", { class: "preview", "aria-live": "polite" });
  const note = field({ path: "schedule", label: "" }).element.lastChild;
  const triggers = lines({ path: "schedule.triggers", title: "It runs by itself", add: "Add a trigger", empty: "By hand only, until you add a trigger.", make: trigger });
  const zone = field({ path: "schedule.zone", label: "Time zone", list: "zones", placeholder: "UTC", hint: "The name in which cron and blackouts are meant." });
  const more = SCHEDULE.map(field);
  let base = {};
  let asked = new AbortController();
  let timer;

  const all = () => [...triggers.fields(), { ...triggers, fail() {} }, zone, ...more];
  const read = () => {
    const out = { ...base, triggers: [], zone: zone.read() };
    for (const one of more) out[one.path.split(".")[1]] = one.read();
    out.triggers = triggers.all.map((line, i) => {
      try {
        return line.read();
      } catch (problem) {
        problem.field = `schedule.triggers[${i}].${problem.field}`;
        throw problem;
      }
    });
    return JSON.parse(JSON.stringify(out));
  };
  const fail = problem => {
    const found = all().find(one => one.path === problem.field);
    if (found) found.fail(problem.message);
    else {
      note.textContent = problem.message;
      note.hidden = false;
    }
    return found;
  };
  const clear = () => {
    for (const one of all()) one.fail("");
    note.hidden = true;
  };
  const ask = async () => {
    asked.abort();
    asked = new AbortController();
    // What is not typed yet is no mistake yet.
    if (!triggers.all.length || triggers.all.some(line => line.isEmpty())) return patch(coming);
    try {
      const schedule = read();
      const answer = await post(at("/jobs/preview"), { schedule, count: 5 }, { signal: asked.signal });
      clear();
      patch(coming, h("h2", {}, "It would run next"), preview(answer));
    } catch (problem) {
      if (problem.name === "AbortError") return undefined;
      clear();
      patch(coming);
      fail(problem);
    }
    return undefined;
  };
  // While it is typed, but not at every letter.
  function look() {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  }

  // Nothing more is asked about what was typed so far: an answer that came later would take away what the form says of it.
  const settle = () => {
    clearTimeout(timer);
    asked.abort();
  };

  const element = h("fieldset", { oninput: look, onchange: look }, h("legend", {}, "Schedule"), triggers.element, h("div", { class: "grid" }, zone.element), note,
    h("details", {}, h("summary", {}, "Bounds, daylight saving, blackouts"), h("div", { class: "grid" }, more.map(one => one.element))), coming);
  return {
    element, read, settle, fields: all, note,
    write(schedule) {
      base = schedule ?? {};
      triggers.write(base.triggers ?? []);
      zone.write(base.zone);
      for (const one of more) one.write(base[one.path.split(".")[1]]);
      return ask();
    },
  };
}
