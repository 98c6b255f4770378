//! At a broker that owns block runs and does not lead: the handles to the nodes, the workers, the dispatcher and the allocator, which are at the
//! leader, and what comes from there.

use super::by_type::by_type;
use super::context::BrokerContext;
use super::leader_link::LeaderLink;
use super::node::{self, BlockDone, NodeHandle, SendBlock};
use super::placement::allocator::{FindWorker, WithdrawRequest};
use super::placement::dispatcher::{GrantElsewhere, RunGone, RunReady};
use super::placement::{NodeSlot, Permit};
use super::reply::reply;
use super::run::{Choice, NodeHolds};
use super::supervision::{ChildKey, Link, Passed};
use super::worker::{SendToWorker, WorkerHandle};
use crate::domain::application::choice::Candidate;
use crate::domain::ids::{Identity, NodeId, WorkerId};
use crate::domain::sites::{Holds, ToBorrower};
use crate::domain::time::Timestamp;
use crate::protocol::block_runs::{FromBlockRun, Peers, ToBlockRun, ToPeer};
use crate::protocol::ownership::{RunAnswer, ToLeader};
use crate::protocol::problem::Problem;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The number of a choice of a worker that is never valid later: this broker does not know when the workers change.
const NEVER_VALID: u64 = u64::MAX;

/// Sets the handles to the dispatcher and the allocator.
pub fn set_up(context: &BrokerContext) {
    let Some(leader) = &context.leader else { return };
    let (to_dispatcher, to_allocator) = (leader.clone(), leader.clone());
    context.dispatcher.0.set(Link::elsewhere(ChildKey::Dispatcher, move |message| dispatcher_message(&to_dispatcher, message)));
    context.allocator.0.set(Link::elsewhere(ChildKey::Allocator, move |message| allocator_message(&to_allocator, message)));
}

fn dispatcher_message(leader: &LeaderLink, message: Passed) {
    let message = by_type!(message,
        RunReady: m => (m.identity, FromBlockRun::Ready {
            priority: m.priority,
            ready: m.ready,
            sites: m.sites,
            last_permit: Some(m.last_permit),
            node_group: m.node_group,
            os: m.os,
        }),
        RunGone: RunGone(identity) => (identity, FromBlockRun::Gone),
        GrantElsewhere: m => (m.identity, FromBlockRun::GrantElsewhere { not: m.not, slot_kind: m.slot_kind }),
    );
    message.into_iter().for_each(|(run_id, message)| leader.send(ToLeader::OfRun { run_id, message }));
}

fn allocator_message(leader: &LeaderLink, message: Passed) {
    let message = by_type!(message,
        FindWorker: m => (m.request.requester.0, FromBlockRun::FindWorker { request: m.request }),
        WithdrawRequest: WithdrawRequest((identity, _)) => (identity, FromBlockRun::StopSearch),
    );
    message.into_iter().for_each(|(run_id, message)| leader.send(ToLeader::OfRun { run_id, message }));
}

/// The handle to a node.
fn node_handle(leader: &LeaderLink, node_id: NodeId) -> NodeHandle {
    let leader = leader.clone();
    NodeHandle(Link::elsewhere(ChildKey::Node(node_id), move |message| node_message(&leader, node_id, message)))
}

fn node_message(leader: &LeaderLink, node_id: NodeId, message: Passed) {
    let message = by_type!(message,
        SendBlock: SendBlock { block, requests, raw_length, permit } => {
            let block = ToPeer::Block { node_id, permit: permit.and_then(Permit::into_number), raw_length, block: Box::new(block) };
            (block, Some(requests))
        },
        node::Holds: m => {
            (ToPeer::Holds { node_id, run_id: m.identity, block_id: m.block_id, attempt: m.attempt, slot_kind: m.slot_kind }, None)
        },
        BlockDone: m => {
            (ToPeer::BlockDone { node_id, block_id: m.block_id, attempt: m.attempt, notify_node: m.notify_node }, None)
        },
    );
    match message {
        Some((message, Some(bulk))) => leader.send_bulk(ToLeader::Peer(message), bulk),
        Some((message, None)) => leader.send(ToLeader::Peer(message)),
        None => {}
    }
}

/// The handle to a worker.
fn worker_handle(leader: &LeaderLink, worker_id: WorkerId) -> WorkerHandle {
    let leader = leader.clone();
    WorkerHandle(Link::elsewhere(ChildKey::Worker(worker_id), move |message| {
        let message = by_type!(message, SendToWorker: SendToWorker(message) => message);
        message.into_iter().for_each(|message| {
            leader.send(ToLeader::Peer(ToPeer::Worker { worker_id, message: Box::new(message) }));
        });
    }))
}

/// A new connection to the leader: it gets the state of all block runs again.
pub fn announce_all(context: &BrokerContext) {
    let addresses = &context.addresses;
    for (_, run) in addresses.runs.all() {
        run.reannounce();
        run.allocator_restarted();
    }
    // An order to start may have got lost. A worker that has the run ignores it.
    for (worker, _) in addresses.workers.all() {
        for run in addresses.runs_by_worker.of(worker).into_iter().filter_map(|identity| addresses.runs.get(identity)) {
            run.worker_needs_start(worker);
        }
    }
}

/// A message from the leader to the board of sites.
pub fn take_sites(context: &BrokerContext, message: ToBorrower) {
    let now = Timestamp::steady();
    let (mut held, mut freed, mut lent) = (Vec::new(), Vec::new(), None);
    match &message {
        ToBorrower::Start(_, holds) => held.extend(holds.iter().filter(|hold| hold.is_by_hand()).map(|hold| Arc::clone(&hold.name))),
        ToBorrower::Held(hold) if hold.is_by_hand() => held.push(Arc::clone(&hold.name)),
        ToBorrower::Freed(name) => freed.push(Arc::clone(name)),
        ToBorrower::Lend(name, ..) => lent = Some(Arc::clone(name)),
        ToBorrower::Held(_) | ToBorrower::Recall(_) => {}
    }
    let mut board = context.sites.board();
    board.lender_sent(message, now);
    // Others ask again in a moment.
    let lent = lent.and_then(|name| Some((board.next_run(&name, now)?, name)));
    drop(board);
    if let Some((run, name)) = lent.and_then(|(identity, name)| Some((context.addresses.runs.get(identity)?, name))) {
        run.site_lent(name);
    }
    if held.is_empty() && freed.is_empty() {
        return;
    }
    let freed: Arc<Holds> = Arc::new(freed.iter().collect());
    for (_, run) in context.addresses.runs.all() {
        held.iter().for_each(|name| run.site_held(Arc::clone(name)));
        run.sites_freed(Arc::clone(&freed));
    }
}

/// The nodes and workers that runs know, and that are not in the leader's list: a new leader does not have all of them yet, or they have gone. Each
/// since a time.
#[derive(Debug, Default)]
pub struct Missing {
    nodes: HashMap<NodeId, Timestamp>,
    workers: HashMap<WorkerId, Timestamp>,
}

impl Missing {
    /// A message from the leader to a block run.
    pub fn pass_to_run(&mut self, context: &BrokerContext, run_id: Identity, message: ToBlockRun) {
        let Some(leader) = context.leader.clone() else { return };
        let answer = move |call, answer| leader.send(ToLeader::Answer { call, answer });
        let Some(run) = context.addresses.runs.get(run_id) else {
            return match message {
                ToBlockRun::Grant { permit, .. } => {
                    context.leader.iter().for_each(|leader| leader.send(ToLeader::Peer(ToPeer::Unused { permit })));
                }
                ToBlockRun::Pull { call, .. } => answer(call, RunAnswer::Block(None)),
                ToBlockRun::StartReturned { call, .. } => {
                    answer(call, RunAnswer::Problem(Problem::busy("the run's actor is starting; retry later")));
                }
                _ => {}
            };
        };
        match message {
            ToBlockRun::Grant { node_id, slot_kind, keeps_pace, permit } => {
                let (Some(to), Some(leader)) = (self.node(context, node_id), context.leader.clone()) else { return };
                let slot = NodeSlot { node: node_id, kind: slot_kind, keeps_pace };
                let unused = move || leader.send(ToLeader::Peer(ToPeer::Unused { permit }));
                run.grant(to, Permit::of_leader(slot, permit, unused));
            }
            ToBlockRun::Pull { node_id, slot_kind, call } => {
                let Some(to) = self.node(context, node_id) else { return };
                let (reply, block) = reply();
                run.answer_pull(node_id, to, slot_kind, reply);
                block.then(move |block| {
                    let block = block.map_or_else(RunAnswer::Problem, |block| RunAnswer::Block(block.map(Box::new)));
                    answer(call, block);
                });
            }
            ToBlockRun::NodeHolds { node_id, blocks, unlisted, coming } => {
                // The run asks for the node.
                drop(self.node(context, node_id));
                run.node_holds(NodeHolds { node: node_id, blocks, unlisted, coming });
            }
            ToBlockRun::BlockLost { node_id, block_id, attempt } => run.node_lost(node_id, block_id, attempt),
            ToBlockRun::NodeRestarted { node_id } => run.node_restarted(node_id),
            ToBlockRun::NodeGivenUp { node_id } => run.node_given_up(node_id),
            ToBlockRun::WorkersChanged => run.workers_changed(),
            ToBlockRun::AllocatorRestarted => run.allocator_restarted(),
            ToBlockRun::WorkerFound { worker } => {
                worker.iter().for_each(|worker| self.worker(context, *worker));
                run.worker_found(Choice { watches: NEVER_VALID, worker });
            }
            ToBlockRun::WorkerContinues { worker_id } => {
                self.worker(context, worker_id);
                run.worker_continues(worker_id);
            }
            ToBlockRun::WorkerNeedsStart { worker_id } => {
                self.worker(context, worker_id);
                run.worker_needs_start(worker_id);
            }
            ToBlockRun::WorkerLost { worker_id } => run.worker_lost(worker_id),
            ToBlockRun::StartReturned { error, call } => {
                let (reply, done) = reply();
                run.start_returned(error, reply);
                done.then(move |done| answer(call, done.map_or_else(RunAnswer::Problem, |()| RunAnswer::Done)));
            }
            ToBlockRun::Reannounce => run.reannounce(),
        }
    }

    /// The handle to a node that the leader has just named. Its message may come before the list with the node, or after the one without it.
    fn node(&mut self, context: &BrokerContext, id: NodeId) -> Option<NodeHandle> {
        let leader = context.leader.as_ref()?;
        Some(context.addresses.nodes.get(id).unwrap_or_else(|| {
            let handle = node_handle(leader, id);
            context.addresses.nodes.put(id, handle.clone());
            self.nodes.insert(id, Timestamp::steady());
            handle
        }))
    }

    /// The same for a worker.
    fn worker(&mut self, context: &BrokerContext, id: WorkerId) {
        if let Some(leader) = context.leader.as_ref().filter(|_| context.addresses.workers.get(id).is_none()) {
            context.addresses.workers.put(id, worker_handle(leader, id));
            self.workers.insert(id, Timestamp::steady());
        }
    }

    /// The leader says what has changed.
    pub fn take(&mut self, context: &BrokerContext, peers: Peers) {
        let now = Timestamp::steady();
        if peers.is_all {
            let nodes: HashSet<NodeId> = peers.nodes.iter().map(|node| node.facts.node_id).collect();
            let workers: HashSet<WorkerId> = peers.workers.iter().copied().collect();
            let missing = context.addresses.nodes.all().into_iter().map(|(id, _)| id).filter(|id| !nodes.contains(id));
            self.nodes = missing.map(|id| (id, now)).collect();
            let missing = context.addresses.workers.all().into_iter().map(|(id, _)| id).filter(|id| !workers.contains(id));
            self.workers = missing.map(|id| (id, now)).collect();
        }
        for connected in peers.nodes {
            let id = connected.facts.node_id;
            drop(self.node(context, id));
            self.nodes.remove(&id);
            context.addresses.node_names.put(id, connected.facts.shown_name().into());
            let (facts, is_open) = (connected.facts, connected.is_open);
            context.fleet.update_node(Candidate { facts: facts.into(), is_open, is_online: true, load: None, at_work: 0 });
        }
        for id in peers.workers {
            self.worker(context, id);
            self.workers.remove(&id);
        }
        peers.gone_nodes.into_iter().for_each(|id| self.node_gone(context, id));
        // The actor of a worker may be being rebuilt. If the worker is lost, the leader tells its runs.
        self.workers.extend(peers.gone_workers.into_iter().map(|id| (id, now)));
    }

    /// Gives up those that are missing for so long that the leader would have given them up.
    pub fn look(&mut self, context: &BrokerContext) {
        let (now, times) = (Timestamp::steady(), context.times);
        let over = |since: &Timestamp, limit: u64| now.since_ms(*since) > limit as i64;
        let nodes: Vec<NodeId> = self.nodes.iter().filter(|(_, since)| over(since, times.node_offline)).map(|(id, _)| *id).collect();
        let workers: Vec<WorkerId> =
            self.workers.iter().filter(|(_, since)| over(since, times.worker_offline)).map(|(id, _)| *id).collect();
        nodes.into_iter().for_each(|id| self.node_gone(context, id));
        workers.into_iter().for_each(|id| self.worker_gone(context, id));
    }

    fn node_gone(&mut self, context: &BrokerContext, id: NodeId) {
        self.nodes.remove(&id);
        context.addresses.nodes.remove(id);
        context.fleet.remove_node(id);
        for run in context.addresses.runs_by_node.of(id).into_iter().filter_map(|identity| context.addresses.runs.get(identity)) {
            run.node_given_up(id);
        }
    }

    fn worker_gone(&mut self, context: &BrokerContext, id: WorkerId) {
        self.workers.remove(&id);
        context.addresses.workers.remove(id);
        for run in context.addresses.runs_by_worker.of(id).into_iter().filter_map(|identity| context.addresses.runs.get(identity)) {
            run.worker_lost(id);
        }
    }
}
