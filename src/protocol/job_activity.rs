//! What the runs of a job came to.

use crate::domain::ids::{Identity, WorkerId};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use serde::Serialize;

/// What the runs of a job came to, as far as they are kept.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobActivity {
    /// Whether a run of it is under way.
    pub status: JobStatus,
    /// Its runs.
    pub runs: u64,
    /// Milliseconds that its last runs took on average, of those that ended well: at most the last 100 of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_ms: Option<u64>,
    /// The newest run that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// The oldest run that is not over: the one that is under way or comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_run: Option<Identity>,
    /// The worker that has that run, else the one that had the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
}

/// Whether a run of a job is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum JobStatus {
    /// No run of it is open.
    Idle,
    /// One waits.
    Waiting,
    /// One is carried out.
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
    /// Milliseconds between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}
