//! The end of a run: stored first, then announced.

use super::{Delivered, RunActor, Stop};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::protocol::worker::ToWorker;
use crate::store::{FinishRun, RetryRun};
use actix::{ActorContext, Context, Handler};

/// Why a run dispatches no more requests.
pub(super) fn over_bytes_text(most: u64, bytes: u64) -> String {
    format!("the run has downloaded {bytes} bytes, and the job's MaxBytes is {most}")
}

impl RunActor {
    /// The answer to calls after the end.
    pub(super) fn over(&self) -> Problem {
        Problem::conflict("run-over", format!("run {} has ended or is ending: {}", self.identity(), self.run.state.name()))
    }

    /// Ends the run as a success if nothing is left and nothing can follow. Counting shows this at once; no waiting is needed.
    pub(super) fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.frontier.is_drained() {
            self.succeed(ctx, drop);
        }
    }

    /// Ends the run as a success. The reason says if it took less than it found.
    pub(super) fn succeed(&mut self, ctx: &mut Context<Self>, done: impl FnOnce(Result<RunOutput, Problem>) + 'static) {
        let reason = self.frontier.over_bytes().map(|(most, bytes)| over_bytes_text(most, bytes));
        self.end(RunState::Success, reason, ctx, done);
    }

    /// Ends the run, once. `done` is called when that is on disk, or at once if it was already ending.
    pub(super) fn end(
        &mut self,
        state: RunState,
        reason: Option<String>,
        ctx: &mut Context<Self>,
        done: impl FnOnce(Result<RunOutput, Problem>) + 'static,
    ) {
        if self.ending {
            return done(Err(self.over()));
        }
        self.ending = true;
        if state == RunState::Failed
            && let Some(pause) = self.run.rules.next_attempt(self.run.attempt, crate::actors::chance())
        {
            return self.try_again(pause, reason.unwrap_or_default(), ctx, done);
        }
        let now = Timestamp::now();
        let write = FinishRun {
            no: self.run.no,
            epoch: self.epoch,
            state,
            reason: reason.clone(),
            counters: self.frontier.counters(),
            block_times: self.run.block_times,
            start_time: self.run.start_time,
            start_returned: self.frontier.start_returned(),
            result: None,
            follow: self.run.follow || state == RunState::Failed,
            by: self.run.update_by.clone(),
            now,
        };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, follow, ctx| {
            this.run.state = state;
            this.run.reason = reason;
            this.run.finish_time = Some(now);
            this.run.counters = this.frontier.counters();
            this.context.counts.ended(state);
            // With a thousand short successful runs per second, one log line each would be too much.
            let level = if state == RunState::Success && this.run.counters.total == 0 { log::Level::Debug } else { log::Level::Info };
            log::log!(level, "run ended run_id={} state={} total={}", this.identity(), state.name(), this.run.counters.total);
            done(Ok(this.output()));
            this.let_go();
            this.context.registry().run_ended(this.identity(), this.run.job_id, follow);
            this.guard.finish();
            ctx.stop();
        });
    }

    /// The attempt failed and another one follows: it starts from the stored state, including the known requests.
    fn try_again(&mut self, pause: i64, reason: String, ctx: &mut Context<Self>, done: impl FnOnce(Result<RunOutput, Problem>) + 'static) {
        self.again = true;
        let attempt = self.run.attempt + 1;
        let not_before = Timestamp::now().plus_ms(pause);
        let reason = format!("attempt {} failed: {reason}", self.run.attempt);
        log::warn!("an attempt of a run failed run_id={} next={attempt} in_ms={pause}: {reason}", self.identity());
        let write = RetryRun { no: self.run.no, epoch: self.epoch, attempt, not_before, reason: reason.clone() };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.run.state = RunState::Pending;
            this.run.reason = Some(reason);
            (this.run.attempt, this.run.not_before) = (attempt, Some(not_before));
            done(Ok(this.output()));
            this.let_go();
            this.context.registry().run_begins_anew(this.identity());
            this.guard.finish();
            ctx.stop();
        });
    }

    /// Notifies all nodes, workers, clients and sites of the run.
    fn let_go(&mut self) {
        for waiting in self.pollers.drain(..) {
            waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
        }
        let now = Timestamp::steady();
        let leased: Vec<_> = self.frontier.leases().filter_map(|(seq, _)| self.frontier.site_of(seq)).collect();
        for site in leased.into_iter().chain(self.probed_sites()) {
            let (name, wait_ms) = (self.frontier.site_name(site), self.wait_after_loss(site));
            self.context.sites.board().release(&name, self.identity(), wait_ms as i64, now);
        }
        for (seq, node) in self.probes() {
            if let Some(node) = self.context.addresses.nodes.get(node) {
                node.block_done(self.block_id(seq), 1, true);
            }
        }
        for (seq, lease) in self.frontier.leases() {
            if let Some(node) = self.context.addresses.nodes.get(lease.node) {
                node.block_done(self.block_id(seq), lease.attempt, true);
            }
        }
        if let Some(worker) = self.worker.and_then(|id| self.context.addresses.workers.get(id)) {
            let Self { run, .. } = self;
            worker.send(ToWorker::Ended { identity: run.identity, state: run.state, reason: run.reason.clone(), counters: run.counters });
        }
        if let Some(dispatcher) = self.context.dispatcher() {
            dispatcher.run_gone(self.identity());
        }
    }
}

impl Handler<Stop> for RunActor {
    type Result = ();
    fn handle(&mut self, Stop { reason, by, reply }: Stop, ctx: &mut Self::Context) {
        self.guard.message("run.stop");
        if self.again {
            return reply.send(Err(Problem::busy("the run is about to be retried")));
        }
        if self.ending {
            return reply.send(Err(self.over()));
        }
        self.run.update_by = by;
        self.end(RunState::Stopped, Some(reason), ctx, |ended| reply.send(ended));
    }
}
