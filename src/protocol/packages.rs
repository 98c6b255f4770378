//! What the REST API says of packages, and of the instances of runs.

use crate::domain::ids::NodeId;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use serde::Serialize;

/// The most bytes of a package.
pub const MAX_PACKAGE: u64 = 1 << 30;

/// A package that the broker keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageOutput {
    /// SHA-256 of its bytes: 64 hexadecimal digits.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Where nodes get it: what the property `Package` of a job says.
    pub url: String,
    /// What it was called when it came first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    pub media_type: String,
    /// Who brought it: the role of a token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// When it came first.
    pub creation_time: Timestamp,
}

/// An instance of a run.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceOutput {
    /// Which, from 0. The lines of its output have the sources `<instance>:stdout` and `<instance>:stderr`.
    pub instance: u32,
    /// The node or worker that has it, or had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<NodeId>,
    /// Its name, or the last digits of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_name: Option<String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Where it is: scheduled, running, success, failed, stopped.
    pub state: RunState,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it brought: of a program its code or signal, its times and its peak of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Lines of a program's output that were taken, whether they are kept or not; of a task 0.
    pub lines: u64,
    /// Why it is asked to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}
