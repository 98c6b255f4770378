//! Messages between a block run at a broker that does not lead, and the actors at the leader that it works with: nodes, workers, the
//! dispatcher and the allocator. What is sent while there is no connection is lost, as if these actors were being rebuilt.

use super::node::Block;
use super::worker::ToWorker;
use crate::domain::ids::{BlockId, Identity, NodeId, Seq, WorkerId};
use crate::domain::node::{NodeFacts, SlotKind};
use crate::domain::time::Timestamp;
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::WorkerRequest;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// From the leader to a block run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToBlockRun {
    /// From the dispatcher: a node has a free slot.
    Grant {
        /// The node.
        node_id: NodeId,
        /// The kind of slot.
        slot_kind: SlotKind,
        /// The node limits the pace by itself.
        keeps_pace: bool,
        /// The number of the permit.
        permit: u64,
    },
    /// From the dispatcher: answer the request of a node without a socket.
    Pull {
        /// The node.
        node_id: NodeId,
        /// The kind of slot.
        slot_kind: SlotKind,
        /// The number of the answer.
        call: u64,
    },
    /// From a node: the blocks that it holds.
    NodeHolds {
        /// The node.
        node_id: NodeId,
        /// Number and attempt of each.
        blocks: Vec<(Seq, u32)>,
        /// Blocks that were expected there, and are not.
        unlisted: Vec<(Seq, u32)>,
        /// Blocks on their way.
        coming: Vec<Seq>,
    },
    /// A node is lost, and a block with it.
    BlockLost {
        /// The node.
        node_id: NodeId,
        /// The block.
        block_id: BlockId,
        /// The attempt.
        attempt: u32,
    },
    /// The actor of a node was rebuilt.
    NodeRestarted {
        /// The node.
        node_id: NodeId,
    },
    /// The actor of a node was given up.
    NodeGivenUp {
        /// The node.
        node_id: NodeId,
    },
    /// From the allocator: a worker may be eligible now.
    WorkersChanged,
    /// The allocator was rebuilt.
    AllocatorRestarted,
    /// From the allocator: the answer to a search.
    WorkerFound {
        /// The worker, or why there is none.
        worker: Result<WorkerId, NotEligible>,
    },
    /// A worker has reconnected and continues the run.
    WorkerContinues {
        /// The worker.
        worker_id: WorkerId,
    },
    /// A worker may not have received the order to start.
    WorkerNeedsStart {
        /// The worker.
        worker_id: WorkerId,
    },
    /// A worker is lost.
    WorkerLost {
        /// The worker.
        worker_id: WorkerId,
    },
    /// From a worker: it has pushed the first requests, or failed.
    StartReturned {
        /// The error.
        error: Option<String>,
        /// The number of the answer.
        call: u64,
    },
    /// The dispatcher was rebuilt.
    Reannounce,
}

/// From a block run to the leader.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FromBlockRun {
    /// To the dispatcher: the run has this many blocks.
    Ready {
        /// Runs with a higher value go first.
        priority: i32,
        /// Number of blocks.
        ready: usize,
        /// Number of sites that may be requested now.
        sites: usize,
        /// The number of the permit of the last [`ToBlockRun::Grant`] that the run had got; 0: none. Later ones are on their way to it, so the
        /// two numbers above include what they will use. A broker of an earlier version does not send it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_permit: Option<u64>,
        /// Only nodes of this group.
        node_group: Option<String>,
        /// Only nodes with this operating system.
        os: Option<String>,
    },
    /// To the dispatcher: the run wants no grants any more.
    Gone,
    /// To the dispatcher: another node than this one is to get a block.
    GrantElsewhere {
        /// Not this node.
        not: NodeId,
        /// The kind of slot.
        slot_kind: SlotKind,
    },
    /// To the allocator: find a worker.
    FindWorker {
        /// The request.
        request: Box<WorkerRequest>,
    },
    /// To the allocator: the run searches no worker any more.
    StopSearch,
    /// The run has work at this node, or none any more; the latter comes up to a second late.
    AtNode {
        /// The node.
        node_id: NodeId,
        /// It has work there.
        is_there: bool,
    },
    /// The same for a worker.
    AtWorker {
        /// The worker.
        worker_id: WorkerId,
        /// It has work there.
        is_there: bool,
    },
}

/// From block runs to a node or a worker at the leader, or about a permit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToPeer {
    /// A block. The next frame contains its requests: zstd of a JSON array.
    Block {
        /// The node.
        node_id: NodeId,
        /// The permit that it uses; absent if it is sent again.
        permit: Option<u64>,
        /// The length of the requests after decompression, in bytes.
        raw_length: u32,
        /// The block.
        block: Box<Block>,
    },
    /// The node holds this block.
    Holds {
        /// The node.
        node_id: NodeId,
        /// The run.
        run_id: Identity,
        /// The block.
        block_id: BlockId,
        /// The attempt.
        attempt: u32,
        /// The kind of slot that it uses.
        slot_kind: SlotKind,
    },
    /// The node's work on a block is over.
    BlockDone {
        /// The node.
        node_id: NodeId,
        /// The block.
        block_id: BlockId,
        /// The attempt.
        attempt: u32,
        /// The node must drop it.
        notify_node: bool,
    },
    /// A message to a worker.
    Worker {
        /// The worker.
        worker_id: WorkerId,
        /// The message.
        message: Box<ToWorker>,
    },
    /// A permit was not used.
    Unused {
        /// Its number.
        permit: u64,
    },
}

/// A node that is connected to the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectedNode {
    /// Its facts.
    pub facts: NodeFacts,
    /// It is enabled and was not asked to leave.
    pub is_open: bool,
}

/// What has changed among the nodes and workers that are connected to the leader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peers {
    /// These are all: the first message of a connection.
    pub is_all: bool,
    /// Nodes that are new, or have changed.
    pub nodes: Vec<ConnectedNode>,
    /// Nodes that have gone.
    pub gone_nodes: Vec<NodeId>,
    /// Workers that are new.
    pub workers: Vec<WorkerId>,
    /// Workers that have gone.
    pub gone_workers: Vec<WorkerId>,
}

/// A delay that the robots.txt of one of a domain's hosts asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainDelay {
    /// The domain.
    pub domain: Arc<str>,
    /// The delay in milliseconds.
    pub delay_ms: u32,
    /// Until when it is known, by the wall clock.
    pub until: Timestamp,
}
