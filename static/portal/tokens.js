// Named tokens: made with a role and groups, shown once, revoked.

import { at, get, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { button, h, patch, table } from "./dom.js";
import { badge, time, when } from "./text.js";

const ROLES = [["readonly", "readonly: look"], ["operator", "operator: trigger, stop, retry and pause"], ["editor", "editor: change jobs"], ["admin", "admin: everything"],
  ["agent", "agent: be a node"], ["worker", "worker: be a worker"]];
const DAY = 86_400_000;

const fields = [
  { name: "name", label: "Name", hint: "Letters, digits and ._@- only. Histories show it." },
  { name: "role", label: "Role", kind: "select", options: ROLES },
  { name: "groups", label: "Groups", hint: "Names of groups with commas between them: the token sees only their jobs. Empty: all jobs. Only for readonly, operator and editor." },
  { name: "days", label: "Expires after days", hint: "Empty: when it is revoked." },
];

function bodyOf({ name, role, groups, days }) {
  const list = groups.split(",").map(part => part.trim()).filter(Boolean);
  const expireTime = days.trim() ? new Date(Date.now() + Number(days) * DAY) : undefined;
  return { name, role, groups: list.length ? list : undefined, expireTime: Number.isNaN(expireTime?.getTime()) ? days : expireTime?.toISOString() };
}

export async function tokens(page) {
  page.title("Tokens");
  const [list, fresh] = [h("div"), h("div")];
  const again = () => page.wake?.();
  const show = made => {
    const hide = () => fresh.replaceChildren();
    fresh.replaceChildren(h("div", { class: "box", role: "status" }, h("p", {}, `The text of the token ${made.name}. It is shown only now: the broker does not store it.`),
      h("pre", { id: "new-token", tabindex: 0 }, made.text), button("Hide", hide)));
  };
  const create = () => ask({ title: "New token", fields, action: "Create", act: values => post(at("/tokens"), bodyOf(values)) }).then(made => made && show(made)).then(again);
  const revoke = ({ name }) => ask({ title: `Revoke the token ${name}?`, text: "Calls with it are rejected from now on, and its connections end.", action: "Revoke", danger: true,
    act: () => remove(at(`/tokens/${encodeURIComponent(name)}`)) }).then(done => done && tell(`The token ${name} is revoked.`)).then(again);
  const body = [h("div", { class: "row title" }, h("h1", {}, "Tokens"), button("New token …", create, "main")), fresh, list];
  await page.live(5000, async () => {
    const { items } = await get(at("/tokens"), page.signal);
    patch(list, table("Tokens", ["Name", "Role", "Groups", "Expires", "Created", "By", "Actions"], items.map(token => ({
      key: token.name,
      cells: [token.name, token.role, h("span", { class: "wrap" }, token.groups?.join(", ") ?? "all"), token.isExpired ? badge("expired") : when(token.expireTime), time(token.creationTime),
        token.createBy ?? "", button("Revoke …", () => revoke(token))],
    })), "No named token yet. The tokens of the broker's command line and of its token file are not listed."));
    page.mount(() => body);
  });
}
