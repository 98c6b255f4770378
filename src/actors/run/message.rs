//! Messages to the actor of a run, and its handle.

use super::worker_job::StartOutcome;
use super::{Choice, RunHandle};
use crate::actors::node::NodeHandle;
use crate::actors::placement::{NodeSlot, Permit};
use crate::actors::reply::{Answer, Reply, reply};
use crate::domain::block::{Lease, Phase};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::{BlockId, NodeId, Seq, WorkerId};
use crate::domain::node::SlotKind;
use crate::domain::request::RequestBatch;
use crate::domain::run::RunState;
use crate::domain::sites::Holds;
use crate::domain::time::Timestamp;
use crate::protocol::api::{Page, RunOutput};
use crate::protocol::failed::Requeued;
use crate::protocol::node::{Block, Reported};
use crate::protocol::pack::{Index, Opened};
use crate::protocol::problem::Problem;
use crate::protocol::push::Pushed;
use crate::protocol::sites::RunSiteOutput;
use actix::Message;
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// From the edge: requests for the run, and completed blocks. The answer comes when both are on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Push {
    /// Acknowledged blocks.
    pub acks: Vec<BlockId>,
    /// Requests that follow from these blocks, or that are independent.
    pub batch: RequestBatch,
    /// The answer.
    pub reply: Reply<Pushed>,
}

/// From the edge: fetch finished blocks. The answer comes when there are some, when the wait is over, or when the run ends.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Poll {
    /// The options.
    pub options: PollOptions,
    /// The answer.
    pub reply: Reply<Delivered>,
}

/// Options of a poll.
#[derive(Debug, Clone)]
pub struct PollOptions {
    /// The calling worker, if known.
    pub worker: Option<WorkerId>,
    /// Maximum number of blocks in the answer.
    pub max: usize,
    /// Maximum time to wait.
    pub wait: Duration,
    /// Treat delivered blocks as acknowledged.
    pub auto_ack: bool,
    /// The blocks that the worker has received and not acknowledged, if it lists them. Then it polls this run with one call at a time.
    pub holds: Option<Vec<BlockId>>,
}

/// The answer to a [`Poll`].
#[derive(Debug)]
pub struct Delivered {
    /// The state of the run.
    pub state: RunState,
    /// The blocks.
    pub blocks: Vec<DeliveredBlock>,
}

/// A finished block.
#[derive(Debug)]
pub struct DeliveredBlock {
    /// The id of the block.
    pub block_id: BlockId,
    /// Its requests: zstd of a JSON array.
    pub requests: Bytes,
    /// The length of the requests after decompression, in bytes.
    pub raw_length: u32,
    /// Its results.
    pub pack: Bytes,
    /// The number of the delivery, for [`Undelivered`]. `None`: nothing waits for an acknowledgement.
    pub delivery_no: Option<u64>,
}

/// From the edge: the results of a block. The answer comes when they are on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Report {
    /// The index of the pack.
    pub index: Index,
    /// The pack.
    pub pack: Bytes,
    /// Its results, if the run reads them. See [`super::opened()`].
    pub opened: Vec<Opened>,
    /// The answer.
    pub reply: Reply<Reported>,
}

/// From the dispatcher: dispatch a block to this node.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Grant {
    /// The actor of the node.
    pub to: NodeHandle,
    /// The permit for the block, which contains the node.
    pub permit: Permit<NodeSlot>,
}

/// From the dispatcher: answer this node's request with a block.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AnswerPull {
    /// The node.
    pub node: NodeId,
    /// The actor of the node.
    pub to: NodeHandle,
    /// The kind of block that it receives.
    pub slot_kind: SlotKind,
    /// The answer to the node.
    pub reply: Reply<Option<Block>>,
}

/// From a node: it holds exactly these blocks of the run, in these attempts.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct NodeHolds {
    /// The node.
    pub node: NodeId,
    /// Number and attempt of each.
    pub blocks: Vec<(Seq, u32)>,
    /// Blocks that its actor expected, but that the node did not list.
    pub unlisted: Vec<(Seq, u32)>,
    /// Blocks that were sent to it and have not arrived yet.
    pub coming: Vec<Seq>,
}

/// From a node: it is lost, and this block with it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeLost {
    /// The node.
    pub node: NodeId,
    /// The block.
    pub block_id: BlockId,
    /// The dispatch attempt.
    pub attempt: u32,
}

/// From the registry: an event of a node's actor.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub enum NodeEvent {
    /// The actor was rebuilt and has lost its list of sent blocks.
    Restarted(NodeId),
    /// The actor was given up; its node counts as lost.
    GivenUp(NodeId),
}

/// From the allocator, a worker or the registry: an event of the workers.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub enum WorkerEvent {
    /// A worker is eligible now, or the reason why there is none has changed.
    Changed,
    /// The allocator was rebuilt and has lost the search of the run.
    AllocatorRestarted,
    /// The answer to a search.
    Found(Choice),
    /// This worker has reconnected and continues the run.
    Continues(WorkerId),
    /// The order to start may not have reached this worker: its actor was rebuilt, or it reconnected and does not list the run.
    NeedsStart(WorkerId),
    /// This worker is lost.
    Lost(WorkerId),
}

/// From a worker or the edge: the first requests were pushed, or an error occurred.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StartReturned {
    /// The error that prevents the run from continuing.
    pub error: Option<String>,
    /// Answered when this is stored.
    pub reply: Reply<()>,
}

/// From the service: stop or resume the dispatch of blocks. Blocks at nodes are reported in any case.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetPaused {
    /// Whether the run is paused.
    pub is_paused: bool,
    /// Answered when this is stored.
    pub reply: Reply<RunOutput>,
}

/// From the service: requeue these failed requests, each only once. The answer comes when this is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Requeue {
    /// The ids of the requests, by their block.
    pub chosen: BTreeMap<Seq, HashSet<Fingerprint>>,
    /// The result.
    pub reply: Reply<Requeued>,
}

/// From the service: discard these requests, as far as they wait for a node. The answer is how many. Answered when it is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Discard {
    /// Their ids, by the block that they are in.
    pub chosen: BTreeMap<Seq, HashSet<Fingerprint>>,
    /// How many are discarded.
    pub reply: Reply<u64>,
}

/// From the service: locate this block.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LocateBlock {
    /// The number of the block.
    pub seq: Seq,
    /// `None`: the run has no such block.
    pub reply: Reply<Option<BlockPlace>>,
}

/// The answer to [`LocateBlock`].
#[derive(Debug, Clone)]
pub struct BlockPlace {
    /// The state of the block.
    pub phase: Phase,
    /// The lease of the block.
    pub lease: Option<Lease>,
    /// The site that the block waits for.
    pub site: Option<SitePlace>,
}

/// The place of a block in the queue of its site.
#[derive(Debug, Clone)]
pub struct SitePlace {
    /// The name of the site.
    pub site: Arc<str>,
    /// What the turn belongs to: the site, or its address.
    pub turn: Arc<str>,
    /// A host of the site that was not free.
    pub missed: Option<Arc<str>>,
    /// The earliest time of the next request, as far as the run knows.
    pub at: Timestamp,
    /// The number of blocks ahead.
    pub ahead: usize,
}

/// From the registry: the dispatcher was rebuilt and needs all runs again. At a broker that does not lead: there is a new connection to the leader.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReannounceRun;

/// From the registry: the broker shuts down, so answer all polls now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct EndPolls;

/// From the edge: these deliveries of blocks, each with its number, did not reach their receiver.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Undelivered(pub Vec<(BlockId, u64)>);

/// From the service: the blocks at nodes, each with its number, node, attempt, and the end of the lease.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListLeases(pub Reply<Vec<(Seq, NodeId, u32, Timestamp)>>);

/// From the service: the state of its sites, from this number on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeSites {
    /// The number.
    pub from: SiteNo,
    /// Maximum number of items in the answer.
    pub limit: usize,
    /// The answer.
    pub reply: Reply<Page<RunSiteOutput>>,
}

/// From the service: an operator holds this site now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SiteHeld(pub Arc<str>);

/// From the service: these holds were released.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SitesFreed(pub Arc<Holds>);

/// At a broker that does not lead: the leader has lent it this site.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SiteLent(pub Arc<str>);

/// The messages in the form of the shell.
#[derive(Debug)]
pub enum BlocksEvent {
    /// From the job that should start a worker: its answer.
    WorkerStartAnswered {
        /// The job, as the run's job names it.
        job: String,
        /// Why there is no worker.
        reason: String,
        /// The answer.
        answer: Result<StartOutcome, Problem>,
    },
}

impl RunHandle {
    /// See [`Push`].
    #[must_use]
    pub fn push(&self, acks: Vec<BlockId>, batch: RequestBatch) -> Answer<Pushed> {
        let (reply, answer) = reply();
        self.0.tell(Push { acks, batch, reply });
        answer
    }
    /// See [`Poll`].
    #[must_use]
    pub fn poll(&self, options: PollOptions) -> Answer<Delivered> {
        let (reply, answer) = reply();
        self.0.tell(Poll { options, reply });
        answer
    }
    /// See [`Report`].
    #[must_use]
    pub fn report(&self, index: Index, pack: Bytes, opened: Vec<Opened>) -> Answer<Reported> {
        let (reply, answer) = reply();
        self.0.tell(Report { index, pack, opened, reply });
        answer
    }
    /// See [`Grant`].
    pub fn grant(&self, to: NodeHandle, permit: Permit<NodeSlot>) {
        self.0.tell(Grant { to, permit });
    }
    /// See [`AnswerPull`].
    pub fn answer_pull(&self, node: NodeId, to: NodeHandle, slot_kind: SlotKind, reply: Reply<Option<Block>>) {
        self.0.tell(AnswerPull { node, to, slot_kind, reply });
    }
    /// See [`NodeHolds`].
    pub fn node_holds(&self, holds: NodeHolds) {
        self.0.tell(holds);
    }
    /// See [`NodeLost`].
    pub fn node_lost(&self, node: NodeId, block_id: BlockId, attempt: u32) {
        self.0.tell(NodeLost { node, block_id, attempt });
    }
    /// See [`NodeEvent::Restarted`].
    pub fn node_restarted(&self, node: NodeId) {
        self.0.tell(NodeEvent::Restarted(node));
    }
    /// See [`NodeEvent::GivenUp`].
    pub fn node_given_up(&self, node: NodeId) {
        self.0.tell(NodeEvent::GivenUp(node));
    }
    /// See [`WorkerEvent::Changed`].
    pub fn workers_changed(&self) {
        self.0.tell(WorkerEvent::Changed);
    }
    /// See [`WorkerEvent::AllocatorRestarted`].
    pub fn allocator_restarted(&self) {
        self.0.tell(WorkerEvent::AllocatorRestarted);
    }
    /// See [`WorkerEvent::Found`].
    pub fn worker_found(&self, choice: Choice) {
        self.0.tell(WorkerEvent::Found(choice));
    }
    /// See [`WorkerEvent::Continues`].
    pub fn worker_continues(&self, worker: WorkerId) {
        self.0.tell(WorkerEvent::Continues(worker));
    }
    /// See [`WorkerEvent::NeedsStart`].
    pub fn worker_needs_start(&self, worker: WorkerId) {
        self.0.tell(WorkerEvent::NeedsStart(worker));
    }
    /// See [`WorkerEvent::Lost`].
    pub fn worker_lost(&self, worker: WorkerId) {
        self.0.tell(WorkerEvent::Lost(worker));
    }
    /// See [`StartReturned`].
    pub fn start_returned(&self, error: Option<String>, reply: Reply<()>) {
        self.0.tell(StartReturned { error, reply });
    }
    /// See [`SetPaused`].
    #[must_use]
    pub fn set_paused(&self, is_paused: bool) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(SetPaused { is_paused, reply });
        answer
    }
    /// See [`Requeue`].
    #[must_use]
    pub fn requeue(&self, chosen: BTreeMap<Seq, HashSet<Fingerprint>>) -> Answer<Requeued> {
        let (reply, answer) = reply();
        self.0.tell(Requeue { chosen, reply });
        answer
    }
    /// See [`Discard`].
    #[must_use]
    pub fn discard(&self, chosen: BTreeMap<Seq, HashSet<Fingerprint>>) -> Answer<u64> {
        let (reply, answer) = reply();
        self.0.tell(Discard { chosen, reply });
        answer
    }
    /// See [`LocateBlock`].
    #[must_use]
    pub fn locate(&self, seq: Seq) -> Answer<Option<BlockPlace>> {
        let (reply, answer) = reply();
        self.0.tell(LocateBlock { seq, reply });
        answer
    }
    /// See [`ReannounceRun`].
    pub fn reannounce(&self) {
        self.0.tell(ReannounceRun);
    }
    /// See [`EndPolls`].
    pub fn end_polls(&self) {
        self.0.tell(EndPolls);
    }
    /// See [`Undelivered`].
    pub fn undelivered(&self, blocks: Vec<(BlockId, u64)>) {
        self.0.tell(Undelivered(blocks));
    }
    /// See [`ListLeases`].
    #[must_use]
    pub fn leases(&self) -> Answer<Vec<(Seq, NodeId, u32, Timestamp)>> {
        let (reply, answer) = reply();
        self.0.tell(ListLeases(reply));
        answer
    }
    /// See [`DescribeSites`].
    #[must_use]
    pub fn sites(&self, from: SiteNo, limit: usize) -> Answer<Page<RunSiteOutput>> {
        let (reply, answer) = reply();
        self.0.tell(DescribeSites { from, limit, reply });
        answer
    }
    /// See [`SiteHeld`].
    pub fn site_held(&self, name: Arc<str>) {
        self.0.tell(SiteHeld(name));
    }
    /// See [`SiteLent`].
    pub fn site_lent(&self, name: Arc<str>) {
        self.0.tell(SiteLent(name));
    }
    /// See [`SitesFreed`].
    pub fn sites_freed(&self, released: Arc<Holds>) {
        self.0.tell(SitesFreed(released));
    }
}
