//! A run of an application: programs on one node or on many.
//!
//! `domain/application/state_machine` decides; this shell stores and sends. The placement of the instances is on disk before a
//! node receives an order, and the end of a program is on disk before its node may discard it. So a rebuilt actor takes over the
//! same instances, queries them, and starts none twice.

mod end;
mod message;
mod orders;
mod output;
mod reports;

pub use message::{
    ApplicationHandle, CheckQueue, DescribeApplication, NodeLost, ProgramOutputCame, ProgramReported, ProgramsListed, StopApplication,
};

use super::context::BrokerContext;
use super::followers::Size;
use super::reply::Reply;
use super::run::stored_output;
use super::supervision::ExitGuard;
use crate::domain::application::ApplicationSettings;
use crate::domain::application::choice::Chosen;
use crate::domain::application::state_machine::{Effect, Event, Phase, Rules, StateMachine};
use crate::domain::ids::NodeId;
use crate::domain::run::{Pause, Run, RunState};
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::application::ProgramRef;
use crate::protocol::node::ToNode;
use crate::protocol::problem::Problem;
use crate::store::{AskExit, GetRun, InstanceRow, ListInstances, LogSize, MoveInstance, PlaceRun, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two checks for messages to repeat.
const TICK: Duration = Duration::from_millis(500);
/// Number of ticks between two reminders to the nodes of the programs that they should have.
const REMIND: u32 = 4;
/// How long a run waits for nodes to reconnect after a broker restart, or to send the first heartbeat, in milliseconds.
const NODES_RETURN_MS: i64 = 10_000;
/// Interval between two checks for these nodes.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// See the module documentation.
#[derive(Debug)]
pub struct ApplicationActor {
    guard: ExitGuard,
    context: BrokerContext,
    run: Run,
    epoch: i64,
    settings: Option<Arc<ApplicationSettings>>,
    /// Its arguments, before placeholders are replaced.
    words: Vec<String>,
    /// `None` until its nodes are chosen.
    machine: Option<StateMachine>,
    instances: Vec<Place>,
    ticks: u32,
    /// When it began to wait for nodes that are about to connect.
    waits_since: Option<Timestamp>,
    /// Effects to carry out first.
    first: Vec<Effect>,
    /// The reason of a stop that arrived while the placement was being written.
    stop_reason: Option<String>,
    /// Callers that wait for the end.
    stops: Vec<Reply<RunOutput>>,
    /// The end is decided and is being written.
    ending: bool,
    /// The next attempt is being written.
    again: bool,
}

/// The stored values of an instance besides its placement.
#[derive(Debug, Clone, Default)]
struct Place {
    result: Option<String>,
    start_time: Option<Timestamp>,
    /// The number of the next line.
    next_line: u64,
}

/// The stored state of a run that an actor takes over.
#[derive(Debug)]
pub struct LoadedApplication {
    run: Run,
    epoch: i64,
    instances: Vec<InstanceRow>,
}

impl LoadedApplication {
    /// A run that was stored just now.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self { run, epoch: Run::FIRST_EPOCH, instances: Vec::new() }
    }

    /// Reads the rest of a run that is owned under this epoch.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load(context: &BrokerContext, run: Run, epoch: i64) -> Result<Self, StoreError> {
        let mut instances = context.store.read(ListInstances { no: run.no, from: 0, limit: usize::MAX }).await?;
        // The instances of a failed attempt stay readable until the next attempt has its nodes.
        instances.retain(|row| row.attempt == run.attempt);
        let (lines, bytes) = context.store.read(LogSize { run_no: run.no }).await?;
        context.followers.learn(run.no, Size::read(lines, bytes));
        Ok(Self { run, epoch, instances })
    }

    /// Its id.
    #[must_use]
    pub fn identity(&self) -> crate::domain::ids::Identity {
        self.run.identity
    }

    /// The name of its job.
    #[must_use]
    pub fn job_name(&self) -> &str {
        &self.run.job_name
    }
}

impl ApplicationActor {
    /// The actor of a run.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, loaded: LoadedApplication) -> Self {
        let LoadedApplication { run, epoch, instances: rows } = loaded;
        let settings = run.rules.application.clone();
        let instances = rows.iter().map(|row| Place { result: row.result.clone(), start_time: row.start_time, next_line: row.lines });
        let mut this = Self {
            guard,
            context,
            run,
            epoch,
            settings,
            words: Vec::new(),
            machine: None,
            instances: instances.collect(),
            ticks: 0,
            waits_since: None,
            first: Vec::new(),
            stop_reason: None,
            stops: Vec::new(),
            ending: false,
            again: false,
        };
        this.first = this.restore(rows);
        this
    }

    fn rules(&self) -> Rules {
        Rules {
            grace: self.settings.as_ref().map_or(0, |settings| settings.grace),
            timeout: self.run.rules.timeout,
            liveness: self.context.times.node_offline,
        }
    }

    /// Continues with the stored instances.
    fn restore(&mut self, rows: Vec<InstanceRow>) -> Vec<Effect> {
        if rows.is_empty() {
            return Vec::new();
        }
        let (now, wall) = (Timestamp::steady(), Timestamp::now());
        let stop = rows.iter().find_map(|row| row.exit_reason.clone());
        // A start time in the future means that the clock went back.
        let age = rows.iter().filter_map(|row| row.start_time).min().map_or(0, |start| wall.since_ms(start).max(0));
        let began = now.plus_ms(-age);
        let stored = rows.into_iter().map(|row| {
            let phase = match row.state {
                RunState::Pending | RunState::Scheduled => Phase::Ordered,
                RunState::Running => Phase::Running,
                over => Phase::Over(over),
            };
            (NodeId(row.peer.unwrap_or_default()), phase, row.reason)
        });
        let (machine, effects) = StateMachine::restore(stored.collect(), self.rules(), began, stop, now);
        for (nth, instance) in machine.instances().iter().enumerate() {
            if !matches!(instance.phase, Phase::Over(_)) {
                self.context.fleet.take(instance.node, self.program(nth));
            }
        }
        self.machine = Some(machine);
        effects
    }

    fn program(&self, nth: usize) -> ProgramRef {
        ProgramRef { identity: self.run.identity, instance: nth as u32, attempt: self.run.attempt }
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
                log::error!("application actor failed and is rebuilt run_id={}: store error: {error}", this.run.identity);
                this.guard.stats().set_error(format!("store error: {error}"));
                ctx.stop();
            }
        }));
    }

    /// Begins the attempt: chooses nodes and stores the placement.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.ending || self.machine.is_some() {
            return;
        }
        let Some(settings) = self.settings.clone() else {
            return self.end(RunState::Failed, Some("the job has no program".to_owned()), ctx);
        };
        match settings.words(settings.said(self.run.arguments.as_deref())) {
            Ok(words) => self.words = words,
            Err(detail) => return self.end(RunState::Failed, Some(format!("invalid arguments: {detail}")), ctx),
        }
        let now = Timestamp::now();
        let chosen = self.context.fleet.choose(&settings, self.run.identity, self.run.attempt);
        let remark = chosen.remark();
        if chosen.is_partial() && self.waits_for_nodes(&chosen) {
            self.context.fleet.leave(self.run.identity);
            self.run.reason = remark.map(|remark| format!("waits for nodes that are about to connect: {remark}"));
            ctx.run_later(LOOK_AGAIN, Self::begin);
            return;
        }
        self.run.reason = None;
        if chosen.nodes.is_empty() {
            return self.end(RunState::Failed, remark, ctx);
        }
        if self.run.start_time.is_none() {
            self.run.start_time = Some(now);
            self.context.lateness.sent(now.since_ms(self.run.wanted_at()));
        }
        (self.run.state, self.run.reason, self.run.not_before) = (RunState::Scheduled, remark.clone(), None);
        let (no, epoch, attempt) = (self.run.no, self.epoch, self.run.attempt);
        let peers = chosen.nodes.iter().map(|node| node.0).collect();
        let write = PlaceRun { no, epoch, attempt, peers, reason: remark, now };
        self.ending = true; // Make no other decision until this is on disk.
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            crate::fault::point("application.placed");
            this.ending = false;
            this.instances = vec![Place::default(); chosen.nodes.len()];
            let (machine, effects) = StateMachine::begin(&chosen.nodes, this.rules(), Timestamp::steady());
            this.machine = Some(machine);
            this.carry_out(effects, ctx);
            this.remind();
            this.context.followers.ring(this.run.identity);
            if let Some(stop) = this.stop_reason.take() {
                this.stop_all(stop, ctx);
            }
        });
    }

    /// Whether nodes may still reconnect after a broker restart, or have connected and not sent a heartbeat yet.
    fn waits_for_nodes(&mut self, chosen: &Chosen) -> bool {
        let now = Timestamp::steady();
        let waited = now.since_ms(*self.waits_since.get_or_insert(now));
        let is_greeting = chosen.left_out.unknown > 0 && waited < NODES_RETURN_MS;
        let is_older = self.epoch > Run::FIRST_EPOCH;
        let is_missing = is_older || self.context.addresses.nodes.count() < self.context.before.nodes;
        is_greeting || is_missing && now.since_ms(self.context.began) < NODES_RETURN_MS
    }

    fn happens(&mut self, event: Event, ctx: &mut Context<Self>) {
        if let Some(machine) = &mut self.machine {
            let effects = machine.handle(event, Timestamp::steady());
            self.carry_out(effects, ctx);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                Effect::Start(nth) => self.start_program(nth),
                Effect::Exit(nth, reason) => self.exit_program(nth, reason),
                Effect::Store(nth) => self.store(nth, ctx),
                Effect::Settle(nth) => self.send(nth, &ToNode::ProgramsSettled(vec![self.program(nth)])),
                Effect::End(state, reason) => self.end(state, reason, ctx),
            }
        }
    }

    /// Stores the current state of an instance.
    fn store(&mut self, nth: usize, ctx: &mut Context<Self>) {
        let Some(instance) = self.machine.as_ref().and_then(|machine| machine.instances().get(nth)) else { return };
        let now = Timestamp::now();
        let (state, is_over) = match instance.phase {
            Phase::Over(state) => (state, true),
            Phase::Running => (RunState::Running, false),
            Phase::Ordered | Phase::Accepted => (RunState::Scheduled, false),
        };
        if is_over {
            self.context.fleet.give_back(instance.node, self.program(nth));
        } else if state == RunState::Running {
            self.run.state = RunState::Running;
        }
        let place = &self.instances[nth];
        let write = MoveInstance {
            no: self.run.no,
            epoch: self.epoch,
            instance: nth as u32,
            state,
            reason: instance.reason.clone(),
            result: place.result.clone(),
            start_time: place.start_time,
            finish_time: is_over.then_some(now),
        };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.context.followers.ring(this.run.identity);
            if is_over {
                this.happens(Event::Stored(nth), ctx);
            }
        });
    }

    /// Stops all programs. The stop is stored first, so that it also takes effect after a crash.
    fn stop_all(&mut self, reason: String, ctx: &mut Context<Self>) {
        let write = AskExit { no: self.run.no, epoch: self.epoch, reason: reason.clone(), by: self.run.update_by.clone() };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| this.happens(Event::Stop(reason), ctx));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let Some(machine) = &self.machine else { return };
        let is_there = |node: &NodeId| self.context.addresses.nodes.get(*node).is_some();
        let here = machine.instances().iter().map(|instance| instance.node).filter(is_there).collect();
        self.happens(Event::Tick(here), ctx);
        self.ticks += 1;
        if self.ticks.is_multiple_of(REMIND) {
            self.remind();
        }
    }
}

impl Actor for ApplicationActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 12);
        ctx.run_interval(TICK, Self::tick);
        let first = std::mem::take(&mut self.first);
        self.carry_out(first, ctx);
        match self.run.pause(Timestamp::now()) {
            // Its job starts another actor when the run leaves the queue.
            _ if self.run.queued => {}
            Pause::For(ms) => drop(ctx.run_later(Duration::from_millis(ms), Self::begin)),
            Pause::None | Pause::FromLater => self.begin(ctx),
        }
        self.remind();
    }
}

impl Handler<CheckQueue> for ApplicationActor {
    type Result = ();
    fn handle(&mut self, _: CheckQueue, ctx: &mut Self::Context) {
        self.guard.message("application.check_queue");
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

impl Handler<StopApplication> for ApplicationActor {
    type Result = ();
    fn handle(&mut self, StopApplication { reason, by, reply }: StopApplication, ctx: &mut Self::Context) {
        self.guard.message("application.stop");
        let is_placing = self.ending && self.machine.is_none() && self.run.state == RunState::Scheduled;
        if self.again {
            return reply.send(Err(Problem::busy("the run is about to be retried")));
        }
        if self.ending && !is_placing {
            return reply.send(Err(self.over()));
        }
        if self.stops.is_empty() && self.run.update_by.is_none() {
            self.run.update_by = by;
        }
        self.stops.push(reply);
        match &self.machine {
            None if is_placing => drop(self.stop_reason.get_or_insert(reason)),
            None => self.end(RunState::Stopped, Some(reason), ctx),
            Some(_) if self.stops.len() == 1 => self.stop_all(reason, ctx),
            Some(_) => {}
        }
    }
}

impl Handler<DescribeApplication> for ApplicationActor {
    type Result = ();
    fn handle(&mut self, DescribeApplication(reply): DescribeApplication, _: &mut Self::Context) {
        self.guard.message("application.describe");
        reply.send(Ok(stored_output(&self.run)));
    }
}
