//! Messages to the dispatcher, and its handle.

use super::Dispatcher;
use crate::actors::node::NodeHandle;
use crate::actors::reply::Reply;
use crate::actors::run::RunHandle;
use crate::actors::supervision::CurrentLink;
use crate::domain::ids::{Identity, NodeId};
use crate::domain::node::{NodeFacts, SlotKind};
use crate::protocol::node::Block;
use actix::Message;
use std::sync::Arc;

/// From a run: it has this many blocks for nodes. Grants follow while nodes have free slots.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunReady {
    /// The run.
    pub identity: Identity,
    /// The run that receives the grants.
    pub run: RunHandle,
    /// Runs with a higher value go first.
    pub priority: i32,
    /// Number of blocks.
    pub ready: usize,
    /// Number of sites that may be requested now and have waiting blocks.
    pub sites: usize,
    /// At a broker that does not lead: the number of the permit of the last grant. 0: none.
    pub last_permit: u64,
    /// Only nodes of this group are eligible.
    pub node_group: Option<String>,
    /// Only nodes with this operating system are eligible.
    pub os: Option<String>,
}

/// From a run or the registry: a run has ended, or its actor has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunGone(pub Identity);

/// From a node: it is connected, with this number of free slots, and accepts work or not.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeChanged {
    /// The facts that the node reported.
    pub facts: Arc<NodeFacts>,
    /// The node that receives the blocks.
    pub node: NodeHandle,
    /// Free slots for blocks.
    pub free: u32,
    /// Free slots for site blocks.
    pub free_sites: u32,
    /// The node accepts blocks.
    pub accepts_blocks: bool,
}

/// From a node: a block has left it. From a dropped permit: no block has used it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Credit(pub NodeId, pub SlotKind);

/// From a run: a block of it failed at a node for a reason that another node may not have. If another node has a free slot, it is granted
/// to the run; else nothing happens.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GrantElsewhere {
    /// The run.
    pub identity: Identity,
    /// Not this node.
    pub not: NodeId,
    /// The kind of slot.
    pub slot_kind: SlotKind,
}

/// From a node or the registry: a node has gone, or its actor has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeGone(pub NodeId);

/// From the broker: [`BrokerContext::dispatch_is_paused`](crate::actors::context::BrokerContext::dispatch_is_paused) has changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PauseChanged;

/// From a node without a socket that requests a block: the dispatcher forwards the request to the run that comes first, and this run answers.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PullBlock {
    /// The facts that the node reported.
    pub facts: Arc<NodeFacts>,
    /// The node's actor.
    pub node: NodeHandle,
    /// Runs whose blocks the node does not accept.
    pub without: Vec<Identity>,
    /// The block, or `None`.
    pub reply: Reply<Option<Block>>,
}

/// Handle to the dispatcher for other modules.
#[derive(Debug, Clone, Default)]
pub struct DispatcherHandle(pub(in crate::actors) CurrentLink<Dispatcher>);

impl DispatcherHandle {
    /// See [`RunReady`].
    pub fn run_ready(&self, message: RunReady) {
        self.0.tell(message);
    }
    /// See [`RunGone`].
    pub fn run_gone(&self, identity: Identity) {
        self.0.tell(RunGone(identity));
    }
    /// See [`NodeChanged`].
    pub fn node_changed(&self, message: NodeChanged) {
        self.0.tell(message);
    }
    /// See [`Credit`].
    pub fn credit(&self, node: NodeId, slot_kind: SlotKind) {
        self.0.tell(Credit(node, slot_kind));
    }
    /// See [`GrantElsewhere`].
    pub fn grant_elsewhere(&self, message: GrantElsewhere) {
        self.0.tell(message);
    }
    /// See [`NodeGone`].
    pub fn node_gone(&self, node: NodeId) {
        self.0.tell(NodeGone(node));
    }
    /// See [`PauseChanged`].
    pub fn pause_changed(&self) {
        self.0.tell(PauseChanged);
    }
    /// See [`PullBlock`].
    pub fn pull(&self, message: PullBlock) {
        self.0.tell(message);
    }
}
