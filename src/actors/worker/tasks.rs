//! The tasks of a worker: sends them in bulk, watches their leases, and acknowledges their reports.
//!
//! Only a report of the task, or a heartbeat that lists it, renews a lease. A heartbeat lists each order that arrived; the others
//! are sent again.

use super::{ANSWER_BYTES, WorkerActor};
use crate::actors::reply::{Reply, problem_of};
use crate::actors::run_shell::AtWork;
use crate::actors::session_sender::{Frame, SessionSender};
use crate::actors::task::{TaskEvent, TaskHandle};
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use crate::domain::work_history::WorkHistory;
use crate::domain::worker::WorkerRecord;
use crate::domain::worker_pool::WorkerCapacity;
use crate::protocol::frame;
use crate::protocol::task::{SettledTask, TaskOrder, TaskRef, TaskReport, TaskState};
use crate::protocol::worker::{ToWorker, WorkerFacts};
use crate::store::{Barrier, GetWorker};
use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, fut::wrap_future};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::oneshot;

/// An order that is not listed after this many milliseconds did not arrive.
pub(super) const UNLISTED_MS: i64 = 5_000;
/// A task that runs longer than this many milliseconds counts as long.
const LONG_TASK_MS: i64 = 200;
/// Milliseconds between two checks of a long task.
const LONG_TASK_CHECK_MS: i64 = 60_000;
/// Delay before a report is delivered again if the actor of its task was missing.
const REDELIVERY_DELAY: Duration = Duration::from_millis(200);
/// Number of slots of a worker that does not report it.
const DEFAULT_SLOTS: u32 = 1;

/// From a task: an order. The actor sends it, and the lease begins.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SendOrder(pub Box<TaskOrder>);

/// From a task: the worker already has it, under a lease of this many milliseconds.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AdoptTask {
    /// The attempt.
    pub task: TaskRef,
    /// The lease in milliseconds.
    pub lease: u64,
}

/// From a task: cancel an attempt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CancelTask {
    /// The attempt.
    pub task: TaskRef,
    /// The reason.
    pub reason: String,
}

/// From a task: the broker no longer expects results of the attempt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReleaseTask(pub TaskRef);

/// From a task: a final report is on disk, or was ignored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Settled(pub SettledTask);

/// From the HTTP transport: reports of a worker without a socket, each with the receiver of its acknowledgement.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reported(pub Vec<(TaskReport, Option<oneshot::Sender<SettledTask>>)>);

/// From the registry: the allocator was rebuilt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reannounce;

/// From the service: another caller stored a new identity of the worker. The answer comes when tasks are assigned by it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReloadRecord(pub Reply<()>);

/// To itself: send the collected messages.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Flush;

/// To itself: deliver a report again, because the actor of its task was missing.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct ReportAgain(Box<TaskReport>);

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct TasksInFlight {
    pub(super) held: HashMap<(Identity, u32), Held>,
    /// Orders that wait to be sent.
    out: Vec<(Identity, u32)>,
    settled: Vec<SettledTask>,
    is_flush_scheduled: bool,
    /// Reports over HTTP that wait for their acknowledgement.
    awaited: HashMap<TaskRef, oneshot::Sender<SettledTask>>,
    /// What it did in the last minutes.
    pub(super) history: WorkHistory,
    capacity: Option<WorkerCapacity>,
    /// Time at which the capacity was reported.
    reported_at: Timestamp,
    /// The process of the worker, if it reports one.
    process: Option<String>,
}

#[derive(Debug)]
pub(super) struct Held {
    attempt: u32,
    /// The order until the worker confirms it; `None` if the worker already had it.
    order: Option<Box<TaskOrder>>,
    lease: i64,
    /// Time at which the order was sent.
    since: Timestamp,
    renewed: Timestamp,
    checked_at: Option<Timestamp>,
    /// Its end is counted.
    is_counted: bool,
}

impl Held {
    fn task(&self, (identity, instance): (Identity, u32)) -> TaskRef {
        TaskRef { identity, instance, attempt: self.attempt }
    }
}

/// Sends orders in one message, or in several if it would be too long.
fn send_orders(sender: &SessionSender, orders: &[&TaskOrder]) {
    let text = frame::text(&Out { t: "tasks", v: orders });
    if orders.len() < 2 || text.len() <= ANSWER_BYTES {
        return sender.send(Frame::Text(text));
    }
    let (orders, rest) = orders.split_at(orders.len() / 2);
    send_orders(sender, orders);
    send_orders(sender, rest);
}

impl WorkerActor {
    fn task_of(&self, identity: Identity) -> Option<TaskHandle> {
        match self.context.addresses.others.get(identity) {
            Some(AtWork::Task(task)) => Some(task),
            _ => None,
        }
    }

    fn schedule_flush(&mut self, ctx: &mut Context<Self>) {
        if !self.in_flight.is_flush_scheduled {
            self.in_flight.is_flush_scheduled = true;
            // Handle the rest of the mailbox first, so that its messages are included.
            ctx.notify(Flush);
        }
    }

    /// Handles the facts and the tasks of a worker that begins to watch. Its identity comes from the stored record.
    pub(super) fn set_capacity(&mut self, record: WorkerRecord, facts: &WorkerFacts, tasks: &[TaskRef]) {
        let is_same_process = facts.process.is_some() && facts.process == self.in_flight.process;
        self.in_flight.process.clone_from(&facts.process);
        let slots = facts.slots.unwrap_or(DEFAULT_SLOTS);
        self.in_flight.capacity = Some(WorkerCapacity {
            name: record.name.unwrap_or_default(),
            handlers: record.class_names,
            group: record.group,
            version: record.version,
            tags: record.tags,
            slots,
        });
        self.in_flight.reported_at = record.last_seen;
        self.announce();
        self.renew(tasks);
        if is_same_process {
            // The same process has a new socket: orders that it does not list did not arrive.
            self.send_unlisted(tasks, 0);
        }
    }

    /// Another caller stored a new identity of the worker: assign tasks by it from now on.
    fn update_identity(&mut self, record: WorkerRecord) {
        // The worker's own later report is newer.
        if let Some(capacity) = self.in_flight.capacity.as_mut().filter(|_| record.last_seen >= self.in_flight.reported_at) {
            (capacity.name, capacity.group, capacity.tags) = (record.name.unwrap_or_default(), record.group, record.tags);
            self.in_flight.reported_at = record.last_seen;
            self.announce();
        }
    }

    pub(super) fn announce(&self) {
        if let Some(capacity) = self.in_flight.capacity.clone() {
            self.context.allocator.worker_joined(self.id, capacity, self.is_reachable(), self.admin.disabled.clone());
        }
    }

    pub(super) fn announce_reachable(&self) {
        if self.in_flight.capacity.is_some() {
            self.context.allocator.set_reachable(self.id, self.is_reachable());
        }
    }

    /// A worker that never had a socket polls over HTTP.
    fn is_reachable(&self) -> bool {
        self.sender.is_some() || self.closed_at.is_none()
    }

    /// Renews the leases of the tasks that a heartbeat or a new connection lists.
    pub(super) fn renew(&mut self, tasks: &[TaskRef]) {
        let now = Timestamp::steady();
        for task in tasks {
            match self.in_flight.held.get_mut(&(task.identity, task.instance)) {
                Some(held) if held.attempt == task.attempt => held.renewed = now,
                _ => match self.task_of(task.identity) {
                    Some(handle) => handle.tell(TaskEvent::Claimed(self.id, *task)),
                    None if self.context.addresses.building.get(task.identity).is_some() => {}
                    None => self.send(ToWorker::Cancel { task: *task, reason: "its run has ended or is unknown".to_owned() }),
                },
            }
        }
    }

    /// Sends orders again that are older than this many milliseconds and are not listed.
    pub(super) fn send_unlisted(&mut self, tasks: &[TaskRef], after: i64) {
        let now = Timestamp::steady();
        let listed: HashSet<_> = tasks.iter().map(|task| (task.identity, task.instance)).collect();
        for (key, held) in &mut self.in_flight.held {
            if !listed.contains(key) && held.order.is_some() && now.since_ms(held.since) >= after {
                log::warn!("task order did not arrive and is sent again run_id={} attempt={} worker_id={}", key.0, held.attempt, self.id);
                held.since = now;
                self.in_flight.out.push(*key);
            }
        }
        self.flush();
    }

    pub(super) fn report(&mut self, report: Box<TaskReport>, ctx: &mut Context<Self>) {
        let task = report.task();
        if let Some(held) = self.in_flight.held.get_mut(&(task.identity, task.instance)).filter(|held| held.attempt == task.attempt) {
            held.renewed = self.last_message;
            if report.state.is_final() && !std::mem::replace(&mut held.is_counted, true) {
                self.in_flight.history.ended(report.state == TaskState::Success, Timestamp::now().0);
            }
        }
        match self.task_of(task.identity) {
            Some(handle) => handle.tell(TaskEvent::Report(self.id, report)),
            None if self.context.addresses.building.get(task.identity).is_some() => {
                ctx.notify_later(ReportAgain(report), REDELIVERY_DELAY);
            }
            None if report.state.is_final() => {
                let refused = Some("its run has ended or is unknown".to_owned());
                self.settle(SettledTask { identity: task.identity, instance: task.instance, attempt: task.attempt, refused }, ctx);
            }
            None => self.send(ToWorker::Cancel { task, reason: "its run has ended or is unknown".to_owned() }),
        }
    }

    /// Valid reports from the socket.
    pub(super) fn accept_reports(&mut self, reports: Vec<TaskReport>, reply: Reply<()>, ctx: &mut Context<Self>) {
        let has_lines = reports.iter().any(|report| !report.logs.is_empty());
        for report in reports {
            self.report(Box::new(report), ctx);
        }
        if !has_lines {
            return reply.send(Ok(()));
        }
        // Answer after the lines are written, so that a worker with many lines slows down to the speed of the store.
        let written = self.context.store.write_unbounded(Barrier);
        ctx.spawn(wrap_future(written).map(move |_, _: &mut Self, _| reply.send(Ok(()))));
    }

    fn settle(&mut self, settled: SettledTask, ctx: &mut Context<Self>) {
        if let Some(waiting) = self.in_flight.awaited.remove(&settled.task()) {
            // If its caller has disconnected, the worker reports again.
            let _ = waiting.send(settled);
            return;
        }
        self.in_flight.settled.push(settled);
        self.schedule_flush(ctx);
    }

    pub(super) fn flush(&mut self) {
        self.in_flight.is_flush_scheduled = false;
        let Some(sender) = self.sender.clone() else {
            return self.flush_waiting();
        };
        let in_flight = &mut self.in_flight;
        if !in_flight.out.is_empty() {
            let orders: Vec<_> = in_flight.out.drain(..).filter_map(|key| in_flight.held.get(&key)?.order.as_deref()).collect();
            send_orders(&sender, &orders);
        }
        if !in_flight.settled.is_empty() {
            let settled = std::mem::take(&mut in_flight.settled);
            sender.send(Frame::Text(frame::text(&Out { t: "settled", v: settled })));
        }
    }

    /// The worker fetches it over HTTP, or receives it with its next connection.
    fn flush_waiting(&mut self) {
        let keys = std::mem::take(&mut self.in_flight.out);
        let orders: Vec<_> = keys.iter().filter_map(|key| self.in_flight.held.get(key)?.order.as_deref().cloned()).collect();
        if !orders.is_empty() {
            self.wait_with_orders(orders);
        }
        let settled = std::mem::take(&mut self.in_flight.settled);
        if !settled.is_empty() {
            self.send(ToWorker::Settled(settled));
        }
    }

    /// Splits long messages like [`send_orders`].
    fn wait_with_orders(&mut self, mut orders: Vec<TaskOrder>) {
        if orders.len() > 1 && frame::text(&orders).len() > ANSWER_BYTES {
            let rest = orders.split_off(orders.len() / 2);
            self.wait_with_orders(orders);
            return self.wait_with_orders(rest);
        }
        self.send(ToWorker::Tasks(orders));
    }

    /// A message that waited and that the worker gets now, without the orders whose lease has ended: another worker may have these tasks.
    /// The lease of the others begins. `None`: no order is left.
    pub(super) fn with_current_orders(&mut self, message: ToWorker) -> Option<ToWorker> {
        let ToWorker::Tasks(mut orders) = message else { return Some(message) };
        let now = Timestamp::steady();
        orders.retain(|order| {
            let held = self.in_flight.held.get_mut(&(order.identity, order.instance)).filter(|held| held.attempt == order.attempt);
            let is_current = held.is_some();
            if let Some(held) = held {
                (held.since, held.renewed) = (now, now);
            }
            is_current
        });
        (!orders.is_empty()).then_some(ToWorker::Tasks(orders))
    }

    /// Reports expired leases and tasks that run for long.
    pub(super) fn check_leases(&mut self) {
        let now = Timestamp::steady();
        let mut over = Vec::new();
        for (key, held) in &mut self.in_flight.held {
            let age = now.since_ms(held.since);
            if now.since_ms(held.renewed) > held.lease {
                over.push((*key, held.task(*key), held.renewed));
            } else if age > LONG_TASK_MS && held.checked_at.is_none_or(|at| now.since_ms(at) > LONG_TASK_CHECK_MS) {
                held.checked_at = Some(now);
                if let Some(AtWork::Task(task)) = self.context.addresses.others.get(key.0) {
                    task.tell(TaskEvent::StillRunning(held.task(*key), age));
                }
            }
        }
        for (key, task, renewed) in over {
            log::warn!(
                "lease of a task expired without any report run_id={} attempt={} worker_id={}",
                task.identity,
                task.attempt,
                self.id
            );
            self.in_flight.held.remove(&key);
            self.send(ToWorker::Cancel { task, reason: "its lease expired without any report".to_owned() });
            if let Some(handle) = self.task_of(task.identity) {
                let why = "its lease expired without any report";
                handle.tell(TaskEvent::LeaseOver { worker: self.id, task: Some(task), last_message: renewed, why });
            }
        }
        self.in_flight.awaited.retain(|_, waiting| !waiting.is_closed());
    }
}

/// Has the format of [`ToWorker`], without owning its content.
#[derive(serde::Serialize)]
struct Out<T> {
    t: &'static str,
    v: T,
}

impl Handler<SendOrder> for WorkerActor {
    type Result = ();
    fn handle(&mut self, SendOrder(order): SendOrder, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.hold");
        let now = Timestamp::steady();
        let key = (order.identity, order.instance);
        let held = Held {
            attempt: order.attempt,
            lease: order.lease as i64,
            order: Some(order),
            since: now,
            renewed: now,
            checked_at: None,
            is_counted: false,
        };
        self.in_flight.held.insert(key, held);
        self.in_flight.history.holds(self.in_flight.held.len(), Timestamp::now().0);
        self.in_flight.out.push(key);
        self.schedule_flush(ctx);
    }
}

impl Handler<AdoptTask> for WorkerActor {
    type Result = ();
    fn handle(&mut self, AdoptTask { task, lease }: AdoptTask, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.holds");
        let now = self.last_message;
        let held =
            Held { attempt: task.attempt, order: None, lease: lease as i64, since: now, renewed: now, checked_at: None, is_counted: false };
        self.in_flight.held.entry((task.identity, task.instance)).or_insert(held);
    }
}

impl Handler<CancelTask> for WorkerActor {
    type Result = ();
    fn handle(&mut self, CancelTask { task, reason }: CancelTask, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.cancel");
        self.flush();
        // Nothing renews its lease from now on: if the worker does not end it, it ends with the lease.
        if let Some(held) = self.in_flight.held.get(&(task.identity, task.instance)).filter(|held| held.attempt == task.attempt) {
            log::debug!("task is cancelled run_id={} attempt={} worker_id={}", task.identity, held.attempt, self.id);
            self.in_flight.held.remove(&(task.identity, task.instance));
        }
        self.send(ToWorker::Cancel { task, reason });
    }
}

impl Handler<ReleaseTask> for WorkerActor {
    type Result = ();
    fn handle(&mut self, ReleaseTask(task): ReleaseTask, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.release");
        if let std::collections::hash_map::Entry::Occupied(held) = self.in_flight.held.entry((task.identity, task.instance))
            && held.get().attempt == task.attempt
        {
            held.remove();
            self.in_flight.history.holds(self.in_flight.held.len(), Timestamp::now().0);
        }
    }
}

impl Handler<Settled> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Settled(settled): Settled, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.settled");
        self.settle(settled, ctx);
    }
}

impl Handler<Reported> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Reported(reports): Reported, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.reported");
        self.last_message = Timestamp::steady();
        for (report, waiting) in reports {
            if let Some(waiting) = waiting {
                self.in_flight.awaited.insert(report.task(), waiting);
            }
            self.report(Box::new(report), ctx);
        }
    }
}

impl Handler<Reannounce> for WorkerActor {
    type Result = ();
    fn handle(&mut self, _: Reannounce, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.announce");
        self.announce();
    }
}

impl Handler<ReloadRecord> for WorkerActor {
    type Result = ();
    fn handle(&mut self, ReloadRecord(reply): ReloadRecord, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.reload_record");
        let record = self.context.store.read(GetWorker(self.id));
        ctx.spawn(wrap_future(record).map(move |record, this: &mut Self, _: &mut Context<Self>| {
            reply.send(record.map_err(|error| problem_of(&error)).map(|record| {
                if let Some(record) = record {
                    this.update_identity(record);
                }
            }));
        }));
    }
}

impl Handler<Flush> for WorkerActor {
    type Result = ();
    fn handle(&mut self, _: Flush, _: &mut Self::Context) {
        self.flush();
    }
}

impl Handler<ReportAgain> for WorkerActor {
    type Result = ();
    fn handle(&mut self, ReportAgain(report): ReportAgain, ctx: &mut Self::Context) {
        self.report(report, ctx);
    }
}
