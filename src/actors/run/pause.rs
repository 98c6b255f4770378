//! A run that a person has paused hands out no blocks. All else goes on: requests come in, reports are taken, results are delivered.

use super::{RunActor, SetPaused};
use crate::domain::time::Timestamp;
use crate::store::SetRunRules;
use actix::{Context, Handler};

impl RunActor {
    /// Whether it is to hand out no blocks.
    pub(super) fn is_paused(&self) -> bool {
        self.run.rules.paused_at.is_some()
    }

    /// What nodes could have now: blocks, and sites that may be asked.
    pub(super) fn offered(&mut self, ctx: &mut Context<Self>) -> (usize, usize) {
        if self.ending || self.is_paused() {
            return (0, 0);
        }
        (self.frontier.ready(), self.ready_sites(ctx))
    }
}

impl Handler<SetPaused> for RunActor {
    type Result = ();
    fn handle(&mut self, SetPaused { is_paused, reply }: SetPaused, ctx: &mut Self::Context) {
        self.guard.message("run.set_paused");
        if self.ending {
            return reply.send(Err(self.over()));
        }
        if is_paused != self.is_paused() {
            self.run.rules.paused_at = is_paused.then(Timestamp::now);
            log::info!("run {} run_id={}", if is_paused { "paused" } else { "resumed" }, self.identity());
            self.announce(ctx);
        }
        // Said again it is written again: the first word may be on its way to the disk still.
        let write = SetRunRules { no: self.run.no, epoch: self.epoch, rules: self.run.rules.clone() };
        Self::then(ctx, self.context.store.write_unbounded(write), |this, (), _| reply.send(Ok(this.output())));
    }
}
