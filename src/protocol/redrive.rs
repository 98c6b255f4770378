//! What the REST API takes and gives as dead runs of many jobs are run again.

use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Which dead runs are to be run again: those that failed for good and that no other run repeats.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RedriveInput {
    /// Only those of this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Only those of jobs that are in this group now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only those made at this instant and later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only those made at this instant and earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// At most so many, 1 to 1,000; 100 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only say which.
    pub dry_run: bool,
}

/// What became of dead runs.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedrivenRuns {
    /// Dead runs that were found.
    pub found: usize,
    /// Those that are run again; in a dry run none.
    pub redriven: usize,
    /// Each of them.
    pub runs: Vec<RedrivenRun>,
    /// There are more than the limit.
    pub more: bool,
}

/// What became of one dead run.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedrivenRun {
    /// The dead run.
    pub retry_of: Identity,
    /// Its job.
    pub job_id: JobId,
    /// The run that repeats it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
