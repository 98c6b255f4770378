//! Messages to the actor of an application's run, and its handle.

use super::ApplicationActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::application::{ProgramOutput, ProgramRef, ProgramReport};
use actix::Message;

/// From the service or the run's job: stop the run on all its nodes.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopApplication {
    /// The reason.
    pub reason: String,
    /// The caller, if known.
    pub by: Option<String>,
    /// Answered when all its programs have ended or are given up, and that is stored.
    pub reply: Reply<RunOutput>,
}

/// From the registry: a queued run should check whether it may begin.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// From a node: the state of a program of the run.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramReported {
    /// The node.
    pub node: NodeId,
    /// The report.
    pub report: ProgramReport,
}

/// From a node: lines that a program of the run wrote.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramOutputCame {
    /// The node of the program.
    pub node: NodeId,
    /// The lines.
    pub output: ProgramOutput,
}

/// From a node: the programs of the run that its heartbeat lists.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramsListed {
    /// The node.
    pub node: NodeId,
    /// The programs.
    pub programs: Vec<ProgramRef>,
}

/// From a node's actor: the node is lost.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeLost {
    /// The node.
    pub node: NodeId,
    /// Time of its last message.
    pub last_heard: Timestamp,
}

/// Handle to a run of an application for other modules.
#[derive(Debug, Clone)]
pub struct ApplicationHandle(pub(in crate::actors) Link<ApplicationActor>);

/// From the service: the current state of the run.
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
