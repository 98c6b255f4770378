//! Block runs at other brokers: passes messages on between them and the nodes, workers, dispatcher, allocator and board of sites of the leader.

use super::{PassToRun, RunOwners};
use crate::actors::by_type::by_type;
use crate::actors::context::BrokerContext;
use crate::actors::involved::Involved;
use crate::actors::node::{Holds, SendBlock};
use crate::actors::placement::dispatcher::{GrantElsewhere, RunReady};
use crate::actors::placement::{NodeSlot, Permit};
use crate::actors::reply::Reply;
use crate::actors::run::{AnswerPull, Grant, NodeEvent, NodeHolds, NodeLost, ReannounceRun, RunHandle, StartReturned, WorkerEvent};
use crate::domain::ids::{BrokerId, Identity, NodeId, WorkerId};
use crate::domain::node::{NodeFacts, SlotKind};
use crate::domain::sites::{Board, ToLender};
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::block_runs::{ConnectedNode, FromBlockRun, Peers, ToBlockRun, ToPeer};
use crate::protocol::node::Block;
use crate::protocol::ownership::{RunAnswer, ToOwner};
use crate::protocol::problem::Problem;
use crate::store::{KeepSite, OwnedBlockRuns};
use actix::fut::wrap_future;
use actix::{ActorFutureExt as _, AsyncContext as _, Context, Handler};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct BlockRuns {
    /// The connected owners whose version has block runs.
    owners: HashSet<BrokerId>,
    /// Where they have work.
    involved: HashMap<Identity, (BrokerId, Involved)>,
    /// Permits that were sent and not used yet.
    permits: HashMap<u64, SentPermit>,
    last_permit: u64,
    /// What the owners know of the nodes and workers.
    nodes: HashMap<NodeId, (Arc<NodeFacts>, bool)>,
    nodes_changes: u64,
    workers: HashSet<WorkerId>,
    /// The number of the last delay of a domain that they know.
    delays: u64,
}

/// A permit of a run at another broker.
#[derive(Debug)]
struct SentPermit {
    owner: BrokerId,
    run: Identity,
    permit: Permit<NodeSlot>,
}

/// Numbers of grants that are on their way to a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Coming {
    blocks: usize,
    sites: usize,
}

impl BlockRuns {
    pub(super) fn new() -> Self {
        Self { last_permit: first_number(), ..Self::default() }
    }

    /// The permits of a run that were sent after this one.
    fn permits_after(&self, owner: BrokerId, run: Identity, last: u64) -> Coming {
        let mut coming = Coming::default();
        if last == self.last_permit {
            return coming;
        }
        for (_, sent) in self.permits.iter().filter(|(number, sent)| **number > last && sent.run == run && sent.owner == owner) {
            match sent.permit.slot().kind {
                SlotKind::Block => coming.blocks += 1,
                SlotKind::Site => coming.sites += 1,
            }
        }
        coming
    }

    /// The runs of this broker are being taken back: their next actors make entries of their own.
    pub(super) fn forget(&mut self, owner: BrokerId) {
        self.involved.retain(|_, (of, _)| *of != owner);
    }
}

/// Numbers of messages begin anywhere, so that one of an earlier connection to another leader is not taken for one of this.
pub(super) fn first_number() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 >> 1
}

/// The runs of a broker belong to the leader now: their sites are free when its nodes do not use them any more.
pub(super) fn return_sites(context: &BrokerContext, owner: BrokerId) {
    let now = Timestamp::steady();
    // After this time a node that has got no message uses no site, and the runs know the blocks of all others.
    let until = now.plus_ms(context.times.node_offline.max(context.sites.right_ms) as i64);
    context.sites.board().borrower_lost(owner, until, now);
}

/// A caller that waits for the answer of a run at another broker.
#[derive(Debug)]
pub(super) enum Call {
    Run(Reply<RunOutput>),
    Block(Reply<Option<Block>>),
    Done(Reply<()>),
    Withdraw(Reply<bool>),
    /// Any answer.
    Question(Reply<RunAnswer>),
}

impl Call {
    pub(super) fn answer(self, answer: RunAnswer) {
        match (self, answer) {
            (Self::Run(reply), RunAnswer::Run(run)) => reply.send(Ok(*run)),
            (Self::Block(reply), RunAnswer::Block(block)) => reply.send(Ok(block.map(|block| *block))),
            (Self::Done(reply), RunAnswer::Done) => reply.send(Ok(())),
            (Self::Withdraw(reply), RunAnswer::Withdrawn(is_withdrawn)) => reply.send(Ok(is_withdrawn)),
            (call, RunAnswer::Problem(problem)) => call.fail(problem),
            (Self::Question(reply), answer) => reply.send(Ok(answer)),
            (call, _) => call.fail(Problem::internal()),
        }
    }

    pub(super) fn fail(self, problem: Problem) {
        match self {
            Self::Run(reply) => reply.send(Err(problem)),
            // The node asks again.
            Self::Block(reply) => reply.send(Ok(None)),
            Self::Done(reply) => reply.send(Err(problem)),
            Self::Withdraw(reply) => reply.send(Err(problem)),
            Self::Question(reply) => reply.send(Err(problem)),
        }
    }
}

impl RunOwners {
    /// The actor of a block run at this broker.
    fn block_run(&self, owner: BrokerId, identity: Identity) -> Option<RunHandle> {
        let addresses = &self.context.addresses;
        match addresses.elsewhere.get(identity) {
            Some((known, run)) => Some(run).filter(|_| known == owner),
            // It was taken back.
            None if addresses.run(identity).is_some() || addresses.building.get(identity).is_some() => None,
            None => {
                self.context.enter_elsewhere(owner, identity);
                addresses.elsewhere.get(identity).map(|(_, run)| run)
            }
        }
    }

    /// A message from a block run.
    pub(super) fn of_run(&mut self, owner: BrokerId, identity: Identity, message: FromBlockRun) {
        let Some(run) = self.block_run(owner, identity) else { return };
        match message {
            FromBlockRun::Ready { priority, ready, sites, last_permit, node_group, os } => {
                // The run has not got these grants yet. It subtracts one for each when it gets it, and sends its numbers again if that was
                // wrong; so they are subtracted here already.
                let coming = last_permit.map_or_else(Coming::default, |last| self.blocks.permits_after(owner, identity, last));
                let (ready, sites) = (ready.saturating_sub(coming.blocks), sites.saturating_sub(coming.sites));
                self.context.dispatcher.run_ready(RunReady { identity, run, priority, ready, sites, last_permit: 0, node_group, os });
            }
            FromBlockRun::Gone => self.context.dispatcher.run_gone(identity),
            FromBlockRun::GrantElsewhere { not, slot_kind } => {
                self.context.dispatcher.grant_elsewhere(GrantElsewhere { identity, not, slot_kind });
            }
            FromBlockRun::FindWorker { mut request } => {
                request.requester = (identity, 0);
                self.context.allocator.find_worker(request, run);
            }
            FromBlockRun::StopSearch => self.context.allocator.withdraw((identity, 0)),
            FromBlockRun::AtNode { node_id, is_there: true } => self.involved(owner, identity).add_node(node_id),
            FromBlockRun::AtNode { node_id, is_there: false } => self.involved(owner, identity).remove_node(node_id),
            FromBlockRun::AtWorker { worker_id, is_there: true } => self.involved(owner, identity).add_worker(worker_id),
            FromBlockRun::AtWorker { worker_id, is_there: false } => self.involved(owner, identity).remove_worker(worker_id),
        }
    }

    fn involved(&mut self, owner: BrokerId, identity: Identity) -> &mut Involved {
        let addresses = &self.context.addresses;
        &mut self.blocks.involved.entry(identity).or_insert_with(|| (owner, Involved::new(addresses, None, identity))).1
    }

    /// A message from a block run to a node or a worker.
    pub(super) fn send_to_peer(&mut self, owner: BrokerId, message: ToPeer, bulk: Bytes) {
        let node = |id| self.context.addresses.nodes.get(id);
        match message {
            ToPeer::Block { node_id, permit, raw_length, block } => {
                // If the node has gone, the slot has, too.
                let permit = permit.and_then(|number| self.take_permit(owner, number));
                if let Some(node) = self.context.addresses.nodes.get(node_id) {
                    node.send_block(SendBlock { block: *block, requests: bulk, raw_length, permit });
                }
            }
            ToPeer::Holds { node_id, run_id, block_id, attempt, slot_kind } => {
                node(node_id).iter().for_each(|node| node.holds(Holds { identity: run_id, block_id, attempt, slot_kind }));
            }
            ToPeer::BlockDone { node_id, block_id, attempt, notify_node } => {
                node(node_id).iter().for_each(|node| node.block_done(block_id, attempt, notify_node));
            }
            ToPeer::Worker { worker_id, message } => {
                if let Some(worker) = self.context.addresses.workers.get(worker_id) {
                    worker.send(*message);
                }
            }
            ToPeer::Unused { permit } => drop(self.take_permit(owner, permit)),
        }
    }

    fn take_permit(&mut self, owner: BrokerId, number: u64) -> Option<Permit<NodeSlot>> {
        let is_its = self.blocks.permits.get(&number).is_some_and(|sent| sent.owner == owner);
        if is_its { self.blocks.permits.remove(&number).map(|sent| sent.permit) } else { None }
    }

    /// An owner has ended a block run.
    pub(super) fn block_run_ended(&mut self, identity: Identity) {
        if self.context.addresses.elsewhere.take(identity).is_some() {
            self.block_run_given_up(identity);
        }
    }

    /// An owner does not execute a block run any more. It is in the address book until its next actor is being built: its nodes keep its blocks.
    pub(super) fn block_run_given_up(&mut self, identity: Identity) {
        self.context.dispatcher.run_gone(identity);
        self.context.allocator.withdraw((identity, 0));
        // The next actor makes its own entries.
        self.blocks.involved.remove(&identity);
    }

    /// The connection of an owner is lost: its block runs get nothing, and announce all they have when it connects again. What they have at nodes stays there.
    pub(super) fn block_runs_disconnected(&mut self, owner: BrokerId) {
        let addresses = &self.context.addresses;
        for (identity, (of, _)) in addresses.elsewhere.all() {
            // One that was taken back is here.
            if of == owner && addresses.runs.get(identity).is_none() {
                self.context.dispatcher.run_gone(identity);
                self.context.allocator.withdraw((identity, 0));
            }
        }
        self.blocks.owners.remove(&owner);
        // After the dispatcher knows that the runs are gone: the slots are free again.
        self.blocks.permits.retain(|_, sent| sent.owner != owner);
        self.context.sites.board().borrower_disconnected(owner);
    }

    /// The block runs of a new connection are about to announce where they have work.
    pub(super) fn block_runs_connected(&mut self, owner: BrokerId, ctx: &mut Context<Self>) {
        self.blocks.owners.insert(owner);
        self.blocks.forget(owner);
        self.forget_ended(owner, ctx);
        self.send_changed_peers();
        let node = |(facts, is_open): &(Arc<NodeFacts>, bool)| ConnectedNode { facts: (**facts).clone(), is_open: *is_open };
        let nodes = self.blocks.nodes.values().map(node).collect();
        let peers = Peers { is_all: true, nodes, workers: self.blocks.workers.iter().copied().collect(), ..Peers::default() };
        self.send(owner, &ToOwner::Peers(peers));
        self.send(owner, &ToOwner::Delays(self.context.sites.delays_after(0).0));
    }

    /// The message that a run has ended may have got lost with the last connection.
    fn forget_ended(&self, owner: BrokerId, ctx: &mut Context<Self>) {
        let elsewhere = self.context.addresses.elsewhere.all();
        let known: Vec<Identity> = elsewhere.into_iter().filter(|(_, (of, _))| *of == owner).map(|(identity, _)| identity).collect();
        if known.is_empty() {
            return;
        }
        let read = self.context.store.read(OwnedBlockRuns);
        ctx.spawn(wrap_future(read).map(move |open, this: &mut Self, _| match open {
            Ok(open) => {
                let open: HashSet<Identity> = open.into_iter().filter(|(_, of)| *of == owner).map(|(identity, _)| identity).collect();
                known.into_iter().filter(|identity| !open.contains(identity)).for_each(|identity| this.block_run_ended(identity));
            }
            Err(error) => log::warn!("failed to read which runs a broker executes broker_id={owner} error={error}"),
        }));
    }

    /// Sends all owners the delays of domains that runs have learned here or at other brokers.
    pub(super) fn send_new_delays(&mut self) {
        let (new, last) = self.context.sites.delays_after(self.blocks.delays);
        self.blocks.delays = last;
        for owner in self.blocks.owners.iter().filter(|_| !new.is_empty()) {
            self.send(*owner, &ToOwner::Delays(new.clone()));
        }
    }

    /// Sends all owners which nodes and workers came and went.
    pub(super) fn send_changed_peers(&mut self) {
        let mut peers = Peers::default();
        let changes = self.context.fleet.changes();
        if changes != self.blocks.nodes_changes {
            self.blocks.nodes_changes = changes;
            let present = self.context.fleet.nodes().into_iter().map(|node| (node.0.node_id, node));
            let before = std::mem::replace(&mut self.blocks.nodes, present.collect());
            peers.gone_nodes = before.keys().filter(|id| !self.blocks.nodes.contains_key(id)).copied().collect();
            let new = self.blocks.nodes.iter().filter(|(id, node)| before.get(id) != Some(node));
            peers.nodes = new.map(|(_, (facts, is_open))| ConnectedNode { facts: (**facts).clone(), is_open: *is_open }).collect();
        }
        let workers: HashSet<WorkerId> = self.context.addresses.workers.all().into_iter().map(|(id, _)| id).collect();
        if workers != self.blocks.workers {
            let before = std::mem::replace(&mut self.blocks.workers, workers);
            peers.gone_workers = before.difference(&self.blocks.workers).copied().collect();
            peers.workers = self.blocks.workers.difference(&before).copied().collect();
        }
        if peers != Peers::default() {
            for owner in &self.blocks.owners {
                self.send(*owner, &ToOwner::Peers(peers.clone()));
            }
        }
    }

    /// A message from the board of another broker.
    pub(super) fn borrower_sent(&mut self, owner: BrokerId, message: ToLender) {
        let name = match &message {
            ToLender::Held(hold) => Some(Arc::clone(&hold.name)),
            ToLender::Return(name, _) => Some(Arc::clone(name)),
            ToLender::Have(..) | ToLender::Borrow(..) => None,
        };
        let now = Timestamp::steady();
        let passed = match &message {
            ToLender::Borrow(name, _) | ToLender::Return(name, _) => Some(Arc::clone(name)),
            ToLender::Have(..) | ToLender::Held(_) => None,
        };
        let mut board = self.context.sites.board();
        let to_store = |board: &Board| name.as_ref().and_then(|name| board.state_to_store(name, now));
        let before = to_store(&board);
        board.borrower_sent(owner, message, now);
        let state = to_store(&board);
        if let Some(name) = name.filter(|_| before.is_some() || state.is_some()) {
            // A run of this broker stores such a state in the same way.
            let held_by = board.held_by(&name, now);
            drop(self.context.store.write_unbounded(KeepSite { name, state, held_by, now: Timestamp::now() }));
        }
        // The others follow soon, with the next look at all of them.
        let message = passed.and_then(|name| board.lend_now(&name, now));
        drop(board);
        if let Some((to, message)) = message {
            self.send(to, &ToOwner::Sites(message));
        }
    }

    /// Sends other brokers what their boards need.
    pub(super) fn lend(&mut self) {
        let messages = self.context.sites.board().for_borrowers(Timestamp::steady());
        for (owner, message) in messages {
            self.send(owner, &ToOwner::Sites(message));
        }
    }

    /// A message to a block run, as it is sent. `None`: it needs no answer and cannot be sent.
    fn as_sent(&mut self, owner: BrokerId, message: PassToRun) -> Option<ToBlockRun> {
        let is_connected = self.sessions.contains_key(&owner);
        by_type!(message.message,
            Grant: Grant { permit, .. } => {
                // Without a connection the permit is dropped; the dispatcher knows that the run is gone.
                is_connected.then(|| {
                    let slot = permit.slot();
                    self.blocks.last_permit += 1;
                    let number = self.blocks.last_permit;
                    self.blocks.permits.insert(number, SentPermit { owner, run: message.identity, permit });
                    ToBlockRun::Grant { node_id: slot.node, slot_kind: slot.kind, keeps_pace: slot.keeps_pace, permit: number }
                })
            },
            AnswerPull: AnswerPull { node, slot_kind, reply, .. } => {
                self.call(owner, Call::Block(reply)).map(|call| ToBlockRun::Pull { node_id: node, slot_kind, call })
            },
            NodeHolds: NodeHolds { node, blocks, unlisted, coming } => {
                Some(ToBlockRun::NodeHolds { node_id: node, blocks, unlisted, coming })
            },
            NodeLost: NodeLost { node, block_id, attempt } => Some(ToBlockRun::BlockLost { node_id: node, block_id, attempt }),
            NodeEvent: event => Some(match event {
                NodeEvent::Restarted(node_id) => ToBlockRun::NodeRestarted { node_id },
                NodeEvent::GivenUp(node_id) => ToBlockRun::NodeGivenUp { node_id },
            }),
            WorkerEvent: event => Some(match event {
                WorkerEvent::Changed => ToBlockRun::WorkersChanged,
                WorkerEvent::AllocatorRestarted => ToBlockRun::AllocatorRestarted,
                WorkerEvent::Found(choice) => ToBlockRun::WorkerFound { worker: choice.worker },
                WorkerEvent::Continues(worker_id) => ToBlockRun::WorkerContinues { worker_id },
                WorkerEvent::NeedsStart(worker_id) => ToBlockRun::WorkerNeedsStart { worker_id },
                WorkerEvent::Lost(worker_id) => ToBlockRun::WorkerLost { worker_id },
            }),
            StartReturned: StartReturned { error, reply } => {
                self.call(owner, Call::Done(reply)).map(|call| ToBlockRun::StartReturned { error, call })
            },
            ReannounceRun: ReannounceRun => Some(ToBlockRun::Reannounce),
        )
        .flatten()
    }
}

impl Handler<PassToRun> for RunOwners {
    type Result = ();
    fn handle(&mut self, message: PassToRun, _: &mut Self::Context) {
        let _timed = self.guard.timed("run_owners.pass_to_run");
        let (owner, run_id) = (message.owner, message.identity);
        if let Some(message) = self.as_sent(owner, message) {
            self.send(owner, &ToOwner::Run { run_id, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_on_their_way_are_those_after_the_last_one_of_their_run() {
        let mut blocks = BlockRuns::default();
        let (owner, [run, other]) = (BrokerId::random(), [Identity::random(), Identity::random()]);
        blocks.last_permit = 9;
        for (number, run, kind) in
            [(5, run, SlotKind::Block), (6, other, SlotKind::Block), (7, run, SlotKind::Site), (8, run, SlotKind::Block)]
        {
            let permit = Permit::new(NodeSlot { node: NodeId::random(), kind, keeps_pace: false }, || {});
            blocks.permits.insert(number, SentPermit { owner, run, permit });
        }
        for (last, blocks_coming, sites) in [(0, 2, 1), (5, 1, 1), (7, 1, 0), (8, 0, 0), (9, 0, 0)] {
            assert_eq!(blocks.permits_after(owner, run, last), Coming { blocks: blocks_coming, sites }, "{last}");
        }
        assert_eq!(blocks.permits_after(BrokerId::random(), run, 0), Coming::default(), "permits of another broker");
    }
}
