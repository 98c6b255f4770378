//! Statistics of the runs of a job.

use crate::domain::ids::{Identity, WorkerId};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use serde::Serialize;

/// Statistics of the stored runs of a job.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobActivity {
    /// Whether it has an open run.
    pub status: JobStatus,
    /// Number of its runs.
    pub runs: u64,
    /// Average duration of its last successful runs in milliseconds: at most the last 100 of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_ms: Option<u64>,
    /// The newest run that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// The oldest run that has not ended: the one in progress, or the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_run: Option<Identity>,
    /// The worker of that run, or else of the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
}

/// Whether a run of a job is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum JobStatus {
    /// No run of it is open.
    Idle,
    /// A run waits.
    Waiting,
    /// A run is in progress.
    Running,
}

/// How a run ended.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The run.
    pub identity: Identity,
    /// How it ended.
    pub state: RunState,
    /// When its first attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
    /// Duration, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}
