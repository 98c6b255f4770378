//! The worker's tasks: carries out the decisions of the ledger. The socket passes messages in and takes reports out; this module starts
//! the handlers and drops them when necessary.

use super::context::{Talk, Task, TaskContext, report};
use super::failure::TaskFailure;
use super::frames::frames;
use super::handler::{AnyHandler, Outcome};
use super::ledger::{Expired, Ledger, OnCancel, Ordered, warn_at};
use super::outbox::Outbox;
use crate::protocol::task::{SettledTask, TaskError, TaskOrder, TaskRef, TaskReport, TaskState};
use crate::protocol::worker::ToWorker;
use futures_util::FutureExt as _;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Interval between messages with reports before the end of tasks.
const TICK: Duration = Duration::from_millis(100);
/// The heartbeat interval until the broker sends its own.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// The tasks of one worker.
pub(crate) struct Tasks {
    handlers: HashMap<String, Rc<dyn AnyHandler>>,
    ledger: RefCell<Ledger<Rc<Task>>>,
    talk: Rc<Talk>,
    /// Reports that are sent once, before the last reports.
    before: RefCell<Vec<TaskReport>>,
    /// When unsent reports were last collected, and when they are next.
    ticked: Cell<Option<Instant>>,
    tick_at: Cell<Option<Instant>>,
    /// Signals that a lease may end earlier than known.
    leases: Notify,
    /// Signals that a task ended, or was acknowledged.
    ended: Notify,
    on_settled: Option<OnSettled>,
    outbox: Option<Outbox>,
}

/// Called for each last report that the broker has acknowledged.
pub(crate) type OnSettled = Rc<dyn Fn(&SettledTask)>;

impl Tasks {
    pub(crate) fn new(handlers: HashMap<String, Rc<dyn AnyHandler>>, slots: usize, on_settled: Option<OnSettled>) -> Self {
        Self {
            handlers,
            ledger: RefCell::new(Ledger::new(slots, HEARTBEAT, Instant::now())),
            talk: Rc::default(),
            before: RefCell::default(),
            ticked: Cell::new(None),
            tick_at: Cell::new(None),
            leases: Notify::new(),
            ended: Notify::new(),
            on_settled,
            outbox: None,
        }
    }

    /// Stores last reports on disk from now on, and delivers the stored ones.
    pub(crate) fn with_outbox(mut self, outbox: Outbox, undelivered: Vec<TaskReport>) -> Self {
        if !undelivered.is_empty() {
            log::info!("delivering reports of an earlier process reports={}", undelivered.len());
        }
        let mut ledger = self.ledger.borrow_mut();
        undelivered.into_iter().for_each(|report| ledger.finish(report));
        drop(ledger);
        self.outbox = Some(outbox);
        self
    }

    /// Whether the worker has task handlers.
    pub(crate) fn any(&self) -> bool {
        !self.handlers.is_empty()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.ledger.borrow().is_closed()
    }

    /// A connection, begun at this time, is established. Returns the tasks for the `watch` message.
    pub(crate) fn connected(&self, began: Instant) -> Vec<TaskRef> {
        let mut ledger = self.ledger.borrow_mut();
        ledger.connected(began, Instant::now());
        ledger.tasks()
    }

    /// The broker at the other end knows nothing of what was sent. Returns the tasks for the `watch` message.
    pub(crate) fn begin_again(&self) -> Vec<TaskRef> {
        let mut ledger = self.ledger.borrow_mut();
        ledger.begin_again(Instant::now());
        ledger.tasks()
    }

    /// All tasks that are in progress or not acknowledged.
    pub(crate) fn in_hand(&self) -> Vec<TaskRef> {
        self.ledger.borrow().tasks()
    }

    pub(crate) fn set_heartbeat(&self, every: Duration) {
        self.ledger.borrow_mut().set_heartbeat(every, Instant::now());
    }

    /// When the socket has something to send, if nothing happens before.
    pub(crate) fn wake_at(&self) -> Instant {
        let beat = self.ledger.borrow().next_beat();
        self.tick_at.get().map_or(beat, |tick| tick.min(beat))
    }

    pub(crate) fn is_beat_due(&self, now: Instant) -> bool {
        self.ledger.borrow().next_beat() <= now
    }

    /// A heartbeat: its number, and the tasks that it names.
    pub(crate) fn beat(&self) -> (u64, Option<Vec<TaskRef>>) {
        let (number, tasks) = self.ledger.borrow_mut().beat(Instant::now());
        (number, self.any().then_some(tasks))
    }

    /// The broker has replied to a heartbeat.
    pub(crate) fn answered(self: &Rc<Self>, beat: u64) {
        let begin = self.ledger.borrow_mut().answered(beat, Instant::now());
        let ledger = self.ledger.borrow();
        for task in ledger.at_work() {
            if let Some(until) = ledger.until(task.order.task()) {
                task.cancel_at.set(warn_at(until, lease(&task.order)));
            }
        }
        drop(ledger);
        if !begin.is_empty() {
            self.leases.notify_one();
        }
        for task in begin {
            self.begin(task);
        }
    }

    /// Handles a message about tasks; returns any other message.
    pub(crate) fn take(self: &Rc<Self>, message: ToWorker) -> Option<ToWorker> {
        match message {
            ToWorker::Tasks(orders) => orders.into_iter().for_each(|order| self.order(order)),
            ToWorker::Cancel { task, reason } => self.cancel(task, &reason),
            ToWorker::Settled(settled) => self.settle(&settled),
            other => return Some(other),
        }
        None
    }

    fn order(self: &Rc<Self>, order: TaskOrder) {
        let (task, lease, now) = (order.task(), lease(&order), Instant::now());
        let is_watched = self.handlers.contains_key(&order.handler);
        let mut ledger = self.ledger.borrow_mut();
        let checked = ledger.check_at();
        let handler = order.handler.clone();
        let make = |until| Rc::new(Task::new(order, warn_at(until, lease), Rc::clone(&self.talk)));
        let ordered = match is_watched {
            true => ledger.order(task, lease, now, make),
            false => Ordered::Refuse(format!("this worker does not watch `{handler}`")),
        };
        if ledger.check_at() != checked {
            self.leases.notify_one();
        }
        drop(ledger);
        match ordered {
            Ordered::Begin(task) => self.begin(task),
            // The socket sends the heartbeat or the report when it runs next.
            Ordered::Await | Ordered::Known => self.talk.wake.notify_one(),
            Ordered::Refuse(message) => {
                log::debug!("task rejected run_id={} attempt={}: {message}", task.identity, task.attempt);
                let error = Some(TaskError { message, ..TaskError::default() });
                self.last(TaskReport { error, ..report(task, TaskState::Refused) });
            }
        }
    }

    fn begin(self: &Rc<Self>, task: Rc<Task>) {
        // Tasks that are still running at the next tick are reported as accepted then.
        if !task.is_listed.replace(true) {
            self.talk.tasks.borrow_mut().push(Rc::clone(&task));
        }
        if self.tick_at.get().is_none() {
            self.tick_at.set(Some(Instant::now() + TICK));
        }
        let Some(handler) = self.handlers.get(&task.order.handler).cloned() else { return };
        let hands = Rc::clone(self);
        actix_rt::spawn(async move {
            let run = handler.call(TaskContext(Rc::clone(&task)));
            #[cfg(feature = "opentelemetry")]
            let run = super::trace::in_span(TaskContext(Rc::clone(&task)), run);
            let carried = async {
                tokio::select! {
                    biased;
                    () = task.stopped() => None,
                    outcome = run => Some(outcome),
                }
            };
            let outcome = AssertUnwindSafe(carried).catch_unwind().await;
            // The handler's future is already dropped here.
            hands.end(&task, outcome.unwrap_or_else(|panic| Some(Err(panicked(&*panic)))));
        });
    }

    fn end(&self, task: &Task, outcome: Option<Outcome>) {
        let cancelled = task.cancel_reason();
        let (state, result, error) = match (outcome, cancelled) {
            (Some(Ok(result)), _) => (TaskState::Success, result, None),
            (Some(Err(failure)), None) => (TaskState::Failed, None, Some(failure.into_error())),
            // An error after the request to end is not a failure of the function.
            (Some(Err(failure)), Some(_)) => (TaskState::Cancelled, None, Some(failure.into_error())),
            (None, reason) => {
                let message = format!("dropped: {}", reason.unwrap_or_default());
                (TaskState::Cancelled, None, Some(TaskError { message, ..TaskError::default() }))
            }
        };
        let (before, last) = task.take_last(state);
        // The collector skips it if it is still in the list of unsent reports.
        self.before.borrow_mut().extend(before);
        self.last(TaskReport { result, error, ..last });
    }

    fn last(&self, report: TaskReport) {
        if let Some(outbox) = &self.outbox {
            outbox.keep(&report);
        }
        self.ledger.borrow_mut().finish(report);
        self.talk.wake.notify_one();
        self.ended.notify_one();
    }

    fn cancel(&self, task: TaskRef, reason: &str) {
        let told = self.ledger.borrow_mut().cancel(task);
        match told {
            OnCancel::End(task) => task.cancel(reason),
            OnCancel::NeverBegun => self.last(report(task, TaskState::Cancelled)),
            OnCancel::Unknown => {}
        }
    }

    fn settle(&self, settled: &[SettledTask]) {
        for task in settled {
            if let Some(reason) = &task.refused {
                log::warn!(
                    "broker ignored a report run_id={} instance={} attempt={}: {reason}",
                    task.identity,
                    task.instance,
                    task.attempt
                );
            }
        }
        self.ledger.borrow_mut().settle(settled);
        if let Some(outbox) = &self.outbox {
            settled.iter().for_each(|task| outbox.forget(task.task()));
        }
        self.ended.notify_one();
        if let Some(tell) = &self.on_settled {
            settled.iter().for_each(|task| tell(task));
        }
    }

    /// Resolves when there may be something to send.
    pub(crate) async fn has_something(&self) {
        self.talk.wake.notified().await;
    }

    /// The messages to send now.
    pub(crate) fn say(&self) -> Vec<String> {
        let now = Instant::now();
        let mut once = self.listen(now);
        once.append(&mut self.before.borrow_mut());
        let mut ledger = self.ledger.borrow_mut();
        if once.is_empty() && !ledger.has_unsaid() {
            return Vec::new();
        }
        let last = ledger.say(now);
        let all: Vec<&TaskReport> = once.iter().chain(last).collect();
        frames(&all)
    }

    /// Reports of tasks before their end, at most ten times a second.
    fn listen(&self, now: Instant) -> Vec<TaskReport> {
        let urgent = self.talk.urgent.replace(false);
        if urgent {
            let earliest = self.ticked.get().map_or(now, |ticked| (ticked + TICK).max(now));
            self.tick_at.set(Some(self.tick_at.get().map_or(earliest, |at| at.min(earliest))));
        }
        if self.tick_at.get().is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.ticked.set(Some(now));
        self.tick_at.set(None);
        let tasks = std::mem::take(&mut *self.talk.tasks.borrow_mut());
        let ledger = self.ledger.borrow();
        let mut reports = Vec::new();
        for task in tasks {
            task.is_listed.set(false);
            if ledger.until(task.order.task()).is_none() {
                continue;
            }
            let (report, has_more) = task.take_said();
            reports.extend(report);
            if has_more {
                task.is_listed.set(true);
                self.talk.tasks.borrow_mut().push(task);
                self.tick_at.set(Some(now + TICK));
            }
        }
        reports
    }

    /// Enforces the leases, forever.
    pub(crate) async fn keep_leases(&self) {
        loop {
            let check_at = self.ledger.borrow().check_at();
            let due = async {
                match check_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.leases.notified() => continue,
            }
            let Expired { warned, over } = self.ledger.borrow_mut().expire(Instant::now());
            for task in warned {
                task.cancel("its lease runs out: no message from the broker");
            }
            for task in over {
                log::warn!("task dropped, its lease has expired run_id={} attempt={}", task.order.identity, task.order.attempt);
                task.stop("its lease has expired");
            }
        }
    }

    /// Accepts no new tasks.
    pub(crate) fn close(&self, reason: &str) {
        self.ledger.borrow_mut().close(reason);
        self.ended.notify_one();
        // The socket reports it to the broker.
        self.talk.wake.notify_one();
    }

    /// Asks all tasks to end.
    pub(crate) fn cancel_all(&self, reason: &str) {
        self.ledger.borrow_mut().forget_waiting();
        for task in self.at_work() {
            task.cancel(reason);
        }
    }

    /// Drops all tasks.
    pub(crate) fn stop_all(&self, reason: &str) {
        for task in self.at_work() {
            task.stop(reason);
        }
    }

    fn at_work(&self) -> Vec<Rc<Task>> {
        self.ledger.borrow().at_work().cloned().collect()
    }

    /// Resolves when no task is running.
    pub(crate) async fn idle(&self) {
        while !self.ledger.borrow().is_idle() {
            self.ended.notified().await;
        }
    }

    /// Resolves when no task is running and everything is acknowledged.
    pub(crate) async fn settled(&self) {
        while !self.ledger.borrow().is_settled() {
            self.ended.notified().await;
        }
    }
}

fn lease(order: &TaskOrder) -> Duration {
    Duration::from_millis(order.lease)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TaskFailure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    TaskFailure::new(format!("panic: {}", text.unwrap_or_else(|| "no message".to_owned())))
}
