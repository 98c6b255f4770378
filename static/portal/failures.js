// The failed requests of a block run by kind, each kind with a button that queues it again.

import { at, get } from "./api.js";
import { button, h, patch, table } from "./dom.js";
import { requeue } from "./requests.js";
import { num } from "./text.js";

const EVERY = 10000;

// It is counted anew when more have failed, and not more often than every ten seconds.
export function failures(id, isOver, again) {
  const box = h("div");
  let [seen, looked] = [-1, 0];
  const act = filter => requeue(id, isOver, filter).then(done => {
    if (!done) return;
    seen = -1;
    looked = 0;
    again();
  });
  const row = one => {
    const filter = one.kind ? { kind: one.kind } : { status: one.status };
    const open = one.failed - one.requeued;
    return {
      key: one.kind ?? `status ${one.status}`,
      cells: [one.kind ?? `status ${one.status}`, num(one.failed), num(one.requeued), open > 0 ? button("Queue again …", () => act(filter)) : ""],
    };
  };
  async function look(run, signal) {
    if (run.error === seen || Date.now() - looked < EVERY) return;
    const { items, more } = await get(at(`/runs/${id}/requests/counts`), signal);
    [seen, looked] = [run.error, Date.now()];
    const open = items.reduce((sum, one) => sum + one.failed - one.requeued, 0);
    patch(box, table("Failed requests by kind", ["Kind", ["Failed", "n"], ["Queued again", "n"], "Again"], items.map(row), "No request has failed."),
      more && h("p", { class: "soft" }, "There are more: the first failures were counted."),
      items.length > 1 && open > 0 && h("p", {}, button("Queue all again …", () => act({}))));
  }
  return { box, look };
}
