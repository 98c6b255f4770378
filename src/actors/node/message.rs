//! What a node's actor is told, and its handle.

use super::NodeActor;
use crate::actors::dispatcher::NodePermit;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::session_sender::{Frame, SessionSender};
use crate::actors::supervision::Link;
use crate::domain::ids::{BlockId, Identity};
use crate::domain::node::{NodeFacts, NodeLoad, NodeRecord, Room};
use crate::protocol::application::{ProgramOutput, ProgramRef, ProgramReport};
use crate::protocol::node::{Block, Heartbeat, ToNode};
use actix::Message;
use bytes::Bytes;

/// From the registry: the node has connected (again), with these facts.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionOpened {
    /// What it said of itself.
    pub facts: NodeFacts,
    /// The way to it.
    pub sender: SessionSender,
    /// It takes blocks as binary frames.
    pub binary: bool,
}

/// From a session: the connection is gone. An earlier connection's end changes nothing.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionClosed(pub u64);

/// From a session or the HTTP road: the node lives, and holds these blocks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Beat(pub Heartbeat);

/// From the HTTP road: a node without a socket lives and asks for a block.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PullBeat {
    /// How it is.
    pub heartbeat: Heartbeat,
    /// Runs that it wants nothing of.
    pub without: Vec<Identity>,
    /// The block, or none.
    pub reply: Reply<Option<Block>>,
}

/// From a run: send this block to the node. Sent again under the same attempt, the node is known not to have it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SendBlock {
    /// The block, without its requests.
    pub block: Block,
    /// The requests: zstd of a JSON array.
    pub requests: Bytes,
    /// Their length, decompressed.
    pub raw_length: u32,
    /// The permit that it takes; none if it is sent again.
    pub permit: Option<NodePermit>,
}

/// From a run: the node has a block of it (one that it pulled, or one that it held when the run was rebuilt).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Holds {
    /// The run.
    pub identity: Identity,
    /// The block.
    pub block_id: BlockId,
    /// The hand-out.
    pub attempt: u32,
    /// What of the node it takes up.
    pub room: Room,
}

/// From a run: the node's work on a block is over. With `tell`, the node is to be told to drop it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct BlockDone {
    /// The block.
    pub block_id: BlockId,
    /// The hand-out.
    pub attempt: u32,
    /// Nobody waits for its results.
    pub tell: bool,
}

/// From the service: the operator's word, as it is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetWork(pub Box<NodeRecord>);

/// From a run of an application: tell the node. What does not reach it is told again by the run.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Command(pub ToNode);

/// From a run of an application: the programs of the run that the node is to have. It is told of what the node lists of it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExpectPrograms {
    /// The run.
    pub identity: Identity,
    /// All of them; none: the run counts on nothing here.
    pub programs: Vec<ProgramRef>,
}

/// From a session: where programs are.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ProgramsCame(pub Vec<ProgramReport>);

/// From a session: what a program wrote.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OutputCame(pub ProgramOutput);

/// From the registry: the dispatcher was rebuilt and knows nobody.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reannounce;

/// From the registry: the broker goes down; the node is told.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HangUp(pub String);

/// From the service: how is it?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeNode(pub Reply<NodeDescription>);

/// The answer to [`DescribeNode`].
#[derive(Debug, Clone)]
pub struct NodeDescription {
    /// What it said of itself.
    pub facts: NodeFacts,
    /// What it said last.
    pub load: Option<NodeLoad>,
    /// Blocks in its hands.
    pub holding: u32,
    /// Programs that runs count on there.
    pub programs: u32,
    /// It is there.
    pub is_online: bool,
}

/// A node, for other rooms.
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
    /// See [`Beat`].
    pub fn beat(&self, heartbeat: Heartbeat) {
        self.0.tell(Beat(heartbeat));
    }
    /// See [`PullBeat`].
    #[must_use]
    pub fn pull(&self, heartbeat: Heartbeat, without: Vec<Identity>) -> Answer<Option<Block>> {
        let (reply, answer) = reply();
        self.0.tell(PullBeat { heartbeat, without, reply });
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
    pub fn block_done(&self, block_id: BlockId, attempt: u32, tell: bool) {
        self.0.tell(BlockDone { block_id, attempt, tell });
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
    /// See [`ProgramsCame`].
    pub fn programs(&self, reports: Vec<ProgramReport>) {
        self.0.tell(ProgramsCame(reports));
    }
    /// See [`OutputCame`].
    pub fn output(&self, output: ProgramOutput) {
        self.0.tell(OutputCame(output));
    }
    /// See [`Reannounce`].
    pub fn reannounce(&self) {
        self.0.tell(Reannounce);
    }
    /// See [`HangUp`].
    pub fn hang_up(&self, why: &str) {
        self.0.tell(HangUp(why.to_owned()));
    }
    /// See [`DescribeNode`].
    #[must_use]
    pub fn describe(&self) -> Answer<NodeDescription> {
        let (reply, answer) = reply();
        self.0.tell(DescribeNode(reply));
        answer
    }
}

/// What goes out to a node.
pub(super) fn close(why: &str) -> Frame {
    Frame::Close(why.to_owned())
}
