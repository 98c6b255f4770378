//! A callback run: one HTTP request, with the response as its result.
//!
//! The begin of an attempt is stored before the request is sent. So after a crash, the next incarnation of the run repeats the
//! same attempt: *at least once*. Headers contain the run's id and the attempt number; a receiver that must not act twice
//! compares them.

mod answer;
mod message;
mod outbound;
mod request;

pub use message::{CallbackHandle, CheckQueue, DescribeCallback, StopCallback};
pub use outbound::Outbound;
pub(in crate::actors) use outbound::{addresses, to};

use super::context::BrokerContext;
use super::ends::End;
use super::run::stored_output;
use super::supervision::ExitGuard;
use crate::domain::run::{Pause, Run, RunState};
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::store::{BeginRun, GetRun, NextAsked, RetryRun, StoreError, WithNext};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, fut::wrap_future};
use answer::Attempt;
use outbound::Slot;
use std::future::Future;
use std::time::Duration;

/// Default timeout of an attempt, in milliseconds.
const USUAL_TIMEOUT: u64 = 30_000;

/// See the module documentation.
#[derive(Debug)]
pub struct CallbackActor {
    guard: ExitGuard,
    context: BrokerContext,
    run: Run,
    epoch: i64,
    /// The wait for a slot, or the request.
    work: Option<SpawnHandle>,
    /// The end is decided and is being written.
    ending: bool,
    /// Only the attempt ends; another one follows.
    again: bool,
    /// The time that the receiver requested.
    next: Option<NextAsked>,
}

impl CallbackActor {
    /// The actor of a run that is owned under this epoch.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, run: Run, epoch: i64) -> Self {
        Self { guard, context, run, epoch, work: None, ending: false, again: false, next: None }
    }

    /// Sends a write and continues when it is committed. If it fails, this actor ends, and the next one starts from the stored
    /// state.
    fn then<T: 'static>(
        ctx: &mut Context<Self>,
        write: impl Future<Output = Result<T, StoreError>> + 'static,
        done: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        ctx.spawn(wrap_future(write).map(move |result, this: &mut Self, ctx: &mut Context<Self>| match result {
            Ok(value) => done(this, value, ctx),
            Err(error) => {
                log::error!("callback actor failed and is rebuilt run_id={}: store error: {error}", this.run.identity);
                this.guard.stats().set_error(format!("store error: {error}"));
                ctx.stop();
            }
        }));
    }

    /// Begins an attempt: the run left the queue, or the time of its next attempt has come.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.ending {
            return;
        }
        self.run.reason = Some("waits until fewer requests of other runs are under way".to_owned());
        let outbound = self.context.outbound.clone();
        let slot = wrap_future(async move { outbound.slot().await });
        self.work = Some(ctx.spawn(slot.map(|slot, this: &mut Self, ctx: &mut Context<Self>| this.order(slot, ctx))));
    }

    /// Begins the attempt: stores it first, then sends the request.
    fn order(&mut self, slot: Slot, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        self.run.state = RunState::Running;
        (self.run.reason, self.run.not_before) = (None, None);
        let is_first = self.run.start_time.is_none();
        if is_first {
            self.run.start_time = Some(now);
            self.context.lateness.sent(now.since_ms(self.run.wanted_at()));
        }
        let (no, may_be_late) = (self.run.no, self.run.may_be_late());
        let write = BeginRun { no, epoch: self.epoch, state: RunState::Running, worker: None, may_be_late, now };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| this.send(slot, is_first, ctx));
    }

    fn send(&mut self, slot: Slot, is_first: bool, ctx: &mut Context<Self>) {
        if self.ending {
            return;
        }
        crate::fault::point("callback.send");
        let timeout = self.run.rules.timeout.unwrap_or(USUAL_TIMEOUT);
        let (run, context) = (self.run.clone(), self.context.clone());
        let attempt = async move {
            let attempt = request::attempt(&context.outbound.targets, &run, timeout).await;
            drop(slot);
            attempt
        };
        let attempt = wrap_future(attempt).map(move |attempt, this: &mut Self, ctx: &mut Context<Self>| {
            if let Some(ms) = attempt.first_sign_ms.filter(|_| is_first) {
                this.context.lateness.started(ms);
            }
            this.answered(attempt, ctx);
        });
        self.work = Some(ctx.spawn(attempt));
    }

    fn answered(&mut self, attempt: Attempt, ctx: &mut Context<Self>) {
        if self.ending {
            return;
        }
        let result = Some(attempt.result(self.run.attempt));
        if let Some(reason) = attempt.failure {
            return self.end(RunState::Failed, Some(reason), result, ctx, drop);
        }
        // The job processes the requested time together with the end.
        self.next = attempt.answer.as_ref().and_then(|answer| answer.next(Timestamp::now()));
        self.end(RunState::Success, None, result, ctx, drop);
    }

    fn over(&self) -> Problem {
        Problem::conflict("run-over", format!("run {} has ended or is ending", self.run.identity))
    }

    /// Ends the run or its attempt, once. `done` is called when that is on disk, or at once if it was already ending.
    fn end(
        &mut self,
        state: RunState,
        reason: Option<String>,
        result: Option<String>,
        ctx: &mut Context<Self>,
        done: impl FnOnce(Result<RunOutput, Problem>) + 'static,
    ) {
        if self.ending {
            return done(Err(self.over()));
        }
        self.ending = true;
        if let Some(work) = self.work.take() {
            ctx.cancel_future(work);
        }
        let pause = self.run.rules.next_attempt(self.run.attempt, super::chance());
        if let Some(pause) = pause.filter(|_| state == RunState::Failed) {
            return self.try_again(pause, &reason.unwrap_or_default(), ctx);
        }
        let end = End { state, reason, result, now: Timestamp::now() };
        let next = self.next.filter(|_| state == RunState::Success);
        let mut write = end.write(&self.run, self.epoch);
        write.follow |= next.is_some();
        let write = WithNext { end: write, no: self.run.no, next };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, follow, ctx| {
            end.apply(&mut this.run, &this.context);
            done(Ok(stored_output(&this.run)));
            this.context.registry().run_ended(this.run.identity, this.run.job_id, follow);
            this.guard.finish();
            ctx.stop();
        });
    }

    /// The attempt failed and another one follows: a new actor waits for its time.
    fn try_again(&mut self, pause: i64, reason: &str, ctx: &mut Context<Self>) {
        self.again = true;
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

impl Actor for CallbackActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        match self.run.pause(Timestamp::now()) {
            // Its job starts another actor when the run leaves the queue.
            _ if self.run.queued => {}
            Pause::For(ms) => drop(ctx.run_later(Duration::from_millis(ms), Self::begin)),
            Pause::None | Pause::FromLater => self.begin(ctx),
        }
    }
}

impl Handler<CheckQueue> for CallbackActor {
    type Result = ();
    fn handle(&mut self, _: CheckQueue, ctx: &mut Self::Context) {
        self.guard.message("callback.check_queue");
        if self.run.queued {
            Self::then(ctx, self.context.store.read(GetRun(self.run.identity)), |this, stored, ctx| {
                if this.run.queued && stored.is_some_and(|run| !run.queued) {
                    (this.run.queued, this.run.not_before) = (false, None);
                    this.begin(ctx);
                }
            });
        }
    }
}

impl Handler<StopCallback> for CallbackActor {
    type Result = ();
    fn handle(&mut self, StopCallback { reason, by, reply }: StopCallback, ctx: &mut Self::Context) {
        self.guard.message("callback.stop");
        if self.again {
            return reply.send(Err(Problem::busy("the run is about to be retried")));
        }
        if self.ending {
            return reply.send(Err(self.over()));
        }
        self.run.update_by = by;
        self.end(RunState::Stopped, Some(reason), None, ctx, |ended| reply.send(ended));
    }
}

impl Handler<DescribeCallback> for CallbackActor {
    type Result = ();
    fn handle(&mut self, DescribeCallback(reply): DescribeCallback, _: &mut Self::Context) {
        self.guard.message("callback.describe");
        reply.send(Ok(stored_output(&self.run)));
    }
}
