//! Time series and warnings, as the REST API shows them.

use crate::domain::ids::{Identity, JobId, NodeId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the broker did in a period, in steps of equal length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeriesOutput {
    /// Start of the first step.
    pub from: Timestamp,
    /// End of the last step, which may not be over yet.
    pub to: Timestamp,
    /// Length of a step in milliseconds: 60000, 900000 or 21600000.
    pub step: i64,
    /// The values by name, one for each step; `null` where the broker was not running or nothing was measured.
    pub values: BTreeMap<String, Vec<Option<f64>>>,
}

/// The kind of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// The last run of a job failed for good, within the last 24 hours.
    FailedJob,
    /// A job has had no successful run for longer than its `silentAfter`.
    SilentJob,
    /// Scheduled times of a job were missed within the last 24 hours.
    MissedJob,
    /// A run began late, or later than its job allows, within the last hour.
    LateJob,
    /// A run has waited for a worker, a node or a slot for a minute or longer: the oldest one of its job.
    WaitingRun,
    /// A site is on hold.
    HeldSite,
    /// An enabled node has been offline for less than seven days.
    LostNode,
    /// The disk of the database is nearly full.
    Disk,
}

/// Something that an operator should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarningOutput {
    /// What it is about.
    pub kind: WarningKind,
    /// Since when, or when it happened last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The name of the job, of the node or of the site; the folder of the database.
    pub name: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Identity>,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
}
