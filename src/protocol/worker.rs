//! The broker and its workers.

use super::problem::Problem;
use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::run::{Counters, RunState};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From the broker to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// What the worker sent could not be taken.
    Error(Problem),
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromWorker {
    /// I live.
    Heartbeat {},
    /// Give me runs of these classes, and of no others.
    Watch {
        /// Their names.
        class_names: Vec<String>,
        /// The runs that I have in hand already.
        #[serde(default)]
        runs: Vec<Identity>,
    },
    /// The first requests of a run are pushed.
    StartReturned {
        /// The run.
        identity: Identity,
        /// Why they are not. The run fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}
