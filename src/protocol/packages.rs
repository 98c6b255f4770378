//! The REST API's outputs for packages and for the instances of runs.

use crate::domain::ids::NodeId;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use serde::Serialize;

/// The largest package, in bytes.
pub const MAX_PACKAGE: u64 = 1 << 30;

/// A package that the broker stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageOutput {
    /// SHA-256 of its bytes: 64 hexadecimal digits.
    pub sha256: String,
    /// Its size, in bytes.
    pub size: u64,
    /// The URL for nodes: the value of the job property `Package`.
    pub url: String,
    /// The name of its first upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    pub media_type: String,
    /// Who uploaded it: the role of a token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// When it was first uploaded.
    pub creation_time: Timestamp,
}

/// An instance of a run.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceOutput {
    /// The instance, from 0. Its output lines have the sources `<instance>:stdout` and `<instance>:stderr`.
    pub instance: u32,
    /// Its current or last node or worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_name: Option<String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Its state: scheduled, running, success, failed, stopped.
    pub state: RunState,
    /// The reason for its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The result: for a program its exit code or signal, its times and its peak memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Number of received output lines of a program, stored or not; 0 for a task.
    pub lines: u64,
    /// Why it was asked to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}

/// An attempt of a run that had more than one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptOutput {
    /// The instance, from 0; 0 if the run has only one.
    pub instance: u32,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The node or worker that had it. Absent: none, or the broker itself sent the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_name: Option<String>,
    /// How it ended; of the last one, its state when it began or ended.
    pub state: RunState,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it began; absent: not known, because the broker restarted during the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it ended; absent: it is the last one, and has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}
