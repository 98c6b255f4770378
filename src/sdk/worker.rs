//! The worker: what it watches, its connection, and its work.

use super::client::Client;
use super::error::Error;
use super::hands::RunsInFlight;
use super::signal::stop_signal;
use super::socket::Session;
use super::spider::{AnySpider, Spider};
use super::task::{AnyHandler, Function, OnSettled, Outbox, TaskContext, TaskHandler, TaskResult, Tasks};
use crate::domain::ids::WorkerId;
use crate::protocol::task::SettledTask;
use crate::protocol::worker::WorkerFacts;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Concurrent blocks of a run.
const IN_FLIGHT: usize = 4;
/// Concurrent tasks.
const SLOTS: u32 = 16;
/// The time for work in progress to finish when the worker stops.
const GRACE: Duration = Duration::from_secs(10);
/// Time limit for the last message to the broker.
const GOODBYE: Duration = Duration::from_secs(1);

/// A program that processes runs and tasks. Build it, add spiders and functions, run it.
pub struct Worker {
    broker: String,
    token: Option<String>,
    client: Option<Client>,
    name: String,
    id: Option<WorkerId>,
    outbox: Option<PathBuf>,
    in_flight: usize,
    grace: Duration,
    ready: Option<oneshot::Sender<()>>,
    facts: WorkerFacts,
    spiders: Vec<Rc<dyn AnySpider>>,
    handlers: Vec<(String, Rc<dyn AnyHandler>)>,
    on_settled: Option<OnSettled>,
}

impl Worker {
    /// A worker of the broker at `http://host:port`, with the feature `tls` also at `https://`; for several on one database, of which one
    /// leads, separated by commas.
    #[must_use]
    pub fn new(broker: impl Into<String>) -> Self {
        let program = std::env::args().next().unwrap_or_default();
        let name = program.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let facts = WorkerFacts { slots: Some(SLOTS), ..WorkerFacts::default() };
        Self {
            broker: broker.into(),
            token: None,
            client: None,
            name,
            id: None,
            outbox: None,
            in_flight: IN_FLIGHT,
            grace: GRACE,
            ready: None,
            facts,
            spiders: Vec::new(),
            handlers: Vec::new(),
            on_settled: None,
        }
    }

    /// A worker of the broker in the environment: addresses in `WEBLOOM_BROKER` (default `http://127.0.0.1:55626`), and the token in
    /// `WEBLOOM_TOKEN`, if it is set. The `webloom` program reads the same variables.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let worker = Self::new(set("WEBLOOM_BROKER").unwrap_or_else(|| "http://127.0.0.1:55626".to_owned()));
        match set("WEBLOOM_TOKEN") {
            Some(token) => worker.token(token),
            None => worker,
        }
    }

    /// The token that the broker needs: the bare text, or `role:text`.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Uses this client, which has the addresses and the token. All copies of the client follow a change of the leader together.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The name that the broker shows; by default that of the program.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The worker's id; by default that of its [`Worker::outbox`], or else a new one each time.
    #[must_use]
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = Some(id);
        self
    }

    /// Stores the last report of each task in this folder until the broker has stored it; by default reports are only in memory. If the
    /// worker's process dies while the broker is unreachable, the next process delivers the results, and the tasks are not run again.
    ///
    /// The folder also stores the worker's id. It is created if necessary, and belongs to one worker at a time. Each task then costs two
    /// writes to disk (fsync) in the worker. The broker rejects reports of attempts that it gave to another worker in the meantime, and
    /// they are deleted.
    #[must_use]
    pub fn outbox(mut self, folder: impl Into<PathBuf>) -> Self {
        self.outbox = Some(folder.into());
        self
    }

    /// Concurrent blocks of a run, at least one; 4 by default. Each is in memory with all its pages.
    #[must_use]
    pub fn in_flight(mut self, blocks: usize) -> Self {
        self.in_flight = blocks.max(1);
        self
    }

    /// The group of the worker: jobs can require it.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.facts.group = Some(group.into());
        self
    }

    /// The version of the program: jobs can require it.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.facts.version = Some(version.into());
        self
    }

    /// Free tags for its abilities: jobs can require them.
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.facts.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Concurrent tasks, at least one; 16 by default. They share one thread.
    #[must_use]
    pub fn slots(mut self, tasks: u32) -> Self {
        self.facts.slots = Some(tasks.max(1));
        self
    }

    /// The time for blocks and tasks in progress to finish when the worker stops; 10 s by default. Tasks are asked to end in the last
    /// fifth of it. Unfinished work is given to another worker.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Signals that the broker has registered what is watched: from then on a trigger finds this worker.
    #[must_use]
    pub fn ready(mut self, told: oneshot::Sender<()>) -> Self {
        self.ready = Some(told);
        self
    }

    /// Accepts runs of this spider's class.
    #[must_use]
    pub fn watch(mut self, spider: impl Spider) -> Self {
        self.spiders.push(Rc::new(spider));
        self
    }

    /// Accepts tasks of this name, with a function: `async fn f(task: TaskContext) -> TaskResult<impl Serialize>`.
    #[must_use]
    pub fn task<F, Fut, T>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + 'static,
        Fut: Future<Output = TaskResult<T>> + 'static,
        T: Serialize,
    {
        self.handlers.push((name.into(), Rc::new(Function(function))));
        self
    }

    /// Accepts tasks with a value that has its own state.
    #[must_use]
    pub fn handler(mut self, handler: impl TaskHandler) -> Self {
        self.handlers.push((handler.name().to_owned(), Rc::new(handler)));
        self
    }

    /// Called for each attempt when its end is on disk at the broker, or was rejected by it. For data that must be kept until then.
    #[must_use]
    pub fn on_settled(mut self, told: impl Fn(&SettledTask) + 'static) -> Self {
        self.on_settled = Some(Rc::new(told));
        self
    }

    /// Starts a runtime and works until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// Same as [`Worker::run`].
    pub fn run_blocking(self) -> Result<(), Error> {
        actix_rt::System::new().block_on(self.run(stop_signal()))
    }

    /// Works until `stop` resolves or the broker orders a drain, then finishes the work in progress. Call it within an actix runtime.
    /// Dropping this future drops the work in progress.
    ///
    /// # Errors
    /// The address is invalid, nothing is watched, the broker rejects this worker or an operator kicks it ([`Error::Kicked`]), or a
    /// spider returned an [`super::Abort`]. An unreachable broker is not an error: the worker waits for it.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let spiders: BTreeMap<String, Rc<dyn AnySpider>> = self.spiders.iter().map(|s| (s.name().to_owned(), Rc::clone(s))).collect();
        let handlers: HashMap<String, Rc<dyn AnyHandler>> = self.handlers.iter().cloned().collect();
        let classes: BTreeSet<String> = spiders.keys().chain(handlers.keys()).cloned().collect();
        if classes.is_empty() || classes.len() < self.spiders.len() + self.handlers.len() {
            return Err(Error::Classes("a worker must watch at least one class or task, each only once".to_owned()));
        }
        let slots = if handlers.is_empty() { 0 } else { self.facts.slots.unwrap_or(SLOTS) };
        let process = Some(uuid::Uuid::new_v4().simple().to_string());
        let facts = WorkerFacts { name: Some(self.name.clone()), slots: Some(slots), process, ..self.facts };
        let client = match self.client {
            Some(client) => client,
            None => Client::new(&self.broker, self.token.as_deref())?,
        };
        let client = Rc::new(client);
        let (send, mut orders) = mpsc::unbounded_channel();
        let known = Rc::new(RefCell::new(BTreeSet::new()));
        let mut tasks = Tasks::new(handlers, slots as usize, self.on_settled);
        let mut id = self.id;
        if let Some(folder) = &self.outbox {
            let (outbox, kept) = Outbox::open(folder)?;
            let own = id.or(kept.id).unwrap_or_else(WorkerId::random);
            if kept.id != Some(own) {
                outbox.keep_id(own)?;
            }
            tasks = tasks.with_outbox(outbox, kept.reports);
            id = Some(own);
        }
        let (id, tasks) = (id.unwrap_or_else(WorkerId::random), Rc::new(tasks));
        let _dropped = StopAll(&tasks);
        let session = Session {
            client: Rc::clone(&client),
            worker: id,
            name: self.name,
            classes: classes.into_iter().collect(),
            facts,
            tasks: Rc::clone(&tasks),
            runs: Rc::clone(&known),
            orders: send,
            leave: Notify::new(),
        };
        let mut hands = RunsInFlight::new(id, self.in_flight, client, spiders, known, self.ready);
        let keep = async {
            tokio::select! {
                left = session.keep() => left,
                () = tasks.keep_leases() => Ok(()),
            }
        };
        let (mut keep, mut stop) = (std::pin::pin!(keep), std::pin::pin!(stop));
        loop {
            let is_last = tasks.is_closed() && hands.is_idle();
            tokio::select! {
                () = &mut stop => break,
                refused = &mut keep => return put_out(&tasks, refused).await,
                Some(order) = orders.recv() => hands.take(order, &tasks),
                Some(done) = hands.next(), if !hands.is_idle() => hands.done(done)?,
                () = tasks.idle(), if is_last => break,
            }
        }
        // The session must continue, or the broker would give our work to others.
        tasks.close("the worker is stopping");
        tokio::select! {
            refused = &mut keep => return put_out(&tasks, refused).await,
            (runs, ()) = async { tokio::join!(hands.finish(self.grace), finish(&tasks, self.grace)) } => runs?,
        }
        session.leave.notify_one();
        // Do not wait for a broker that does not read.
        tokio::time::timeout(GOODBYE, keep).await.unwrap_or(Ok(()))
    }
}

/// Waits for the tasks to end, and for their results to arrive.
async fn finish(tasks: &Tasks, grace: Duration) {
    const WHY: &str = "the worker is stopping";
    let last = (grace / 5).min(Duration::from_secs(2));
    if tokio::time::timeout(grace - last, tasks.settled()).await.is_ok() {
        return;
    }
    tasks.cancel_all(WHY);
    if tokio::time::timeout(last, tasks.settled()).await.is_ok() {
        return;
    }
    tasks.stop_all(WHY);
    if tokio::time::timeout(GOODBYE, tasks.settled()).await.is_err() {
        log::warn!("some reports were not acknowledged by the broker");
    }
}

/// The broker rejected this worker: asks its tasks to end, and drops them soon.
async fn put_out(tasks: &Tasks, refused: Result<(), Error>) -> Result<(), Error> {
    if let Err(error) = &refused {
        tasks.cancel_all(&error.to_string());
        // Tasks that have not ended by then are dropped with the worker.
        drop(tokio::time::timeout(GOODBYE, tasks.idle()).await);
    }
    refused
}

/// Drops all running tasks when the worker is dropped.
struct StopAll<'a>(&'a Tasks);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.stop_all("the worker was dropped");
    }
}
