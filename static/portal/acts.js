// What can be done with a job: each is asked for in a dialog, and the answer is told.

import { Problem, at, onceKey, post, remove } from "./api.js";
import { ask, tell } from "./dialog.js";
import { typed } from "./exact.js";

// Runs it now. However often the button is pressed, one dialog makes one run.
export function triggerJob(job) {
  const isTask = job.jobType === "task";
  const usual = isTask ? job.task?.arguments : job.properties.Arguments;
  // A line with a place for them is not what a trigger brings, but where it goes.
  const hasPlace = job.jobType === "application" && usual?.includes("{arguments}");
  const shown = hasPlace ? "" : isTask && usual !== undefined ? JSON.stringify(usual, null, 2) : usual ?? "";
  const label = hasPlace ? "What {arguments} stands for" : isTask ? "Arguments, as JSON" : "Arguments";
  const once = onceKey();
  return ask({
    title: `Trigger ${job.name}`,
    text: "It runs now, beside its plan.",
    fields: [
      { name: "arguments", label, kind: "area", hint: hasPlace ? `The line of the job: ${usual}` : "Empty: those of the job.",
        value: shown },
      { name: "priority", label: "Priority", kind: "number", hint: `Empty: ${job.priority}, as the job has it. Higher goes first.` },
    ],
    action: "Trigger",
    act: values => {
      // What is unchanged is the job's own, and need not go through here.
      const body = { arguments: values.arguments === shown.replaceAll(/\r\n?/g, "\n") ? undefined : readArguments(isTask, values.arguments) };
      if (values.priority !== "") body.priority = Number(values.priority);
      return post(at(`/jobs/${job.id}/trigger`), body, { headers: { "Idempotency-Key": once } });
    },
  }).then(run => {
    if (run) location.hash = `/runs/${run.identity}`;
    return run;
  });
}

function readArguments(isTask, text) {
  if (text.trim() === "") return undefined;
  if (!isTask) return text;
  try {
    return typed(text);
  } catch (error) {
    throw new Problem({ detail: `This is not JSON: ${error.message}`, field: "arguments" });
  }
}

const DISABLING = [
  { name: "mode", label: "Runs at work", kind: "select", options: [["drain", "go on to their end"], ["stop", "are stopped"]] },
  { name: "reason", label: "Reason", hint: "For people; may be left out." },
];

export function disableJob(job) {
  return ask({
    title: `Disable ${job.name}`,
    text: "Neither its plan nor a trigger starts it until it is enabled again.",
    fields: DISABLING,
    action: "Disable",
    act: ({ mode, reason }) => post(at(`/jobs/${job.id}/disable`), { mode, reason: reason || undefined }),
  }).then(done => done && tell(`${job.name} is disabled.`));
}

export async function enableJob(job) {
  try {
    await post(at(`/jobs/${job.id}/enable`));
    tell(`${job.name} is enabled.`);
  } catch (error) {
    tell(error.message, "bad");
  }
}

// What can be done with several jobs at once.
export const JOB_ACTIONS = [
  { name: "Enable", can: job => !job.isEnabled, act: job => post(at(`/jobs/${job.id}/enable`)) },
  { name: "Disable", can: job => job.isEnabled, text: "Neither their plans nor a trigger starts them until they are enabled again.", fields: DISABLING,
    act: (job, { mode, reason }) => post(at(`/jobs/${job.id}/disable`), { mode, reason: reason || undefined }) },
  { name: "Trigger", can: job => job.isEnabled, text: "Each runs once now, with the arguments that it has.",
    act: job => post(at(`/jobs/${job.id}/trigger`), {}, { headers: { "Idempotency-Key": onceKey() } }) },
  { name: "Delete", danger: true, text: "They are neither triggered nor planned any more. The deletion can be taken back from the list of deleted jobs.",
    act: job => remove(at(`/jobs/${job.id}`), { headers: { "If-Match": `"${job.version}"` } }) },
];

export function deleteJob(job) {
  return ask({
    title: `Delete ${job.name}`,
    text: "It is neither triggered nor planned any more. Its past stays, and the deletion can be taken back from the list of deleted jobs.",
    word: job.name, action: "Delete", danger: true,
    act: () => remove(at(`/jobs/${job.id}`), { headers: { "If-Match": `"${job.version}"` } }),
  }).then(done => {
    if (done) tell(`${job.name} is deleted.`);
    return done;
  });
}
