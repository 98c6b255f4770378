//! The end of a run: stored first, then announced.

use super::{Delivered, RunActor};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::worker::ToWorker;
use actix::Context;

/// Why a run dispatches no more requests.
pub(super) fn over_bytes_text(most: u64, bytes: u64) -> String {
    format!("the run has downloaded {bytes} bytes, and the job's MaxBytes is {most}")
}

impl RunActor {
    /// Ends the run as a success if nothing is left and nothing can follow. Counting shows this at once; no waiting is needed.
    pub(super) fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.kind.frontier.is_drained() {
            self.succeed(ctx);
        }
    }

    /// Ends the run as a success. The reason tells if some of its requests were not downloaded.
    pub(super) fn succeed(&mut self, ctx: &mut Context<Self>) {
        let reason = self.kind.frontier.over_bytes().map(|(most, bytes)| over_bytes_text(most, bytes));
        self.end(RunState::Success, reason, ctx);
    }

    /// Notifies all nodes, workers, clients and sites of the run.
    pub(super) fn notify_peers(&mut self) {
        for waiting in self.kind.pollers.drain(..) {
            waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
        }
        let now = Timestamp::steady();
        let leased: Vec<_> = self.kind.frontier.leases().filter_map(|(seq, _)| self.kind.frontier.site_of(seq)).collect();
        for site in leased.into_iter().chain(self.probed_sites()) {
            let wait_ms = self.wait_after_loss(site);
            self.release_turn(site, wait_ms, now);
        }
        if !self.probes().is_empty() {
            self.context.sites.end_fetch(None, self.identity());
        }
        for (seq, node) in self.probes() {
            if let Some(node) = self.context.addresses.nodes.get(node) {
                node.block_done(self.block_id(seq), 1, true);
            }
        }
        for (seq, lease) in self.kind.frontier.leases() {
            if let Some(node) = self.context.addresses.nodes.get(lease.node) {
                node.block_done(self.block_id(seq), lease.attempt, true);
            }
        }
        if let Some(worker) = self.kind.worker.and_then(|id| self.context.addresses.workers.get(id)) {
            let Self { run, .. } = self;
            worker.send(ToWorker::Ended { identity: run.identity, state: run.state, reason: run.reason.clone(), counters: run.counters });
        }
        self.stop_searching();
        self.context.dispatcher.run_gone(self.identity());
    }
}
