// Groups of jobs: made, renamed, taken away; their jobs enabled and disabled together.

import { at, get, post, put, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { address, button, h, link, pages, patch, table } from "./dom.js";
import { num, time } from "./text.js";

const fields = group => [
  { name: "name", label: "Name", value: group?.name, hint: "At most 50 characters, unique." },
  { name: "description", label: "Description", value: group?.description },
];

function actions(group, again) {
  const path = at(`/groups/${group.id}`);
  const done = text => made => made && tell(text);
  const change = () => ask({ title: `Change the group ${group.name}`, text: "Its jobs go by its new name from then on.", fields: fields(group), action: "Save", act: values => put(path, values) })
    .then(done("The group is changed.")).then(again);
  const enable = () => ask({ title: `Enable all jobs of ${group.name}?`, action: "Enable all", act: () => post(`${path}/enable`) })
    .then(made => made && tell(`${made.changed} of ${made.jobs} jobs were changed.`)).then(again);
  const disable = () => ask({
    title: `Disable all jobs of ${group.name}?`, action: "Disable all", act: values => post(`${path}/disable`, { ...values, reason: values.reason || undefined }),
    fields: [{ name: "mode", label: "Runs at work", kind: "select", options: [["drain", "go on to their end"], ["stop", "are stopped"]] }, { name: "reason", label: "Reason" }],
  }).then(made => made && tell(`${made.changed} of ${made.jobs} jobs were changed.`)).then(again);
  const drop = () => ask({ title: `Delete the group ${group.name}?`, text: "Only a group without jobs can be deleted.", action: "Delete", danger: true, act: () => remove(path) })
    .then(done("The group is deleted.")).then(again);
  return h("div", { class: "row" }, button("Change …", change), group.jobs > 0 && button("Enable all …", enable), group.jobs > 0 && button("Disable all …", disable),
    button("Delete …", drop));
}

export async function groups(page) {
  page.title("Groups");
  const list = h("div");
  const again = () => page.wake?.();
  const create = () => ask({ title: "New group", fields: fields(), action: "Create", act: values => post(at("/groups"), values) })
    .then(made => made && tell(`The group ${made.name} is there.`)).then(again);
  const body = [h("div", { class: "row title" }, h("h1", {}, "Groups"), button("New group …", create, "main")), list];
  await page.live(4000, async () => {
    const { items, nextCursor } = await get(at("/groups", page.query), page.signal);
    const rows = items.map(group => ({
      key: group.id,
      cells: [group.name, h("span", { class: "wrap" }, group.description ?? ""), link(address("/jobs", { group: group.name }), num(group.jobs)), num(group.nodes), time(group.updateTime), actions(group, again)],
    }));
    patch(list, table("Groups", ["Name", "Description", ["Jobs", "n"], ["Nodes", "n"], "Changed", "Actions"], rows,
      "No groups yet. A group is a name that jobs and nodes go by; it is also made when a job names it."), pages("/groups", page.query, nextCursor));
    page.mount(() => body);
  });
}
