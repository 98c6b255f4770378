//! The admin state of a worker, as its actor applies it.
//!
//! A worker that is not open receives no new work; it may finish and report what it runs. A kicked worker receives a message, its
//! actor ends, and its work goes to other workers. The admin state is in the store. The actor reads it when it starts, when the
//! worker begins to watch, and when it changes.

use super::WorkerActor;
use crate::actors::reply::Reply;
use crate::actors::session_sender::Frame;
use crate::domain::job::limits as job;
use crate::domain::task::limits;
use crate::domain::time::Timestamp;
use crate::domain::work_history::Minute;
use crate::domain::worker::{WorkerRecord, WorkerState, is_address};
use crate::protocol::problem::Problem;
use crate::protocol::task::TaskRef;
use crate::protocol::worker::{ToWorker, WorkerFacts};
use crate::store::{GetWorker, MeetWorker, StoreError};
use actix::{ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, fut::wrap_future};

/// Maximum number of class names of one worker.
const MOST_CLASSES: usize = 1_000;
/// Maximum number of slots that a worker may report.
const MOST_SLOTS: u32 = 100_000;

/// From the service: an operator changed the admin state of the worker, and the change is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetAdminState(pub Box<WorkerRecord>);

/// From the service: the current state of the worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeWorker(pub Reply<WorkerDescription>);

/// The state of a worker.
#[derive(Debug, Clone)]
pub struct WorkerDescription {
    /// The worker has a socket.
    pub has_socket: bool,
    /// Time of the last message from the worker.
    pub last_message: Timestamp,
    /// The tasks in its last report.
    pub tasks: Vec<TaskRef>,
    /// The start of the first of the last minutes, and what it did in each.
    pub history: (i64, Vec<Minute>),
}

/// The admin state in a worker's actor.
#[derive(Debug, Default)]
pub(super) struct AdminState {
    /// Why the worker receives no new work; `None`: it receives work.
    pub(super) disabled: Option<String>,
    /// Update time of the admin state; `None` until it is loaded.
    since: Option<Timestamp>,
    /// The tasks in the last report of the worker.
    pub(super) tasks: Vec<TaskRef>,
}

/// Validates the names that a worker wants to watch.
pub(crate) fn check_classes(class_names: &[String]) -> Result<(), Problem> {
    let is_bad = |name: &String| name.is_empty() || name.chars().count() > job::CLASS || name.chars().any(char::is_control);
    if let Some(i) = class_names.iter().position(is_bad) {
        let detail = format!("must have 1 to {} characters and no control characters", job::CLASS);
        return Err(Problem::invalid(format!("classNames[{i}]"), detail));
    }
    if class_names.is_empty() || class_names.len() > MOST_CLASSES {
        return Err(Problem::invalid("classNames", format!("must have 1 to {MOST_CLASSES} class names")));
    }
    Ok(())
}

/// Validates the facts that a worker reports.
pub(crate) fn check_facts(facts: &WorkerFacts) -> Result<(), Problem> {
    let is_long = |text: &String| text.is_empty() || text.chars().count() > job::NAME || text.chars().any(char::is_control);
    for (field, text) in [("name", &facts.name), ("group", &facts.group), ("version", &facts.version)] {
        if text.as_ref().is_some_and(is_long) {
            let detail = format!("must have 1 to {} characters and no control characters", job::NAME);
            return Err(Problem::invalid(format!("worker.{field}"), detail));
        }
    }
    // The address tag of a worker has its own limit, which is checked elsewhere.
    if facts.tags.len() > limits::TAGS || facts.tags.iter().any(|tag| is_long(tag) && !is_address(tag)) {
        let detail = format!("must be at most {} tags of 1 to {} characters without control characters", limits::TAGS, job::NAME);
        return Err(Problem::invalid("worker.tags", detail));
    }
    if facts.slots.is_some_and(|slots| slots > MOST_SLOTS) {
        return Err(Problem::invalid("worker.slots", format!("must be at most {MOST_SLOTS}")));
    }
    Ok(())
}

/// The error that a kicked worker receives.
#[must_use]
pub fn kicked(record: &WorkerRecord) -> Problem {
    let why = record.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    Problem::forbidden(format!("worker {} was kicked{why}; it is rejected until an operator allows it again", record.id))
}

impl WorkerActor {
    /// Sets whether the worker receives new work, and notifies the allocator.
    fn set_disabled(&mut self, disabled: Option<String>) {
        self.admin.disabled.clone_from(&disabled);
        self.context.allocator.set_disabled(self.id, disabled);
    }

    /// Loads the admin state, because a rebuilt actor has lost it.
    pub(super) fn load_admin_state(&mut self, ctx: &mut Context<Self>) {
        let record = self.context.store.read(GetWorker(self.id));
        ctx.spawn(wrap_future(record).map(|record, this: &mut Self, ctx: &mut Context<Self>| match record {
            Ok(Some(record)) => drop(this.apply_admin_state(&record, false, ctx)),
            Ok(None) => {}
            Err(error) => log::error!("failed to load worker admin state worker_id={}: {error}", this.id),
        }));
    }

    /// Stores the facts of the worker and returns its record with the admin state.
    pub(super) fn store_facts(
        &self,
        facts: &WorkerFacts,
        class_names: &[String],
    ) -> impl Future<Output = Result<WorkerRecord, StoreError>> + use<> {
        let WorkerFacts { name, group, version, tags, slots, process: _ } = facts.clone();
        name.iter().for_each(|name| self.guard.stats().set_label(name));
        let now = Timestamp::now();
        let (by, class_names) = (self.by.clone(), class_names.to_vec());
        self.context.store.write(MeetWorker { worker: self.id, name, group, version, tags, class_names, slots, by, now })
    }

    /// Applies the admin state. `begins_to_watch`: the worker begins to watch, and may have lost earlier messages. Returns false if the
    /// worker was kicked and its actor ends.
    pub(super) fn apply_admin_state(&mut self, record: &WorkerRecord, begins_to_watch: bool, ctx: &mut Context<Self>) -> bool {
        // The record may be older than a change that arrived since.
        if self.admin.since.is_some_and(|since| since > record.update_time) {
            return true;
        }
        let is_new = self.admin.since != Some(record.update_time);
        self.admin.since = Some(record.update_time);
        let disabled = record.disabled();
        if self.admin.disabled != disabled {
            self.set_disabled(disabled);
        }
        match record.state {
            WorkerState::Enabled | WorkerState::Disabled => {}
            WorkerState::Draining => {
                if is_new || begins_to_watch {
                    self.send(ToWorker::Drain { reason: record.reason.clone() });
                }
            }
            WorkerState::Kicked => {
                self.kick(record, ctx);
                return false;
            }
        }
        true
    }

    fn kick(&mut self, record: &WorkerRecord, ctx: &mut Context<Self>) {
        let reason = record.reason.clone().unwrap_or_else(|| "kicked by an operator".to_owned());
        log::warn!("worker kicked worker_id={}: {reason}", self.id);
        self.send(ToWorker::Kicked { reason: reason.clone() });
        if let Some(sender) = self.sender.take() {
            sender.send(Frame::Close(reason));
        }
        self.context.registry().worker_left(self.id, self.silent_since());
        self.guard.finish();
        ctx.stop();
    }
}

impl Handler<SetAdminState> for WorkerActor {
    type Result = ();
    fn handle(&mut self, SetAdminState(record): SetAdminState, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.control");
        self.apply_admin_state(&record, false, ctx);
    }
}

impl Handler<DescribeWorker> for WorkerActor {
    type Result = ();
    fn handle(&mut self, DescribeWorker(reply): DescribeWorker, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.describe");
        let tasks = self.admin.tasks.clone();
        let history = self.in_flight.history.minutes(Timestamp::now().0);
        reply.send(Ok(WorkerDescription {
            has_socket: self.sender.is_some(),
            last_message: self.last_message.on_the_wall(),
            tasks,
            history,
        }));
    }
}
