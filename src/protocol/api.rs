//! The inputs and outputs of the REST API under `/api/v1`.

pub use super::run_counts::{BlockCounts, SitesOfRun};
use crate::domain::ids::{BrokerId, Identity, JobId, Named, NodeId, Number, WorkerId};
use crate::domain::run::{Counters, RunState, WaitsFor};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
#[cfg(feature = "broker")]
use std::collections::BTreeMap;

/// A page of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(rename = "{T}Page"))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A job to create or change. Names of both revisions of the seeds are accepted.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(extend("examples" = [{ "name": "titles", "jobType": "block", "properties": { "FullClassName": "shop.Titles", "ThreadNum": "4" } }])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobInput {
    /// The id for a new job; by default the broker makes one.
    #[serde(default, alias = "Id")]
    pub id: Option<JobId>,
    /// Unique among the jobs; required at creation.
    #[serde(default, alias = "Name")]
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = crate::domain::job::limits::NAME)))]
    pub name: Option<String>,
    /// `block`, `task`, `application` or `callback`; 002 numbers the first two from 0.
    #[serde(default, alias = "JobType", alias = "type", alias = "kind")]
    pub job_type: Option<JobTypeInput>,
    /// Short form of a schedule with one cron expression; empty: only triggers start it.
    #[serde(default, alias = "Cron")]
    pub cron: Option<String>,
    /// Short form of a schedule with one interval, in milliseconds; 0: once, then disabled.
    #[serde(default, alias = "Interval")]
    pub interval: Option<u64>,
    /// Its schedule; an empty one: only triggers start it.
    #[serde(default)]
    pub schedule: Option<crate::domain::schedule::Schedule>,
    /// Rules for late fires, for fires during an open run, and for failed runs.
    #[serde(default)]
    pub policies: Option<crate::domain::schedule::Policies>,
    /// The request of a callback job.
    #[serde(default)]
    pub callback: Option<crate::domain::callback::Callback>,
    /// The task of a task job.
    #[serde(default, deserialize_with = "super::object::maybe_object")]
    pub task: Option<crate::domain::task::TaskSettings>,
    /// Jobs that begin when a run of this one ends; an empty list removes all.
    #[serde(default)]
    pub successors: Option<Vec<crate::domain::job::Successor>>,
    /// The name of its group, which is created if it does not exist. Empty: no group.
    #[serde(default, alias = "Group", alias = "groupName")]
    pub group: Option<String>,
    /// Why it is disabled, if `isEnabled` is false.
    #[serde(default)]
    pub disabled_reason: Option<String>,
    /// A text for people.
    #[serde(default, alias = "Description")]
    #[cfg_attr(feature = "broker", schemars(length(max = crate::domain::job::limits::DESCRIPTION)))]
    pub description: Option<String>,
    /// Whether its schedule and triggers start it.
    #[serde(default, alias = "IsEnabled", alias = "isEnable", alias = "IsEnable", alias = "enabled")]
    pub is_enabled: Option<bool>,
    /// Jobs with a higher priority go first.
    #[serde(default, alias = "Priority")]
    pub priority: Option<i32>,
    /// 002's column: the class of a block job, the program of an application. Stored as a property.
    #[serde(default, alias = "Application")]
    pub application: Option<String>,
    /// 002's column. Stored as a property.
    #[serde(default, alias = "Arguments")]
    pub arguments: Option<String>,
    /// Short form for the program of an application job and its arguments, as one line, without a shell. It makes the job an application
    /// job, and is stored as the properties `Application` and `Arguments`, with `MaxCpu` 101 if the job has no `MaxCpu`.
    #[serde(default)]
    pub command: Option<String>,
    /// All other properties.
    #[serde(default, alias = "Properties")]
    pub properties: Option<BTreeMap<String, String>>,
    /// For a change: the version that it is based on; a change of another version is rejected.
    #[serde(default)]
    pub version: Option<i64>,
    /// An output member, accepted so that a job can be sent back as it was read. Its value is ignored.
    #[serde(default)]
    pub number: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub next_fire: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub last_fire: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub last_run_time: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub fires: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub failures: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub activity: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub is_deleted: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub create_by: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub update_by: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub creation_time: ReadOnly,
    /// Same as `number`.
    #[serde(default)]
    pub update_time: ReadOnly,
}

/// An output member that is accepted in a body too, and ignored there.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOnly;

#[cfg(feature = "broker")]
impl<'de> Deserialize<'de> for ReadOnly {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(from).map(|_| Self)
    }
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for ReadOnly {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ReadOnly".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "readOnly": true })
    }
}

/// A kind of job by name or, as in 002, by number.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum JobTypeInput {
    /// Block 0, Application 1.
    Number(i64),
    /// The name, ignoring case.
    Name(String),
}

/// A trigger of a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriggerInput {
    /// Arguments instead of the job's own: any JSON for a task, text for other jobs.
    #[serde(default)]
    pub arguments: Option<serde_json::Value>,
    /// The priority, instead of the job's own.
    #[serde(default)]
    pub priority: Option<i32>,
    /// The scheduled time of an external scheduler: triggers with the same time make one run.
    #[serde(default)]
    pub fire_time: Option<Timestamp>,
    /// Triggers with the same key make one run. The header `Idempotency-Key` means the same.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunOutput {
    /// Its id.
    pub identity: Identity,
    /// The id as a number, for clients that need 64 bits.
    #[serde(default)]
    pub number: Number,
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub job_name: String,
    /// block, task, application or callback.
    #[serde(default)]
    pub kind: String,
    /// The class; for a callback the method and the URL.
    pub class_name: String,
    /// Its state.
    pub state: RunState,
    /// The reason for its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Runs with a higher priority go first.
    pub priority: i32,
    /// Blocks at nodes now; absent where it is unknown: while the run is being loaded, and on a standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consuming: Option<u64>,
    /// Number of block dispatches so far.
    pub block_times: i64,
    /// Whether its worker has pushed the first requests.
    pub start_returned: bool,
    /// The worker of the run; after its end, the worker of its last attempt. Absent for programs, callbacks and runs on several workers,
    /// whose instances name them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Requests by result.
    #[serde(flatten)]
    pub counters: Counters,
    /// Blocks by state.
    pub blocks: BlockCounts,
    /// Sites that an active block run tells apart: those with a pace or a robots.txt, held ones, and all with `MaxPerSite`. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<SitesOfRun>,
    /// Bytes of the bodies that a block run has downloaded, decompressed. Lists show 0 for runs that succeeded.
    #[serde(default)]
    pub bytes: u64,
    /// Number of URLs that it has seen.
    pub seen: u64,
    /// Memory for the seen URLs, in bytes; absent like `consuming`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_bytes: Option<u64>,
    /// The attempt, from 1.
    #[serde(default)]
    pub attempt: u32,
    /// What a pending run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// When its next attempt may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The scheduled time of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// The run that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Identity>,
    /// The run of another job whose end started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Identity>,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Progress of a running task: 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    /// The progress as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_text: Option<String>,
    /// The result: for a callback, the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// The broker that executes the run, or did; absent: the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_id: Option<BrokerId>,
    /// Its arguments: JSON for a task, text for other runs. Absent in lists, and if there are none; a program has those of its job then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// Who created it: the role of the token that triggered it by hand, `scheduler`, or `workflow` if the end of another run did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who stopped it: the role of a token, or `broker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// The latest of its times.
    #[serde(default)]
    pub update_time: Timestamp,
    /// For a block run: since when it is paused and dispatches no blocks. Absent: it is not paused, or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// For a block run: how it treats sites. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawling: Option<super::crawling::CrawlingOutput>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When its first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}

/// The statistics of one node for one run: the seeds' *JobStatus*.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobStatusOutput {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub identity: Identity,
    /// The node; absent for the total of all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The state of the run.
    pub status: RunState,
    /// Requests by result.
    #[serde(flatten)]
    pub counters: Counters,
    /// Time of its last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_time: Option<Timestamp>,
}

/// A block.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlockOutput {
    /// Its id.
    pub block_id: crate::domain::ids::BlockId,
    /// Its run.
    pub identity: Identity,
    /// ready, using, success, failed, retry.
    pub state: String,
    /// Number of requests in it.
    pub requests: u32,
    /// Successful requests.
    pub success: u32,
    /// Failed requests.
    pub error: u32,
    /// Dispatches so far.
    pub attempt: u32,
    /// The node that has it or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// When its lease expires, unless its node reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// Whether a worker has acknowledged its results.
    pub acknowledged: bool,
    /// Why it could not be downloaded completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When its results arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}

/// A node.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeOutput {
    /// The stored data.
    #[serde(flatten)]
    pub record: crate::domain::node::NodeRecord,
    /// Its name; the last 8 digits of its id if it has sent none.
    pub name: String,
    /// The id as a number, for clients that need 64 bits.
    pub number: Number,
    /// Whether it is connected.
    pub is_online: bool,
    /// The load in its last heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<crate::domain::node::NodeLoad>,
    /// Number of blocks that it holds.
    pub holding: u32,
    /// Number of programs that runs have there.
    pub programs: u32,
    /// What it has of each run; lists of nodes omit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<super::peer_history::NodeRunOutput>>,
}

/// The status of a node in one heartbeat.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusOutput {
    /// Its load.
    #[serde(flatten)]
    pub load: crate::domain::node::NodeLoad,
    /// When it was reported.
    pub creation_time: Timestamp,
}

/// A worker's watch of one class, now or in the past.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerWatch {
    /// The number of the watch.
    pub id: i64,
    /// The class.
    pub full_class_name: String,
    /// The worker.
    pub connection_id: WorkerId,
    /// When it began.
    pub connect_time: Timestamp,
    /// When it ended; absent: it still watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnect_time: Option<Timestamp>,
}

/// An actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ActorOutput {
    /// registry, dispatcher, run, node, worker, session, persistence …
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The broker that has it, if it is not the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_id: Option<BrokerId>,
    /// The name for people of the job, the node or the worker that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The actor that supervises it; absent for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// running, restarting, stopped …
    pub state: String,
    /// Milliseconds since its last start.
    pub age: i64,
    /// Number of restarts.
    pub restarts: u32,
    /// Number of waiting messages.
    pub queue_depth: u64,
    /// Messages handled, over all incarnations.
    pub messages_handled: u64,
    /// Microseconds for a message, on average: for so long it occupies its thread. Absent if it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_message: Option<f64>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The body of `POST /api/v1/workers`: a worker without a socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(extend("examples" = [{ "classNames": ["shop.Titles"] }])))]
#[serde(rename_all = "camelCase")]
pub struct WorkerInput {
    /// The id that it had before, if it registers again, or the number of a known worker.
    #[serde(default)]
    pub worker_id: Option<Named<WorkerId>>,
    /// The classes that it watches.
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = 1_000)))]
    #[serde(alias = "fullClassNames", alias = "FullClassNames", alias = "ClassNames")]
    pub class_names: Vec<String>,
    /// Runs that it already has.
    #[serde(default)]
    pub runs: Vec<Identity>,
    /// Tasks that it already has, or whose end is not acknowledged.
    #[serde(default)]
    pub tasks: Vec<super::task::TaskRef>,
    /// Facts about the worker.
    #[serde(default, deserialize_with = "super::object::object")]
    pub worker: super::worker::WorkerFacts,
}

/// The response to a worker without a socket: its id and its timing rules.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerRegistered {
    /// The id of the worker.
    pub worker_id: WorkerId,
    /// The id as a number, for clients that need 64 bits.
    #[serde(default)]
    pub number: Number,
    /// Maximum milliseconds between two calls.
    pub heartbeat: u64,
    /// Milliseconds of silence after which it counts as lost.
    pub offline: u64,
}
