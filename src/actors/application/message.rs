//! The messages that only runs of applications accept.

use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramOutput, ProgramRef, ProgramReport};

/// From the actor of a node, about programs of the run; and from the fleet.
#[derive(Debug)]
pub enum ProgramEvent {
    /// The state of a program.
    Reported {
        /// The node.
        node: NodeId,
        /// The report.
        report: Box<ProgramReport>,
    },
    /// Lines that a program wrote.
    Output {
        /// The node of the program.
        node: NodeId,
        /// The lines.
        output: ProgramOutput,
    },
    /// The programs that the heartbeat of a node lists.
    Listed {
        /// The node.
        node: NodeId,
        /// The programs.
        programs: Vec<ProgramRef>,
    },
    /// The node is lost.
    NodeLost {
        /// The node.
        node: NodeId,
        /// When its silence began, moved forward by the time in which the broker was in doubt.
        silent_since: Timestamp,
    },
    /// From the fleet: a node fits the run, which waits for one.
    NodeFits,
}
