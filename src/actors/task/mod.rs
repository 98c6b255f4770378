//! A run of a task job: the shell around its [`StateMachine`].
//!
//! Effects run in order, and each effect after a write waits until the write is on disk. So an attempt is sent only under a
//! stored number, and a worker may discard a report only when it cannot be lost any more.

mod effects;
mod message;
mod reports;
mod view;

pub use message::{TaskDescription, TaskEvent};

use super::context::BrokerContext;
use super::involved::Involved;
use super::placement::{Permit, WorkerSlot};
use super::run::stored_output;
use super::run_shell::{AtWork, Ctx, Kind, RunLink, RunShell};
use crate::domain::ids::WorkerId;
use crate::domain::job::JobKind;
use crate::domain::run::{Pause, Run, RunState};
use crate::domain::task::state_machine::{Effect, Instance, Moment, Phase, StateMachine};
use crate::domain::task::{NoWorker, Strategy, TaskSettings};
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::store::{InstanceRow, ListInstances, StoreError};
use actix::{ActorFutureExt, AsyncContext, SpawnHandle, fut::wrap_future};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Milliseconds by which the last message of a lost worker may be late, in addition to its lease.
const MARGIN_MS: i64 = 50;

/// See the module documentation.
#[derive(Debug)]
pub struct Task {
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
    /// Its workers are being listed, or stored.
    placing: bool,
    /// A worker became eligible meanwhile.
    place_again: bool,
    /// The begin of the run is stored.
    is_begun: bool,
    /// The run has written log lines.
    has_logged: bool,
    /// The write of the last log lines, if the end has to wait for it.
    logging: Option<tokio::task::JoinHandle<()>>,
}

/// The actor of a task.
pub type TaskActor = RunShell<Task>;
/// Handle to a task for other modules.
pub type TaskHandle = RunLink<Task>;

/// State of an instance outside of the state machine.
#[derive(Debug, Default)]
struct Part {
    /// The only worker that may run it.
    only: Option<WorkerId>,
    permit: Option<Permit<WorkerSlot>>,
    began: Option<Timestamp>,
    progress: Option<u8>,
    text: Option<String>,
    result: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
    next_at: Option<Timestamp>,
    worker: Option<WorkerId>,
}

impl TaskActor {
    /// Runs a write; later effects wait for it. If it fails, the next actor starts from the stored state.
    fn write<T: 'static>(
        &mut self,
        ctx: &mut Ctx<Task>,
        write: impl Future<Output = Result<T, StoreError>> + 'static,
        done: impl FnOnce(&mut Self, T, &mut Ctx<Task>) + 'static,
    ) {
        self.kind.writing = true;
        Self::then(ctx, write, |this, value, ctx| {
            this.kind.writing = false;
            done(this, value, ctx);
            this.run_pending_effects(ctx);
        });
    }

    /// Adds effects, carries them out, and sets the timer for the next deadline.
    fn run_effects(&mut self, effects: Vec<Effect>, ctx: &mut Ctx<Task>) {
        self.kind.effects.extend(effects);
        self.run_pending_effects(ctx);
    }

    fn run_pending_effects(&mut self, ctx: &mut Ctx<Task>) {
        while !self.kind.writing {
            let Some(effect) = self.kind.effects.pop_front() else { break };
            self.carry_out(effect, ctx);
        }
        if self.kind.machine.is_finished() {
            self.lifecycle.close();
        }
        if !self.kind.writing {
            self.set_timer(ctx);
        }
    }

    fn set_timer(&mut self, ctx: &mut Ctx<Task>) {
        let wake = self.kind.machine.wake();
        if self.kind.timer.as_ref().map(|(at, _)| *at) == wake {
            return;
        }
        if let Some((_, timer)) = self.kind.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(at) = wake {
            let pause = Duration::from_millis(at.since_ms(Timestamp::steady()).max(0) as u64);
            let timer = ctx.run_later(pause, |this, ctx| {
                this.kind.timer = None;
                this.tick(ctx);
            });
            self.kind.timer = Some((at, timer));
        }
    }

    fn tick(&mut self, ctx: &mut Ctx<Task>) {
        if self.kind.writing {
            // The write in progress decides the next step and sets the timer then.
            return;
        }
        let effects = self.kind.machine.tick(moment(Timestamp::steady()));
        self.run_effects(effects, ctx);
    }

    /// Decides the number of instances, if the strategy uses several.
    fn place(&mut self, ctx: &mut Ctx<Task>) {
        let is_unplaced = self.kind.machine.is_unplaced() && self.kind.machine.instances[0].phase == Phase::Requesting;
        if self.kind.placing || !is_unplaced || self.kind.machine.is_finished() {
            return;
        }
        self.kind.placing = true;
        let waits = self.kind.settings.shards == 0 && self.waits_for_workers();
        let workers = self.context.allocator.list_workers(Box::new(self.request(0)), waits.then(|| self.link(ctx))).wait();
        ctx.spawn(wrap_future(workers).map(move |workers, this: &mut Self, ctx: &mut Ctx<Task>| match workers {
            Err(_) => {
                this.kind.placing = false;
                ctx.run_later(Duration::from_millis(100), Self::place);
            }
            Ok(Err(why)) if this.kind.settings.shards == 0 => {
                this.kind.placing = false;
                if std::mem::take(&mut this.kind.place_again) {
                    return this.place(ctx);
                }
                let reason = why.reason(&this.kind.handler);
                if !waits {
                    let effects = this.kind.machine.no_worker(0, reason, false, moment(Timestamp::steady()));
                    return this.run_effects(effects, ctx);
                }
                this.run.reason = Some(reason);
                if this.kind.settings.no_worker == NoWorker::Fail {
                    ctx.run_later(this.until_workers_are_back(), Self::place);
                }
            }
            Ok(workers) => this.placed(workers.unwrap_or_default(), ctx),
        }));
    }

    fn placed(&mut self, workers: Vec<WorkerId>, ctx: &mut Ctx<Task>) {
        if self.kind.machine.is_finished() {
            return;
        }
        let peers: Vec<Option<WorkerId>> = match (self.kind.settings.strategy, self.kind.settings.shards) {
            (Strategy::Shard, 0) => vec![None; workers.len()],
            (Strategy::Shard, shards) => vec![None; shards as usize],
            _ => workers.into_iter().map(Some).collect(),
        };
        let write = crate::store::PlaceTasks { no: self.run.no, epoch: self.epoch, peers: peers.clone() };
        let write = self.context.store.write_unbounded(write);
        self.write(ctx, write, move |this, (), ctx| {
            if this.kind.machine.is_finished() {
                return;
            }
            this.run.reason = None;
            let effects = this.kind.machine.placed(peers.len());
            this.kind.parts = peers.into_iter().map(|only| Part { only, ..Part::default() }).collect();
            this.run_effects(effects, ctx);
        });
    }

    /// Whether the task waits although no worker is eligible now, because that may change soon.
    fn waits_for_workers(&self) -> bool {
        // Workers that watch its name must first connect to this broker.
        let may_come_back = self.context.workers_may_come_back(&self.kind.handler, self.epoch > Run::FIRST_EPOCH);
        self.kind.settings.no_worker == NoWorker::Wait || may_come_back
    }

    /// The rest of the time in which the workers of the previous broker may reconnect.
    fn until_workers_are_back(&self) -> Duration {
        let until = self.context.predecessor_until.plus_ms(self.context.times.worker_offline as i64);
        Duration::from_millis(until.since_ms(Timestamp::steady()).max(0) as u64 + 1)
    }

    fn worker_restarted(&mut self, id: WorkerId, ctx: &mut Ctx<Task>) {
        for i in 0..self.kind.parts.len() {
            if self.kind.machine.instances[i].phase == Phase::AtWorker(id) {
                self.send(i, id, ctx);
            }
        }
        self.run_pending_effects(ctx);
    }

    fn request_again(&mut self, ctx: &mut Ctx<Task>) {
        for i in 0..self.kind.parts.len() {
            match self.kind.machine.instances[i].phase {
                Phase::Requesting if self.kind.machine.is_unplaced() => self.place(ctx),
                Phase::Requesting => self.request_slot(i, ctx),
                // The new allocator has to count its permit.
                Phase::AtWorker(worker) | Phase::Ending(worker, ..) => self.occupy(i, worker, ctx),
                _ => {}
            }
        }
    }

    /// Stores the begin after the first sign of work from a worker, or after a while.
    fn store_first_sign(&mut self, worker: WorkerId, state: RunState, ctx: &mut Ctx<Task>) {
        if self.kind.is_begun || self.kind.machine.is_finished() {
            return;
        }
        self.kind.is_begun = true;
        self.run.state = state;
        self.write_begin(worker, ctx);
    }

    /// Nothing waits for this write; if it is lost, the write at the end contains the same values.
    fn write_begin(&self, worker: WorkerId, ctx: &mut Ctx<Task>) {
        let write = self.store_begin(Some(worker), self.run.start_time.unwrap_or_else(Timestamp::now));
        Self::then(ctx, write, |_, (), _| {});
    }
}

fn moment(now: Timestamp) -> Moment {
    Moment { now, chance: super::chance() }
}

/// `lease_from`: the last time at which a broker may have renewed the lease of an attempt that a worker has.
fn restored(row: InstanceRow, settings: &TaskSettings, lease_from: Timestamp) -> (Instance, Part) {
    let peer = row.peer.map(WorkerId);
    let phase = if row.state.is_final() {
        Phase::Over(row.state)
    } else {
        Phase::Unclear(lease_from.plus_ms(settings.lease_ms() as i64 + MARGIN_MS))
    };
    let only = peer.filter(|_| settings.strategy == Strategy::Broadcast);
    let result = row.result.and_then(|text| RawValue::from_string(text).ok());
    // For one of several instances, the number of failures is not stored. The retry policy still applies.
    let failures = row.attempt.saturating_sub(1);
    let instance = Instance { reason: row.reason, ..Instance::taken_over(phase, row.attempt, failures) };
    (instance, Part { only, result, worker: peer, ..Part::default() })
}

impl Kind for Task {
    const KIND: JobKind = JobKind::Task;
    type Stored = Vec<InstanceRow>;
    type Event = TaskEvent;

    async fn load(context: &BrokerContext, run: &mut Run) -> Result<Vec<InstanceRow>, StoreError> {
        context.store.read(ListInstances { no: run.no, from: 0, limit: usize::MAX }).await
    }

    /// `stored` contains its instances, if it has several.
    fn new(context: &BrokerContext, run: &Run, epoch: i64, stored: Vec<InstanceRow>) -> Self {
        let settings = run.rules.task.clone().unwrap_or_default();
        let arguments = run.arguments.as_deref().and_then(|text| RawValue::from_string(text.to_owned()).ok()).map(Arc::from);
        let (now, steady) = (Timestamp::now(), Timestamp::steady());
        // A previous leader that lives, although the database does not reach it, may still renew leases.
        let lease_from = steady.max(context.predecessor_until);
        // The first actor of a queued run has the next epoch. The same applies in this broker to a run that another broker
        // created ahead of its time.
        let is_first_here = epoch == Run::FIRST_EPOCH + 1 && (!run.is_ahead() || run.creation_time < context.since);
        let alone_since = context.since.max(context.predecessor_until.on_the_wall());
        let had_turn = is_first_here && run.attempt == 1 && run.not_before.is_some_and(|at| at >= alone_since && at <= now);
        let is_fresh = epoch == Run::FIRST_EPOCH || had_turn;
        let is_placed = !stored.is_empty();
        let (instances, parts): (Vec<_>, Vec<_>) = if stored.is_empty() {
            let phase = match run.pause(now) {
                _ if run.queued => Phase::Queued,
                // One that is due before that may be sent by the previous leader, which needs no write for it.
                Pause::For(ms) if steady.plus_ms(ms as i64) >= lease_from => Phase::Pausing(steady.plus_ms(ms as i64)),
                Pause::None if is_fresh => Phase::Requesting,
                // The run may have been sent before the broker, or this actor, crashed.
                Pause::None | Pause::For(_) | Pause::FromLater => {
                    Phase::Unclear(lease_from.plus_ms(settings.lease_ms() as i64 + MARGIN_MS))
                }
            };
            let failures = run.counters.error as u32;
            // If the run ends before a worker reports it, the last worker is still known.
            vec![(Instance::taken_over(phase, run.attempt, failures), Part { worker: run.worker_id, ..Part::default() })]
        } else {
            stored.into_iter().map(|row| restored(row, &settings, lease_from)).collect()
        }
        .into_iter()
        .unzip();
        Self {
            involved: Involved::new(&context.addresses, None, run.identity),
            handler: run.class_name.as_str().into(),
            machine: StateMachine::new(Arc::clone(&settings), run.rules.clone(), instances, is_placed),
            settings,
            arguments,
            parts,
            effects: VecDeque::new(),
            writing: false,
            timer: None,
            placing: false,
            place_again: false,
            is_begun: false,
            has_logged: false,
            logging: None,
        }
    }

    fn at_work(link: RunLink<Self>) -> AtWork {
        AtWork::Task(link)
    }

    fn place(event: &TaskEvent) -> &'static str {
        match event {
            TaskEvent::Granted(..) => "task.granted",
            TaskEvent::Occupied(..) => "task.occupied",
            TaskEvent::NoEligibleWorker(..) => "task.no_worker",
            TaskEvent::WorkerFits => "task.worker_fits",
            TaskEvent::Report(..) => "task.report",
            TaskEvent::Claimed(..) => "task.claimed",
            TaskEvent::LeaseOver { .. } => "task.lease_over",
            TaskEvent::StillRunning(..) => "task.still_at_work",
            TaskEvent::WorkerRestarted(_) => "task.worker_back",
            TaskEvent::RequestAgain => "task.ask_again",
            TaskEvent::Explain(_) => "task.explain",
        }
    }

    fn started(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        // The state machine waits for the time of an attempt. A queued run gets a message from its job.
        if !run.run.queued {
            run.begin(ctx);
        }
    }

    fn begin(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        let effects = run.kind.machine.begin();
        run.run_effects(effects, ctx);
    }

    fn handle(run: &mut RunShell<Self>, event: TaskEvent, ctx: &mut Ctx<Self>) {
        match event {
            TaskEvent::Granted(instance, permit) => run.granted(instance as usize, permit, ctx),
            TaskEvent::Occupied(instance, permit) => run.occupied(instance as usize, permit),
            TaskEvent::NoEligibleWorker(instance, why) => run.no_worker(instance as usize, &why, ctx),
            TaskEvent::WorkerFits => {
                run.kind.place_again = run.kind.placing;
                run.place(ctx);
            }
            TaskEvent::Report(worker, report) => run.reported(worker, *report, ctx),
            TaskEvent::Claimed(worker, task) => run.claimed(worker, task, ctx),
            TaskEvent::LeaseOver { worker, task, last_message, why } => run.lease_over(worker, task, last_message, why, ctx),
            TaskEvent::StillRunning(task, since_ms) => run.still_running(task, since_ms, ctx),
            TaskEvent::WorkerRestarted(id) => run.worker_restarted(id, ctx),
            TaskEvent::RequestAgain => run.request_again(ctx),
            TaskEvent::Explain(reply) => reply.send(Ok(run.description())),
        }
    }

    fn stop(run: &mut RunShell<Self>, reason: String, by: Option<String>, ctx: &mut Ctx<Self>) {
        // The caller is stored together with the reason.
        run.run.update_by = by;
        let effects = run.kind.machine.stop(reason, Timestamp::steady());
        run.run_effects(effects, ctx);
    }

    fn is_untouched(run: &RunShell<Self>) -> bool {
        let waits = matches!(run.kind.machine.instances.as_slice(), [Instance { phase: Phase::Pausing(_), .. }]);
        waits && !run.kind.writing && run.kind.effects.is_empty()
    }

    fn output(run: &RunShell<Self>) -> RunOutput {
        let several = run.kind.machine.is_several();
        let done = run.kind.machine.instances.iter().filter(|instance| matches!(instance.phase, Phase::Over(_))).count();
        let part = run.kind.parts.first();
        let instance = run.kind.machine.instances.first().filter(|_| !several);
        let last = part.and_then(|part| part.worker).filter(|_| run.run.state.is_final());
        RunOutput {
            worker_id: instance.and_then(|instance| instance.worker().or(last)),
            attempt: run.kind.machine.instances.first().filter(|_| !several).map_or(run.run.attempt, |instance| instance.attempt),
            reason: run.run.reason.clone().or_else(|| run.kind.machine.instances.first().and_then(|instance| instance.reason.clone())),
            progress: if several { Some((done * 100 / run.kind.parts.len()) as u8) } else { part.and_then(|part| part.progress) },
            progress_text: if several { None } else { part.and_then(|part| part.text.clone()) },
            ..stored_output(&run.run)
        }
    }

    fn summary(run: &RunShell<Self>) -> (String, bool) {
        (format!("attempt={}", run.run.attempt), true)
    }

    fn leave(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        // These effects contain the last messages to its worker; none of them writes to the store.
        while let Some(effect) = run.kind.effects.pop_front() {
            run.carry_out(effect, ctx);
        }
    }
}
