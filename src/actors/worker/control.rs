//! The operator's word on a worker, as its actor heeds it.
//!
//! One that is not open gets nothing new; what it runs it may finish and report. One that was kicked is told so, and its
//! actor ends: what it had goes to others. The word stands in the store; the actor reads it when it begins, when the
//! worker begins to watch, and when it changes.

use super::WorkerActor;
use crate::actors::reply::Reply;
use crate::actors::session_sender::Frame;
use crate::domain::job::limits as job;
use crate::domain::task::limits;
use crate::domain::time::Timestamp;
use crate::domain::worker::{WorkerRecord, WorkerState, is_address};
use crate::protocol::problem::Problem;
use crate::protocol::task::TaskRef;
use crate::protocol::worker::{ToWorker, WorkerFacts};
use crate::store::{GetWorker, MeetWorker, StoreError};
use actix::{ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, fut::wrap_future};

/// Class names of one worker.
const MOST_CLASSES: usize = 1_000;
/// The most places that a worker may say it has.
const MOST_SLOTS: u32 = 100_000;

/// From the service: an operator said what is to become of the worker, and that is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Control(pub Box<WorkerRecord>);

/// From the service: how is it?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeWorker(pub Reply<WorkerDescription>);

/// How a worker is.
#[derive(Debug, Clone)]
pub struct WorkerDescription {
    /// It has a socket.
    pub has_socket: bool,
    /// When it was heard last.
    pub last_heard: Timestamp,
    /// The tasks that it said last it has in hand.
    pub tasks: Vec<TaskRef>,
}

/// What a worker's actor keeps of all that.
#[derive(Debug)]
pub(super) struct AdminState {
    /// It gets something new.
    pub(super) open: bool,
    /// Since when the word is what it is; none: not read yet.
    since: Option<Timestamp>,
    /// What it said last it has in hand.
    pub(super) tasks: Vec<TaskRef>,
}

impl Default for AdminState {
    fn default() -> Self {
        Self { open: true, since: None, tasks: Vec::new() }
    }
}

/// Checks the names that a worker is to watch.
pub(in crate::actors) fn check_classes(class_names: &[String]) -> Result<(), Problem> {
    let too_long = class_names.iter().position(|name| name.is_empty() || name.chars().count() > job::CLASS);
    if let Some(i) = too_long {
        return Err(Problem::invalid(format!("classNames[{i}]"), format!("a class name has 1 to {} characters", job::CLASS)));
    }
    if class_names.is_empty() || class_names.len() > MOST_CLASSES {
        return Err(Problem::invalid("classNames", format!("1 to {MOST_CLASSES} class names are expected")));
    }
    Ok(())
}

/// Checks what a worker says of itself.
pub(in crate::actors) fn check_facts(facts: &WorkerFacts) -> Result<(), Problem> {
    let is_long = |text: &String| text.is_empty() || text.chars().count() > job::NAME;
    for (field, text) in [("name", &facts.name), ("group", &facts.group), ("version", &facts.version)] {
        if text.as_ref().is_some_and(is_long) {
            return Err(Problem::invalid(format!("worker.{field}"), format!("1 to {} characters are taken", job::NAME)));
        }
    }
    // The address of a work has a limit of its own, where it is said.
    if facts.tags.len() > limits::TAGS || facts.tags.iter().any(|tag| is_long(tag) && !is_address(tag)) {
        return Err(Problem::invalid("worker.tags", format!("at most {} tags of 1 to {} characters are taken", limits::TAGS, job::NAME)));
    }
    if facts.slots.is_some_and(|slots| slots > MOST_SLOTS) {
        return Err(Problem::invalid("worker.slots", format!("at most {MOST_SLOTS} places are taken")));
    }
    Ok(())
}

/// What a worker that was put out is answered.
#[must_use]
pub fn kicked(record: &WorkerRecord) -> Problem {
    let why = record.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    Problem::forbidden(format!("worker {} was put out{why}; it is refused until an operator allows it again", record.id))
}

impl WorkerActor {
    /// Whether it gets something new, for all who hand out work.
    pub(super) fn set_open(&mut self, open: bool) {
        self.standing.open = open;
        self.context.registry().worker_open(self.id, open);
        if let Some(allocator) = self.context.allocator() {
            allocator.worker_open(self.id, open);
        }
    }

    /// Reads the word on it: an actor that is built again has forgotten it.
    pub(super) fn recall(&mut self, ctx: &mut Context<Self>) {
        let record = self.context.store.read(GetWorker(self.id));
        ctx.spawn(wrap_future(record).map(|record, this: &mut Self, ctx: &mut Context<Self>| match record {
            Ok(Some(record)) => drop(this.heed(&record, false, ctx)),
            Ok(None) => {}
            Err(error) => log::error!("the word on a worker could not be read worker_id={}: {error}", this.id),
        }));
    }

    /// What it says of itself is stored; gives the word on it.
    pub(super) fn meet(
        &self,
        facts: &WorkerFacts,
        class_names: &[String],
    ) -> impl Future<Output = Result<WorkerRecord, StoreError>> + use<> {
        let WorkerFacts { name, group, version, tags, slots, process: _ } = facts.clone();
        let now = Timestamp::now();
        let (by, class_names) = (self.by.clone(), class_names.to_vec());
        self.context.store.write(MeetWorker { worker: self.id, name, group, version, tags, class_names, slots, by, now })
    }

    /// Does as the word on it says. `begins`: it begins to watch, and what it was told before may be lost. False: it was put
    /// out, and its actor ends.
    pub(super) fn heed(&mut self, record: &WorkerRecord, begins: bool, ctx: &mut Context<Self>) -> bool {
        // What was read may be older than what was said since.
        if self.standing.since.is_some_and(|since| since > record.update_time) {
            return true;
        }
        let is_news = self.standing.since != Some(record.update_time);
        self.standing.since = Some(record.update_time);
        if self.standing.open != record.state.is_open() {
            self.set_open(record.state.is_open());
        }
        match record.state {
            WorkerState::Enabled | WorkerState::Disabled => {}
            WorkerState::Draining => {
                if is_news || begins {
                    self.send(ToWorker::Drain { reason: record.reason.clone() });
                }
            }
            WorkerState::Kicked => {
                self.put_out(record, ctx);
                return false;
            }
        }
        true
    }

    fn put_out(&mut self, record: &WorkerRecord, ctx: &mut Context<Self>) {
        let reason = record.reason.clone().unwrap_or_else(|| "an operator put it out".to_owned());
        log::warn!("a worker is put out worker_id={}: {reason}", self.id);
        self.send(ToWorker::Kicked { reason: reason.clone() });
        if let Some(sender) = self.sender.take() {
            sender.send(Frame::Close(reason));
        }
        self.context.registry().worker_gone(self.id, self.last_heard);
        self.guard.finish();
        ctx.stop();
    }
}

impl Handler<Control> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Control(record): Control, ctx: &mut Self::Context) {
        self.guard.message("worker.control");
        self.heed(&record, false, ctx);
    }
}

impl Handler<DescribeWorker> for WorkerActor {
    type Result = ();
    fn handle(&mut self, DescribeWorker(reply): DescribeWorker, _: &mut Self::Context) {
        self.guard.message("worker.describe");
        let tasks = self.standing.tasks.clone();
        reply.send(Ok(WorkerDescription { has_socket: self.sender.is_some(), last_heard: self.last_heard.on_the_wall(), tasks }));
    }
}
