//! Records the time series: observes gauges every ten seconds, and stores what happened at the end of each minute.

use super::context::BrokerContext;
use super::supervision::ExitGuard;
use crate::domain::run::RunState;
use crate::domain::series::{OpenStep, Point, RINGS, Sums};
use crate::domain::time::Timestamp;
use crate::store::{AddToSeries, OpenRunCounts};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, fut::wrap_future};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two observations of the gauges.
const OBSERVE_MS: i64 = 10_000;

/// The minute that has not ended. It outlives the actor.
#[derive(Debug, Default)]
pub struct OpenMinute(Mutex<OpenMinuteState>);

#[derive(Debug, Default)]
struct OpenMinuteState {
    step: OpenStep,
    runs: ActiveRuns,
}

/// Active runs that have begun, and those that wait for something.
#[derive(Debug, Default, Clone, Copy)]
struct ActiveRuns {
    running: u64,
    waiting: u64,
}

impl ActiveRuns {
    fn of(counts: &[(String, u64)]) -> Self {
        let (running, waiting): (Vec<_>, Vec<_>) = counts.iter().partition(|(state, _)| state == RunState::Running.name());
        let sum = |counts: Vec<&(String, u64)>| counts.iter().map(|(_, count)| count).sum();
        Self { running: sum(running), waiting: sum(waiting) }
    }
}

/// The counts since the start of the broker, with those of the runs that other brokers execute for it.
fn totals(context: &BrokerContext) -> Sums {
    let mut sums = context.counters.totals();
    context.counts_elsewhere.add_to(&mut sums);
    sums
}

impl OpenMinute {
    fn state(&self) -> std::sync::MutexGuard<'_, OpenMinuteState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes the gauges.
    fn observe(&self, context: &BrokerContext, runs: Option<ActiveRuns>) {
        let mut state = self.state();
        state.runs = runs.unwrap_or(state.runs);
        let runs = state.runs;
        state.step.observe([
            ("nodes.online", context.addresses.nodes.count() as u64),
            ("workers.online", context.addresses.workers.count() as u64),
            ("runs.running", runs.running),
            ("runs.waiting", runs.waiting),
            ("requests.waiting", context.addresses.actor_stats.waiting("run") + context.counts_elsewhere.waiting()),
            ("store.waiting", context.store.stats().depth as u64),
        ]);
    }

    /// What was counted since the last call, or since a minute was stored; the next interval begins.
    pub(super) fn take_changes(&self, totals: Sums) -> Sums {
        self.state().step.end(totals).sums
    }

    /// What has happened in this minute so far.
    #[must_use]
    pub fn so_far(&self, context: &BrokerContext) -> Point {
        self.state().step.so_far(&totals(context))
    }

    /// Ends the minute and stores what happened since it began, or since this broker became the leader. The write is in the queue when
    /// this returns.
    pub fn store(&self, context: &BrokerContext, at: Timestamp) -> impl Future<Output = ()> + use<> {
        let point = self.state().step.end(totals(context));
        // Not rejected while the store is busy: such a minute must not be missing.
        let write = context.store.write_unbounded(AddToSeries { at, point });
        async move {
            // If the write fails, a minute is missing; to repeat it could count it twice.
            if let Err(error) = write.await {
                log::warn!("failed to store a minute of the time series: {error}");
            }
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Recorder {
    guard: ExitGuard,
    context: BrokerContext,
    /// The minute that has not ended; `None` before the first observation.
    minute: Option<Timestamp>,
}

impl Recorder {
    /// A new recorder.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext) -> Self {
        Self { guard, context, minute: None }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.guard.stats().told();
        let _timed = self.guard.timed("recorder.tick");
        let context = self.context.clone();
        let minute = RINGS[0].start_of(Timestamp::now());
        let began = self.minute.replace(minute);
        let work = async move {
            if let Some(began) = began.filter(|began| *began != minute) {
                context.counters.minute.store(&context, began).await;
            }
            // Active runs are counted once a minute, because that reads all of them. If it fails, the last counts remain.
            let runs = if began == Some(minute) { None } else { context.store.read(OpenRunCounts).await.ok() };
            context.counters.minute.observe(&context, runs.map(|counts| ActiveRuns::of(&counts)));
        };
        ctx.spawn(wrap_future(work).map(|(), this: &mut Self, ctx: &mut Context<Self>| this.tick_later(ctx)));
    }

    /// Waits until the next multiple of ten seconds by the wall clock, so that minutes end on time.
    fn tick_later(&self, ctx: &mut Context<Self>) {
        let wait_ms = OBSERVE_MS - Timestamp::now().0.rem_euclid(OBSERVE_MS);
        ctx.run_later(Duration::from_millis(wait_ms.unsigned_abs()), Self::tick);
    }
}

impl Actor for Recorder {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.tick(ctx);
    }
}
