//! What the actor of an application's run is told, and its handle.

use super::ApplicationActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::application::{ProgramOutput, ProgramRef, ProgramReport};
use actix::Message;

/// From the service or the run's job: end it, on all its nodes.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopApplication {
    /// Why.
    pub reason: String,
    /// Who, if that is known.
    pub by: Option<String>,
    /// All its programs are over or given up, and that is stored.
    pub reply: Reply<RunOutput>,
}

/// From the registry: the turn of a run that waited for it may have come.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// From a node: where a program of the run is.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramReported {
    /// Who says so.
    pub node: NodeId,
    /// What.
    pub report: ProgramReport,
}

/// From a node: lines that a program of the run wrote.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramOutputCame {
    /// Who has it.
    pub node: NodeId,
    /// The lines.
    pub output: ProgramOutput,
}

/// From a node: the programs of the run that its heartbeat lists.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramsListed {
    /// Who.
    pub node: NodeId,
    /// Which.
    pub programs: Vec<ProgramRef>,
}

/// From a node's actor: the node is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeLost {
    /// Which.
    pub node: NodeId,
    /// When it was heard of last.
    pub last_heard: Timestamp,
}

/// A run of an application, for other rooms.
#[derive(Debug, Clone)]
pub struct ApplicationHandle(pub(in crate::actors) Link<ApplicationActor>);

/// From the service: where is the run?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeApplication(pub Reply<RunOutput>);

impl ApplicationHandle {
    /// See [`DescribeApplication`].
    #[must_use]
    pub fn describe(&self) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(DescribeApplication(reply));
        answer
    }
    /// See [`StopApplication`].
    #[must_use]
    pub fn stop(&self, reason: String, by: Option<String>) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(StopApplication { reason, by, reply });
        answer
    }
    /// See [`CheckQueue`].
    pub fn check_queue(&self) {
        self.0.tell(CheckQueue);
    }
    /// See [`ProgramReported`].
    pub fn reported(&self, node: NodeId, report: ProgramReport) {
        self.0.tell(ProgramReported { node, report });
    }
    /// See [`ProgramOutputCame`].
    pub fn output(&self, node: NodeId, output: ProgramOutput) {
        self.0.tell(ProgramOutputCame { node, output });
    }
    /// See [`ProgramsListed`].
    pub fn listed(&self, node: NodeId, programs: Vec<ProgramRef>) {
        self.0.tell(ProgramsListed { node, programs });
    }
    /// See [`NodeLost`].
    pub fn node_lost(&self, node: NodeId, last_heard: Timestamp) {
        self.0.tell(NodeLost { node, last_heard });
    }
}
