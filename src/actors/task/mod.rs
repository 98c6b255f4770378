//! A run of a task job: the shell around its [`StateMachine`].
//!
//! Effects run in order, and each effect after a write waits until the write is on disk. So an attempt is sent only under a
//! stored number, and a worker may discard a report only when it cannot be lost any more.

mod effects;
mod message;
mod reports;
mod view;

pub use message::{
    AskAgain, CheckQueue, Claimed, DescribeTask, ExplainTask, Granted, LeaseOver, NoEligibleWorker, Occupied, Report, StillAtWork,
    StopTask, TaskDescription, TaskHandle, Withdraw, WorkerBack,
};

use super::allocator::WorkerPermit;
use super::context::BrokerContext;
use super::involved::Involved;
use super::reply::Reply;
use super::run::stored_output;
use super::supervision::{ExitGuard, Link};
use crate::domain::ids::WorkerId;
use crate::domain::run::{Pause, Run, RunState};
use crate::domain::task::state_machine::{Effect, Instance, Moment, Phase, StateMachine};
use crate::domain::task::{NoWorker, Strategy, TaskSettings};
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::store::{BeginRun, InstanceRow, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, fut::wrap_future};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Milliseconds by which the last message of a lost worker may be late, in addition to its lease.
const MARGIN: i64 = 50;

/// See the module documentation.
#[derive(Debug)]
pub struct TaskActor {
    guard: ExitGuard,
    context: BrokerContext,
    run: Run,
    epoch: i64,
    handler: Arc<str>,
    settings: Arc<TaskSettings>,
    arguments: Option<Arc<RawValue>>,
    machine: StateMachine,
    parts: Vec<Part>,
    involved: Involved,
    /// Effects to carry out, in order.
    effects: VecDeque<Effect>,
    /// A write is in progress; the other effects wait for it.
    writing: bool,
    timer: Option<(Timestamp, SpawnHandle)>,
    /// Callers that wait for the end.
    stops: Vec<Reply<RunOutput>>,
    /// The begin of the run is stored.
    is_begun: bool,
    /// Its instances are stored.
    is_placed: bool,
    /// The run has written log lines.
    has_logged: bool,
    /// The write of the last log lines, if the end has to wait for it.
    logging: Option<tokio::task::JoinHandle<()>>,
}

/// State of an instance outside of the state machine.
#[derive(Debug, Default)]
struct Part {
    /// The only worker that may run it.
    only: Option<WorkerId>,
    permit: Option<WorkerPermit>,
    began: Option<Timestamp>,
    progress: Option<u8>,
    text: Option<String>,
    result: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
    next_at: Option<Timestamp>,
    /// The time limit of its attempt, from the average of earlier runs, is being applied.
    is_judged: bool,
    worker: Option<WorkerId>,
}

impl TaskActor {
    /// The actor of a run owned under this epoch. `stored` contains its instances, if it has several.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, run: Run, epoch: i64, stored: Vec<InstanceRow>) -> Self {
        let settings = run.rules.task.clone().unwrap_or_default();
        let arguments = run.arguments.as_deref().and_then(|text| RawValue::from_string(text.to_owned()).ok()).map(Arc::from);
        let (now, steady) = (Timestamp::now(), Timestamp::steady());
        // The first actor of a queued run has the next epoch. The same applies in this broker to a run that another broker
        // created ahead of its time.
        let is_first_here = epoch == Run::FIRST_EPOCH + 1 && (!run.is_ahead() || run.creation_time < context.since);
        let had_turn = is_first_here && run.attempt == 1 && run.not_before.is_some_and(|at| at >= context.since && at <= now);
        let is_fresh = epoch == Run::FIRST_EPOCH || had_turn;
        let is_placed = !stored.is_empty();
        let (instances, parts): (Vec<_>, Vec<_>) = if stored.is_empty() {
            let phase = match run.pause(now) {
                _ if run.queued => Phase::Queued,
                Pause::For(ms) => Phase::Pausing(steady.plus_ms(ms as i64)),
                Pause::None if is_fresh => Phase::Asking,
                // The run may have been sent before the broker, or this actor, crashed.
                Pause::None | Pause::FromLater => Phase::Unclear(steady.plus_ms(settings.lease_ms() as i64 + MARGIN)),
            };
            let failures = run.counters.error as u32;
            // If the run ends before a worker reports it, the last worker is still known.
            vec![(Instance::taken_over(phase, run.attempt, failures), Part { worker: run.worker_id, ..Part::default() })]
        } else {
            stored.into_iter().map(|row| restored(row, &settings, steady)).collect()
        }
        .into_iter()
        .unzip();
        Self {
            guard,
            involved: Involved::new(&context.addresses, run.identity),
            context,
            epoch,
            handler: run.class_name.as_str().into(),
            machine: StateMachine::new(Arc::clone(&settings), run.rules.clone(), instances, is_placed),
            settings,
            arguments,
            run,
            parts,
            effects: VecDeque::new(),
            writing: false,
            timer: None,
            stops: Vec::new(),
            is_begun: false,
            is_placed,
            has_logged: false,
            logging: None,
        }
    }

    fn handle(&self, ctx: &Context<Self>) -> TaskHandle {
        TaskHandle(Link::new(ctx.address(), Arc::clone(self.guard.stats())))
    }

    fn die(&mut self, why: &str, ctx: &mut Context<Self>) {
        log::error!("task actor failed and is rebuilt run_id={}: {why}", self.run.identity);
        self.guard.stats().set_error(why);
        ctx.stop();
    }

    /// Runs a write; later effects wait for it. If it fails, the next actor starts from the stored state.
    fn write<T: 'static>(
        &mut self,
        ctx: &mut Context<Self>,
        write: impl Future<Output = Result<T, StoreError>> + 'static,
        done: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        self.writing = true;
        ctx.spawn(wrap_future(write).map(move |result, this: &mut Self, ctx: &mut Context<Self>| match result {
            Ok(value) => {
                this.writing = false;
                done(this, value, ctx);
                this.go_on(ctx);
            }
            Err(error) => this.die(&format!("store error: {error}"), ctx),
        }));
    }

    /// Adds effects, carries them out, and sets the timer for the next deadline.
    fn then(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        self.effects.extend(effects);
        self.go_on(ctx);
    }

    fn go_on(&mut self, ctx: &mut Context<Self>) {
        while !self.writing {
            let Some(effect) = self.effects.pop_front() else { break };
            self.carry_out(effect, ctx);
        }
        if !self.writing {
            self.mind_time(ctx);
        }
    }

    fn mind_time(&mut self, ctx: &mut Context<Self>) {
        let wake = self.machine.wake();
        if self.timer.as_ref().map(|(at, _)| *at) == wake {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(at) = wake {
            let pause = Duration::from_millis(at.since_ms(Timestamp::steady()).max(0) as u64);
            let timer = ctx.run_later(pause, |this, ctx| {
                this.timer = None;
                this.tick(ctx);
            });
            self.timer = Some((at, timer));
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        if self.writing {
            // The write in progress decides the next step and sets the timer then.
            return;
        }
        let effects = self.machine.tick(moment(Timestamp::steady()));
        self.then(effects, ctx);
    }

    /// Decides the number of instances, if the strategy uses several.
    fn place(&mut self, ctx: &mut Context<Self>) {
        let Some(allocator) = self.context.allocator() else {
            ctx.run_later(Duration::from_millis(100), Self::place);
            return;
        };
        let hands = allocator.list(Arc::clone(&self.handler), Arc::clone(&self.settings)).wait();
        ctx.spawn(wrap_future(hands).map(|hands, this: &mut Self, ctx: &mut Context<Self>| match hands {
            Err(_) => drop(ctx.run_later(Duration::from_millis(100), Self::place)),
            Ok(Err(why)) if this.settings.shards == 0 => {
                let reason = why.reason(&this.handler);
                if this.waits_for_workers() {
                    this.run.reason = Some(reason);
                    ctx.run_later(Duration::from_millis(500), Self::place);
                } else {
                    let effects = this.machine.no_worker(0, reason);
                    this.then(effects, ctx);
                }
            }
            Ok(hands) => this.placed(hands.unwrap_or_default(), ctx),
        }));
    }

    fn placed(&mut self, hands: Vec<WorkerId>, ctx: &mut Context<Self>) {
        if self.machine.is_finished() {
            return;
        }
        let peers: Vec<Option<WorkerId>> = match (self.settings.strategy, self.settings.shards) {
            (Strategy::Shard, 0) => vec![None; hands.len()],
            (Strategy::Shard, shards) => vec![None; shards as usize],
            _ => hands.into_iter().map(Some).collect(),
        };
        let write = crate::store::PlaceTasks { no: self.run.no, epoch: self.epoch, peers: peers.clone() };
        let write = self.context.store.write_unbounded(write);
        self.write(ctx, write, move |this, (), ctx| {
            if this.machine.is_finished() {
                return;
            }
            this.is_placed = true;
            this.machine = StateMachine::new(Arc::clone(&this.settings), this.run.rules.clone(), vec![Instance::new(); peers.len()], true);
            this.parts = peers.into_iter().map(|only| Part { only, ..Part::default() }).collect();
            this.run.reason = None;
            let effects = this.machine.begin();
            this.then(effects, ctx);
        });
    }

    /// Whether the task waits although no worker is eligible now, because that may change soon.
    fn waits_for_workers(&self) -> bool {
        // Workers that watch its name must first connect to this broker.
        let may_come_back = self.context.workers_may_come_back(&self.handler, self.epoch > Run::FIRST_EPOCH);
        self.settings.no_worker == NoWorker::Wait || may_come_back
    }

    /// Stores the begin after the first sign of work from a worker, or after a while.
    fn note_begin(&mut self, worker: WorkerId, state: RunState, ctx: &mut Context<Self>) {
        if self.is_begun || self.machine.is_finished() {
            return;
        }
        self.is_begun = true;
        self.run.state = state;
        self.store_begin(worker, ctx);
    }

    fn store_begin(&self, worker: WorkerId, ctx: &mut Context<Self>) {
        let (no, may_be_late) = (self.run.no, self.run.may_be_late());
        let now = self.run.start_time.unwrap_or_else(Timestamp::now);
        let write = BeginRun { no, epoch: self.epoch, state: self.run.state, worker: Some(worker), may_be_late, now };
        let write = self.context.store.write_unbounded(write);
        // Nothing waits for this write; if it is lost, the write at the end contains the same values.
        ctx.spawn(wrap_future(write).map(|result, this: &mut Self, ctx: &mut Context<Self>| {
            if let Err(error) = result {
                this.die(&format!("store error: {error}"), ctx);
            }
        }));
    }

    fn output(&self) -> RunOutput {
        let several = self.is_placed;
        let done = self.machine.instances.iter().filter(|instance| matches!(instance.phase, Phase::Over(_))).count();
        let part = self.parts.first();
        let instance = self.machine.instances.first().filter(|_| !several);
        let last = part.and_then(|part| part.worker).filter(|_| self.run.state.is_final());
        RunOutput {
            worker_id: instance.and_then(|instance| instance.worker().or(last)),
            attempt: self.machine.instances.first().filter(|_| !several).map_or(self.run.attempt, |instance| instance.attempt),
            reason: self.run.reason.clone().or_else(|| self.machine.instances.first().and_then(|instance| instance.reason.clone())),
            progress: if several { Some((done * 100 / self.parts.len()) as u8) } else { part.and_then(|part| part.progress) },
            progress_text: if several { None } else { part.and_then(|part| part.text.clone()) },
            ..stored_output(&self.run)
        }
    }

    fn over(&self) -> Problem {
        Problem::conflict("run-over", format!("run {} has ended or is ending", self.run.identity))
    }
}

fn moment(now: Timestamp) -> Moment {
    Moment { now, chance: super::chance() }
}

fn restored(row: InstanceRow, settings: &TaskSettings, now: Timestamp) -> (Instance, Part) {
    let peer = row.peer.map(WorkerId);
    let phase =
        if row.state.is_final() { Phase::Over(row.state) } else { Phase::Unclear(now.plus_ms(settings.lease_ms() as i64 + MARGIN)) };
    let only = peer.filter(|_| settings.strategy == Strategy::Broadcast);
    let result = row.result.and_then(|text| RawValue::from_string(text).ok());
    // For one of several instances, the number of failures is not stored. The retry policy still applies.
    let failures = row.attempt.saturating_sub(1);
    let instance = Instance { reason: row.reason, ..Instance::taken_over(phase, row.attempt, failures) };
    (instance, Part { only, result, worker: peer, ..Part::default() })
}

impl TaskActor {
    /// Begins or continues the run.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.machine.is_finished() {
            return;
        }
        let is_several = matches!(self.settings.strategy, Strategy::Broadcast | Strategy::Shard);
        if is_several && !self.is_placed {
            let now = Timestamp::steady();
            match self.machine.instances[0].phase {
                // The list of workers is read at the scheduled time.
                Phase::Pausing(at) if at > now => {
                    let timer = ctx.run_later(Duration::from_millis(at.since_ms(now) as u64), |this, ctx| {
                        this.timer = None;
                        this.begin(ctx);
                    });
                    self.timer = Some((at, timer));
                    return;
                }
                Phase::Asking | Phase::Unclear(_) | Phase::Pausing(_) => {
                    self.machine.instances[0].phase = Phase::Asking;
                    return self.place(ctx);
                }
                _ => {}
            }
        }
        let effects = self.machine.begin();
        self.then(effects, ctx);
    }
}

impl Actor for TaskActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Its job sends a message when the run leaves the queue.
        if !self.run.queued {
            self.begin(ctx);
        }
    }
}

impl Handler<CheckQueue> for TaskActor {
    type Result = ();
    fn handle(&mut self, _: CheckQueue, ctx: &mut Self::Context) {
        self.guard.message("task.check_queue");
        if !self.run.queued {
            return;
        }
        let stored = self.context.store.read(crate::store::GetRun(self.run.identity));
        ctx.spawn(wrap_future(stored).map(|stored, this: &mut Self, ctx: &mut Context<Self>| {
            if this.run.queued && stored.is_ok_and(|run| run.is_some_and(|run| !run.queued)) {
                (this.run.queued, this.run.not_before) = (false, None);
                this.machine.instances[0].phase = Phase::Asking;
                this.begin(ctx);
            }
        }));
    }
}

impl Handler<Withdraw> for TaskActor {
    type Result = ();
    fn handle(&mut self, Withdraw(reply): Withdraw, ctx: &mut Self::Context) {
        self.guard.message("task.withdraw");
        let waits = matches!(self.machine.instances.as_slice(), [Instance { phase: Phase::Pausing(_), .. }]);
        let is_untouched = waits && self.run.is_ahead() && !self.writing && self.effects.is_empty();
        if is_untouched {
            if let Some((_, timer)) = self.timer.take() {
                ctx.cancel_future(timer);
            }
            self.guard.finish();
            ctx.stop();
        }
        reply.send(Ok(is_untouched));
    }
}

impl Handler<StopTask> for TaskActor {
    type Result = ();
    fn handle(&mut self, StopTask { reason, by, reply }: StopTask, ctx: &mut Self::Context) {
        self.guard.message("task.stop");
        if self.machine.is_finished() {
            return reply.send(Err(self.over()));
        }
        // Record who asked for the stop together with their reason.
        self.run.update_by = by;
        self.stops.push(reply);
        let effects = self.machine.stop(reason, Timestamp::steady());
        self.then(effects, ctx);
    }
}

impl Handler<DescribeTask> for TaskActor {
    type Result = ();
    fn handle(&mut self, DescribeTask(reply): DescribeTask, _: &mut Self::Context) {
        self.guard.message("task.describe");
        reply.send(Ok(self.output()));
    }
}

impl Handler<WorkerBack> for TaskActor {
    type Result = ();
    fn handle(&mut self, WorkerBack(id): WorkerBack, ctx: &mut Self::Context) {
        self.guard.message("task.worker_back");
        for i in 0..self.parts.len() {
            if self.machine.instances[i].phase == Phase::At(id) {
                self.send(i, id, ctx);
            }
        }
    }
}

impl Handler<AskAgain> for TaskActor {
    type Result = ();
    fn handle(&mut self, _: AskAgain, ctx: &mut Self::Context) {
        self.guard.message("task.ask_again");
        for i in 0..self.parts.len() {
            match self.machine.instances[i].phase {
                Phase::Asking => self.ask(i, ctx),
                // The new allocator has to count its permit.
                Phase::At(worker) | Phase::Ending(worker, ..) => self.occupy(i, worker, ctx),
                _ => {}
            }
        }
    }
}
