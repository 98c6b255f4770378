//! What the dispatcher is told, and its handle.

use super::Dispatcher;
use crate::actors::node::NodeHandle;
use crate::actors::reply::Reply;
use crate::actors::run::RunHandle;
use crate::actors::supervision::Link;
use crate::domain::ids::{Identity, NodeId};
use crate::domain::node::{NodeFacts, Room};
use crate::protocol::node::Block;
use actix::Message;

/// From a run: it has this many blocks for nodes. Grants follow while there are nodes with room.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunReady {
    /// Which run.
    pub identity: Identity,
    /// Where grants go.
    pub run: RunHandle,
    /// Higher goes first.
    pub priority: i32,
    /// Blocks.
    pub ready: usize,
    /// Sites that may be asked now and have blocks that wait.
    pub sites: usize,
    /// Only nodes of this group.
    pub node_group: Option<String>,
    /// Only nodes of this system.
    pub os: Option<String>,
}

/// From a run or the registry: a run is over, or its actor is dead.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunGone(pub Identity);

/// From a node: it is there, with room for so many blocks, and takes work or does not.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeOpen {
    /// What it is.
    pub facts: NodeFacts,
    /// Where blocks go.
    pub node: NodeHandle,
    /// Blocks.
    pub free: u32,
    /// Blocks of sites besides.
    pub free_sites: u32,
    /// Blocks may be sent to it.
    pub open: bool,
}

/// From a node: a block has left it. From a [`NodePermit`] that no block has taken.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Credit(pub NodeId, pub Room);

/// From a node or the registry: a node is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeGone(pub NodeId);

/// From a node without a socket, which asks for a block: the best run is asked to hand one out, and answers.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PullBlock {
    /// Who asks.
    pub facts: NodeFacts,
    /// The node's actor.
    pub node: NodeHandle,
    /// Runs that it wants nothing of.
    pub without: Vec<Identity>,
    /// The block, or none.
    pub reply: Reply<Option<Block>>,
}

/// A node's room for one block, counted off with a grant. Dropped before a block has arrived at the node, on whatever
/// way, it goes back to the dispatcher that counted it off: a later dispatcher never did.
#[derive(Debug)]
pub struct NodePermit {
    node: NodeId,
    room: Room,
    /// The node keeps the pace of a site by itself.
    keeps_pace: bool,
    dispatcher: Option<DispatcherHandle>,
}

impl NodePermit {
    pub(super) fn new(node: NodeId, room: Room, keeps_pace: bool, dispatcher: DispatcherHandle) -> Self {
        Self { node, room, keeps_pace, dispatcher: Some(dispatcher) }
    }

    /// What of the node it is.
    #[must_use]
    pub fn room(&self) -> Room {
        self.room
    }

    /// Whether the node may be given many requests of a site.
    #[must_use]
    pub fn keeps_pace(&self) -> bool {
        self.keeps_pace
    }

    /// At which node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// A block is there: the node says itself when it has left.
    pub fn taken(mut self) {
        self.dispatcher = None;
    }
}

impl Drop for NodePermit {
    fn drop(&mut self) {
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.credit(self.node, self.room);
        }
    }
}

/// The dispatcher, for other rooms.
#[derive(Debug, Clone)]
pub struct DispatcherHandle(pub(in crate::actors) Link<Dispatcher>);

impl DispatcherHandle {
    /// See [`RunReady`].
    pub fn run_ready(&self, message: RunReady) {
        self.0.tell(message);
    }
    /// See [`RunGone`].
    pub fn run_gone(&self, identity: Identity) {
        self.0.tell(RunGone(identity));
    }
    /// See [`NodeOpen`].
    pub fn node_open(&self, message: NodeOpen) {
        self.0.tell(message);
    }
    /// See [`Credit`].
    pub fn credit(&self, node: NodeId, room: Room) {
        self.0.tell(Credit(node, room));
    }
    /// See [`NodeGone`].
    pub fn node_gone(&self, node: NodeId) {
        self.0.tell(NodeGone(node));
    }
    /// See [`PullBlock`].
    pub fn pull(&self, message: PullBlock) {
        self.0.tell(message);
    }
}
