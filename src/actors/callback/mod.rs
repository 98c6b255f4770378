//! A callback run: one HTTP request, with the response as its result.
//!
//! The begin of an attempt is stored before the request is sent. So after a crash, the next incarnation of the run repeats the
//! same attempt: *at least once*. Headers contain the run's id and the attempt number; a receiver that must not act twice
//! compares them.

mod answer;
mod outbound;
mod request;

pub use outbound::Outbound;
pub(in crate::actors) use outbound::{addresses, to};

use super::context::BrokerContext;
use super::run_shell::{AtWork, Ctx, Kind, RunLink, RunShell, Totals};
use crate::domain::job::JobKind;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::store::{NextAsked, StoreError};
use actix::{ActorFutureExt, AsyncContext, SpawnHandle, fut::wrap_future};
use answer::Attempt;
use outbound::Slot;
use std::convert::Infallible;

/// Default timeout of an attempt, in milliseconds.
const USUAL_TIMEOUT: u64 = 30_000;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Callback {
    /// The wait for a slot, or the request.
    work: Option<SpawnHandle>,
    /// What is stored of the attempt, as JSON.
    result: Option<String>,
    /// The time that the receiver requested.
    next: Option<NextAsked>,
}

/// The actor of a callback.
pub type CallbackActor = RunShell<Callback>;
/// Handle to a callback run for other modules.
pub type CallbackHandle = RunLink<Callback>;

impl CallbackActor {
    /// Begins the attempt: stores it first, then sends the request.
    fn order(&mut self, slot: Slot, ctx: &mut Ctx<Callback>) {
        let now = Timestamp::now();
        self.run.state = RunState::Running;
        (self.run.reason, self.run.not_before) = (None, None);
        let is_first = self.note_start(now);
        let write = self.store_begin(None, now);
        Self::then(ctx, write, move |this, (), ctx| this.send(slot, is_first, ctx));
    }

    fn send(&mut self, slot: Slot, is_first: bool, ctx: &mut Ctx<Callback>) {
        if self.lifecycle.is_ending() {
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
        let attempt = wrap_future(attempt).map(move |attempt, this: &mut Self, ctx: &mut Ctx<Callback>| {
            if let Some(ms) = attempt.first_sign_ms.filter(|_| is_first) {
                this.context.counters.lateness.started(ms);
            }
            this.answered(attempt, ctx);
        });
        self.kind.work = Some(ctx.spawn(attempt));
    }

    fn answered(&mut self, attempt: Attempt, ctx: &mut Ctx<Callback>) {
        if self.lifecycle.is_ending() {
            return;
        }
        self.kind.result = Some(attempt.result(self.run.attempt));
        if attempt.failure.is_none() {
            self.kind.next = attempt.answer.as_ref().and_then(|answer| answer.next(Timestamp::now()));
        }
        let state = if attempt.failure.is_some() { RunState::Failed } else { RunState::Success };
        self.end(state, attempt.failure, ctx);
    }
}

impl Kind for Callback {
    const KIND: JobKind = JobKind::Callback;
    type Stored = ();
    type Event = Infallible;

    async fn load(_: &BrokerContext, _: &mut Run) -> Result<(), StoreError> {
        Ok(())
    }

    fn new(_: &BrokerContext, _: &Run, _: i64, (): ()) -> Self {
        Self::default()
    }

    fn at_work(link: RunLink<Self>) -> AtWork {
        AtWork::Callback(link)
    }

    fn place(event: &Infallible) -> &'static str {
        match *event {}
    }

    fn handle(_: &mut RunShell<Self>, event: Infallible, _: &mut Ctx<Self>) {
        match event {}
    }

    fn begin(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        run.run.reason = Some("waits until fewer requests of other runs are under way".to_owned());
        let outbound = run.context.outbound.clone();
        let slot = wrap_future(async move { outbound.slot().await });
        run.kind.work = Some(ctx.spawn(slot.map(|slot, this: &mut RunShell<Self>, ctx: &mut Ctx<Self>| this.order(slot, ctx))));
    }

    fn ending(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        if let Some(work) = run.kind.work.take() {
            ctx.cancel_future(work);
        }
    }

    fn totals(run: &mut RunShell<Self>, _: RunState) -> Totals {
        Totals { result: run.kind.result.take(), next: run.kind.next, ..Totals::default() }
    }
}
