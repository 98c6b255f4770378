// The form of a job, for a new one and for a change. It sends the whole of what it shows; what the broker finds wrong is
// shown beside the field that is meant, and a change never overwrites another one unseen.

import { Problem, at, get, post, put } from "./api.js";
import { tell } from "./dialog.js";
import { button, h, link, patch, table } from "./dom.js";
import { copy, isObject } from "./exact.js";
import { field, lines, pairs, tick } from "./fields.js";
import { COMMON, KIND, POLICIES } from "./jobspec.js";
import { scheduleOf } from "./schedule.js";

// `properties.a.b` has two parts: keys of properties may hold dots.
const partsOf = path => (path.startsWith("properties.") ? ["properties", path.slice(11)] : path.split("."));
const sameKey = (a, b) => a.replaceAll("_", "").toLowerCase() === b.replaceAll("_", "").toLowerCase();

function read(job, path) {
  const [first, ...rest] = partsOf(path);
  // Keys of properties count in any case, with underscores or without.
  if (first === "properties") return Object.entries(job.properties ?? {}).find(([key]) => sameKey(key, rest[0]))?.[1];
  return rest.reduce((value, part) => value?.[part], job[first]);
}

function write(job, path, value) {
  const parts = partsOf(path);
  let last = parts.pop();
  const target = parts.reduce((object, part) => (object[part] ??= {}), job);
  if (parts[0] === "properties") last = Object.keys(target).find(key => sameKey(key, last)) ?? last;
  if (value === undefined) delete target[last];
  else target[last] = value;
}

const control = spec => (spec.kind === "pairs" ? pairs({ ...spec, title: spec.label }) : field(spec));
const grid = controls => h("div", { class: "grid" }, controls.map(one => one.element));
const fold = (title, ...children) => h("details", {}, h("summary", {}, title), ...children);

function successorsOf() {
  return lines({
    path: "successors", title: "Jobs that begin when a run of this one ends", add: "Add a job", empty: "None.",
    make(value = {}) {
      const fields = [field({ path: "job", label: "Job", list: "jobs", hint: "Its name or its id." }),
        field({ path: "on", label: "After", kind: "select", options: [["success", "success"], ["failure", "failure"], ["always", "any end"]] })];
      fields[0].write(value.job);
      fields[1].write(value.on ?? "success");
      return { element: h("div", { class: "pair" }, fields.map(one => one.element)), fields, read: () => ({ job: fields[0].read() ?? "", on: fields[1].read() }) };
    },
  });
}

// The form around a job: its element, what it says, and where a problem is shown.
function formOf(base, isNew) {
  const common = COMMON.map(control);
  const enabled = tick({ path: "isEnabled", label: "Enabled" });
  const policies = POLICIES.map(control);
  const schedule = scheduleOf();
  const successors = successorsOf();
  const others = pairs({ path: "properties", title: "Other properties", add: "Add a property", empty: "None.", keyLabel: "Key", valueLabel: "Value" });
  const kinds = Object.fromEntries(Object.entries(KIND).map(([name, { says, fields, more }]) => {
    const [first, rest] = [fields.map(control), more.map(control)];
    const element = h("fieldset", {}, h("legend", {}, `What it runs: ${says}`), grid(first), fold("More", grid(rest)));
    return [name, { all: [...first, ...rest], element }];
  }));
  const radios = Object.entries(KIND).map(([name, { says }]) => h("label", { class: "choice" },
    h("input", { type: "radio", name: "kind", value: name, checked: base.jobType === name, onchange: () => show(name) }), h("span", {}, h("b", {}, name), ` ${says}`)));
  const summary = h("p", { class: "error", role: "alert", hidden: true });

  let kind = base.jobType;
  const show = name => {
    kind = name;
    for (const [one, { element }] of Object.entries(kinds)) element.hidden = one !== name;
  };
  show(kind);
  const plain = () => [...common, ...kinds[kind].all, ...policies];
  const isClaimed = key => kinds[kind].all.some(({ path }) => path.startsWith("properties.") && sameKey(path.slice(11), key));

  // What comes is shown with the form and not after it: nothing is to move under a hand that is about to click.
  let ready;
  const fill = job => {
    for (const one of [...common, ...policies, ...Object.values(kinds).flatMap(({ all }) => all)]) one.write(read(job, one.path));
    enabled.write(job.isEnabled ?? true);
    ready = schedule.write(job.schedule);
    successors.write(job.successors ?? []);
    others.write(Object.fromEntries(Object.entries(job.properties ?? {}).filter(([key]) => !isClaimed(key))));
    const { input } = kinds.callback.all.find(({ path }) => path === "callback.secret");
    if (job.callback?.secret === "") input.placeholder = "kept unless you type another one";
  };
  fill(base);

  const said = () => {
    const job = copy({ properties: {}, policies: base.policies ?? {}, task: base.task ?? {}, callback: base.callback ?? {} });
    for (const one of plain()) write(job, one.path, one.read());
    // Whatever is not shown in a field of its own, as it stands in the list; a field goes before it.
    const claimed = Object.fromEntries(Object.entries(job.properties).map(([key, value]) => [Object.keys(base.properties ?? {}).find(old => sameKey(old, key)) ?? key, value]));
    job.properties = { ...others.read(), ...claimed };
    // What is left empty is to be so, also if it was not before.
    Object.assign(job, { jobType: kind, name: job.name ?? "", description: job.description ?? "", group: job.group ?? "", priority: job.priority ?? 0 });
    for (const part of ["retry", "misfire", "keep"]) if (job.policies[part] && !Object.keys(job.policies[part]).length) delete job.policies[part];
    if (!base.policies && !Object.keys(job.policies).length) delete job.policies;
    if (kind === "callback") {
      job.callback.url ??= "";
      // An empty secret keeps the one that is stored.
      if (base.callback?.secret === "" && job.callback.secret === undefined) job.callback.secret = "";
    } else {
      delete job.callback;
    }
    // What is unchanged need not go through here: members that are absent stay.
    if (kind !== "task" || (!isNew && JSON.stringify(job.task) === JSON.stringify(base.task))) delete job.task;
    job.schedule = schedule.read();
    job.successors = successors.all.map(line => line.read());
    if (isNew) job.isEnabled = enabled.read() ?? false;
    return job;
  };

  const controls = () => [...plain(), ...schedule.fields(), ...successors.fields(), ...others.fields(), ...kinds[kind].all.flatMap(one => one.fields?.() ?? [])];
  // The field that is meant, or the nearest around it or in it.
  const nearest = path => {
    const all = controls().filter(one => one.input);
    const by = test => all.find(one => test(one.path));
    return by(own => own === path) ?? by(own => own.startsWith("properties.") && path.startsWith("properties.") && sameKey(own, path))
      ?? by(own => path.startsWith(own)) ?? by(own => own.startsWith(`${path}.`));
  };
  const fail = problem => {
    for (const one of controls()) one.fail?.("");
    summary.hidden = false;
    const found = problem.field && problem.field !== "schedule" && nearest(problem.field);
    summary.textContent = found ? `${problem.title || "Not saved"}. See the field that is marked.` : [problem.title, problem.message].filter(Boolean).join(": ");
    if (problem.field === "schedule") {
      schedule.note.textContent = problem.message;
      schedule.note.hidden = false;
    }
    if (!found) return summary.scrollIntoView({ block: "center" });
    found.fail(problem.message);
    for (let at_ = found.input; at_; at_ = at_.parentElement) if (at_.tagName === "DETAILS") at_.open = true;
    return found.input.focus();
  };

  const element = h("div", {},
    isNew && h("fieldset", {}, h("legend", {}, "Kind"), radios),
    h("fieldset", {}, h("legend", {}, "Job"), grid(common), isNew && enabled.element),
    Object.values(kinds).map(one => one.element), schedule.element,
    h("fieldset", {}, h("legend", {}, "Rules"), fold("Overlap, retries, timeouts, alerts, keeping", grid(policies)),
      fold("What follows, other properties", successors.element, others.element)), summary);
  const clear = () => {
    schedule.settle();
    summary.hidden = true;
    for (const one of controls()) one.fail?.("");
  };
  return { element, ready, said, fail, clear };
}

const options = (id, values) => h("datalist", { id }, values.map(([value, label]) => h("option", { value, label })));

async function suggestions(signal) {
  const none = { items: [] };
  const list = path => get(path, signal).catch(() => none);
  const [groups, jobs, packages] = await Promise.all([list(at("/groups", { limit: 1000 })), list(at("/jobs", { limit: 200, sort: "name" })), list(at("/packages"))]);
  return [options("groups", groups.items.map(({ name }) => [name])), options("jobs", jobs.items.map(({ name }) => [name])),
    options("packages", packages.items.map(({ url, name }) => [url, name])), options("zones", ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])].map(zone => [zone]))];
}

// A form that sends with `send`, and does not send twice at once. Who leaves what is typed is asked first.
function sending(page, form, label, send, cancel) {
  const go = h("button", { class: "main" }, label);
  const submit = async event => {
    event?.preventDefault();
    go.disabled = true;
    form.clear();
    try {
      await send();
    } catch (problem) {
      if (!(problem instanceof Problem)) console.error(problem);
      form.fail(problem);
    }
    go.disabled = false;
  };
  return h("form", { class: "job", onsubmit: submit, oninput: () => { page.isDirty = true; }, novalidate: true }, form.element, h("div", { class: "row bar" }, go, cancel));
}

// What a copy of a job begins with. A secret is not told, so it is not copied.
function copyOf(job) {
  const { name, jobType, description, group, priority, properties, schedule, policies, task, callback, successors } = job;
  return copy({ name: `${name} copy`, jobType, description, group, priority, isEnabled: false, properties: properties ?? {}, schedule, policies, task, callback: callback && { ...callback, secret: undefined }, successors });
}

export const newJob = page => page.once(() => create(page));

async function create(page) {
  page.title("New job");
  const from = page.query.from && await get(at(`/jobs/${encodeURIComponent(page.query.from)}`), page.signal);
  const form = formOf(from ? copyOf(from) : { jobType: KIND[page.query.kind] ? page.query.kind : "task", properties: {} }, true);
  const send = async () => {
    const job = await post(at("/jobs"), form.said());
    page.isDirty = false;
    tell(`${job.name} is created.`);
    location.hash = `/jobs/${job.id}`;
  };
  const lists = await suggestions(page.signal);
  await form.ready;
  page.isDirty = false;
  page.mount(() => [h("h1", {}, "New job"), from && h("p", {}, "A copy of ", link(`/jobs/${from.id}`, from.name), ". It is not enabled until you say so.", from.callback?.secret !== undefined && " Its secret is not copied."), sending(page, form, "Create the job", send, link("/jobs", "Cancel")), ...lists]);
}

// What differs between two jobs, by path.
function differences(a, b, path = "") {
  if (JSON.stringify(a) === JSON.stringify(b)) return [];
  if (!isObject(a) && !isObject(b)) return [[path, a, b]];
  const keys = new Set([...Object.keys(isObject(a) ? a : {}), ...Object.keys(isObject(b) ? b : {})]);
  return [...keys].flatMap(key => differences(a?.[key], b?.[key], path ? `${path}.${key}` : key));
}

const BOOKKEEPING = /^(version|updateTime|updateBy|nextFire|lastFire|lastRunTime|fires|failures)$/;
const shown = value => h("code", { class: "wrap" }, value === undefined ? "" : JSON.stringify(value));

export const changeJob = page => page.once(() => edit(page));

async function edit(page) {
  const { root, signal, parts: [id] } = page;
  const base = await get(at(`/jobs/${encodeURIComponent(id)}`), signal);
  page.title(`Edit ${base.name}`);
  const form = formOf(base, false);
  const conflict = h("div");
  let version = base.version;

  // Another change came first: nothing was written. It is shown, and the reader decides.
  const collided = async () => {
    const theirs = await get(at(`/jobs/${id}`));
    const rows = differences(base, theirs).filter(([path]) => !BOOKKEEPING.test(path)).map(([path, before, now]) => ({ key: path, cells: [path, shown(before), shown(now)] }));
    const over = button("Save mine over it", async () => {
      version = theirs.version;
      root.querySelector("form.job").requestSubmit();
    }, "danger");
    patch(conflict, h("div", { class: "conflict", role: "alert", tabindex: -1 },
      h("h2", {}, "Another change of this job came first"),
      h("p", {}, `You began with version ${version}, it is at ${theirs.version} now${theirs.updateBy ? `, changed by ${theirs.updateBy}` : ""}. Nothing of yours was saved, and nothing of theirs is lost.`),
      table("What they changed", ["What", "When you began", "Now"], rows, "They changed nothing that lasts."),
      h("div", { class: "row" }, button("Begin anew with theirs", () => edit(page).catch(problem => tell(problem.message, "bad"))), over)));
    conflict.firstChild.scrollIntoView({ block: "center" });
    conflict.firstChild.focus();
  };

  const send = async () => {
    patch(conflict);
    try {
      await put(at(`/jobs/${id}`), form.said(), { headers: { "If-Match": `"${version}"` } });
    } catch (problem) {
      if (!(problem instanceof Problem) || !problem.is("version")) throw problem;
      await collided();
      return;
    }
    page.isDirty = false;
    tell(`${base.name} is changed.`);
    location.hash = `/jobs/${id}`;
  };
  const lists = await suggestions(signal);
  await form.ready;
  page.isMounted = true;
  page.isDirty = false;
  root.replaceChildren(h("h1", {}, "Edit ", link(`/jobs/${id}`, base.name)), conflict, sending(page, form, "Save", send, link(`/jobs/${id}`, "Cancel")), ...lists);
}
