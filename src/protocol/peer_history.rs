//! What nodes and workers do and did: for the pages of one node or worker.

use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use serde::Serialize;

/// What a node has of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeRunOutput {
    /// The run.
    pub identity: Identity,
    /// The name of its job; absent if the run is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Number of its blocks that the node holds.
    pub blocks: u32,
    /// Number of its programs on the node.
    pub programs: u32,
}

/// A connection of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeConnectionOutput {
    /// When it began.
    pub connect_time: Timestamp,
    /// When the broker missed the node; absent: it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect_time: Option<Timestamp>,
    /// The address that the node reported.
    pub ip_address: String,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a connected worker did in each of the last minutes, six hours at most. In the memory of the broker: it begins again when the worker
/// connects after it was lost, and when the broker restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerWorkOutput {
    /// Start of the first step.
    pub from: Timestamp,
    /// Length of a step in milliseconds: 60000.
    pub step: u64,
    /// The highest number of tasks at one moment of each step.
    pub running: Vec<u16>,
    /// Tasks that succeeded.
    pub success: Vec<u16>,
    /// Tasks that failed, were stopped or refused.
    pub failed: Vec<u16>,
}
