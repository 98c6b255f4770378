//! What the REST API takes and gives around schedules: previews, the ledger, reasons, changes, logs, groups.

pub use super::job_activity::{JobActivity, JobStatus, LastRun};
use crate::domain::ids::{GroupId, Identity, JobId, Number};
use crate::domain::job::Job;
use crate::domain::schedule::Schedule;
use crate::domain::time::Timestamp;
use crate::protocol::api::ReadOnly;
use serde::{Deserialize, Serialize};

/// A job, and how it stands with its plan.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobOutput {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// Stands for its id where 64 bits have to do.
    pub number: Number,
    /// Its first cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// When it comes next; absent: not, or not until a run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_fire: Option<Timestamp>,
    /// The last planned instant that made a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<Timestamp>,
    /// Runs that its plan has made.
    pub fires: u64,
    /// Runs that failed one after the other, up to now.
    pub failures: u32,
    /// What its runs came to. Lists of jobs leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<JobActivity>,
}

/// What a schedule would do: for a schedule that is not stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PreviewInput {
    /// The schedule.
    pub schedule: Schedule,
    /// A shorter word for a schedule of one cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Fires after this instant; now if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Timestamp>,
    /// At most so many, 1 to 1,000; 5 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
}

/// What a schedule will do, as things stand.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewOutput {
    /// The zone that local times are given in.
    pub zone: String,
    /// What was understood of each cron expression: seven fields, weekdays counted from Sunday = 0.
    pub understood: Vec<String>,
    /// The fires that come.
    pub fires: Vec<PreviewFire>,
    /// More that is worth knowing: an interval that waits for the end of a run, a plan that ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// An instant that comes.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewFire {
    /// The instant.
    pub at: Timestamp,
    /// The same in the job's zone, with its offset.
    pub local: String,
    /// plan, asked, silence.
    pub kind: String,
    /// The trigger that names it, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<usize>,
    /// What the zone's change of offset made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The blackout that it falls into: it will make no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blackout: Option<String>,
}

/// A row of the ledger of fires.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FireOutput {
    /// The job.
    pub job_id: JobId,
    /// The planned instant, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_until: Option<Timestamp>,
    /// How many instants the row covers: 1, unless they were missed by the hundred.
    pub instants: u64,
    /// plan, asked, silence, outside, backfill.
    pub kind: String,
    /// fired, skipped, missed, merged.
    pub verdict: String,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The run that it made, or was merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The version of the job that it was decided under.
    pub version: i64,
    /// When it was decided.
    pub creation_time: Timestamp,
}

/// Why something is as it is: an answer for people, and the rule behind it for programs.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyOutput {
    /// What was asked about: an instant or a run.
    pub subject: String,
    /// In one word: fired, skipped, missed, merged, planned, notPlanned, disabled, waiting, running, over …
    pub verdict: String,
    /// The rule: due, misfire, window, overlap, blackout, asked, disabled, retry, noWorker …
    pub rule: String,
    /// The whole answer, sentence by sentence.
    pub because: Vec<String>,
    /// The run, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// A change of a job: who, when, what to.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobChange {
    /// Counts the changes of all jobs.
    pub id: i64,
    /// The job.
    pub job_id: JobId,
    /// The version that it made.
    pub version: i64,
    /// created, updated, enabled, disabled, deleted, restored.
    pub action: String,
    /// The token's role, if tokens are in use; `broker` for what it does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The job as it was from then on, without secrets.
    pub job: serde_json::Value,
}

/// Why a job is disabled, and what becomes of its runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DisableInput {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `drain` (usual): runs at work go on. `stop`: they are stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A past range that is to be run again.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackfillInput {
    /// The first instant that is meant.
    pub from: Timestamp,
    /// The last instant that is meant.
    pub to: Timestamp,
    /// At most so many runs, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only say which.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a backfill did.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackfillOutput {
    /// The instants, and the runs that they made (none in a dry run).
    pub fires: Vec<BackfillFire>,
    /// Instants in the range that had made a run before.
    pub already: u64,
    /// There are more in the range than the limit.
    pub more: bool,
}

/// One instant of a backfill.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackfillFire {
    /// The instant.
    pub planned_at: Timestamp,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// How the dead runs of a job are run again.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RedriveJobInput {
    /// Only say which.
    pub dry_run: bool,
}

/// What was run again.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedriveOutput {
    /// The dead runs that were found.
    #[serde(default)]
    pub dead: Vec<Identity>,
    /// The new runs, in the same order; in a dry run none.
    pub runs: Vec<Identity>,
    /// There are more dead runs than one call takes.
    pub more: bool,
}

/// When a run wants its job to run next. One of the two.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AskInput {
    /// At this instant; one that is past means now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// So many milliseconds from now.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub in_ms: Option<u64>,
}

/// A line of a run's log.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Counts the lines of all runs: give the last one back as `after`.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// trace, debug, info, warning, error, critical.
    pub level: String,
    /// broker, worker, stdout, stderr …
    pub source: String,
    /// What.
    pub text: String,
}

/// What became of lines that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogAccepted {
    /// Lines that are kept.
    pub accepted: usize,
    /// Lines that the log of the run has no room for.
    pub dropped: usize,
}

/// A part of a run's log.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogPage {
    /// The lines. Those with id 0 are told by the run's row: that it was made, that it began.
    pub items: Vec<LogLine>,
    /// Give it back as `after` for what follows.
    pub next: i64,
    /// There are more lines now than the limit.
    pub more: bool,
    /// Where the run is: once it is over there is nothing to wait for.
    pub state: crate::domain::run::RunState,
}

/// A job as a file keeps it: what a team writes, and nothing that the broker adds.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedJob {
    /// Its name: by this it is found again.
    pub name: String,
    /// block, task, application or callback.
    pub job_type: crate::domain::job::JobKind,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The group that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// Whether it starts.
    pub is_enabled: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// Everything else, by key.
    pub properties: std::collections::BTreeMap<String, String>,
    /// When it runs by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Its rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<crate::domain::schedule::Policies>,
    /// The request of a callback job. A secret is empty here: at an import the stored one stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<crate::domain::callback::Callback>,
    /// The task of a task job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<crate::domain::task::TaskSettings>,
    /// Jobs that begin when a run of this one ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub successors: Vec<crate::domain::job::Successor>,
}

/// What bulk import did with one job.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedJob {
    /// Its name.
    pub name: String,
    /// created, updated, unchanged.
    pub action: String,
    /// Its id; none for one that would be created by a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
}

/// A group as it is created or changed.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupInput {
    /// At most 50 characters, unique.
    #[serde(alias = "groupName", alias = "group_name")]
    pub name: Option<String>,
    /// At most 500 characters.
    pub description: Option<String>,
    /// What a group has besides when it is read, so that it may be sent back as it was read. Nothing here is looked at.
    pub id: ReadOnly,
    /// See `id`.
    pub number: ReadOnly,
    /// See `id`.
    pub jobs: ReadOnly,
    /// See `id`.
    pub nodes: ReadOnly,
    /// See `id`.
    pub create_by: ReadOnly,
    /// See `id`.
    pub update_by: ReadOnly,
    /// See `id`.
    pub creation_time: ReadOnly,
    /// See `id`.
    pub update_time: ReadOnly,
}

/// A group: a name that jobs and nodes go by.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupOutput {
    /// Its id.
    pub id: GroupId,
    /// Stands for its id where 64 bits have to do.
    pub number: Number,
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Jobs in it.
    pub jobs: u64,
    /// Nodes that said they are in it.
    pub nodes: u64,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who changed it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

/// What became of the jobs of a group that was enabled or disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSwitched {
    /// Jobs in it.
    pub jobs: usize,
    /// Those that were changed.
    pub changed: usize,
}

/// How late the fires of a job were, in milliseconds, of the latest at most 1,000.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// Fires that were measured.
    pub count: u64,
    /// Half of them were no later.
    pub p50: i64,
    /// 99 of 100 were no later.
    pub p99: i64,
    /// The latest one.
    pub max: i64,
}

/// A worker, and how it is now.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerOutput {
    /// What is kept of it.
    #[serde(flatten)]
    pub record: crate::domain::worker::WorkerRecord,
    /// Stands for its id where 64 bits have to do.
    pub number: Number,
    /// Who said the last word on it: the same as `by`, under the name that it has everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// It is there.
    pub is_online: bool,
    /// By a socket; else it calls by HTTP.
    pub has_socket: bool,
    /// The tasks that it said last it has in hand.
    pub tasks: Vec<crate::protocol::task::TaskRef>,
}

/// Why an operator does something.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReasonInput {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What the last run of a job left for the next one.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobDataOutput {
    /// Any JSON.
    pub data: serde_json::Value,
    /// The run that left it; absent: somebody put it there by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Who put it there by hand: the role of a token, if tokens are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When.
    pub update_time: Timestamp,
}

/// Something else for the next run of a job.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobDataInput {
    /// Any JSON, at most 256 KiB.
    pub data: serde_json::Value,
}

/// What became of one trigger of several.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggeredOutput {
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<super::problem::Problem>,
}
