//! Messages between the leader and a broker that owns runs. Brokers of neighbouring versions understand each other: unknown members are ignored,
//! and new ones have a default.

use super::api::RunOutput;
use super::problem::Problem;
use crate::domain::ids::{BrokerId, Identity, JobId};
use crate::domain::run::RunState;
use serde::{Deserialize, Serialize};

/// The header with the secret of the database: only a program that reads the database knows it. A broker sends it when it opens the link, and the
/// leader with calls that it passes on to the owner of a run.
pub const SECRET_HEADER: &str = "webloom-link";
/// The path of the WebSocket.
pub const PATH: &str = "/api/v1/link";

/// From the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToOwner {
    /// The broker is connected. It executes all open runs that the database says are its own.
    Welcome {
        /// The term under which it owns runs: the one that it had, if its runs were not taken back. Absent if it wants none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        term: Option<i64>,
        /// Milliseconds between two messages [`ToLeader::Alive`].
        alive_every_ms: u64,
    },
    /// A run of this broker was stored: execute it.
    Start {
        /// The run.
        run_id: Identity,
    },
    /// A message for a run. The answer is [`ToLeader::Answer`].
    Order {
        /// The number of the answer.
        call: u64,
        /// The run.
        run_id: Identity,
        /// The message.
        order: RunOrder,
    },
    /// Give all runs up, with [`ToLeader::GivenUp`]; attempts that have begun are finished first. Then send [`ToLeader::Leave`].
    Drain,
    /// The answer to [`ToLeader::Alive`].
    Alive,
}

/// A message for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RunOrder {
    /// Stop the run. The answer is the run, once its end is stored.
    Stop {
        /// The reason.
        reason: String,
        /// Who stops it, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The answer is the run.
    Describe,
}

/// To the leader.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToLeader {
    /// The first message. The answer is [`ToOwner::Welcome`]; nothing else is sent before.
    Join {
        /// The broker.
        broker_id: BrokerId,
        /// The term under which it owns runs already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        term: Option<i64>,
        /// It was ordered to give its runs up, and wants no others.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_draining: bool,
    },
    /// The end of a run is stored.
    Ended {
        /// The run.
        run_id: Identity,
        /// Its job.
        job_id: JobId,
        /// How it ended.
        state: RunState,
        /// The job must process the end.
        follow: bool,
    },
    /// An attempt of a run has failed, and the next one waits.
    Retries {
        /// The run.
        run_id: Identity,
    },
    /// The broker does not execute this run any more: the leader takes it back.
    GivenUp {
        /// The run.
        run_id: Identity,
    },
    /// The answer to [`ToOwner::Order`].
    Answer {
        /// The number of the order.
        call: u64,
        /// The answer.
        answer: RunAnswer,
    },
    /// Sent again and again: the broker lives; one that owns runs has just written into the database.
    Alive,
    /// The broker executes nothing any more: its runs can be taken back at once.
    Leave,
}

/// The answer of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum RunAnswer {
    /// The run.
    Run(Box<RunOutput>),
    /// Why there is no other answer.
    Problem(Problem),
}
