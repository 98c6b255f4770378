//! Messages between the broker and its workers.

use super::problem::Problem;
use super::task::{SettledTask, TaskOrder, TaskRef, TaskReport};
use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::run::{Counters, RunState};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From the broker to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToWorker {
    /// The first message: the worker's id and the rules of the connection.
    Welcome {
        /// The id of the worker.
        worker_id: WorkerId,
        /// Milliseconds between two heartbeats.
        heartbeat: u64,
        /// Milliseconds of silence after which the worker counts as lost.
        offline: u64,
        /// An invalid report does not affect the others of its message. Older brokers reject the whole message.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        separate_reports: bool,
    },
    /// The watched class names from now on.
    Watching {
        /// All of them.
        class_names: Vec<String>,
    },
    /// Process a run. Repeated after a reconnect, until the worker has reported that its start returned.
    Start(StartRun),
    /// A run has ended or was stopped: drop it.
    Ended {
        /// The run.
        identity: Identity,
        /// How it ended.
        state: RunState,
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Its final counters.
        counters: Counters,
    },
    /// Run these tasks. A task may be sent again with the same attempt: a known one is ignored.
    Tasks(Vec<TaskOrder>),
    /// End this attempt of a task: it was cancelled, or the worker no longer owns it.
    Cancel {
        /// The attempt.
        task: TaskRef,
        /// The reason.
        reason: String,
    },
    /// The last reports of these attempts are on disk, or can no longer change anything: forget them.
    Settled(Vec<SettledTask>),
    /// No new work will come: finish the current work, then leave.
    Drain {
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An operator kicked this worker: stop everything, and do not connect again.
    Kicked {
        /// The reason.
        reason: String,
    },
    /// A message of the worker was rejected.
    Error(Problem),
}

/// Facts that a worker reports when it begins to watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerFacts {
    /// A name for people, and for the order of the strategy `failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The version of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Free tags for its abilities.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Maximum number of concurrent tasks; 1 by default; 0: no tasks, only runs of block jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// A random id of the process: after a reconnect the broker recognizes the same process, and sends lost messages at once. For another
    /// process, or without this id, it waits for the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// The order to process a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartRun {
    /// The run.
    pub identity: Identity,
    /// Its job.
    pub job_id: JobId,
    /// The class of the run.
    pub class_name: String,
    /// The arguments of the trigger or the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The job's properties.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Whether the first requests were already pushed by a worker: continue with the results.
    #[serde(default)]
    pub start_returned: bool,
    /// The scheduled time of the run; absent if it was triggered by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// The attempt of the run, from 1.
    #[serde(default)]
    pub attempt: u32,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// From a worker to the broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromWorker {
    /// A sign of life, with the current tasks. Absent: not reported.
    Heartbeat {
        /// Each of these leases is renewed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tasks: Option<Vec<TaskRef>>,
    },
    /// Watch these classes, and no others.
    Watch {
        /// Their names.
        class_names: Vec<String>,
        /// The runs that the worker already has.
        #[serde(default)]
        runs: Vec<Identity>,
        /// The tasks that the worker already has, or whose result is not acknowledged.
        #[serde(default)]
        tasks: Vec<TaskRef>,
        /// Facts about the worker.
        #[serde(default, deserialize_with = "super::object::object")]
        worker: WorkerFacts,
    },
    /// Reports of tasks, each judged alone. Final ones are repeated after a reconnect, until they are acknowledged.
    Reports(Vec<TaskReport>),
    /// The first requests of a run were pushed, or could not be.
    StartReturned {
        /// The run.
        identity: Identity,
        /// Why they could not be pushed. The run fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}
