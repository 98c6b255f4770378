//! The broker and its workers.

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
    /// The first message: the rules of the house.
    Welcome {
        /// The id under which the worker is known.
        worker_id: WorkerId,
        /// Milliseconds between two heartbeats.
        heartbeat: u64,
        /// Milliseconds of silence after which the worker counts as lost.
        offline: u64,
    },
    /// These class names are watched from now on.
    Watching {
        /// All of them.
        class_names: Vec<String>,
    },
    /// Carry out a run. Said again after a reconnect, until the worker has told that its start returned.
    Start(StartRun),
    /// A run is over, or was stopped: let go of it.
    Ended {
        /// The run.
        identity: Identity,
        /// How it ended.
        state: RunState,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// What came of it.
        counters: Counters,
    },
    /// Carry out these tasks. A task may be sent again under the same attempt: one that is known already is left alone.
    Tasks(Vec<TaskOrder>),
    /// End this attempt of a task: it was cancelled, or is no longer yours.
    Cancel {
        /// Which.
        task: TaskRef,
        /// Why.
        reason: String,
    },
    /// What was reported last of these attempts is on disk, or can change nothing any more: forget them.
    Settled(Vec<SettledTask>),
    /// You get nothing new; finish what you have, then leave.
    Drain {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An operator put you out: stop everything, and do not connect again.
    Kicked {
        /// Why.
        reason: String,
    },
    /// What the worker sent could not be taken.
    Error(Problem),
}

/// What a worker says of itself as it begins to watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerFacts {
    /// For people, and for the order of the strategy `failover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it can or has, in words of its operator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Tasks that it takes at a time; 1 unless said, 0: none, it only carries out runs of block jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Made at random when the program starts: after a reconnect the broker knows that it is the same one, and sends at
    /// once what did not come through. From another one, or without this, it waits for the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// The order to carry out a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartRun {
    /// The run.
    pub identity: Identity,
    /// Its job.
    pub job_id: JobId,
    /// The class that is meant.
    pub class_name: String,
    /// What the trigger or the job said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The job's properties.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// The first requests were pushed by a worker before: go on with the results.
    #[serde(default)]
    pub start_returned: bool,
    /// The instant that the run was planned for; none if it was triggered by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// Counts the attempts of the run from 1.
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
    /// I live, and these are the tasks that I have in hand. Absent: I do not say.
    Heartbeat {
        /// Each has its lease renewed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tasks: Option<Vec<TaskRef>>,
    },
    /// Give me runs of these classes, and of no others.
    Watch {
        /// Their names.
        class_names: Vec<String>,
        /// The runs that I have in hand already.
        #[serde(default)]
        runs: Vec<Identity>,
        /// The tasks that I have in hand already, or whose result you have not acknowledged.
        #[serde(default)]
        tasks: Vec<TaskRef>,
        /// Who I am.
        #[serde(default, deserialize_with = "super::object::object")]
        worker: WorkerFacts,
    },
    /// What became of tasks. Those that are final are said again after a reconnect, until they are settled.
    Reports(Vec<TaskReport>),
    /// The first requests of a run are pushed.
    StartReturned {
        /// The run.
        identity: Identity,
        /// Why they are not. The run fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}
