//! Tasks on the wire: orders to workers, and their reports.
//!
//! The types are written member by member instead of flattened from common parts: they cross the wire for each task, and parsing
//! flattened types costs several times as much.

use super::log::LogInput;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use crate::domain::trace::SpanId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// One attempt of one instance of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskRef {
    /// The run.
    pub identity: Identity,
    /// The instance; 0 if there is only one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The dispatch of the instance, counted from 1.
    pub attempt: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The order to run a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskOrder {
    /// The run.
    pub identity: Identity,
    /// The instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The attempt. Every report returns these three.
    pub attempt: u32,
    /// Number of instances of the run.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instances: u32,
    /// Its job.
    pub job_id: JobId,
    /// The handler name.
    pub handler: String,
    /// The arguments of the function: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub arguments: Option<Arc<RawValue>>,
    /// The data that the last run of the job stored: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub data: Option<Arc<RawValue>>,
    /// Milliseconds after which the attempt ends if the broker has received nothing about it: any report renews the lease, and so does a
    /// heartbeat that names the attempt. A worker stops the task when this time has passed since it sent the last of these messages that
    /// got a reply.
    pub lease: u64,
    /// Maximum duration of the attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// The scheduled time of the run; absent if it was triggered by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The span of this attempt in that trace, if the broker sends spans to a collector: the parent of spans that the task makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<SpanId>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

/// The acknowledgement of the last report of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledTask {
    /// The run.
    pub identity: Identity,
    /// The instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The attempt.
    pub attempt: u32,
    /// Why the report was rejected, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A worker's report about an attempt of a task. Each report renews its lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskReport {
    /// The run.
    pub identity: Identity,
    /// The instance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The attempt.
    pub attempt: u32,
    /// The state of the attempt.
    pub state: TaskState,
    /// The progress, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    /// The progress as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For `success`: the result, any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub result: Option<Box<RawValue>>,
    /// For `failed`, `refused` or `cancelled`: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// Data for the next run of the job: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub data: Option<Box<RawValue>>,
    /// The next fire of the job, once, instead of its schedule; a past time means in 100 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Lines for the log of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogInput>,
}

/// The state of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum TaskState {
    /// The worker has it.
    Accepted,
    /// The worker rejects it: it goes to another one.
    Refused,
    /// It is running.
    Running,
    /// It succeeded.
    Success,
    /// It ended with an error.
    Failed,
    /// It ended because it was asked to.
    Cancelled,
}

impl TaskState {
    /// Whether the attempt has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Refused | Self::Success | Self::Failed | Self::Cancelled)
    }
}

/// Why a task failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskError {
    /// A text for people.
    pub message: String,
    /// The location in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// Whether it would fail again: there will be no other attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

macro_rules! names_attempt {
    ($($name:ty),*) => {$(
        impl $name {
            /// The attempt.
            #[must_use]
            pub fn task(&self) -> TaskRef {
                TaskRef { identity: self.identity, instance: self.instance, attempt: self.attempt }
            }
        }
    )*};
}

names_attempt!(TaskOrder, SettledTask, TaskReport);
