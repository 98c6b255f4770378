//! Tasks on the wire: orders to workers, and what these report.
//!
//! Written member by member and not flattened from common parts: these cross the wire for each task, and flattening costs
//! several times as much to read.

use super::log::LogInput;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
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
    /// Which of its instances; 0 if it has only one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// Counts the hand-outs of the instance from 1.
    pub attempt: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The order to carry out a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskOrder {
    /// The run.
    pub identity: Identity,
    /// Which of its instances.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The attempt. The three go back with every report.
    pub attempt: u32,
    /// How many instances the run has.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instances: u32,
    /// Its job.
    pub job_id: JobId,
    /// The name that is watched.
    pub handler: String,
    /// What the function gets: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub arguments: Option<Arc<RawValue>>,
    /// What the last run of the job left: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub data: Option<Arc<RawValue>>,
    /// Milliseconds after which the attempt is over if the broker has not heard of it: any report renews them, and a
    /// heartbeat that names it. A worker stops the task when so much has passed since it sent the last of them that the
    /// broker has answered.
    pub lease: u64,
    /// Milliseconds that the attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// The instant that the run was planned for; none if it was triggered by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<Timestamp>,
    /// W3C trace id: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

/// What became of the last report of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledTask {
    /// The run.
    pub identity: Identity,
    /// Which of its instances.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The attempt.
    pub attempt: u32,
    /// Why it changed nothing, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a worker says of an attempt of a task. Each of them renews its lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskReport {
    /// The run.
    pub identity: Identity,
    /// Which of its instances.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u32,
    /// The attempt.
    pub attempt: u32,
    /// Where it is.
    pub state: TaskState,
    /// 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    /// What it is at, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// With `success`: what it brought, any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub result: Option<Box<RawValue>>,
    /// With `failed` or `refused`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// For the next run of the job: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<serde_json::Value>"))]
    pub data: Option<Box<RawValue>>,
    /// When the job wants to be run next, once, whatever its plan says; what is past means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Lines for the log of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogInput>,
}

/// Where an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum TaskState {
    /// The worker has it.
    Accepted,
    /// The worker will not have it: it goes to another one.
    Refused,
    /// It works.
    Running,
    /// It ended well.
    Success,
    /// It ended with an error.
    Failed,
    /// It ended since it was told to.
    Cancelled,
}

impl TaskState {
    /// The attempt is over.
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
    /// In words.
    pub message: String,
    /// Where in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// It would fail again: no other attempt is made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

macro_rules! names_attempt {
    ($($name:ty),*) => {$(
        impl $name {
            /// Which attempt is meant.
            #[must_use]
            pub fn task(&self) -> TaskRef {
                TaskRef { identity: self.identity, instance: self.instance, attempt: self.attempt }
            }
        }
    )*};
}

names_attempt!(TaskOrder, SettledTask, TaskReport);
