//! Attempts of blocks that are lost: with their node, with their lease, or because their node has to drop them.

use super::cache::Payload;
use super::parts::failed;
use super::{NodeEvent, NodeLost, RunActor};
use crate::domain::block::Lost;
use crate::domain::ids::{NodeId, Seq};
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pack::{self, Index};
use crate::protocol::problem::Problem;
use crate::store::MarkRetry;
use actix::{Context, Handler};
use bytes::Bytes;

impl RunActor {
    /// A block is no longer at a node, and its results have not arrived.
    pub(super) fn block_lost(&mut self, seq: Seq, node: NodeId, attempt: u32, why: &str, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() {
            return; // nothing is written after the end
        }
        let lease = self.kind.frontier.lease_of(seq).copied();
        let lost = self.kind.frontier.lost(seq, node, attempt);
        if let Some(lease) = lease.filter(|_| lost.is_some()) {
            self.trace_block(seq, &lease, Some(why));
        }
        self.note_leases_of(node);
        if let Some(site) = self.kind.frontier.site_of(seq).filter(|_| lost.is_some()) {
            // Its node may continue for as long as its right lasts.
            let wait_ms = self.wait_after_loss(site);
            self.turn_over(site, wait_ms, ctx);
        }
        match lost {
            None => {
                // It was dispatched by an earlier actor of the run.
                if let Some(losses) = self.kind.frontier.note_loss(seq, attempt) {
                    self.store_loss(seq, losses, node, why, ctx);
                }
            }
            Some(Lost::Retry(attempt)) => {
                self.kind.cache.put_back(seq);
                // After a restart, attempts that were given back are no longer known.
                self.store_loss(seq, self.kind.frontier.losses(seq, attempt), node, why, ctx);
                self.announce(ctx);
            }
            Some(Lost::Exhausted(attempts)) => {
                let exception = format!("given up after {attempts} attempts: {why}");
                log::error!("block given up block_id={}: {exception}", self.block_id(seq));
                self.with_payload(seq, ctx, move |this, payload, ctx| {
                    this.give_up(seq, node, attempt, &payload, (FetchErrorKind::NodeLost, exception), ctx)
                });
            }
        }
    }

    /// Stores how many attempts of a waiting block were lost: after a restart, a request of it that must not be repeated is not sent again.
    pub(super) fn store_loss(&mut self, seq: Seq, losses: u32, node: NodeId, why: &str, ctx: &mut Context<Self>) {
        let (no, epoch) = (self.run.no, self.epoch);
        let write = MarkRetry { no, epoch, seq, attempt: losses, node: Some(node), exception: Some(why.to_owned()) };
        Self::then(ctx, self.context.store.write_unbounded(write), |_, _, _| {});
    }

    /// The broker itself reports a block, because no node could.
    pub(super) fn give_up(
        &mut self,
        seq: Seq,
        node: NodeId,
        attempt: u32,
        payload: &Payload,
        (kind, exception): (FetchErrorKind, String),
        ctx: &mut Context<Self>,
    ) {
        if self.lifecycle.is_ending() {
            return; // the run ended during the read of the requests
        }
        let index = Index {
            epoch: Some(self.epoch),
            attempt: Some(attempt),
            exception: Some(exception.clone()),
            results: payload.prints.iter().map(|print| failed(*print, kind, &exception)).collect(),
            ..Index::new(self.block_id(seq), self.identity(), node)
        };
        let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
        self.store_report(seq, index, pack, payload.clone(), None, ctx);
    }

    /// A node drops a block whose report is rejected permanently. Sent again to this node, the block would fail in the same way
    /// forever. So it counts as a lost attempt, and another node may succeed.
    pub(super) fn refused(&mut self, seq: Seq, node: NodeId, problem: &Problem, ctx: &mut Context<Self>) {
        let Some(lease) = self.kind.frontier.lease_of(seq).copied().filter(|lease| lease.node == node) else { return };
        if let Some(to) = self.context.addresses.nodes.get(node) {
            to.block_done(self.block_id(seq), lease.attempt, false);
        }
        self.block_lost(seq, node, lease.attempt, &format!("its report was rejected: {}", problem.detail), ctx);
    }
}

impl Handler<NodeLost> for RunActor {
    type Result = ();
    fn handle(&mut self, m: NodeLost, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.node_lost");
        let Some(seq) = m.block_id.seq_in(self.identity()) else { return };
        if self.is_probe(seq, m.node) {
            return self.probe_lost(seq, ctx);
        }
        self.block_lost(seq, m.node, m.attempt, "its node was lost", ctx);
    }
}

impl Handler<NodeEvent> for RunActor {
    type Result = ();
    fn handle(&mut self, event: NodeEvent, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.node_news");
        let (node, is_given_up) = match event {
            NodeEvent::Restarted(node) => (node, false),
            NodeEvent::GivenUp(node) => (node, true),
        };
        let leases: Vec<(Seq, u32)> =
            self.kind.frontier.leases_of_node(node).filter(|(_, l)| is_given_up || l.is_sent).map(|(seq, l)| (seq, l.attempt)).collect();
        for seq in self.probes_at(node) {
            self.probe_lost(seq, ctx);
        }
        let to = self.context.addresses.nodes.get(node);
        for (seq, attempt) in leases {
            match &to {
                Some(to) if !is_given_up => self.send_again(seq, to.clone(), ctx),
                _ => self.block_lost(seq, node, attempt, "its node was lost", ctx),
            }
        }
    }
}
