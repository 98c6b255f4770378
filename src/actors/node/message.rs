//! Messages to the actor of a node, and its handle.

use super::NodeActor;
use crate::actors::placement::{NodeSlot, Permit};
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::session_sender::{Frame, SessionSender};
use crate::actors::supervision::Link;
use crate::domain::ids::{BlockId, Identity};
use crate::domain::node::{NodeFacts, NodeLoad, NodeRecord, SlotKind};
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramOutput, ProgramRef, ProgramReport};
use crate::protocol::node::{Block, Heartbeat, ToNode};
use actix::Message;
use bytes::Bytes;
use std::collections::HashMap;

/// From the registry: the node has connected or reconnected, with these facts.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionOpened {
    /// The facts that the node reported.
    pub facts: NodeFacts,
    /// Sends frames to the node.
    pub sender: SessionSender,
    /// The node accepts blocks as binary frames.
    pub binary: bool,
}

/// From a session: the connection has closed. The end of an earlier connection is ignored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionClosed(pub u64);

/// From a session or the HTTP transport: a heartbeat with the blocks that the node holds.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeHeartbeat(pub Heartbeat);

/// From the HTTP transport: a heartbeat of a node without a socket that requests a block.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PullWithHeartbeat {
    /// The state of the node.
    pub heartbeat: Heartbeat,
    /// Runs whose blocks the node does not accept.
    pub without: Vec<Identity>,
    /// The block, or `None`.
    pub reply: Reply<Option<Block>>,
}

/// From a run: send this block to the node. A repeat with the same attempt means that the node did not receive it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SendBlock {
    /// The block, without its requests.
    pub block: Block,
    /// The requests: zstd of a JSON array.
    pub requests: Bytes,
    /// The length of the requests after decompression, in bytes.
    pub raw_length: u32,
    /// The permit that the block uses; `None` if the block is sent again.
    pub permit: Option<Permit<NodeSlot>>,
}

/// From a run: the node holds a block of this run. The node pulled it, or held it when the run was rebuilt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Holds {
    /// The run.
    pub identity: Identity,
    /// The block.
    pub block_id: BlockId,
    /// The dispatch attempt.
    pub attempt: u32,
    /// The kind of slot that the block uses.
    pub slot_kind: SlotKind,
}

/// From a run: the node's work on a block is over. With `notify_node`, the actor sends the node a `Drop`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct BlockDone {
    /// The block.
    pub block_id: BlockId,
    /// The dispatch attempt.
    pub attempt: u32,
    /// The run does not wait for results any more, so the node must drop the block.
    pub notify_node: bool,
}

/// From the service: the operator's settings for the node, already stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetWork(pub Box<NodeRecord>);

/// From a run of an application: send this message to the node. The run repeats messages that do not arrive.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Command(pub ToNode);

/// From a run of an application: the programs of the run that this node should have. The run receives the node's list of them.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExpectPrograms {
    /// The run.
    pub identity: Identity,
    /// All programs; empty if the run has no program on this node.
    pub programs: Vec<ProgramRef>,
}

/// From a session: the states of programs.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramsReported(pub Vec<ProgramReport>);

/// From a session: output of a program.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OutputReceived(pub ProgramOutput);

/// From the registry: the dispatcher was rebuilt and needs all nodes again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reannounce;

/// From the registry: the broker shuts down; notify the node.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Disconnect(pub String);

/// From the registry: a run has a new actor, which gets the list of its blocks that this actor knows. Otherwise it would send them again before the
/// next heartbeat.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListBlocks(pub Identity);

/// From the service: the current state of the node.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeNode(pub Reply<NodeDescription>);

/// The answer to [`DescribeNode`].
#[derive(Debug, Clone)]
pub struct NodeDescription {
    /// The last load that the node reported.
    pub load: Option<NodeLoad>,
    /// When its last message came.
    pub last_seen: Timestamp,
    /// Blocks that the node holds.
    pub holding: u32,
    /// Programs that runs expect on the node.
    pub programs: u32,
    /// Its blocks by run.
    pub runs: HashMap<Identity, u32>,
    /// The node is connected.
    pub is_online: bool,
}

/// Handle to a node for other modules.
#[derive(Debug, Clone)]
pub struct NodeHandle(pub(in crate::actors) Link<NodeActor>);

impl NodeHandle {
    /// See [`SessionOpened`].
    pub fn session_opened(&self, message: SessionOpened) {
        self.0.tell(message);
    }
    /// See [`SessionClosed`].
    pub fn session_closed(&self, number: u64) {
        self.0.tell(SessionClosed(number));
    }
    /// See [`NodeHeartbeat`].
    pub fn heartbeat(&self, heartbeat: Heartbeat) {
        self.0.tell(NodeHeartbeat(heartbeat));
    }
    /// See [`PullWithHeartbeat`].
    #[must_use]
    pub fn pull(&self, heartbeat: Heartbeat, without: Vec<Identity>) -> Answer<Option<Block>> {
        let (reply, answer) = reply();
        self.0.tell(PullWithHeartbeat { heartbeat, without, reply });
        answer
    }
    /// See [`SendBlock`].
    pub fn send_block(&self, message: SendBlock) {
        self.0.tell(message);
    }
    /// See [`Holds`].
    pub fn holds(&self, message: Holds) {
        self.0.tell(message);
    }
    /// See [`BlockDone`].
    pub fn block_done(&self, block_id: BlockId, attempt: u32, notify_node: bool) {
        self.0.tell(BlockDone { block_id, attempt, notify_node });
    }
    /// See [`SetWork`].
    pub fn set_work(&self, record: NodeRecord) {
        self.0.tell(SetWork(Box::new(record)));
    }
    /// See [`Command`].
    pub fn command(&self, message: ToNode) {
        self.0.tell(Command(message));
    }
    /// See [`ExpectPrograms`].
    pub fn expect_programs(&self, identity: Identity, programs: Vec<ProgramRef>) {
        self.0.tell(ExpectPrograms { identity, programs });
    }
    /// See [`ProgramsReported`].
    pub fn programs(&self, reports: Vec<ProgramReport>) {
        self.0.tell(ProgramsReported(reports));
    }
    /// See [`OutputReceived`].
    pub fn output(&self, output: ProgramOutput) {
        self.0.tell(OutputReceived(output));
    }
    /// See [`Reannounce`].
    pub fn reannounce(&self) {
        self.0.tell(Reannounce);
    }
    /// See [`Disconnect`].
    pub fn disconnect(&self, why: &str) {
        self.0.tell(Disconnect(why.to_owned()));
    }
    /// See [`ListBlocks`].
    pub fn list_blocks(&self, run: Identity) {
        self.0.tell(ListBlocks(run));
    }
    /// See [`DescribeNode`].
    #[must_use]
    pub fn describe(&self) -> Answer<NodeDescription> {
        let (reply, answer) = reply();
        self.0.tell(DescribeNode(reply));
        answer
    }
}

/// The frame that closes the session.
pub(super) fn close(why: &str) -> Frame {
    Frame::Close(why.to_owned())
}
