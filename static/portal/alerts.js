// Alerts: the channels that messages go to, and the events of which they were told.

import { at, get, post, put, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { address, button, h, link, pages, patch, section, table } from "./dom.js";
import { badge, jobLink, num, runLink, span, when } from "./text.js";

const EVENTS = ["failed", "missed", "late", "silent", "recovered", "disabled"];
const list = text => text.split(/[,\n]/).map(one => one.trim()).filter(Boolean);

const fields = channel => [
  { name: "name", label: "Name", value: channel?.name },
  { name: "kind", label: "Kind", kind: "select", value: channel?.kind ?? "webhook", options: [["webhook", "webhook: a POST of JSON"], ["mail", "mail"]] },
  { name: "target", label: "URL or mail address", value: channel?.target },
  { name: "secret", label: "Secret", kind: "password", hint: channel?.hasSecret ? "Leave it empty to keep the present one." : "Signs the messages of a webhook. May be empty." },
  { name: "events", label: "Events", value: channel?.filter.events?.join(", "), hint: `Some of ${EVENTS.join(", ")}, with commas. Empty: all of them.` },
  { name: "jobs", label: "Jobs", value: channel?.filter.jobs?.join(", "), hint: "Names or ids, with commas. Empty: all jobs." },
  { name: "groups", label: "Groups", value: channel?.filter.groups?.join(", "), hint: "Names, with commas. Empty: all groups." },
];

const bodyOf = ({ name, kind, target, secret, events, jobs, groups }) => ({
  name, kind, target, secret: secret || undefined, filter: { events: list(events), jobs: list(jobs), groups: list(groups) },
});

function actions(channel, again) {
  const path = at(`/alerts/${channel.id}`);
  const test = async () => {
    try {
      const { ok, error, time } = await post(`${path}/test`);
      tell(ok ? `${channel.name} accepted the test message after ${span(time)}.` : `${channel.name} did not accept the test message: ${error}`, ok ? "" : "bad");
    } catch (problem) {
      tell(problem.message, "bad");
    }
    again();
  };
  const change = () => ask({ title: `Change the channel ${channel.name}`, fields: fields(channel), action: "Save", act: values => put(path, { ...bodyOf(values), version: channel.version }) })
    .then(done => done && tell("The channel is changed.")).then(again);
  const turn = () => ask({
    title: `${channel.isEnabled ? "Disable" : "Enable"} the channel ${channel.name}?`, action: channel.isEnabled ? "Disable" : "Enable",
    text: channel.isEnabled ? "It receives no events until it is enabled again." : "It receives the events from now on.",
    act: () => put(path, { isEnabled: !channel.isEnabled, version: channel.version }),
  }).then(again);
  const drop = () => ask({ title: `Delete the channel ${channel.name}?`, text: "Messages that wait are not sent.", action: "Delete", danger: true, act: () => remove(path) })
    .then(done => done && tell("The channel is deleted.")).then(again);
  return h("div", { class: "row" }, button("Send a test", test), button("Change …", change), button(channel.isEnabled ? "Disable …" : "Enable …", turn), button("Delete …", drop));
}

const filterText = ({ events, jobs, groups }) => [events?.join(", ") || "all events", jobs?.length && `jobs ${jobs.join(", ")}`, groups?.length && `groups ${groups.join(", ")}`].filter(Boolean).join("; ");

function deliveryText(delivery, names) {
  const name = names.get(delivery.channelId) ?? "a deleted channel";
  return h("div", {}, badge(delivery.state), ` ${name}`, delivery.attempts > 1 && `, attempt ${num(delivery.attempts)}`,
    delivery.lastError && h("span", { class: "reason" }, `: ${delivery.lastError}`), delivery.nextAt && [", again ", when(delivery.nextAt)]);
}

export async function alerts(page) {
  page.title("Alerts");
  const [channels, events] = [h("div"), h("div")];
  const again = () => page.wake?.();
  const create = () => ask({ title: "New channel", fields: fields(), action: "Create", act: values => post(at("/alerts"), bodyOf(values)) })
    .then(made => made && tell(`The channel ${made.name} is there. Send a test to check it.`)).then(again);
  const body = [h("div", { class: "row title" }, h("h1", {}, "Alerts"), button("New channel …", create, "main")), section("Channels", channels), section("Events", events)];
  await page.live(2000, async () => {
    const [{ items }, past] = await Promise.all([get(at("/alerts"), page.signal), get(at("/alerts/events", { cursor: page.query.cursor, limit: 20 }), page.signal)]);
    patch(channels, table("Channels", ["Name", "State", "Kind", "Target", "Receives", "Signed", "Actions"], items.map(channel => ({
      key: channel.id,
      cells: [channel.name, badge(channel.isEnabled ? "enabled" : "disabled"), channel.kind, h("span", { class: "wrap" }, channel.target), filterText(channel.filter), channel.hasSecret ? "yes" : "no", actions(channel, again)],
    })), "No channel yet. Create one, a webhook or a mail address, to be told when a job fails, is late or stays silent."));
    const names = new Map(items.map(({ id, name }) => [id, name]));
    patch(events, table("Events", ["When", "Event", "Job", "Run", "Reason", "Messages"], past.items.map(one => ({
      key: String(one.id),
      cells: [when(one.at), one.event, one.jobId ? jobLink(one.jobId, one.jobName ?? one.jobId) : "", runLink(one.runId), h("span", { class: "reason" }, one.reason ?? ""),
        one.deliveries.map(delivery => deliveryText(delivery, names))],
    })), ["No event yet. A job that fails for good or misses a scheduled time is listed here, with or without a channel. ", link("/jobs", "The jobs")]), pages("/alerts", page.query, past.nextCursor));
    page.mount(() => body);
  });
}
