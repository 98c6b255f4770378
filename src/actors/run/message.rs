//! What a run's actor is told, and its handle.

use super::RunActor;
use crate::actors::dispatcher::NodePermit;
use crate::actors::node::NodeHandle;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::block::{Lease, Phase};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::{BlockId, NodeId, Seq, WorkerId};
use crate::domain::node::Room;
use crate::domain::request::RequestBatch;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::api::{Page, RunOutput};
use crate::protocol::failed::Requeued;
use crate::protocol::node::{Block, Reported};
use crate::protocol::pack::Index;
use crate::protocol::push::Pushed;
use crate::protocol::sites::RunSiteOutput;
use actix::Message;
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// From the edge: requests for the run, and blocks that are done. Answered when both are on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Push {
    /// Blocks that are done.
    pub acks: Vec<BlockId>,
    /// Requests that follow from them, or just come.
    pub batch: RequestBatch,
    /// The answer.
    pub reply: Reply<Pushed>,
}

/// From the edge: finished blocks, please. Answered when there are some, when the wait is over, or when the run is.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Poll {
    /// Who asks, if it says so.
    pub worker: Option<WorkerId>,
    /// The most blocks in the answer.
    pub max: usize,
    /// At most this long.
    pub wait: Duration,
    /// Delivered is done.
    pub auto_ack: bool,
    /// The answer.
    pub reply: Reply<Delivered>,
}

/// The answer to a [`Poll`].
#[derive(Debug)]
pub struct Delivered {
    /// Where the run is.
    pub state: RunState,
    /// The blocks.
    pub blocks: Vec<DeliveredBlock>,
}

/// A finished block.
#[derive(Debug)]
pub struct DeliveredBlock {
    /// Which.
    pub block_id: BlockId,
    /// Its requests: zstd of a JSON array.
    pub requests: Bytes,
    /// Their length, decompressed.
    pub raw_length: u32,
    /// Its results.
    pub pack: Bytes,
    /// When it goes to others if it is not acknowledged; none: it counts as done.
    pub until: Option<Timestamp>,
}

/// From the edge: the results of a block. Answered when they are on disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Report {
    /// The index of the pack.
    pub index: Index,
    /// The pack.
    pub pack: Bytes,
    /// The answer.
    pub reply: Reply<Reported>,
}

/// From the dispatcher: hand a block to this node.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Grant {
    /// Its actor.
    pub to: NodeHandle,
    /// Which node, and the permit at it that the block may take.
    pub permit: NodePermit,
}

/// From the dispatcher: answer this node, which asked for a block, with one.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HandOver {
    /// Which node.
    pub node: NodeId,
    /// Its actor.
    pub to: NodeHandle,
    /// What of the run it is to have.
    pub room: Room,
    /// The answer to the node.
    pub reply: Reply<Option<Block>>,
}

/// From a node: it holds these blocks of the run, in these hand-outs, and no others.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeHolds {
    /// Which node.
    pub node: NodeId,
    /// Number and attempt of each.
    pub blocks: Vec<(Seq, u32)>,
    /// Blocks that its actor takes to be there, and that it did not list.
    pub unlisted: Vec<(Seq, u32)>,
}

/// From a node: it is lost, and with it this block.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeLost {
    /// Which node.
    pub node: NodeId,
    /// The block.
    pub block_id: BlockId,
    /// The hand-out.
    pub attempt: u32,
}

/// From the registry: something happened to a node's actor.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub enum NodeNews {
    /// It was rebuilt, and knows no longer what its node was sent.
    Restarted(NodeId),
    /// It cannot live; its node is lost.
    Vanished(NodeId),
}

/// From the registry: something happened to the workers.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub enum WorkerNews {
    /// Others watch other classes now.
    Changed,
    /// The answer to a search: this one watches the class, or none does.
    Found(Option<WorkerId>),
    /// This one has come back and has the run in hand.
    Has(WorkerId),
    /// This one's actor was rebuilt.
    Back(WorkerId),
    /// This one is lost.
    Gone(WorkerId),
}

/// From a worker or the edge: the first requests are pushed, or they are not and why.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StartReturned {
    /// Who says so.
    pub worker: Option<WorkerId>,
    /// Why the run cannot go on.
    pub error: Option<String>,
    /// Stored.
    pub reply: Reply<()>,
}

/// From the service: end it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    /// Why.
    pub reason: String,
    /// Who, if that is known.
    pub by: Option<String>,
    /// Stored.
    pub reply: Reply<RunOutput>,
}

/// From the service: hand out no more blocks, or hand them out again. What is at nodes comes back in any case.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetPaused {
    /// No more, or again.
    pub is_paused: bool,
    /// Stored.
    pub reply: Reply<RunOutput>,
}

/// From the service: queue these failed requests once more. Those that were before are left alone. Answered when it is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Requeue {
    /// Their ids, by the block that they were in.
    pub chosen: BTreeMap<Seq, HashSet<Fingerprint>>,
    /// What became of them.
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

/// From the service: where is this block?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LocateBlock {
    /// Its number.
    pub seq: Seq,
    /// None: the run has no such block.
    pub reply: Reply<Option<BlockPlace>>,
}

/// The answer to [`LocateBlock`].
#[derive(Debug, Clone)]
pub struct BlockPlace {
    /// Where it is.
    pub phase: Phase,
    /// Whose it is.
    pub lease: Option<Lease>,
    /// The site that it waits for: its name, when it is asked next as far as the run knows, and the blocks that come first.
    pub site: Option<(Arc<str>, Timestamp, usize)>,
}

/// From the registry: the dispatcher was rebuilt and knows nobody.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReannounceRun;

/// From the registry: the turn of a run that waited for it may have come.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// From the registry: the broker ends, so whoever polls is answered now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct EndPolls;

/// From the edge: these blocks did not reach the one to whom they were delivered, until then.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Undelivered(pub Vec<(BlockId, Timestamp)>);

/// From the service: how is it?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeRun(pub Reply<RunDescription>);

/// The answer to [`DescribeRun`].
#[derive(Debug)]
pub struct RunDescription {
    /// The run.
    pub output: RunOutput,
    /// Blocks at nodes: number, node, attempt, end of the lease.
    pub leases: Vec<(Seq, NodeId, u32, Timestamp)>,
}

/// From the service: how are its sites, from this number on?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeSites {
    /// The number.
    pub from: SiteNo,
    /// The most items in the answer.
    pub limit: usize,
    /// The answer.
    pub reply: Reply<Page<RunSiteOutput>>,
}

/// From the service: somebody holds this site now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SiteHeld(pub Arc<str>);

/// From the service: nobody holds this site any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SiteFreed(pub Arc<str>);

/// From its job: it is not to begin, if it was made ahead of its time and has not begun. Answered with whether that is so; then
/// this actor is gone, and the job deals with what is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Withdraw(pub Reply<bool>);

/// A run, for other rooms.
#[derive(Debug, Clone)]
pub struct RunHandle(pub(in crate::actors) Link<RunActor>);

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
    pub fn poll(&self, worker: Option<WorkerId>, max: usize, wait: Duration, auto_ack: bool) -> Answer<Delivered> {
        let (reply, answer) = reply();
        self.0.tell(Poll { worker, max, wait, auto_ack, reply });
        answer
    }
    /// See [`Report`].
    #[must_use]
    pub fn report(&self, index: Index, pack: Bytes) -> Answer<Reported> {
        let (reply, answer) = reply();
        self.0.tell(Report { index, pack, reply });
        answer
    }
    /// See [`Grant`].
    pub fn grant(&self, to: NodeHandle, permit: NodePermit) {
        self.0.tell(Grant { to, permit });
    }
    /// See [`HandOver`].
    pub fn pull(&self, node: NodeId, to: NodeHandle, room: Room, reply: Reply<Option<Block>>) {
        self.0.tell(HandOver { node, to, room, reply });
    }
    /// See [`NodeHolds`].
    pub fn node_holds(&self, node: NodeId, blocks: Vec<(Seq, u32)>, unlisted: Vec<(Seq, u32)>) {
        self.0.tell(NodeHolds { node, blocks, unlisted });
    }
    /// See [`NodeLost`].
    pub fn node_lost(&self, node: NodeId, block_id: BlockId, attempt: u32) {
        self.0.tell(NodeLost { node, block_id, attempt });
    }
    /// See [`NodeNews::Restarted`].
    pub fn node_restarted(&self, node: NodeId) {
        self.0.tell(NodeNews::Restarted(node));
    }
    /// See [`NodeNews::Vanished`].
    pub fn node_vanished(&self, node: NodeId) {
        self.0.tell(NodeNews::Vanished(node));
    }
    /// See [`WorkerNews::Changed`].
    pub fn workers_changed(&self) {
        self.0.tell(WorkerNews::Changed);
    }
    /// See [`WorkerNews::Found`].
    pub fn worker_found(&self, worker: Option<WorkerId>) {
        self.0.tell(WorkerNews::Found(worker));
    }
    /// See [`WorkerNews::Has`].
    pub fn worker_has(&self, worker: WorkerId) {
        self.0.tell(WorkerNews::Has(worker));
    }
    /// See [`WorkerNews::Back`].
    pub fn worker_back(&self, worker: WorkerId) {
        self.0.tell(WorkerNews::Back(worker));
    }
    /// See [`WorkerNews::Gone`].
    pub fn worker_gone(&self, worker: WorkerId) {
        self.0.tell(WorkerNews::Gone(worker));
    }
    /// See [`StartReturned`].
    pub fn start_returned(&self, worker: Option<WorkerId>, error: Option<String>, reply: Reply<()>) {
        self.0.tell(StartReturned { worker, error, reply });
    }
    /// See [`Stop`].
    #[must_use]
    pub fn stop(&self, reason: String, by: Option<String>) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(Stop { reason, by, reply });
        answer
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
    /// See [`Withdraw`].
    #[must_use]
    pub fn withdraw(&self) -> Answer<bool> {
        let (reply, answer) = reply();
        self.0.tell(Withdraw(reply));
        answer
    }
    /// See [`CheckQueue`].
    pub fn check_queue(&self) {
        self.0.tell(CheckQueue);
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
    pub fn undelivered(&self, blocks: Vec<(BlockId, Timestamp)>) {
        self.0.tell(Undelivered(blocks));
    }
    /// See [`DescribeRun`].
    #[must_use]
    pub fn describe(&self) -> Answer<RunDescription> {
        let (reply, answer) = reply();
        self.0.tell(DescribeRun(reply));
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
    /// See [`SiteFreed`].
    pub fn site_freed(&self, name: Arc<str>) {
        self.0.tell(SiteFreed(name));
    }
}
