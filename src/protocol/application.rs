//! Programs on nodes: the order to start one, and what its node says of it.

use super::log::LogInput;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One program: an attempt of an instance of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramRef {
    /// The run.
    pub identity: Identity,
    /// Which of its instances, from 0.
    pub instance: u32,
    /// Counts the starts of the instance from 1.
    pub attempt: u32,
}

/// The order to start a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramOrder {
    /// Which attempt of which instance. Goes back with every report.
    pub program: ProgramRef,
    /// How many instances the run has.
    pub instances: u32,
    /// Its job.
    pub job_id: JobId,
    /// The name of the job.
    pub job_name: String,
    /// Where the program comes from; none: it is on the node already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Package>,
    /// The program: a path in the package, or the name of one that is on the node.
    pub application: String,
    /// Its arguments, one by one; no shell reads them.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Added to its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Files that stand in its working folder when it starts, by path, with their text.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Milliseconds that it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Milliseconds between asking it to end and killing it.
    pub grace: u64,
    /// What it may use.
    #[serde(default)]
    pub limits: ProgramLimits,
    /// The user to run as, where the agent may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The instant that the run was planned for, or was triggered at.
    pub fire_time: Timestamp,
}

/// Where a program comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// `http://…` or `https://…`; a path like `/api/v1/packages/…` is the broker's own.
    pub url: String,
    /// SHA-256 of the file, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What a program may use. What is absent is as the agent has it; the agent's own limits hold in any case.
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

/// Where a program is, as its node says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramReport {
    /// Which.
    pub program: ProgramRef,
    /// Where it is.
    pub state: ProgramState,
    /// Since when.
    pub at: Timestamp,
    /// Why it could not be started, or is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ProgramError>,
    /// The process, on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// With `exited`: how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProgramExit>,
}

/// Where a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ProgramState {
    /// The order arrived; its package is being fetched.
    Accepted,
    /// It runs.
    Running,
    /// It is over; all its lines were sent before.
    Exited,
    /// It could not be started, for a reason that is said.
    Refused,
    /// The agent was away, and it cannot be told what became of it.
    Lost,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramExit {
    /// Its code, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Who ended it: `exit` (the order), `timeout`, `agent` (it was stopped), or nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Most bytes of memory (resident) that its processes had.
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
    /// Lines that it wrote, and that were sent.
    pub lines: u64,
}

/// Why a program could not be started, or is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramError {
    /// One of a closed list.
    pub kind: ProgramErrorKind,
    /// In words.
    pub message: String,
}

/// The closed list of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProgramErrorKind {
    /// The agent's own settings forbid it: no programs at all, or not this package's host, or not this user.
    Forbidden,
    /// The package could not be fetched.
    PackageFetch,
    /// The package's server says that there is none.
    PackageNotFound,
    /// The package is not what its SHA-256 says.
    PackageHash,
    /// The package is neither a zip nor a tar.gz.
    PackageFormat,
    /// An entry of the package leads out of its folder, or is a link that does.
    PackageUnsafe,
    /// The package, or what is in it, is too large.
    PackageTooLarge,
    /// There is no such program.
    NotFound,
    /// The program could not be started.
    Spawn,
    /// The node is full, or is about to leave.
    Busy,
    /// The agent was away, and the program is gone.
    Lost,
}

/// Lines that a program wrote.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProgramOutput {
    /// Which program.
    pub program: ProgramRef,
    /// The number of the first line, from 0: what was taken already is not taken again.
    pub first: u64,
    /// The lines; their source is `stdout` or `stderr`.
    pub lines: Vec<LogInput>,
}
