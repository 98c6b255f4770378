//! Messages between the leader and a broker that owns runs. Brokers of neighbouring versions understand each other: unknown members are ignored,
//! and new ones have a default.

use super::actors::{ActorDetail, ActorFilter, KindOutput};
use super::api::{ActorOutput, RunOutput};
use super::block_runs::{DomainDelay, FromBlockRun, Peers, ToBlockRun, ToPeer};
use super::node::Block;
use super::problem::Problem;
use super::sites::{SiteFilter, SiteOutput};
use crate::domain::ids::{BrokerId, Identity, JobId};
use crate::domain::run::RunState;
use crate::domain::series::Sums;
use crate::domain::sites::{ToBorrower, ToLender};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The header with the secret of the database: only a program that reads the database knows it. A broker sends it when it opens the link, and the
/// leader with calls that it passes on to the owner of a run.
pub const SECRET_HEADER: &str = "webloom-link";
/// The header with the address of the broker that opens the link. The leader must reach it there; one of an earlier version does not send it.
pub const URL_HEADER: &str = "webloom-url";
/// The path of the WebSocket.
pub const PATH: &str = "/api/v1/link";

/// Number of messages `Alive` that an owner sends in the time in which the leader must get one.
pub const ALIVE_IN_PATIENCE: i64 = 4;

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
        /// The leader knows the messages of block runs. One of an earlier version does not, and must get them back.
        #[serde(default)]
        block_runs: bool,
        /// The leader knows [`ToLeader::Counted`]. One of an earlier version does not.
        #[serde(default)]
        counts: bool,
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
    /// Which nodes and workers are connected.
    Peers(Peers),
    /// To a block run.
    Run {
        /// The run.
        run_id: Identity,
        /// The message.
        message: ToBlockRun,
    },
    /// To the board of sites.
    Sites(ToBorrower),
    /// What does the broker have?
    Ask {
        /// The number of the answer.
        call: u64,
        /// What is asked for.
        question: Question,
    },
    /// Delays that robots.txt files ask for, read by runs of other brokers.
    Delays(Vec<DomainDelay>),
}

/// What the leader asks a broker for, to list it with its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Question {
    /// The sites at its board. The answer is [`RunAnswer::Sites`].
    Sites(SiteFilter),
    /// Its actors. The answer is [`RunAnswer::Actors`].
    Actors(ActorFilter),
    /// The kinds of its actors. The answer is [`RunAnswer::ActorKinds`].
    ActorKinds,
    /// One of its actors. The answer is [`RunAnswer::Actor`].
    Actor {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
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
    /// Withdraw the run if it has not begun. The answer is [`RunAnswer::Withdrawn`].
    Withdraw,
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
        /// It can execute block runs. A broker of an earlier version cannot.
        #[serde(default)]
        block_runs: bool,
        /// It answers [`ToOwner::Ask`]. A broker of an earlier version does not.
        #[serde(default)]
        answers: bool,
    },
    /// What its runs have done since the last such message.
    Counted {
        /// How much each sum has grown since, by the names of the time series.
        sums: Sums,
        /// How many requests of its block runs wait for a result now.
        waiting: u64,
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
    /// The answer to [`ToOwner::Order`], [`ToOwner::Ask`], [`ToBlockRun::Pull`] or [`ToBlockRun::StartReturned`].
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
    /// From a block run.
    OfRun {
        /// The run.
        run_id: Identity,
        /// The message.
        message: FromBlockRun,
    },
    /// From a block run to a node or a worker.
    Peer(ToPeer),
    /// From the board of sites.
    Sites(ToLender),
    /// Delays that robots.txt files ask for.
    Delays(Vec<DomainDelay>),
    /// A run has read a robots.txt, which only the leader may store.
    KeepRobots {
        /// The origin.
        origin: Arc<str>,
        /// The product token of the user agent.
        agent: Arc<str>,
        /// The rules.
        rules: String,
        /// When they expire, by the wall clock.
        until: Timestamp,
    },
}

impl ToLeader {
    /// Whether the next frame contains its bulk data.
    #[must_use]
    pub const fn has_bulk(&self) -> bool {
        matches!(self, Self::Peer(ToPeer::Block { .. }))
    }

    /// Whether it must still be sent after the connection for which it was made has closed.
    #[must_use]
    pub const fn outlives_connection(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Retries { .. } | Self::GivenUp { .. } | Self::Leave | Self::KeepRobots { .. })
    }
}

/// The answer of a run or of a broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum RunAnswer {
    /// The run.
    Run(Box<RunOutput>),
    /// A block with its requests, or nothing.
    Block(Option<Box<Block>>),
    /// It is done.
    Done,
    /// Whether the run was withdrawn.
    Withdrawn(bool),
    /// Sites.
    Sites(Vec<SiteOutput>),
    /// Actors.
    Actors(Vec<ActorOutput>),
    /// The sums of each kind of actors.
    ActorKinds(Vec<KindOutput>),
    /// An actor, if the broker has it.
    Actor(Option<Box<ActorDetail>>),
    /// Why there is no other answer.
    Problem(Problem),
}
