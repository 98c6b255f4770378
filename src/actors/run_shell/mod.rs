//! The actor of a run, for every kind of job: how it starts, waits, is stopped, withdrawn, retried and ended.
//!
//! `domain/lifecycle.rs` decides; this shell stores and sends. What differs between the kinds is a [`Kind`]: what a run does when it
//! begins, and how it handles the messages of its own. The shell makes every write of the run, so that a disconnected caller
//! interrupts nothing, and it answers only after the commit. If a write failed, or its outcome is unknown, the actor ends, and the
//! registry rebuilds it from the store.

mod end;
mod message;

pub use end::{Ended, Totals};
pub use message::{AtWork, Control, Elsewhere, Event, RunLink};

use super::context::BrokerContext;
use super::run::stored_output;
use super::supervision::{ExitGuard, Link};
use crate::domain::ids::WorkerId;
use crate::domain::job::JobKind;
use crate::domain::lifecycle::{First, LifeCycle, NoStop};
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::domain::trace::{Attempt, Peer, Span, attempt_span};
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::store::{AttemptRow, BeginRun, GetRun, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

const LONGEST_SLEEP_MS: u64 = 10_000;

/// The context of the actor of a run.
pub type Ctx<K> = Context<RunShell<K>>;

/// What is different between the kinds of runs. Functions with a body need not be written.
pub trait Kind: Debug + Sized + Unpin + 'static {
    /// The kind of its jobs.
    const KIND: JobKind;
    /// Another actor continues an attempt that has begun. Otherwise it repeats it.
    const CONTINUES: bool = false;
    /// What the store has of a run besides its row.
    type Stored: Send + 'static;
    /// The messages that only runs of this kind accept.
    type Event: Debug + Send + 'static;

    /// Reads what a new actor needs besides the row of the run.
    ///
    /// # Errors
    /// The store fails.
    fn load(context: &BrokerContext, run: &mut Run) -> impl Future<Output = Result<Self::Stored, StoreError>>;

    /// The state of a run that is owned under this epoch.
    fn new(context: &BrokerContext, run: &Run, epoch: i64, stored: Self::Stored) -> Self;

    /// Its address, as the address book has it.
    fn at_work(link: RunLink<Self>) -> AtWork;

    /// The name of a message as a place of planned faults.
    fn place(event: &Self::Event) -> &'static str;

    /// An attempt begins: the run left the queue, or its time has come.
    fn begin(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>);

    /// A message arrived.
    fn handle(run: &mut RunShell<Self>, event: Self::Event, ctx: &mut Ctx<Self>);

    /// The actor starts.
    fn started(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        run.wait_or_begin(ctx);
    }

    /// The run has to stop. The caller gets its answer when the end is stored.
    fn stop(run: &mut RunShell<Self>, reason: String, by: Option<String>, ctx: &mut Ctx<Self>) {
        run.run.update_by = by;
        run.end(RunState::Stopped, Some(reason), ctx);
    }

    /// Nothing has happened that would be lost if a run that was created ahead of its time were withdrawn.
    fn is_untouched(_: &RunShell<Self>) -> bool {
        false
    }

    /// The run was withdrawn, so its actor ends.
    fn withdrawn(_: &mut RunShell<Self>) {}

    /// The run in the format of the API.
    fn output(run: &RunShell<Self>) -> RunOutput {
        stored_output(&run.run)
    }

    /// The end of the attempt is decided.
    fn ending(_: &mut RunShell<Self>, _: &mut Ctx<Self>) {}

    /// Where its attempt runs, for its span.
    fn peer(_: &RunShell<Self>) -> Option<Peer> {
        None
    }

    /// What is stored with the end of the run besides its state.
    fn totals(_: &mut RunShell<Self>, _: RunState) -> Totals {
        Totals::default()
    }

    /// What the log says about the end of the run, and whether such ends are too many for the usual level.
    fn summary(run: &RunShell<Self>) -> (String, bool) {
        (format!("attempt={}", run.run.attempt), false)
    }

    /// The actor ends, and the end of the attempt is stored: notifies the peers of the run.
    fn leave(_: &mut RunShell<Self>, _: &mut Ctx<Self>) {}
}

/// Gets the run after its end is stored. A run whose state is not final is about to be retried.
type Done = Box<dyn FnOnce(Result<RunOutput, Problem>)>;

/// See the module documentation.
pub struct RunShell<K: Kind> {
    pub(in crate::actors) guard: ExitGuard,
    pub(in crate::actors) context: BrokerContext,
    pub(in crate::actors) run: Box<Run>,
    pub(in crate::actors) epoch: i64,
    pub(in crate::actors) lifecycle: LifeCycle,
    /// Callers that wait for the end.
    done: Vec<Done>,
    /// When this attempt began, if it began under this actor.
    pub(in crate::actors) began: Option<Timestamp>,
    /// What its kind adds.
    pub(in crate::actors) kind: K,
}

impl<K: Kind> Debug for RunShell<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", K::KIND.name(), self.run.identity, self.kind)
    }
}

impl<K: Kind> RunShell<K> {
    /// The actor of a run that is owned under this epoch.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, run: Box<Run>, epoch: i64, stored: K::Stored) -> Self {
        let kind = K::new(&context, &run, epoch, stored);
        Self { guard, context, run, epoch, lifecycle: LifeCycle::new(), done: Vec::new(), began: None, kind }
    }

    /// Its own handle.
    pub(in crate::actors) fn link(&self, ctx: &Ctx<K>) -> RunLink<K> {
        RunLink(Link::new(ctx.address(), Arc::clone(self.guard.stats())))
    }

    /// Sends a write and continues when it is committed. If it fails, this actor ends, and the next one starts from the stored
    /// state. Waiting callers get the error to retry then.
    pub(in crate::actors) fn then<T: 'static>(
        ctx: &mut Ctx<K>,
        write: impl Future<Output = Result<T, StoreError>> + 'static,
        done: impl FnOnce(&mut Self, T, &mut Ctx<K>) + 'static,
    ) {
        ctx.spawn(wrap_future(write).map(move |result, this: &mut Self, ctx: &mut Ctx<K>| match result {
            Ok(value) => done(this, value, ctx),
            Err(StoreError::NotLeading) => {
                // The broker ends, and has logged why.
                this.guard.finish();
                ctx.stop();
            }
            Err(error) => {
                if error.is_outage() {
                    this.guard.set_outage();
                }
                this.die(&format!("store error: {error}"), ctx);
            }
        }));
    }

    /// Ends this actor; the registry rebuilds it from the store.
    pub(in crate::actors) fn die(&mut self, why: &str, ctx: &mut Ctx<K>) {
        if !self.context.followers.is_closed() {
            let kind = self.guard.stats().kind();
            log::error!("{kind} actor failed and is rebuilt run_id={}: {why}", self.run.identity);
        }
        self.guard.stats().set_error(why);
        ctx.stop();
    }

    /// Begins at its time, unless the run is queued.
    pub(in crate::actors) fn wait_or_begin(&mut self, ctx: &mut Ctx<K>) {
        match LifeCycle::first(&self.run, Timestamp::now()) {
            // Its job sends a message when the run leaves the queue.
            First::Queue => {}
            // In short steps: a timer does not count while the machine is suspended, and the clock may be set.
            First::Wait(ms) if ms > LONGEST_SLEEP_MS => {
                ctx.run_later(Duration::from_millis(LONGEST_SLEEP_MS), Self::wait_or_begin);
            }
            First::Wait(ms) => drop(ctx.run_later(Duration::from_millis(ms), Self::begin)),
            First::Begin => self.begin(ctx),
        }
    }

    /// Begins an attempt, unless the run is ending.
    pub(in crate::actors) fn begin(&mut self, ctx: &mut Ctx<K>) {
        if self.lifecycle.begin() {
            K::begin(self, ctx);
        }
    }

    /// An order for the first attempt is about to be sent: records when. Returns whether it is the first.
    pub(in crate::actors) fn note_start(&mut self, now: Timestamp) -> bool {
        let is_first = self.run.start_time.is_none();
        self.began = Some(now);
        if is_first {
            self.run.start_time = Some(now);
            self.context.counters.lateness.sent(now.since_ms(self.run.wanted_at()));
        }
        is_first
    }

    /// The write of the beginning of an attempt.
    pub(in crate::actors) fn store_begin(
        &self,
        worker: Option<WorkerId>,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + use<K> + 'static {
        let (no, epoch, state, may_be_late) = (self.run.no, self.epoch, self.run.state, self.run.may_be_late());
        let again = self.began.filter(|_| self.run.attempt > 1).map(|began| (self.run.attempt, began));
        self.context.store.write_unbounded(BeginRun { no, epoch, state, worker, again, may_be_late, now })
    }

    /// The last attempt, for the store: the row of the run says the same of an only one.
    pub(in crate::actors) fn last_attempt(
        &self,
        peer: Option<WorkerId>,
        state: RunState,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Option<AttemptRow> {
        (self.run.attempt > 1).then(|| AttemptRow {
            instance: 0,
            attempt: self.run.attempt,
            peer: peer.map(|worker| worker.0),
            state,
            reason: reason.map(str::to_owned),
            start_time: self.began,
            finish_time: Some(now),
        })
    }

    /// The span of an attempt that ends; none if no spans are sent.
    pub(in crate::actors) fn span(&self, attempt: impl FnOnce(&Self) -> Option<Attempt>) -> Option<Span> {
        let attempt = if self.context.telemetry.is_on() { attempt(self) } else { None };
        attempt.map(|attempt| attempt_span(&self.run, attempt))
    }

    /// The attempt of a run without instances, which ends.
    fn attempt(&self, peer: Option<Peer>, state: RunState, reason: Option<String>, now: Timestamp) -> Attempt {
        Attempt { instance: None, attempt: self.run.attempt, peer, state, reason, began: self.began, ended: now }
    }

    /// The run in the format of the API.
    pub(in crate::actors) fn output(&self) -> RunOutput {
        K::output(self)
    }

    /// The answer to calls after the end.
    pub(in crate::actors) fn over(&self) -> Problem {
        Problem::conflict("run-over", format!("run {} has ended or is ending", self.run.identity))
    }

    /// Number of callers that wait for the end.
    pub(in crate::actors) fn waiting(&self) -> usize {
        self.done.len()
    }

    /// Calls `done` with the run when the end of the attempt is stored.
    pub(in crate::actors) fn when_done(&mut self, done: impl FnOnce(Result<RunOutput, Problem>) + 'static) {
        self.done.push(Box::new(done));
    }

    fn check_queue(&mut self, ctx: &mut Ctx<K>) {
        if !self.run.queued {
            return;
        }
        Self::then(ctx, self.context.store.read(GetRun(self.run.identity)), |this, stored, ctx| {
            if this.run.queued && stored.is_some_and(|run| !run.queued) {
                (this.run.queued, this.run.not_before, this.run.reason) = (false, None, None);
                this.begin(ctx);
            }
        });
    }

    fn withdraw(&mut self, ctx: &mut Ctx<K>) -> bool {
        let is_withdrawn = self.lifecycle.withdraw(&self.run, K::is_untouched(self));
        if is_withdrawn {
            K::withdrawn(self);
            self.guard.finish();
            ctx.stop();
        }
        is_withdrawn
    }

    fn give_run_up(&mut self, at_once: bool, ctx: &mut Ctx<K>) {
        // A write of the end is finished first, and so is an attempt that another actor cannot continue; after that the registry gets a message.
        if !at_once && (self.run.state == RunState::Running && !K::CONTINUES || self.lifecycle.is_ending()) {
            return;
        }
        K::withdrawn(self);
        self.guard.finish();
        ctx.stop();
        self.context.registry().run_given_up(self.run.identity);
    }
}

impl<K: Kind> Actor for RunShell<K> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        K::started(self, ctx);
    }
}

impl<K: Kind> Handler<Control> for RunShell<K> {
    type Result = ();
    fn handle(&mut self, control: Control, ctx: &mut Self::Context) {
        let _timed = self.guard.timed(control.place());
        match control {
            Control::Describe { with_arguments, reply } => {
                let arguments = if with_arguments { self.run.arguments_value() } else { None };
                reply.send(Ok(RunOutput { arguments, ..self.output() }));
            }
            Control::CheckQueue => self.check_queue(ctx),
            Control::GiveUp { at_once } => self.give_run_up(at_once, ctx),
            Control::Withdraw(reply) => reply.send(Ok(self.withdraw(ctx))),
            Control::Stop { reason, by, reply } => match self.lifecycle.check_stop() {
                Err(NoStop::Over) => reply.send(Err(self.over())),
                Err(NoStop::Retrying) => reply.send(Err(retrying())),
                Ok(()) => {
                    self.when_done(|run| reply.send(run.and_then(|run| if run.state.is_final() { Ok(run) } else { Err(retrying()) })));
                    K::stop(self, reason, by, ctx);
                }
            },
        }
    }
}

fn retrying() -> Problem {
    Problem::busy("the run is about to be retried")
}

impl<K: Kind> Handler<Event<K>> for RunShell<K> {
    type Result = ();
    fn handle(&mut self, Event(event): Event<K>, ctx: &mut Self::Context) {
        let _timed = self.guard.timed(K::place(&event));
        K::handle(self, event, ctx);
    }
}

#[cfg(test)]
mod tests;
