//! Ends a run, or one of its attempts.

use super::ApplicationActor;
use crate::actors::chance;
use crate::actors::ends::End;
use crate::actors::run::stored_output;
use crate::domain::application::state_machine::Phase;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::RetryRun;
use actix::{ActorContext, Context};
use serde_json::json;

impl ApplicationActor {
    pub(super) fn over(&self) -> Problem {
        Problem::conflict("run-over", format!("run {} has ended or is ending", self.run.identity))
    }

    /// The result of the run: the number of requested and reserved nodes, and how their programs ended.
    fn result(&self) -> String {
        let ends = self.machine.as_ref().map_or(&[][..], |life| life.instances());
        let ended = |state| ends.iter().filter(|instance| instance.phase == Phase::Over(state)).count();
        let mut out = json!({
            "attempt": self.run.attempt,
            "instances": ends.len(),
            "success": ended(RunState::Success),
            "failed": ended(RunState::Failed),
            "stopped": ended(RunState::Stopped),
        });
        if let Some(remark) = self.run.reason.as_ref().filter(|_| self.machine.is_some()) {
            out["partial"] = remark.as_str().into();
        }
        out.to_string()
    }

    /// Ends the run or its attempt, once.
    pub(super) fn end(&mut self, state: RunState, reason: Option<String>, ctx: &mut Context<Self>) {
        if self.ending {
            return;
        }
        self.ending = true;
        self.remind();
        let pause = self.run.rules.next_attempt(self.run.attempt, chance());
        if let Some(pause) = pause.filter(|_| state == RunState::Failed) {
            return self.try_again(pause, &reason.unwrap_or_default(), ctx);
        }
        // Report that the run had fewer nodes than requested even if it succeeded on them.
        let (result, reason) = (Some(self.result()), reason.or_else(|| self.run.reason.take().filter(|_| self.machine.is_some())));
        let end = End { state, reason, result, now: Timestamp::now() };
        let write = end.write(&self.run, self.epoch);
        crate::fault::point("application.end");
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, follow, ctx| {
            end.apply(&mut this.run, &this.context);
            for reply in this.stops.drain(..) {
                reply.send(Ok(stored_output(&this.run)));
            }
            this.context.registry().run_ended(this.run.identity, this.run.job_id, follow);
            this.guard.finish();
            ctx.stop();
        });
    }

    /// The attempt failed and another one follows: a new actor waits for its time.
    fn try_again(&mut self, pause: i64, reason: &str, ctx: &mut Context<Self>) {
        self.again = true;
        for reply in self.stops.drain(..) {
            reply.send(Err(Problem::busy("the run is about to be retried")));
        }
        let attempt = self.run.attempt + 1;
        let not_before = Timestamp::now().plus_ms(pause);
        let reason = format!("attempt {} failed: {reason}", self.run.attempt);
        log::warn!("an attempt of a run failed run_id={} next={attempt} in_ms={pause}: {reason}", self.run.identity);
        let write = RetryRun { no: self.run.no, epoch: self.epoch, attempt, not_before, reason };
        Self::then(ctx, self.context.store.write_unbounded(write), |this, (), ctx| {
            this.context.registry().run_begins_anew(this.run.identity);
            this.guard.finish();
            ctx.stop();
        });
    }
}
