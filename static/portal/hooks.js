// The hooks of a job: addresses at which other systems trigger it.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, code, h, patch, section, table } from "./dom.js";
import { time } from "./text.js";

export function hooks(job, signal) {
  const [list, fresh] = [h("div"), h("div")];
  const path = `/jobs/${job}/hooks`;
  const show = made => {
    const hide = () => fresh.replaceChildren();
    fresh.replaceChildren(h("div", { role: "status" }, h("p", {}, `The secret of the hook ${made.name}. It is shown only now. Send it in Webloom-Secret, or sign the body with it (X-Hub-Signature-256).`),
      h("pre", { id: "new-secret", tabindex: 0 }, made.secret), button("Hide", hide)));
  };
  const create = () => ask({ title: "New hook", text: "An address with a secret of its own. A POST to it triggers the job, and its body becomes the arguments of the run.",
    fields: [{ name: "name", label: "Name of the hook", hint: "Letters, digits and ._@- only. Runs show it." }], action: "Create", act: values => post(at(path), values) }).then(made => made && show(made)).then(look);
  const drop = hook => ask({ title: `Delete the hook ${hook.name}?`, text: "Calls to its address are rejected from now on.", action: "Delete", danger: true, act: () => remove(at(`${path}/${hook.id}`)) })
    .then(done => done && tell(`The hook ${hook.name} is deleted.`)).then(look);
  async function look() {
    const { items } = await get(at(path), signal);
    patch(list, table("Hooks", ["Name", "Address", "Created", "By", "Actions"], items.map(hook => ({
      key: hook.id,
      cells: [hook.name, code(location.origin + hook.path), time(hook.creationTime), hook.createBy ?? "", button("Delete …", () => drop(hook))],
    })), "No hook yet. With one, another system triggers this job by a POST."));
  }
  return { part: section("Hooks", h("div", { class: "row title" }, button("New hook …", create)), fresh, list), look };
}
