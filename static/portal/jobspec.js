// What a job can say, as fields of a form. The paths are those of the API's JSON, so an error that names one is shown there.

import { zoneHere } from "./zone.js";

const property = (key, label, more = {}) => ({ path: `properties.${key}`, label, ...more });
const usual = text => ["", `usual: ${text}`];

const ARGUMENTS = property("Arguments", "Arguments", { kind: "area", hint: "Text; a trigger may bring its own." });
const PLACE = [
  property("NodeGroup", "Nodes of the group", { hint: "Empty: any." }),
  property("Os", "Operating system of the nodes", { hint: "A part of its name." }),
];

const ONE_WORKER = [["random", "any"], ["leastLoaded", "least loaded"],
  ["hash", "the same for the same key"], ["sticky", "the one that had the key last"], ["failover", "the first by name"]];

export const COMMON = [
  { path: "name", label: "Name", hint: "At most 50 characters, unique among the jobs." },
  { path: "group", label: "Group", list: "groups", hint: "It is made if there is none of that name." },
  { path: "priority", label: "Priority", kind: "int", hint: "Higher goes first; usual: 0." },
  { path: "description", label: "Description", kind: "area" },
];

// For each kind: what it is, what is asked first, and what stands behind the fold.
export const KIND = {
  task: {
    says: "a function on one of your workers",
    fields: [
      { path: "task.handler", label: "Name that workers watch" },
      { path: "task.arguments", label: "Arguments", kind: "json", hint: "Any JSON: what the function gets, unless a trigger brings its own." },
    ],
    more: [
      { path: "task.strategy", label: "Which worker", kind: "select", options: [usual("in turn"),
        ["leastRecentlyUsed", "longest without work"], ...ONE_WORKER, ["broadcast", "every worker, each a part"], ["shard", "in parts"]] },
      { path: "task.key", label: "Key", hint: "For the same key: a JSON pointer into the arguments." },
      { path: "task.shards", label: "Parts", kind: "int", hint: "0: one for each worker that is there." },
      { path: "task.group", label: "Workers of the group" },
      { path: "task.version", label: "Workers of the version" },
      { path: "task.tags", label: "Workers with all of the tags", kind: "words", hint: "With commas." },
      { path: "task.noWorker", label: "If no worker watches the name", kind: "select", options: [usual("the run fails"), ["wait", "it waits"]] },
      { path: "task.lease", label: "Lease", kind: "span", placeholder: "10s", hint: "Silence after which an attempt counts as lost." },
      { path: "task.lostAttempts", label: "Attempts that may be lost", kind: "int", placeholder: "3" },
      { path: "task.cancelGrace", label: "Time to end when told to", kind: "span", placeholder: "5s" },
    ],
  },
  callback: {
    says: "an HTTP request that the broker makes",
    fields: [
      { path: "callback.url", label: "URL", wide: true, hint: "Placeholders: {runId} {jobId} {jobName} {fireTime} {attempt} {traceId} {arguments}" },
      { path: "callback.method", label: "Method", kind: "select", options: [usual("POST with a body, else GET"), ...["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].map(name => [name, name])] },
      { path: "callback.body", label: "Body", kind: "area" },
    ],
    more: [
      { path: "callback.headers", label: "Headers", kind: "pairs", add: "Add a header", keyLabel: "Header", valueLabel: "Value" },
      { path: "callback.expect", label: "Statuses that are success", kind: "codes", placeholder: "200 to 299" },
      { path: "callback.secret", label: "Secret that signs the requests", kind: "secret", hint: "It is never shown." },
      property("Arguments", "Arguments", { kind: "area", hint: "What {arguments} stands for." }),
    ],
  },
  block: {
    says: "a crawl: nodes download, your worker says what",
    fields: [property("FullClassName", "Class that workers watch"), ARGUMENTS],
    more: [
      property("ThreadNum", "Requests of a block at a time", { placeholder: "1" }),
      property("BlockSize", "Requests in a block", { placeholder: "50" }),
      property("DepthLimit", "Deepest request", { placeholder: "no limit" }),
      property("MaxRequests", "Most requests of a run", { placeholder: "no limit" }),
      property("SleepTime", "Milliseconds between two requests to a host", { placeholder: "0" }),
      property("Timeout", "Milliseconds of one try", { placeholder: "30000" }),
      property("RetryDownload", "Tries after the first", { placeholder: "as the node is set" }),
      property("MaxBody", "Most bytes of a page", { placeholder: "16777216" }),
      property("Site", "Site", { kind: "area", hint: "JSON: userAgent, headers, proxy, encoding." }),
      ...PLACE,
      property("WorkerStrategy", "Which worker", { kind: "select", options: [usual("longest without work"), ["roundRobin", "in turn"], ...ONE_WORKER] }),
      property("WorkerKey", "Key", { hint: "For the same key: a JSON pointer into the arguments." }),
      property("WorkerGroup", "Workers of the group"),
      property("WorkerVersion", "Workers of the version"),
      property("WorkerTags", "Workers with all of the tags", { hint: "With commas." }),
      property("NoWorker", "If no worker watches the class", { kind: "select", options: [usual("the run fails"), ["wait", "it waits"]] }),
    ],
  },
  application: {
    says: "a program on one node or on many",
    fields: [
      property("Application", "Program", { hint: "A path in the package, or the name of one that is on the nodes." }),
      property("Package", "Package", { list: "packages", hint: "http://… or /api/v1/packages/…: a zip or a tar.gz." }),
      { ...ARGUMENTS, hint: "A line split at blanks outside of quotes, or a JSON array; no shell reads it." },
      property("NodeCount", "Nodes that it runs on", { placeholder: "1" }),
    ],
    more: [
      property("Choice", "Which nodes", { kind: "select", options: [usual("least loaded"), ["random", "random"], ["all", "all that would do"]] }),
      ...PLACE,
      property("Sha256", "SHA-256 of the package"),
      property("Environment", "Environment", { kind: "area", hint: "JSON: an object of texts." }),
      property("Files", "Files in its folder", { kind: "area", hint: "JSON: an object of texts by path." }),
      property("Grace", "Milliseconds to end when told to", { placeholder: "30000" }),
      property("MemoryLimit", "Bytes of memory", { placeholder: "as the agent is set" }),
      property("CpuSeconds", "Seconds of processor time", { placeholder: "as the agent is set" }),
      property("User", "User to run as", { placeholder: "the agent's" }),
    ],
  },
};

export const SCHEDULE = [
  { path: "schedule.startAt", label: "Not before", kind: "instant", hint: `In ${zoneHere}, as all times of this page.` },
  { path: "schedule.endAt", label: "Not after", kind: "instant", hint: `In ${zoneHere}, as all times of this page.` },
  { path: "schedule.maxFires", label: "Runs by plan at most", kind: "int" },
  { path: "schedule.longestSilence", label: "At the latest so long after the last", kind: "span" },
  { path: "schedule.dialect", label: "Weekdays are counted as in", kind: "select", options: [usual("crontab, Sunday is 0"), ["quartz", "Quartz, Sunday is 1"]] },
  { path: "schedule.gap", label: "A local time that is missing", kind: "select", options: [usual("by the hour field"), ["skip", "is skipped"], ["after", "comes right after the gap"], ["shift", "is shifted"]] },
  { path: "schedule.fold", label: "A local time that comes twice", kind: "select", options: [usual("by the hour field"), ["first", "counts first"], ["second", "counts second"], ["both", "counts twice"]] },
  { path: "schedule.blackouts", label: "Blackouts", kind: "json", hint: "JSON: [{\"name\": \"holidays\", \"dates\": [\"2026-12-25\"]}, {\"start\": \"22:00\", \"end\": \"06:00\"}]" },
];

export const POLICIES = [
  { path: "policies.overlap", label: "A fire that finds it at work", kind: "select", options: [usual("skip with a plan, else allow"), ["skip", "makes no run"], ["queueOne", "one waits"], ["queueAll", "all wait"], ["replace", "stops the other"], ["allow", "runs beside it"]] },
  { path: "policies.timeout", label: "Timeout of an attempt", kind: "span", placeholder: "none" },
  { path: "policies.retry.limit", label: "Retries of a failed attempt", kind: "int", placeholder: "0" },
  { path: "policies.retry.delay", label: "Pause before the first retry", kind: "span", placeholder: "1s" },
  { path: "policies.retry.factor", label: "The pause grows by", kind: "number", placeholder: "2" },
  { path: "policies.retry.maxDelay", label: "Longest pause", kind: "span", placeholder: "5m" },
  { path: "policies.retry.jitter", label: "Part of the pause left to chance", kind: "number", placeholder: "0.1" },
  { path: "policies.misfire.policy", label: "Fires that were missed", kind: "select", options: [usual("one run for all"), ["skip", "make no run"], ["all", "one run each"]] },
  { path: "policies.misfire.grace", label: "Late by so much is still on time", kind: "span", placeholder: "5s" },
  { path: "policies.misfire.window", label: "Older ones are missed for good", kind: "span", placeholder: "1d" },
  { path: "policies.misfire.limit", label: "With one run each: at most", kind: "int", placeholder: "10" },
  { path: "policies.maxFailures", label: "Failed runs in a row that disable it", kind: "int", placeholder: "never" },
  { path: "policies.lateAfter", label: "Alert when late by", kind: "span", placeholder: "never" },
  { path: "policies.silentAfter", label: "Alert without success for", kind: "span", placeholder: "never" },
  { path: "policies.keep.runs", label: "Ended runs that are kept", kind: "int", placeholder: "as the broker is set" },
  { path: "policies.keep.age", label: "They are kept for", kind: "span", placeholder: "as the broker is set" },
];
