//! When a run dispatches no blocks: while it is paused, and until nodes have listed what they have from an earlier actor of it. A paused run accepts
//! requests and reports, and delivers results.

use super::{RunActor, SetPaused};
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::store::SetRunRules;
use actix::{AsyncContext as _, Context, Handler};
use std::time::Duration;

/// How long a node may need to list the blocks that it has.
const LISTED_AFTER: Duration = Duration::from_millis(50);

impl RunActor {
    /// Whether the dispatch of blocks is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.run.rules.paused_at.is_some()
    }

    /// Whether it waits for its beginning, is paused, or has downloaded as many bytes as it may.
    pub(super) fn dispatches_nothing(&self) -> bool {
        self.kind.waits || self.is_paused() || self.kind.frontier.over_bytes().is_some()
    }

    /// The blocks, and the sites with a free turn, that nodes could receive now.
    pub(super) fn offered(&mut self, ctx: &mut Context<Self>) -> (usize, usize) {
        if self.lifecycle.is_ending() || self.dispatches_nothing() || self.kind.awaits_lists {
            return (0, 0);
        }
        (self.kind.frontier.ready(), self.ready_sites(ctx))
    }
}

impl RunActor {
    /// The run has an actor that replaces an earlier one, and nodes are connected: it dispatches nothing until they have had time to list its blocks.
    pub(super) fn await_lists(&mut self, ctx: &mut Context<Self>) {
        if self.epoch > Run::FIRST_EPOCH && self.context.leader.is_none() && self.context.addresses.nodes.count() > 0 {
            self.kind.awaits_lists = true;
            ctx.run_later(LISTED_AFTER, |this, ctx| {
                this.kind.awaits_lists = false;
                this.announce(ctx);
            });
        }
    }
}

impl Handler<SetPaused> for RunActor {
    type Result = ();
    fn handle(&mut self, SetPaused { is_paused, reply }: SetPaused, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.set_paused");
        if self.lifecycle.is_ending() {
            return reply.send(Err(self.over()));
        }
        if is_paused != self.is_paused() {
            self.run.rules.paused_at = is_paused.then(Timestamp::now);
            log::info!("run {} run_id={}", if is_paused { "paused" } else { "resumed" }, self.identity());
            self.announce(ctx);
        }
        // A repeated call is written again, because the first write may still be in progress.
        let write = SetRunRules { no: self.run.no, epoch: self.epoch, rules: self.run.rules.clone() };
        Self::then(ctx, self.context.store.write_unbounded(write), |this, (), _| reply.send(Ok(this.output())));
    }
}
