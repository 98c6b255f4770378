//! The REST API's inputs and outputs for repeating dead runs of many jobs.

use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Which dead runs to repeat: runs that failed for good and that no other run repeats.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RedriveInput {
    /// Only runs of this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Only runs of jobs that are in this group now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only runs created at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only runs created at this time or earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// Maximum number of runs, 1 to 1,000; 100 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only list the runs.
    pub dry_run: bool,
}

/// The result of repeating dead runs.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedrivenRuns {
    /// Number of dead runs that were found.
    pub found: usize,
    /// Number of repeated runs; in a dry run 0.
    pub redriven: usize,
    /// The result for each run.
    pub runs: Vec<RedrivenRun>,
    /// Whether there are more than the limit.
    pub more: bool,
}

/// The result for one dead run.
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
    /// Why there is no new run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
