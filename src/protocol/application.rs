//! Programs on nodes: the order to start one, and the reports of its node.

use super::log::LogInput;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use crate::domain::trace::SpanId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One program: an attempt of an instance of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramRef {
    /// The run.
    pub identity: Identity,
    /// The instance, from 0.
    pub instance: u32,
    /// The start of the instance, counted from 1.
    pub attempt: u32,
}

/// The order to start a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramOrder {
    /// The attempt and the instance. Every report returns it.
    pub program: ProgramRef,
    /// Number of instances of the run.
    pub instances: u32,
    /// Its job.
    pub job_id: JobId,
    /// The name of the job.
    pub job_name: String,
    /// The source of the program; absent: it is already on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Package>,
    /// The program: a path in the package, or the name of a program on the node.
    pub application: String,
    /// Its arguments, separately, without a shell.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Added to its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Files that are written to its working folder before the start: path and text.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Maximum run time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Milliseconds between the stop request and the kill.
    pub grace: u64,
    /// Its resource limits.
    #[serde(default)]
    pub limits: ProgramLimits,
    /// The user to run as, if the agent allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The span of this attempt in that trace, if the broker sends spans to a collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<SpanId>,
    /// The scheduled time of the run, or the time of its trigger.
    pub fire_time: Timestamp,
}

/// The source of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// `http://…` or `https://…`; a path like `/api/v1/packages/…` refers to the broker.
    pub url: String,
    /// SHA-256 of the file, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Resource limits of a program. Absent ones are the agent's; the agent's own limits apply in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProgramLimits {
    /// Bytes of memory (address space) of each of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Seconds of processor time of each of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Open files of each of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// The state of a program, reported by its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramReport {
    /// The program.
    pub program: ProgramRef,
    /// Its state.
    pub state: ProgramState,
    /// Since when it is in this state.
    pub at: Timestamp,
    /// Why it could not be started, or is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ProgramError>,
    /// The process, on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// For `exited`: how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProgramExit>,
}

/// The state of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ProgramState {
    /// The order arrived; its package is being fetched.
    Accepted,
    /// It runs.
    Running,
    /// It has ended; all its lines were sent before.
    Exited,
    /// It could not be started, for the given reason.
    Refused,
    /// The agent was down, and the end of the program is unknown.
    Lost,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramExit {
    /// Its exit code, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What ended it: `exit` (the order), `timeout`, `agent` (the agent was stopped); absent if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Peak resident memory of its processes, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// Milliseconds of processor time in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_ms: Option<u64>,
    /// Milliseconds of processor time in the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ms: Option<u64>,
    /// Milliseconds from its start to its end.
    pub wall_ms: u64,
    /// Number of lines that it wrote and that were sent.
    pub lines: u64,
}

/// Why a program could not be started, or is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramError {
    /// The kind, from a closed list.
    pub kind: ProgramErrorKind,
    /// A text for people.
    pub message: String,
}

/// The closed list of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProgramErrorKind {
    /// The agent's own settings forbid it: programs in general, this package's host, or this user.
    Forbidden,
    /// The package could not be fetched.
    PackageFetch,
    /// The package's server does not have it.
    PackageNotFound,
    /// The package does not match its SHA-256.
    PackageHash,
    /// The package is neither a zip nor a tar.gz.
    PackageFormat,
    /// An entry of the package is outside of its folder, or is a link to the outside.
    PackageUnsafe,
    /// The package or its content is too large.
    PackageTooLarge,
    /// The program does not exist.
    NotFound,
    /// The program could not be started.
    Spawn,
    /// The node has no free slot, or is about to leave.
    Busy,
    /// The agent was down, and the program is gone.
    Lost,
}

/// Output lines of a program.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramOutput {
    /// The program.
    pub program: ProgramRef,
    /// The number of the first line, from 0: lines that are already stored are ignored.
    pub first: u64,
    /// The lines; their source is `stdout` or `stderr`.
    pub lines: Vec<LogInput>,
}
