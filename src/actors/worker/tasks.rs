//! The tasks in the hands of a worker: sent in bulk, held to their leases, settled.
//!
//! A lease is renewed by what the worker says and by nothing else: a report of the task, or a heartbeat that lists it. An
//! order that came through is listed; one that did not is sent again.

use super::{ANSWER_BYTES, WorkerActor};
use crate::actors::context::AtWork;
use crate::actors::reply::{Reply, problem_of};
use crate::actors::session_sender::{Frame, SessionSender};
use crate::actors::task::TaskHandle;
use crate::domain::ids::Identity;
use crate::domain::task::limits;
use crate::domain::task::worker_pool::WorkerCapacity;
use crate::domain::time::Timestamp;
use crate::domain::worker::WorkerRecord;
use crate::protocol::frame;
use crate::protocol::problem::Problem;
use crate::protocol::task::{SettledTask, TaskOrder, TaskRef, TaskReport};
use crate::protocol::worker::{ToWorker, WorkerFacts};
use crate::store::{Barrier, GetWorker};
use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, fut::wrap_future};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::oneshot;

/// Milliseconds after which an order that is not listed was not heard.
pub(super) const UNHEARD: i64 = 5_000;
/// Milliseconds after which a task is no short one.
const A_WHILE: i64 = 200;
/// Milliseconds between two looks at one that takes long.
const A_LONG_WHILE: i64 = 60_000;
/// A report that finds its task's actor away comes again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// Places of a worker that does not say how many it has.
const USUAL_SLOTS: u32 = 1;
/// The most places that count.
const MOST_SLOTS: u32 = 100_000;

/// From a task: this is its order. It is sent, and its lease begins.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Hold(pub Box<TaskOrder>);

/// From a task: the worker has it already, under a lease of so many milliseconds.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Holds {
    /// Which attempt.
    pub task: TaskRef,
    /// Its lease.
    pub lease: u64,
}

/// From a task: it is to end an attempt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CancelTask {
    /// Which.
    pub task: TaskRef,
    /// Why.
    pub reason: String,
}

/// From a task: the attempt is over, as far as the broker is concerned.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LetGo(pub TaskRef);

/// From a task: a final report is on disk, or changes nothing.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Settled(pub SettledTask);

/// From the HTTP road: what a worker without a socket reports, and where the word goes that it is settled.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reported(pub Vec<(TaskReport, Option<oneshot::Sender<SettledTask>>)>);

/// From the registry: the allocator was built anew.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AnnounceHand;

/// From the service: who it is was said by somebody else, and is stored. Answered when its tasks are given by that.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LookUp(pub Reply<()>);

/// To itself: what gathered goes out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Flush;

/// To itself: the actor of a task was away.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct ReportAgain(Box<TaskReport>);

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct TasksInFlight {
    held: HashMap<(Identity, u32), Held>,
    /// Orders that are to be sent.
    out: Vec<(Identity, u32)>,
    settled: Vec<SettledTask>,
    flush_planned: bool,
    /// Those who report by HTTP and wait.
    awaited: HashMap<TaskRef, oneshot::Sender<SettledTask>>,
    hand: Option<WorkerCapacity>,
    /// When that was said.
    heard: Timestamp,
    /// The process that watches, if it says which.
    process: Option<String>,
}

#[derive(Debug)]
struct Held {
    attempt: u32,
    /// Until it was heard of; none if it was in hand before.
    order: Option<Box<TaskOrder>>,
    lease: i64,
    /// When the order was sent.
    since: Timestamp,
    renewed: Timestamp,
    looked_at: Option<Timestamp>,
}

impl Held {
    fn task(&self, (identity, instance): (Identity, u32)) -> TaskRef {
        TaskRef { identity, instance, attempt: self.attempt }
    }
}

/// Checks what is reported.
///
/// # Errors
/// One of them is not allowed.
pub fn check_reports(reports: &[TaskReport]) -> Result<(), Problem> {
    reports.iter().enumerate().try_for_each(|(i, report)| check_report(i, report))
}

fn check_report(i: usize, report: &TaskReport) -> Result<(), Problem> {
    if report.progress.is_some_and(|progress| progress > 100) {
        return Err(Problem::invalid(format!("[{i}].progress"), "0 to 100 is expected"));
    }
    for (field, payload) in [("result", &report.result), ("data", &report.data)] {
        if payload.as_ref().is_some_and(|payload| payload.get().len() > limits::PAYLOAD) {
            return Err(Problem::invalid(format!("[{i}].{field}"), format!("at most {} bytes are taken", limits::PAYLOAD)));
        }
    }
    if report.attempt == 0 {
        return Err(Problem::invalid(format!("[{i}].attempt"), "attempts count from 1"));
    }
    crate::actors::run_logs::check_lines(report.logs.clone(), Timestamp::default()).map(drop).map_err(|problem| {
        let field = problem.field.clone().unwrap_or_default();
        problem.at(format!("[{i}].logs{field}"))
    })
}

/// Sends orders in one message, or in several if it became too long.
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

    fn plan_flush(&mut self, ctx: &mut Context<Self>) {
        if !self.hands.flush_planned {
            self.hands.flush_planned = true;
            // Whatever else is in the mailbox goes along.
            ctx.notify(Flush);
        }
    }

    /// What it says of itself as it begins to watch, and what it has in hand. Who it is stands in what is kept of it.
    pub(super) fn meet_hand(&mut self, record: WorkerRecord, facts: &WorkerFacts, tasks: &[TaskRef]) {
        let is_same_process = facts.process.is_some() && facts.process == self.hands.process;
        self.hands.process.clone_from(&facts.process);
        let slots = facts.slots.unwrap_or(USUAL_SLOTS).min(MOST_SLOTS);
        self.hands.hand = Some(WorkerCapacity {
            name: record.name.unwrap_or_default(),
            handlers: record.class_names,
            group: record.group,
            version: record.version,
            tags: record.tags,
            slots,
        });
        self.hands.heard = record.last_seen;
        self.announce_hand();
        self.renew(tasks);
        if is_same_process {
            // The same program has a new socket: what it does not list did not come through.
            self.send_unlisted(tasks, 0);
        }
    }

    /// Somebody else has said who it is: it gets its tasks by that from now on.
    fn rename_hand(&mut self, record: WorkerRecord) {
        // What it has said itself in the meantime is newer.
        if let Some(hand) = self.hands.hand.as_mut().filter(|_| record.last_seen >= self.hands.heard) {
            (hand.name, hand.group, hand.tags) = (record.name.unwrap_or_default(), record.group, record.tags);
            self.hands.heard = record.last_seen;
            self.announce_hand();
        }
    }

    pub(super) fn announce_hand(&self) {
        if let (Some(allocator), Some(hand)) = (self.context.allocator(), &self.hands.hand) {
            allocator.hand_here(self.id, hand.clone(), self.is_reachable(), !self.standing.open);
        }
    }

    pub(super) fn open_hand(&self) {
        if let Some(allocator) = self.context.allocator().filter(|_| self.hands.hand.is_some()) {
            allocator.hand_open(self.id, self.is_reachable());
        }
    }

    /// One that never had a socket asks by HTTP.
    fn is_reachable(&self) -> bool {
        self.sender.is_some() || self.closed_at.is_none()
    }

    /// A heartbeat, or the beginning of a connection, lists what is in hand.
    pub(super) fn renew(&mut self, tasks: &[TaskRef]) {
        let now = Timestamp::steady();
        for task in tasks {
            match self.hands.held.get_mut(&(task.identity, task.instance)) {
                Some(held) if held.attempt == task.attempt => held.renewed = now,
                _ => match self.task_of(task.identity) {
                    Some(handle) => handle.claimed(self.id, *task),
                    None if self.context.addresses.building.get(task.identity).is_some() => {}
                    None => self.send(ToWorker::Cancel { task: *task, reason: "its run is over, or not known".to_owned() }),
                },
            }
        }
    }

    /// Orders that were sent so many milliseconds ago and are not among these are sent again.
    pub(super) fn send_unlisted(&mut self, tasks: &[TaskRef], after: i64) {
        let now = Timestamp::steady();
        let listed: HashSet<_> = tasks.iter().map(|task| (task.identity, task.instance)).collect();
        for (key, held) in &mut self.hands.held {
            if !listed.contains(key) && held.order.is_some() && now.since_ms(held.since) >= after {
                log::warn!(
                    "an order of a task was not heard and is sent again run_id={} attempt={} worker_id={}",
                    key.0,
                    held.attempt,
                    self.id
                );
                held.since = now;
                self.hands.out.push(*key);
            }
        }
        self.flush();
    }

    pub(super) fn report(&mut self, report: Box<TaskReport>, ctx: &mut Context<Self>) {
        let task = report.task();
        if let Some(held) = self.hands.held.get_mut(&(task.identity, task.instance)).filter(|held| held.attempt == task.attempt) {
            held.renewed = self.last_heard;
        }
        match self.task_of(task.identity) {
            Some(handle) => handle.report(self.id, report),
            None if self.context.addresses.building.get(task.identity).is_some() => drop(ctx.notify_later(ReportAgain(report), AGAIN)),
            None if report.state.is_final() => {
                let refused = Some("its run is over, or not known".to_owned());
                self.settle(SettledTask { identity: task.identity, instance: task.instance, attempt: task.attempt, refused }, ctx);
            }
            None => self.send(ToWorker::Cancel { task, reason: "its run is over, or not known".to_owned() }),
        }
    }

    /// Reports on the socket: all of them are taken, or none.
    pub(super) fn take_reports(&mut self, reports: Vec<TaskReport>, reply: Reply<()>, ctx: &mut Context<Self>) {
        if let Err(problem) = check_reports(&reports) {
            return reply.send(Err(problem));
        }
        let has_lines = reports.iter().any(|report| !report.logs.is_empty());
        for report in reports {
            self.report(Box::new(report), ctx);
        }
        if !has_lines {
            return reply.send(Ok(()));
        }
        // Whoever has much to say is heard no faster than it can be written down.
        let written = self.context.store.write_unbounded(Barrier);
        ctx.spawn(wrap_future(written).map(move |_, _: &mut Self, _| reply.send(Ok(()))));
    }

    fn settle(&mut self, settled: SettledTask, ctx: &mut Context<Self>) {
        if let Some(waiting) = self.hands.awaited.remove(&settled.task()) {
            // If its caller has hung up it will ask again.
            let _ = waiting.send(settled);
            return;
        }
        self.hands.settled.push(settled);
        self.plan_flush(ctx);
    }

    pub(super) fn flush(&mut self) {
        self.hands.flush_planned = false;
        let Some(sender) = self.sender.clone() else {
            return self.flush_waiting();
        };
        let hands = &mut self.hands;
        if !hands.out.is_empty() {
            let orders: Vec<_> = hands.out.drain(..).filter_map(|key| hands.held.get(&key)?.order.as_deref()).collect();
            send_orders(&sender, &orders);
        }
        if !hands.settled.is_empty() {
            let settled = std::mem::take(&mut hands.settled);
            sender.send(Frame::Text(frame::text(&Out { t: "settled", v: settled })));
        }
    }

    /// It comes for it by HTTP, or with its next connection.
    fn flush_waiting(&mut self) {
        let keys = std::mem::take(&mut self.hands.out);
        let orders: Vec<_> = keys.iter().filter_map(|key| self.hands.held.get(key)?.order.as_deref().cloned()).collect();
        if !orders.is_empty() {
            self.wait_with_orders(orders);
        }
        let settled = std::mem::take(&mut self.hands.settled);
        if !settled.is_empty() {
            self.send(ToWorker::Settled(settled));
        }
    }

    /// As [`send_orders`].
    fn wait_with_orders(&mut self, mut orders: Vec<TaskOrder>) {
        if orders.len() > 1 && frame::text(&orders).len() > ANSWER_BYTES {
            let rest = orders.split_off(orders.len() / 2);
            self.wait_with_orders(orders);
            return self.wait_with_orders(rest);
        }
        self.send(ToWorker::Tasks(orders));
    }

    /// Orders that were waiting for it are in its hands from now on.
    pub(super) fn handed_out(&mut self, messages: &[ToWorker]) {
        let now = Timestamp::steady();
        for order in messages.iter().filter_map(|message| if let ToWorker::Tasks(orders) = message { Some(orders) } else { None }).flatten()
        {
            if let Some(held) = self.hands.held.get_mut(&(order.identity, order.instance)) {
                (held.since, held.renewed) = (now, now);
            }
        }
    }

    /// Whose lease is over, and who has been at it for a while.
    pub(super) fn watch_tasks(&mut self) {
        let now = Timestamp::steady();
        let mut over = Vec::new();
        for (key, held) in &mut self.hands.held {
            let age = now.since_ms(held.since);
            if now.since_ms(held.renewed) > held.lease {
                over.push((*key, held.task(*key), held.renewed));
            } else if age > A_WHILE && held.looked_at.is_none_or(|at| now.since_ms(at) > A_LONG_WHILE) {
                held.looked_at = Some(now);
                if let Some(AtWork::Task(task)) = self.context.addresses.others.get(key.0) {
                    task.still_at_work(held.task(*key), age);
                }
            }
        }
        for (key, task, renewed) in over {
            log::warn!(
                "nothing was heard of a task for its whole lease run_id={} attempt={} worker_id={}",
                task.identity,
                task.attempt,
                self.id
            );
            self.hands.held.remove(&key);
            self.send(ToWorker::Cancel { task, reason: "nothing was heard of it for its whole lease".to_owned() });
            if let Some(handle) = self.task_of(task.identity) {
                handle.lease_over(self.id, Some(task), renewed, "nothing was heard of it for its whole lease");
            }
        }
        self.hands.awaited.retain(|_, waiting| !waiting.is_closed());
    }
}

/// As [`ToWorker`] is written, without owning what is in it.
#[derive(serde::Serialize)]
struct Out<T> {
    t: &'static str,
    v: T,
}

impl Handler<Hold> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Hold(order): Hold, ctx: &mut Self::Context) {
        self.guard.message("worker.hold");
        let now = Timestamp::steady();
        let key = (order.identity, order.instance);
        let held =
            Held { attempt: order.attempt, lease: order.lease as i64, order: Some(order), since: now, renewed: now, looked_at: None };
        self.hands.held.insert(key, held);
        self.hands.out.push(key);
        self.plan_flush(ctx);
    }
}

impl Handler<Holds> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Holds { task, lease }: Holds, _: &mut Self::Context) {
        self.guard.message("worker.holds");
        let now = self.last_heard;
        let held = Held { attempt: task.attempt, order: None, lease: lease as i64, since: now, renewed: now, looked_at: None };
        self.hands.held.entry((task.identity, task.instance)).or_insert(held);
    }
}

impl Handler<CancelTask> for WorkerActor {
    type Result = ();
    fn handle(&mut self, CancelTask { task, reason }: CancelTask, _: &mut Self::Context) {
        self.guard.message("worker.cancel");
        self.flush();
        // From now on its lease is renewed by nothing: what it does not end by itself is over by then.
        if let Some(held) = self.hands.held.get(&(task.identity, task.instance)).filter(|held| held.attempt == task.attempt) {
            log::debug!("a task is to end run_id={} attempt={} worker_id={}", task.identity, held.attempt, self.id);
            self.hands.held.remove(&(task.identity, task.instance));
        }
        self.send(ToWorker::Cancel { task, reason });
    }
}

impl Handler<LetGo> for WorkerActor {
    type Result = ();
    fn handle(&mut self, LetGo(task): LetGo, _: &mut Self::Context) {
        self.guard.message("worker.let_go");
        if let std::collections::hash_map::Entry::Occupied(held) = self.hands.held.entry((task.identity, task.instance))
            && held.get().attempt == task.attempt
        {
            held.remove();
        }
    }
}

impl Handler<Settled> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Settled(settled): Settled, ctx: &mut Self::Context) {
        self.guard.message("worker.settled");
        self.settle(settled, ctx);
    }
}

impl Handler<Reported> for WorkerActor {
    type Result = ();
    fn handle(&mut self, Reported(reports): Reported, ctx: &mut Self::Context) {
        self.guard.message("worker.reported");
        self.last_heard = Timestamp::steady();
        for (report, waiting) in reports {
            if let Some(waiting) = waiting {
                self.hands.awaited.insert(report.task(), waiting);
            }
            self.report(Box::new(report), ctx);
        }
    }
}

impl Handler<AnnounceHand> for WorkerActor {
    type Result = ();
    fn handle(&mut self, _: AnnounceHand, _: &mut Self::Context) {
        self.guard.message("worker.announce_hand");
        self.announce_hand();
    }
}

impl Handler<LookUp> for WorkerActor {
    type Result = ();
    fn handle(&mut self, LookUp(reply): LookUp, ctx: &mut Self::Context) {
        self.guard.message("worker.look_up");
        let record = self.context.store.read(GetWorker(self.id));
        ctx.spawn(wrap_future(record).map(move |record, this: &mut Self, _: &mut Context<Self>| {
            reply.send(record.map_err(|error| problem_of(&error)).map(|record| {
                if let Some(record) = record {
                    this.rename_hand(record);
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
