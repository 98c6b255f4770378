//! What the REST API under `/api/v1` takes and gives.

use crate::domain::ids::{Identity, JobId, Named, NodeId, Number, WorkerId};
use crate::domain::run::{Counters, RunState};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
#[cfg(feature = "broker")]
use std::collections::BTreeMap;

/// A list, and where it goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(rename = "{T}Page"))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Give it back as `cursor` for what follows; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A job as it is created or changed. Names of both revisions of the seeds are taken.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(extend("examples" = [{ "name": "titles", "jobType": "block", "properties": { "FullClassName": "shop.Titles", "ThreadNum": "4" } }])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobInput {
    /// At creation, the id that it shall have; else one is made.
    #[serde(default, alias = "Id")]
    pub id: Option<JobId>,
    /// Unique among the jobs; needed at creation.
    #[serde(default, alias = "Name")]
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = crate::domain::job::limits::NAME)))]
    pub name: Option<String>,
    /// `block`, `task`, `application` or `callback`; 002 counts the first two from 0.
    #[serde(default, alias = "JobType", alias = "type", alias = "kind")]
    pub job_type: Option<JobTypeInput>,
    /// A shorter word for a schedule of one cron expression; empty: by hand only.
    #[serde(default, alias = "Cron")]
    pub cron: Option<String>,
    /// A shorter word for a schedule of one interval, in milliseconds; 0: once, then disabled.
    #[serde(default, alias = "Interval")]
    pub interval: Option<u64>,
    /// When it runs by itself; an empty one: by hand only.
    #[serde(default)]
    pub schedule: Option<crate::domain::schedule::Schedule>,
    /// What becomes of fires that are late or find it at work, and of runs that fail.
    #[serde(default)]
    pub policies: Option<crate::domain::schedule::Policies>,
    /// The request of a callback job.
    #[serde(default)]
    pub callback: Option<crate::domain::callback::Callback>,
    /// The task of a task job.
    #[serde(default, deserialize_with = "super::object::maybe_object")]
    pub task: Option<crate::domain::task::TaskSettings>,
    /// Jobs that begin when a run of this one ends; an empty list: none.
    #[serde(default)]
    pub successors: Option<Vec<crate::domain::job::Successor>>,
    /// A group of this name; it is made if there is none. Empty: no group.
    #[serde(default, alias = "Group", alias = "groupName")]
    pub group: Option<String>,
    /// Why it is disabled, with `isEnabled` false.
    #[serde(default)]
    pub disabled_reason: Option<String>,
    /// For people.
    #[serde(default, alias = "Description")]
    #[cfg_attr(feature = "broker", schemars(length(max = crate::domain::job::limits::DESCRIPTION)))]
    pub description: Option<String>,
    /// Whether a trigger starts it.
    #[serde(default, alias = "IsEnabled", alias = "isEnable", alias = "IsEnable", alias = "enabled")]
    pub is_enabled: Option<bool>,
    /// Higher goes first.
    #[serde(default, alias = "Priority")]
    pub priority: Option<i32>,
    /// 002's column: the class of a block job, the program of an application. Kept as a property.
    #[serde(default, alias = "Application")]
    pub application: Option<String>,
    /// 002's column. Kept as a property.
    #[serde(default, alias = "Arguments")]
    pub arguments: Option<String>,
    /// A shorter word for the program of an application job and its arguments, as one line; no shell reads it. It makes the job
    /// an application job, and is kept as the properties `Application` and `Arguments`.
    #[serde(default)]
    pub command: Option<String>,
    /// Everything else.
    #[serde(default, alias = "Properties")]
    pub properties: Option<BTreeMap<String, String>>,
    /// At a change: the version that it was made for; another one is refused.
    #[serde(default)]
    pub version: Option<i64>,
    /// What a job has besides when it is read, so that it may be sent back as it was read. Nothing here is looked at.
    #[serde(default)]
    pub number: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub next_fire: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub last_fire: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub fires: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub failures: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub activity: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub is_deleted: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub create_by: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub update_by: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub creation_time: ReadOnly,
    /// See `number`.
    #[serde(default)]
    pub update_time: ReadOnly,
}

/// A member of an answer that may stand in a body too, and says nothing there.
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

/// A kind of job by name or, as 002 has it, by number.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum JobTypeInput {
    /// Block 0, Application 1.
    Number(i64),
    /// In any case of letters.
    Name(String),
}

/// How to trigger a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TriggerInput {
    /// Instead of the job's own: of a task any JSON, of other jobs a text.
    #[serde(default)]
    pub arguments: Option<serde_json::Value>,
    /// Instead of the job's own.
    #[serde(default)]
    pub priority: Option<i32>,
    /// The instant that an outside scheduler planned: one instant makes one run, however often it is told.
    #[serde(default)]
    pub fire_time: Option<Timestamp>,
    /// Told twice under one key, a trigger makes one run. The header `Idempotency-Key` says the same.
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
    /// Stands for its id where 64 bits have to do.
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
    /// Where it is.
    pub state: RunState,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// Blocks at nodes now; absent where that is not known: while the run is loaded, and on a broker that stands by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consuming: Option<u64>,
    /// Blocks handed out so far.
    pub block_times: i64,
    /// Its worker has pushed the first requests.
    pub start_returned: bool,
    /// The worker that carries it out; after its end the one that carried out its last attempt. Absent of programs, callbacks
    /// and runs on several workers, whose instances tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Requests by what became of them.
    #[serde(flatten)]
    pub counters: Counters,
    /// Blocks by where they are.
    pub blocks: BlockCounts,
    /// URLs that it has seen, and the bytes of memory this takes.
    pub seen: u64,
    /// Bytes; absent as `consuming`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_bytes: Option<u64>,
    /// Counts its attempts from 1.
    #[serde(default)]
    pub attempt: u32,
    /// It waits until then for its next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The instant that it was planned for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// The run that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Identity>,
    /// The run of another job whose end began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Identity>,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Of a task at work: 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    /// What it is at, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_text: Option<String>,
    /// What it brought: of a callback, the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Who made it: the role of the token that triggered it by hand, `scheduler`, or `workflow` if the end of another run did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who stopped it: the role of a token, or `broker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// The last of its times.
    #[serde(default)]
    pub update_time: Timestamp,
    /// Of a block run that was paused: since when it hands out no blocks. Absent: it does, or the run is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When its first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}

/// Blocks by where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlockCounts {
    /// For a node.
    pub ready: u64,
    /// At a node; absent where that is not known, and then they count as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub using: Option<u64>,
    /// With results that no worker has acknowledged.
    pub answered: u64,
    /// All.
    pub total: u64,
}

/// What one node did for one run: the seeds' *JobStatus*.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobStatusOutput {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub identity: Identity,
    /// The node; none for the sum of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Where the run is.
    pub status: RunState,
    /// Requests by what became of them.
    #[serde(flatten)]
    pub counters: Counters,
    /// Its last report.
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
    /// Requests in it.
    pub requests: u32,
    /// … answered well.
    pub success: u32,
    /// … and not.
    pub error: u32,
    /// Hand-outs so far.
    pub attempt: u32,
    /// Who has it or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// When its node must have been heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// A worker has acknowledged its results.
    pub acknowledged: bool,
    /// What kept it from being downloaded as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When its results came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}

/// A node.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeOutput {
    /// What is stored of it.
    #[serde(flatten)]
    pub record: crate::domain::node::NodeRecord,
    /// Its name; the last 8 digits of its id if it has sent none.
    pub name: String,
    /// Stands for its id where 64 bits have to do.
    pub number: Number,
    /// It is there.
    pub is_online: bool,
    /// What it said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<crate::domain::node::NodeLoad>,
    /// Blocks in its hands.
    pub holding: u32,
    /// Programs that runs count on there.
    pub programs: u32,
}

/// What a node said of itself in one heartbeat.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusOutput {
    /// How busy it was.
    #[serde(flatten)]
    pub load: crate::domain::node::NodeLoad,
    /// When it said so.
    pub creation_time: Timestamp,
}

/// A worker's watch of one class, now or in the past.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerWatch {
    /// Counts the watches.
    pub id: i64,
    /// The class.
    pub full_class_name: String,
    /// The worker.
    pub connection_id: WorkerId,
    /// Since when.
    pub connect_time: Timestamp,
    /// Until when; absent: it watches now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnect_time: Option<Timestamp>,
}

/// An actor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ActorOutput {
    /// registry, dispatcher, run, node, worker, session, persistence …
    pub kind: String,
    /// Which one.
    pub name: String,
    /// The name that people gave to its node, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The actor that watches over it; none for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// running, restarting, stopped …
    pub state: String,
    /// Milliseconds since it was (re)started.
    pub age: i64,
    /// How often it was rebuilt.
    pub restarts: u32,
    /// Messages that wait.
    pub queue_depth: u64,
    /// Messages handled, all its lives together.
    pub messages_handled: u64,
    /// The last thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The body of `POST /api/v1/workers`: a worker without a socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(extend("examples" = [{ "classNames": ["shop.Titles"] }])))]
#[serde(rename_all = "camelCase")]
pub struct WorkerInput {
    /// The id that it had before, if it comes again, or the number of a worker that is known.
    #[serde(default)]
    pub worker_id: Option<Named<WorkerId>>,
    /// The classes that it watches.
    #[cfg_attr(feature = "broker", schemars(length(min = 1, max = 1_000)))]
    #[serde(alias = "fullClassNames", alias = "FullClassNames", alias = "ClassNames")]
    pub class_names: Vec<String>,
    /// Runs that it has in hand already.
    #[serde(default)]
    pub runs: Vec<Identity>,
    /// Tasks that it has in hand already, or whose end is not settled.
    #[serde(default)]
    pub tasks: Vec<super::task::TaskRef>,
    /// Who it is.
    #[serde(default, deserialize_with = "super::object::object")]
    pub worker: super::worker::WorkerFacts,
}

/// The answer to a worker without a socket: the rules of the house.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerRegistered {
    /// The id under which it is known.
    pub worker_id: WorkerId,
    /// Stands for its id where 64 bits have to do.
    #[serde(default)]
    pub number: Number,
    /// Milliseconds between two calls.
    pub heartbeat: u64,
    /// Milliseconds of silence after which it counts as lost.
    pub offline: u64,
}
