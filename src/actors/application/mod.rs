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

pub use message::ProgramEvent;

use super::context::BrokerContext;
use super::followers::Size;
use super::run::stored_output;
use super::run_shell::{AtWork, Ctx, Kind, RunLink, RunShell, Totals};
use crate::domain::application::ApplicationSettings;
use crate::domain::application::choice::Chosen;
use crate::domain::application::state_machine::{Effect, Event, Phase, Rules, StateMachine};
use crate::domain::ids::NodeId;
use crate::domain::job::JobKind;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::domain::trace::{Attempt, Peer};
use crate::protocol::api::RunOutput;
use crate::protocol::application::ProgramRef;
use crate::protocol::node::ToNode;
use crate::store::{AskExit, InstanceRow, ListInstances, LogSize, MoveInstance, PlaceRun, StoreError};
use actix::{AsyncContext, SpawnHandle};
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
pub struct Application {
    settings: Option<Arc<ApplicationSettings>>,
    /// Its arguments, before placeholders are replaced.
    words: Vec<String>,
    /// `None` until its nodes are chosen.
    machine: Option<StateMachine>,
    instances: Vec<Place>,
    ticks: u32,
    /// When it began to wait for nodes that are about to connect.
    waits_since: Option<Timestamp>,
    /// The timer of the next look for such nodes.
    look: Option<SpawnHandle>,
    /// No node fits: the fleet wakes the run when one does.
    waits_for_node: bool,
    /// Effects to carry out first.
    first: Vec<Effect>,
    /// The placement is being written: no other decision is made until it is on disk.
    is_placing: bool,
    /// The reason of a stop that arrived meanwhile.
    stop_reason: Option<String>,
}

/// The actor of a run of an application.
pub type ApplicationActor = RunShell<Application>;
/// Handle to a run of an application for other modules.
pub type ApplicationHandle = RunLink<Application>;

/// The stored values of an instance besides its placement.
#[derive(Debug, Clone, Default)]
struct Place {
    result: Option<String>,
    start_time: Option<Timestamp>,
    /// The number of the next line.
    next_line: u64,
    /// The lines before this number are on disk.
    stored_lines: u64,
}

impl Application {
    fn rules(&self, context: &BrokerContext, run: &Run) -> Rules {
        Rules {
            grace: self.settings.as_ref().map_or(0, |settings| settings.grace),
            timeout: run.rules.timeout,
            liveness: context.times.node_offline,
        }
    }

    /// Continues with the stored instances.
    fn restore(&mut self, context: &BrokerContext, run: &Run, rows: Vec<InstanceRow>) {
        if rows.is_empty() {
            return;
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
        let (machine, effects) = StateMachine::restore(stored.collect(), self.rules(context, run), began, stop, now);
        for (nth, instance) in machine.instances().iter().enumerate() {
            if !matches!(instance.phase, Phase::Over(_)) {
                context.fleet.reserve(instance.node, program(run, nth));
            }
        }
        (self.machine, self.first) = (Some(machine), effects);
    }
}

/// Why a run waits.
fn waits(remark: &str) -> String {
    format!("waits for a node: {remark}")
}

fn program(run: &Run, nth: usize) -> ProgramRef {
    ProgramRef { identity: run.identity, instance: nth as u32, attempt: run.attempt }
}

impl ApplicationActor {
    fn program(&self, nth: usize) -> ProgramRef {
        program(&self.run, nth)
    }

    /// Begins the attempt: chooses nodes and stores the placement.
    fn place(&mut self, ctx: &mut Ctx<Application>) {
        if self.lifecycle.is_ending() || self.kind.is_placing || self.kind.machine.is_some() {
            return;
        }
        let Some(settings) = self.kind.settings.clone() else {
            return self.end(RunState::Failed, Some("the job has no program".to_owned()), ctx);
        };
        match settings.words(settings.said(self.run.arguments.as_deref())) {
            Ok(words) => self.kind.words = words,
            Err(detail) => return self.end(RunState::Failed, Some(format!("invalid arguments: {detail}")), ctx),
        }
        let now = Timestamp::now();
        if let Some(look) = self.kind.look.take() {
            ctx.cancel_future(look);
        }
        let (identity, attempt, link) = (self.run.identity, self.run.attempt, self.link(ctx));
        let chosen = match settings.waits_for_node {
            true => self.context.fleet.choose_or_wait(&settings, identity, attempt, move || link.tell(ProgramEvent::NodeFits)),
            false => self.context.fleet.choose(&settings, identity, attempt),
        };
        let remark = chosen.remark();
        self.kind.waits_for_node = chosen.nodes.is_empty() && settings.waits_for_node;
        if self.kind.waits_for_node {
            self.run.reason = remark.map(|remark| waits(&remark));
            return;
        }
        if chosen.is_partial() && self.waits_for_nodes(&chosen) {
            self.context.fleet.release_all(self.run.identity);
            self.run.reason = remark.map(|remark| format!("waits for nodes that are about to connect: {remark}"));
            self.kind.look = Some(ctx.run_later(LOOK_AGAIN, Self::place));
            return;
        }
        self.run.reason = None;
        if chosen.nodes.is_empty() {
            return self.end(RunState::Failed, remark, ctx);
        }
        self.note_start(now);
        (self.run.state, self.run.reason, self.run.not_before) = (RunState::Scheduled, remark.clone(), None);
        let (no, epoch, attempt) = (self.run.no, self.epoch, self.run.attempt);
        let peers = chosen.nodes.iter().map(|node| node.0).collect();
        let write = PlaceRun { no, epoch, attempt, peers, reason: remark, now };
        self.kind.is_placing = true;
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            crate::fault::point("application.placed");
            this.kind.is_placing = false;
            this.kind.instances = vec![Place::default(); chosen.nodes.len()];
            let (machine, effects) = StateMachine::begin(&chosen.nodes, this.kind.rules(&this.context, &this.run), Timestamp::steady());
            this.kind.machine = Some(machine);
            this.carry_out(effects, ctx);
            this.remind();
            this.context.followers.ring(this.run.identity);
            if let Some(stop) = this.kind.stop_reason.take() {
                this.stop_all(stop, ctx);
            }
        });
    }

    /// Whether nodes may still reconnect after a broker restart, or have connected and not sent a heartbeat yet.
    fn waits_for_nodes(&mut self, chosen: &Chosen) -> bool {
        let now = Timestamp::steady();
        let waited = now.since_ms(*self.kind.waits_since.get_or_insert(now));
        let is_greeting = chosen.left_out.unknown > 0 && waited < NODES_RETURN_MS;
        let is_older = self.epoch > Run::FIRST_EPOCH;
        let is_missing = is_older || self.context.addresses.nodes.count() < self.context.before.nodes;
        is_greeting || is_missing && now.since_ms(self.context.predecessor_until) < NODES_RETURN_MS
    }

    fn happens(&mut self, event: Event, ctx: &mut Ctx<Application>) {
        if let Some(machine) = &mut self.kind.machine {
            let effects = machine.handle(event, Timestamp::steady());
            self.carry_out(effects, ctx);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, ctx: &mut Ctx<Application>) {
        for effect in effects {
            match effect {
                Effect::Start(nth) => self.start_program(nth),
                Effect::Exit(nth, reason) => self.exit_program(nth, reason),
                Effect::Store(nth) => self.store(nth, ctx),
                Effect::Settle(nth) => self.send(nth, &ToNode::ProgramsSettled(vec![self.program(nth)])),
                // Report that the run had fewer nodes than requested even if it succeeded on them.
                Effect::End(state, reason) => self.end(state, reason.or_else(|| self.run.reason.clone()), ctx),
            }
        }
    }

    /// Stores the current state of an instance.
    fn store(&mut self, nth: usize, ctx: &mut Ctx<Application>) {
        let Some(instance) = self.kind.machine.as_ref().and_then(|machine| machine.instances().get(nth)) else { return };
        let now = Timestamp::now();
        let (state, is_over) = match instance.phase {
            Phase::Over(state) => (state, true),
            Phase::Running => (RunState::Running, false),
            Phase::Ordered | Phase::Accepted => (RunState::Scheduled, false),
        };
        if is_over {
            self.context.fleet.release(instance.node, self.program(nth));
        } else if state == RunState::Running {
            self.run.state = RunState::Running;
        }
        let (node, reason) = (instance.node, instance.reason.clone());
        let place = &self.kind.instances[nth];
        let began = place.start_time;
        let write = MoveInstance {
            no: self.run.no,
            epoch: self.epoch,
            instance: nth as u32,
            state,
            reason: reason.clone(),
            result: place.result.clone(),
            start_time: place.start_time,
            finish_time: is_over.then_some(now),
        };
        let attempt = |this: &Self| {
            let peer = Some(Peer::Node(node, this.context.addresses.node_name(node)));
            Attempt { instance: Some(nth as u32), attempt: this.run.attempt, peer, state, reason, began, ended: now }
        };
        // Not when it is stored: the end of the run may be stored together with it, and then this actor ends first.
        let span = self.span(|this| is_over.then(|| attempt(this)));
        self.context.telemetry.spans(|| span);
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.context.followers.ring(this.run.identity);
            if is_over {
                this.happens(Event::Stored(nth), ctx);
            }
        });
    }

    /// Stops all programs. The stop is stored first, so that it also takes effect after a crash.
    fn stop_all(&mut self, reason: String, ctx: &mut Ctx<Application>) {
        let write = AskExit { no: self.run.no, epoch: self.epoch, reason: reason.clone(), by: self.run.update_by.clone() };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| this.happens(Event::Stop(reason), ctx));
    }

    fn tick(&mut self, ctx: &mut Ctx<Application>) {
        let Some(machine) = &self.kind.machine else { return };
        let is_there = |node: &NodeId| self.context.addresses.nodes.get(*node).is_some();
        let here = machine.instances().iter().map(|instance| instance.node).filter(is_there).collect();
        self.happens(Event::Tick(here), ctx);
        self.kind.ticks += 1;
        if self.kind.ticks.is_multiple_of(REMIND) {
            self.remind();
        }
    }
}

impl Kind for Application {
    const KIND: JobKind = JobKind::Application;
    type Stored = Vec<InstanceRow>;
    type Event = ProgramEvent;

    async fn load(context: &BrokerContext, run: &mut Run) -> Result<Vec<InstanceRow>, StoreError> {
        let mut instances = context.store.read(ListInstances { no: run.no, from: 0, limit: usize::MAX }).await?;
        // The instances of a failed attempt stay readable until the next attempt has its nodes.
        instances.retain(|row| row.attempt == run.attempt);
        let (lines, bytes) = context.store.read(LogSize { run_no: run.no }).await?;
        context.followers.learn(run.no, Size::read(lines, bytes));
        Ok(instances)
    }

    fn new(context: &BrokerContext, run: &Run, epoch: i64, rows: Vec<InstanceRow>) -> Self {
        if epoch == Run::FIRST_EPOCH {
            context.followers.learn(run.no, Size::default());
        } else if rows.is_empty() {
            // The actor before this one may have reserved slots for a placement that was not stored.
            context.fleet.release_all(run.identity);
        }
        let instances = rows.iter().map(|row| Place {
            result: row.result.clone(),
            start_time: row.start_time,
            next_line: row.lines,
            stored_lines: row.lines,
        });
        let mut this = Self {
            settings: run.rules.application.clone(),
            words: Vec::new(),
            machine: None,
            instances: instances.collect(),
            ticks: 0,
            waits_since: None,
            look: None,
            waits_for_node: false,
            first: Vec::new(),
            is_placing: false,
            stop_reason: None,
        };
        this.restore(context, run, rows);
        this
    }

    fn at_work(link: RunLink<Self>) -> AtWork {
        AtWork::Application(link)
    }

    fn place(event: &ProgramEvent) -> &'static str {
        match event {
            ProgramEvent::Reported { .. } => "application.report",
            ProgramEvent::Output { .. } => "application.output",
            ProgramEvent::Listed { .. } => "application.listed",
            ProgramEvent::NodeLost { .. } => "application.node_lost",
            ProgramEvent::NodeFits => "application.node_fits",
        }
    }

    fn started(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        ctx.set_mailbox_capacity(1 << 12);
        ctx.run_interval(TICK, RunShell::<Self>::tick);
        let first = std::mem::take(&mut run.kind.first);
        run.carry_out(first, ctx);
        run.wait_or_begin(ctx);
        run.remind();
    }

    fn begin(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        run.place(ctx);
    }

    fn handle(run: &mut RunShell<Self>, event: ProgramEvent, ctx: &mut Ctx<Self>) {
        match event {
            ProgramEvent::Reported { node, report } => run.reported(node, &report, ctx),
            ProgramEvent::Output { node, output } => run.keep_output(node, output, ctx),
            ProgramEvent::Listed { node, programs } => run.listed(node, programs, ctx),
            ProgramEvent::NodeLost { node, silent_since } => run.happens(Event::NodeGone(node, silent_since), ctx),
            ProgramEvent::NodeFits => run.place(ctx),
        }
    }

    fn stop(run: &mut RunShell<Self>, reason: String, by: Option<String>, ctx: &mut Ctx<Self>) {
        let is_first = run.waiting() == 1;
        if is_first && run.run.update_by.is_none() {
            run.run.update_by = by;
        }
        match &run.kind.machine {
            None if run.kind.is_placing => drop(run.kind.stop_reason.get_or_insert(reason)),
            None => run.end(RunState::Stopped, Some(reason), ctx),
            Some(_) if is_first => run.stop_all(reason, ctx),
            Some(_) => {}
        }
    }

    fn output(run: &RunShell<Self>) -> RunOutput {
        let output = stored_output(&run.run);
        let settings = run.kind.settings.as_deref().filter(|_| run.kind.waits_for_node && !run.lifecycle.is_ending());
        // Nodes that do not fit come and go while the run waits.
        let remark = settings.and_then(|settings| run.context.fleet.preview(settings).remark());
        RunOutput { reason: remark.map(|remark| waits(&remark)).or(output.reason.clone()), ..output }
    }

    fn ending(run: &mut RunShell<Self>, _: &mut Ctx<Self>) {
        run.remind();
    }

    fn totals(run: &mut RunShell<Self>, _: RunState) -> Totals {
        crate::fault::point("application.end");
        Totals { result: Some(run.result()), ..Totals::default() }
    }
}
