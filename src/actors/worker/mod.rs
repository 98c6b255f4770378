//! A worker: the classes it watches and its connection state. The actor survives a reconnect of the session.
//!
//! A worker has a socket, or polls over HTTP; its messages wait here until it fetches them.

mod check;
mod control;
mod message;
mod tasks;

pub use check::{ValidatedReports, check_reports, read_reports, validate_reports};

pub use control::kicked;
pub(crate) use control::{check_classes, check_facts};
pub use message::{
    DisconnectWorker, FetchMessages, SendToWorker, TaskDied, WorkerHandle, WorkerMessage, WorkerSessionClosed, WorkerSessionOpened,
};

use super::context::BrokerContext;
use super::deadline_timer::DeadlineTimer;
use super::liveness::ms_left;
use super::reply::{Reply, problem_of};
use super::session_sender::{Frame, SessionSender};
use super::supervision::ExitGuard;
use crate::domain::ids::{Identity, WorkerId};
use crate::domain::time::Timestamp;
use crate::domain::unread::Unread;
use crate::protocol::frame;
use crate::protocol::problem::Problem;
use crate::protocol::task::TaskRef;
use crate::protocol::worker::{FromWorker, ToWorker, WorkerFacts};
use crate::store::WatchClasses;
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use std::collections::VecDeque;
use std::time::Duration;

/// After this many bytes, no further message is added to an answer; also the limit for a message with several orders.
const ANSWER_BYTES: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub struct WorkerActor {
    guard: ExitGuard,
    context: BrokerContext,
    id: WorkerId,
    /// The role of the worker's token, if a connection created this actor.
    by: Option<String>,
    sender: Option<SessionSender>,
    last_message: Timestamp,
    closed_at: Option<Timestamp>,
    /// The worker closed its connection on purpose.
    has_left: bool,
    waiting: Unread<ToWorker>,
    /// Messages were dropped since its last poll.
    has_dropped: bool,
    /// Calls that wait for a message, with their deadline.
    fetchers: VecDeque<(Timestamp, Reply<Vec<ToWorker>>)>,
    fetch_timer: DeadlineTimer,
    in_flight: tasks::TasksInFlight,
    admin: control::AdminState,
}

impl WorkerActor {
    /// A worker that has connected or called.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, id: WorkerId, sender: Option<SessionSender>, by: Option<String>) -> Self {
        Self {
            guard,
            context,
            id,
            by,
            sender,
            last_message: Timestamp::steady(),
            closed_at: None,
            has_left: false,
            waiting: Unread::default(),
            has_dropped: false,
            fetchers: VecDeque::new(),
            fetch_timer: DeadlineTimer::default(),
            in_flight: tasks::TasksInFlight::default(),
            admin: control::AdminState::default(),
        }
    }

    fn send(&mut self, message: ToWorker) {
        if let Some(sender) = &self.sender {
            sender.send(Frame::Text(frame::text(&message)));
            return;
        }
        let bytes = frame::text(&message).len();
        // The runs repeat their messages.
        let dropped = self.waiting.push(message, bytes);
        if dropped > 0 && !std::mem::replace(&mut self.has_dropped, true) {
            log::warn!("worker does not poll, its oldest messages are dropped worker_id={} dropped={dropped}", self.id);
        }
        while !self.waiting.is_empty()
            && let Some((_, fetcher)) = self.fetchers.pop_front()
        {
            self.answer_fetch(fetcher);
        }
    }

    /// Answers a call with the waiting messages that fit. If the caller has disconnected, they wait for the next call.
    fn answer_fetch(&mut self, fetcher: Reply<Vec<ToWorker>>) {
        let (messages, bytes) = self.take_waiting(ANSWER_BYTES);
        self.has_dropped = false;
        if let Err(Ok(messages)) = fetcher.give(Ok(messages)) {
            self.waiting.put_back(messages.into_iter().zip(bytes).collect());
        }
    }

    /// Takes out the oldest of the messages that wait, and their lengths. The worker has them now.
    fn take_waiting(&mut self, bytes: usize) -> (Vec<ToWorker>, Vec<usize>) {
        let taken = self.waiting.take(bytes).into_iter();
        taken.filter_map(|(message, bytes)| Some((self.with_current_orders(message)?, bytes))).unzip()
    }

    /// Answers the calls whose deadline has passed.
    fn expire_fetchers(&mut self, ctx: &mut Context<Self>) {
        self.fetch_timer.fired();
        let now = Timestamp::steady();
        for (until, fetcher) in std::mem::take(&mut self.fetchers) {
            if until > now {
                self.fetchers.push_back((until, fetcher));
            } else {
                self.last_message = now;
                fetcher.send(Ok(Vec::new()));
            }
        }
        if let Some(next) = self.fetchers.iter().map(|(until, _)| *until).min() {
            self.fetch_timer.set(next, ctx, Self::expire_fetchers);
        }
    }

    fn welcome(&mut self) {
        let times = self.context.times;
        self.send(ToWorker::Welcome {
            worker_id: self.id,
            heartbeat: times.worker_heartbeat,
            offline: times.worker_offline,
            separate_reports: true,
        });
    }

    fn silent_since(&self) -> Timestamp {
        self.context.brokers.without_doubts(self.last_message)
    }

    fn check_liveness(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        if self.context.brokers.is_doubtful() {
            return;
        }
        let times = self.context.times;
        self.fetchers.retain(|(_, fetcher)| !fetcher.is_abandoned());
        if !self.fetchers.is_empty() {
            self.last_message = now; // a polling call is open
        }
        self.check_leases();
        let closed_since = self.closed_at.map(|at| self.context.brokers.without_doubts(at));
        if let Err(why) = ms_left(now, self.silent_since(), closed_since, times.worker_offline, times.grace) {
            if closed_since.is_some() && self.has_left {
                log::info!("worker left worker_id={}", self.id);
            } else {
                log::warn!("worker lost worker_id={} reason={why}", self.id);
            }
            if let Some(sender) = self.sender.take() {
                sender.send(Frame::Close(why.to_owned()));
            }
            self.context.registry().worker_left(self.id, self.silent_since());
            self.guard.finish();
            ctx.stop();
        }
    }

    fn watch_classes(&mut self, watch: Watching, reply: Reply<()>, ctx: &mut Context<Self>) {
        let Watching { class_names, runs, tasks, facts } = watch;
        if let Err(problem) = control::check_classes(&class_names).and_then(|()| control::check_facts(&facts)) {
            return reply.send(Err(problem));
        }
        let stored_facts = self.store_facts(&facts, &class_names);
        let watched = self.context.store.write(WatchClasses { worker: self.id, class_names: class_names.clone(), now: Timestamp::now() });
        let stored = async move {
            let record = stored_facts.await?;
            watched.await.map(|()| record)
        };
        ctx.spawn(wrap_future(stored).map(move |result, this: &mut Self, ctx: &mut Context<Self>| match result {
            Ok(record) if !this.apply_admin_state(&record, true, ctx) => reply.send(Err(kicked(&record))),
            Ok(record) => {
                let name = record.name.as_deref().unwrap_or_default();
                log::info!("worker watches classes worker_id={} worker={name} class_names={}", this.id, class_names.join(","));
                this.send(ToWorker::Watching { class_names });
                this.continue_runs(&runs);
                this.set_capacity(record, &facts, &tasks);
                this.context.registry().worker_watches(this.id);
                reply.send(Ok(()));
            }
            Err(error) => {
                log::error!("failed to store the classes of a worker worker_id={}: {error}", this.id);
                reply.send(Err(problem_of(&error)));
                // A worker sends them once for each connection, so it must connect again.
                if let Some(sender) = &this.sender {
                    sender.send(Frame::Close("the classes could not be stored: connect again".to_owned()));
                }
            }
        }));
    }

    /// Notifies the runs of the worker. This comes before the allocator gets the worker, so that no other worker is sent for them.
    fn continue_runs(&self, runs: &[Identity]) {
        let addresses = &self.context.addresses;
        for identity in runs {
            match addresses.block_run(*identity) {
                Some(run) => run.worker_continues(self.id),
                None => log::info!("worker reports a run that is not active run_id={identity} worker_id={}", self.id),
            }
        }
        // If the worker received an order to start another run, the order was lost with an earlier connection.
        let others = addresses.runs_by_worker.of(self.id).into_iter().filter(|identity| !runs.contains(identity));
        for run in others.filter_map(|identity| addresses.block_run(identity)) {
            run.worker_needs_start(self.id);
        }
    }
}

/// The values that a worker sends when it begins to watch.
#[derive(Debug)]
struct Watching {
    class_names: Vec<String>,
    runs: Vec<Identity>,
    tasks: Vec<TaskRef>,
    facts: WorkerFacts,
}

impl Actor for WorkerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 12);
        if self.sender.is_some() {
            self.welcome();
        }
        self.load_admin_state(ctx);
        let period = (self.context.times.grace / 3).clamp(20, 1_000);
        ctx.run_interval(Duration::from_millis(period), Self::check_liveness);
    }
}

impl Handler<WorkerSessionOpened> for WorkerActor {
    type Result = ();
    fn handle(&mut self, WorkerSessionOpened(sender): WorkerSessionOpened, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.session_opened");
        if let Some(old) = self.sender.replace(sender) {
            old.send(Frame::Close("the worker has opened a new connection".to_owned()));
        }
        self.closed_at = None;
        self.last_message = Timestamp::steady();
        self.welcome();
        self.announce_reachable();
        // Messages that arrived while the worker was disconnected.
        for message in self.take_waiting(usize::MAX).0 {
            self.send(message);
        }
    }
}

impl Handler<WorkerSessionClosed> for WorkerActor {
    type Result = ();
    fn handle(&mut self, WorkerSessionClosed { number, has_left }: WorkerSessionClosed, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.session_closed");
        if self.sender.as_ref().is_some_and(|sender| sender.number == number) {
            self.sender = None;
            // A worker that polls already goes on without its socket.
            self.fetchers.retain(|(_, fetcher)| !fetcher.is_abandoned());
            self.closed_at = self.fetchers.is_empty().then(Timestamp::steady);
            self.has_left = has_left;
            self.announce_reachable();
        }
    }
}

impl Handler<WorkerMessage> for WorkerActor {
    type Result = ();
    fn handle(&mut self, WorkerMessage { message, reply }: WorkerMessage, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.message");
        self.last_message = Timestamp::steady();
        match message {
            FromWorker::Heartbeat { tasks } => {
                if let Some(tasks) = tasks {
                    self.renew(&tasks);
                    self.send_unlisted(&tasks, tasks::UNLISTED_MS);
                    self.admin.tasks = tasks;
                }
                reply.send(Ok(()));
            }
            FromWorker::Reports(reports) => self.accept_reports(reports, reply, ctx),
            FromWorker::Watch { class_names, runs, tasks, worker } => {
                self.admin.tasks.clone_from(&tasks);
                self.watch_classes(Watching { class_names, runs, tasks, facts: worker }, reply, ctx);
            }
            FromWorker::StartReturned { identity, error } => match self.context.addresses.block_run(identity) {
                Some(run) => run.start_returned(error, reply),
                None => reply.send(Err(Problem::not_found(format!("run {identity} is not active")).at("identity"))),
            },
        }
    }
}

impl Handler<SendToWorker> for WorkerActor {
    type Result = ();
    fn handle(&mut self, SendToWorker(message): SendToWorker, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.send");
        self.send(message);
    }
}

impl Handler<FetchMessages> for WorkerActor {
    type Result = ();
    fn handle(&mut self, FetchMessages { wait, reply }: FetchMessages, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.fetch");
        self.last_message = Timestamp::steady();
        if self.sender.is_none() && self.closed_at.take().is_some() {
            // Without its socket, the worker polls now.
            self.has_left = false;
            self.announce_reachable();
        }
        if !self.waiting.is_empty() || wait.is_zero() {
            return self.answer_fetch(reply);
        }
        let until = self.last_message.plus_ms(wait.as_millis() as i64);
        self.fetchers.push_back((until, reply));
        self.fetch_timer.set(until, ctx, Self::expire_fetchers);
    }
}

impl Handler<TaskDied> for WorkerActor {
    type Result = ();
    fn handle(&mut self, TaskDied(task): TaskDied, _: &mut Self::Context) {
        let _timed = self.guard.timed("worker.task_died");
        // The next heartbeat that lists an attempt notifies the new actor. Until then nothing renews its lease here.
        self.in_flight.held.retain(|(identity, _), _| *identity != task);
    }
}

impl Handler<DisconnectWorker> for WorkerActor {
    type Result = ();
    fn handle(&mut self, DisconnectWorker(why): DisconnectWorker, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("worker.disconnect");
        if self.context.followers.is_closed() {
            for (_, fetcher) in self.fetchers.drain(..) {
                fetcher.send(Err(Problem::ending()));
            }
        }
        if let Some(sender) = self.sender.take() {
            sender.send(Frame::Restart(why));
        }
        self.guard.finish();
        ctx.stop();
    }
}
