//! A paused run dispatches no blocks. Everything else continues: it accepts requests and reports, and delivers results.

use super::{RunActor, SetPaused};
use crate::domain::time::Timestamp;
use crate::store::SetRunRules;
use actix::{Context, Handler};

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
        if self.lifecycle.is_ending() || self.dispatches_nothing() {
            return (0, 0);
        }
        (self.kind.frontier.ready(), self.ready_sites(ctx))
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
