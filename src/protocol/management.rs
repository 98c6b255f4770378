//! The REST API's inputs and outputs for schedules: previews, the ledger, explanations, changes, logs, groups.

pub use super::job_activity::{JobActivity, JobStatus, LastRun};
use crate::domain::ids::{GroupId, Identity, JobId, Number};
use crate::domain::job::Job;
use crate::domain::schedule::Schedule;
use crate::domain::time::Timestamp;
use crate::protocol::api::ReadOnly;
use crate::protocol::redrive::RedrivenRun;
use serde::{Deserialize, Serialize};

/// A job, with the state of its schedule.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobOutput {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// The id as a number, for clients that need 64 bits.
    pub number: Number,
    /// Its first cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The next fire; absent: there is none, or none until a run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_fire: Option<Timestamp>,
    /// The last scheduled time that made a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<Timestamp>,
    /// When its last run was created, by hand or by plan. Only lists of jobs have it; a single job has `activity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Timestamp>,
    /// Number of scheduled runs so far.
    pub fires: u64,
    /// Number of consecutive failed runs, up to now.
    pub failures: u32,
    /// Statistics of its runs. Lists of jobs omit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<JobActivity>,
}

/// A schedule to preview without storing it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PreviewInput {
    /// The schedule.
    pub schedule: Schedule,
    /// Short form of a schedule with one cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Fires after this time; now if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Timestamp>,
    /// Maximum number of fires, 1 to 1,000; 5 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
}

/// The next fires of a schedule, as it stands now.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewOutput {
    /// The zone of the local times.
    pub zone: String,
    /// Each parsed cron expression: seven fields, weekdays counted from Sunday = 0.
    pub understood: Vec<String>,
    /// The next fires.
    pub fires: Vec<PreviewFire>,
    /// Notes: an interval that waits for the end of a run, a schedule that ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A future fire.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewFire {
    /// Its time.
    pub at: Timestamp,
    /// The same in the job's zone, with the offset.
    pub local: String,
    /// plan, asked, silence.
    pub kind: String,
    /// The trigger that makes it, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<usize>,
    /// The effect of a change of the zone's offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The blackout that contains it: it will make no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blackout: Option<String>,
}

/// A row of the ledger of fires.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FireOutput {
    /// The job.
    pub job_id: JobId,
    /// The scheduled time, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_until: Option<Timestamp>,
    /// Number of scheduled times in the row: 1, except for combined missed ones.
    pub instants: u64,
    /// plan, asked, silence, outside, backfill.
    pub kind: String,
    /// fired, skipped, missed, merged.
    pub verdict: String,
    /// The rule that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rule as a text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The run that it made, or was merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The version of the job at the decision.
    pub version: i64,
    /// When it was decided.
    pub creation_time: Timestamp,
}

/// An explanation: a text for people, and the rule for programs.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyOutput {
    /// What is explained: a time or a run.
    pub subject: String,
    /// The verdict: fired, skipped, missed, merged, planned, notPlanned, disabled, waiting, running, over …
    pub verdict: String,
    /// The rule: due, misfire, window, overlap, blackout, asked, disabled, retry, noWorker …
    pub rule: String,
    /// The explanation, sentence by sentence.
    pub because: Vec<String>,
    /// The run, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// A change of a job: who, when, and the new values.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobChange {
    /// The number of the change, over all jobs.
    pub id: i64,
    /// The job.
    pub job_id: JobId,
    /// The new version.
    pub version: i64,
    /// created, updated, enabled, disabled, deleted, restored.
    pub action: String,
    /// The token's role, if tokens are in use; `broker` for the broker's own changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was made.
    pub at: Timestamp,
    /// The job after the change, without secrets.
    pub job: serde_json::Value,
}

/// Why a job is disabled, and what to do with its runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DisableInput {
    /// A reason for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `drain` (default): runs in progress continue. `stop`: they are stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A past range whose missing runs are created.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackfillInput {
    /// The first time of the range.
    pub from: Timestamp,
    /// The last time of the range.
    pub to: Timestamp,
    /// Maximum number of runs, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only list the times.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of a backfill.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackfillOutput {
    /// The scheduled times, and their new runs (none in a dry run).
    pub fires: Vec<BackfillFire>,
    /// Number of scheduled times in the range that already had a run.
    pub already: u64,
    /// Whether the range has more than the limit.
    pub more: bool,
}

/// One scheduled time of a backfill.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackfillFire {
    /// The scheduled time.
    pub planned_at: Timestamp,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// How to repeat the dead runs of a job.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RedriveJobInput {
    /// Only list the runs.
    pub dry_run: bool,
}

/// The result of repeating dead runs.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedriveOutput {
    /// The dead runs that were found.
    #[serde(default)]
    pub dead: Vec<Identity>,
    /// The new runs, in the order of `dead`, without those in `refused`; in a dry run none.
    pub runs: Vec<Identity>,
    /// The dead runs for which there is no new run, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RedrivenRun>,
    /// Whether there are more dead runs than one call handles.
    pub more: bool,
}

/// The next fire of the job, set by a run. Exactly one of the two members.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AskInput {
    /// At this time; a past time means in 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// This many milliseconds from now.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub in_ms: Option<u64>,
}

/// A line of a run's log.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The number of the line, over all runs: pass the last one as `after`.
    pub id: i64,
    /// When it was written.
    pub at: Timestamp,
    /// trace, debug, info, warning, error, critical.
    pub level: String,
    /// broker, worker, stdout, stderr …
    pub source: String,
    /// The text.
    pub text: String,
}

/// The result of sending lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogAccepted {
    /// Number of stored lines.
    pub accepted: usize,
    /// Number of lines that exceed the log limit of the run.
    pub dropped: usize,
}

/// A part of a run's log.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogPage {
    /// The lines. Those with id 0 come from the run's own data: its creation and its start.
    pub items: Vec<LogLine>,
    /// Pass it as `after` to get the next lines.
    pub next: i64,
    /// Whether there are more lines now than the limit.
    pub more: bool,
    /// The state of the run: after its end no more lines come.
    pub state: crate::domain::run::RunState,
}

/// A job in a file: the data that a team maintains, without what the broker adds.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedJob {
    /// Its name, which identifies it at an import.
    pub name: String,
    /// block, task, application or callback.
    pub job_type: crate::domain::job::JobKind,
    /// A text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Jobs with a higher priority go first.
    pub priority: i32,
    /// Whether it is enabled.
    pub is_enabled: bool,
    /// Why it is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// All other properties, by key.
    pub properties: std::collections::BTreeMap<String, String>,
    /// Its schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Its rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<crate::domain::schedule::Policies>,
    /// The request of a callback job. The secret is empty here: an import keeps the stored one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<crate::domain::callback::Callback>,
    /// The task of a task job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<crate::domain::task::TaskSettings>,
    /// Jobs that begin when a run of this one ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub successors: Vec<crate::domain::job::Successor>,
}

/// The result of an import for one job.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedJob {
    /// Its name.
    pub name: String,
    /// created, updated, unchanged.
    pub action: String,
    /// Its id; absent if a dry run would create it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
}

/// A group to create or change.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupInput {
    /// At most 50 characters, unique.
    #[serde(alias = "groupName", alias = "group_name")]
    pub name: Option<String>,
    /// At most 500 characters.
    pub description: Option<String>,
    /// An output member, accepted so that a group can be sent back as it was read. Its value is ignored.
    pub id: ReadOnly,
    /// Same as `id`.
    pub number: ReadOnly,
    /// Same as `id`.
    pub jobs: ReadOnly,
    /// Same as `id`.
    pub nodes: ReadOnly,
    /// Same as `id`.
    pub create_by: ReadOnly,
    /// Same as `id`.
    pub update_by: ReadOnly,
    /// Same as `id`.
    pub creation_time: ReadOnly,
    /// Same as `id`.
    pub update_time: ReadOnly,
}

/// A named group of jobs and nodes.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupOutput {
    /// Its id.
    pub id: GroupId,
    /// The id as a number, for clients that need 64 bits.
    pub number: Number,
    /// Its name.
    pub name: String,
    /// A text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Number of its jobs.
    pub jobs: u64,
    /// Number of nodes that report this group.
    pub nodes: u64,
    /// Who created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who changed it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

/// The result of enabling or disabling the jobs of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSwitched {
    /// Number of its jobs.
    pub jobs: usize,
    /// Number of changed jobs.
    pub changed: usize,
}

/// The lateness of a job's fires in milliseconds, over at most the last 1,000.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// Number of measured fires.
    pub count: u64,
    /// The median.
    pub p50: i64,
    /// The 99th percentile.
    pub p99: i64,
    /// The maximum.
    pub max: i64,
}

/// A worker, with its present state.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerOutput {
    /// The stored data.
    #[serde(flatten)]
    pub record: crate::domain::worker::WorkerRecord,
    /// The id as a number, for clients that need 64 bits.
    pub number: Number,
    /// Who last changed its administrative state: the same as `by`, under the usual name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// Whether it is connected.
    pub is_online: bool,
    /// Whether it uses a socket; otherwise it calls by HTTP.
    pub has_socket: bool,
    /// The current tasks in its last report.
    pub tasks: Vec<crate::protocol::task::TaskRef>,
}

/// The reason of an operator's order.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReasonInput {
    /// A text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The data that the last run of a job stored for the next one.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobDataOutput {
    /// Any JSON.
    pub data: serde_json::Value,
    /// The run that stored it; absent: it was set by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Who set it by hand: the role of a token, if tokens are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When it was stored.
    pub update_time: Timestamp,
}

/// Data to set for the next run of a job.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobDataInput {
    /// Any JSON, at most 256 KiB.
    pub data: serde_json::Value,
}

/// The result of one trigger of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggeredOutput {
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Why there is no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<super::problem::Problem>,
}
