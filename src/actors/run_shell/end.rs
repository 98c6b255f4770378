//! The end of a run or of one of its attempts: stored first, then announced.

use super::{Ctx, Kind, RunShell};
use crate::domain::job::JobKind;
use crate::domain::lifecycle::End;
use crate::domain::run::{Counters, RunState};
use crate::domain::time::Timestamp;
use crate::domain::trace::{Span, run_spans};
use crate::store::{FinishRun, NextAsked, RetryRun, WithNext};
use actix::ActorContext;

/// What a kind stores with the end of a run besides its state.
#[derive(Debug, Default)]
pub struct Totals {
    /// Its result as JSON.
    pub result: Option<String>,
    /// Its requests by result.
    pub counters: Counters,
    /// Its worker has pushed the first requests.
    pub start_returned: bool,
    /// The time that it requests for the next run of its job.
    pub next: Option<NextAsked>,
}

/// How a run ended, as it is stored.
#[derive(Debug)]
pub struct Ended {
    /// Its last state.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// Its result as JSON.
    pub result: Option<String>,
    /// Its requests by result.
    pub counters: Counters,
    /// When.
    pub now: Timestamp,
}

impl<K: Kind> RunShell<K> {
    /// Ends the run or its attempt, unless that was decided before.
    pub(in crate::actors) fn end(&mut self, state: RunState, reason: Option<String>, ctx: &mut Ctx<K>) {
        let now = Timestamp::now();
        let Some(end) = self.lifecycle.end(&self.run, state, reason, now, crate::actors::chance()) else { return };
        K::ending(self, ctx);
        // The kinds with instances have spans of these.
        let has_instances = matches!(K::KIND, JobKind::Task | JobKind::Application);
        let why = match &end {
            End::Over(reason) => reason.as_ref(),
            End::Retry { reason, .. } => Some(reason),
        };
        let span = self.span(|this| (!has_instances).then(|| this.attempt(K::peer(this), state, why.cloned(), now)));
        match end {
            End::Over(reason) => self.store_end(state, reason, now, span, ctx),
            End::Retry { attempt, not_before, pause, reason } => {
                log::warn!("an attempt of a run failed run_id={} next={attempt} in_ms={pause}: {reason}", self.run.identity);
                let (no, epoch, began) = (self.run.no, self.epoch, self.began);
                let write = RetryRun { no, epoch, attempt, not_before, reason: reason.clone(), began, now };
                // A new actor waits for its time, and starts from the stored state.
                Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
                    this.context.telemetry.spans(|| span);
                    (this.run.state, this.run.reason) = (RunState::Pending, Some(reason));
                    (this.run.attempt, this.run.not_before) = (attempt, Some(not_before));
                    this.leave(ctx);
                    this.context.registry().run_begins_anew(this.run.identity);
                });
            }
        }
    }

    fn store_end(&mut self, state: RunState, reason: Option<String>, now: Timestamp, span: Option<Span>, ctx: &mut Ctx<K>) {
        // Someone may have requested a stop, but the run ended in another way first.
        self.run.update_by.take_if(|_| state != RunState::Stopped);
        let Totals { result, counters, start_returned, next } = K::totals(self, state);
        let end = FinishRun {
            no: self.run.no,
            epoch: self.epoch,
            state,
            reason: reason.clone(),
            counters,
            block_times: self.run.block_times,
            start_time: self.run.start_time,
            start_returned,
            result: result.clone(),
            // The job processes the requested time together with the end.
            follow: self.run.follow || state == RunState::Failed || next.is_some(),
            by: self.run.update_by.clone(),
            now,
        };
        let last = self.last_attempt(None, state, reason.as_deref(), now).filter(|_| K::KIND != JobKind::Application);
        let write = self.context.store.write_unbounded(WithNext { end, no: self.run.no, next, last });
        let ended = Ended { state, reason, result, counters, now };
        Self::then(ctx, write, move |this, follow, ctx| {
            this.context.telemetry.spans(|| span);
            this.ended(ended, follow, ctx);
        });
    }

    /// The end of the run is stored. `follow`: its job must process it.
    pub(in crate::actors) fn ended(&mut self, Ended { state, reason, result, counters, now }: Ended, follow: bool, ctx: &mut Ctx<K>) {
        (self.run.state, self.run.reason, self.run.result, self.run.counters) = (state, reason, result, counters);
        (self.run.queued, self.run.not_before, self.run.finish_time) = (false, None, Some(now));
        self.context.counters.counts.ended(state);
        if K::KIND == JobKind::Task {
            self.context.counters.counts.tasks.ended(&self.run.class_name, state);
        }
        self.context.telemetry.spans(|| run_spans(&self.run));
        // With thousands of successful short runs per second, one log line each would be too much.
        let (summary, is_frequent) = K::summary(self);
        let level = if state == RunState::Success && is_frequent { log::Level::Debug } else { log::Level::Info };
        log::log!(level, "run ended run_id={} state={} {summary}", self.run.identity, state.name());
        self.leave(ctx);
        self.context.registry().run_ended(self.run.identity, self.run.job_id, state, follow);
    }

    /// Answers the waiting callers, notifies the peers, and ends the actor.
    fn leave(&mut self, ctx: &mut Ctx<K>) {
        for done in std::mem::take(&mut self.done) {
            done(Ok(self.output()));
        }
        K::leave(self, ctx);
        self.guard.finish();
        ctx.stop();
    }
}
