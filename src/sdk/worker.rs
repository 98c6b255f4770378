//! The worker: what it watches, a connection, and what it has in hand.

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

/// Blocks of a run in hand at a time.
const IN_FLIGHT: usize = 4;
/// Tasks in hand at a time.
const SLOTS: u32 = 16;
/// The time that what is in hand has to be finished when the worker is to stop.
const GRACE: Duration = Duration::from_secs(10);
/// The time that the last message to the broker may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A program that carries out runs and tasks. Build it, give it spiders and functions, run it.
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
    /// For the broker at `http://host:port`, with the feature `tls` also at `https://`; for several on one database, of which one leads, with commas between them.
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

    /// For the broker in the environment: addresses in `WEBLOOM_BROKER` (else `http://127.0.0.1:55626`), and the token in
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

    /// Calls the broker by this client, which knows its addresses and its token. Whoever uses a copy of it learns with the worker
    /// when another broker leads.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The name that the broker shows; else that of the program.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The id under which the broker knows it; else that of its [`Worker::outbox`], else a new one each time.
    #[must_use]
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = Some(id);
        self
    }

    /// Keeps the last report of each task in this folder until the broker has stored it; else in memory only. If the worker's process
    /// dies while the broker is away, its next one delivers what the tasks have brought, and they are not carried out again.
    ///
    /// The folder also keeps the worker's id. It is made if need be, and belongs to one worker at a time. Each task then costs two
    /// writes to disk (fsync) in the worker. What the broker gave to another worker meanwhile it refuses, and it is forgotten.
    #[must_use]
    pub fn outbox(mut self, folder: impl Into<PathBuf>) -> Self {
        self.outbox = Some(folder.into());
        self
    }

    /// Blocks of a run in hand at a time, at least one; else 4. Each is in memory with all its pages.
    #[must_use]
    pub fn in_flight(mut self, blocks: usize) -> Self {
        self.in_flight = blocks.max(1);
        self
    }

    /// The group that it belongs to: jobs can ask for it.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.facts.group = Some(group.into());
        self
    }

    /// The version of the program: jobs can ask for it.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.facts.version = Some(version.into());
        self
    }

    /// What it can or has, in words of its operator: jobs can ask for it.
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.facts.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Tasks in hand at a time, at least one; else 16. They share one thread.
    #[must_use]
    pub fn slots(mut self, tasks: u32) -> Self {
        self.facts.slots = Some(tasks.max(1));
        self
    }

    /// The time that blocks and tasks in hand have to be finished when the worker is to stop; else 10 s. Tasks are told in
    /// the last fifth of it. What is not finished is given to another worker.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Tells when the broker first knows what is watched: from then on a trigger finds this worker.
    #[must_use]
    pub fn ready(mut self, told: oneshot::Sender<()>) -> Self {
        self.ready = Some(told);
        self
    }

    /// Takes runs of this spider's class.
    #[must_use]
    pub fn watch(mut self, spider: impl Spider) -> Self {
        self.spiders.push(Rc::new(spider));
        self
    }

    /// Takes tasks of this name, by a function: `async fn f(task: TaskContext) -> TaskResult<impl Serialize>`.
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

    /// Takes tasks by a value that has state of its own.
    #[must_use]
    pub fn handler(mut self, handler: impl TaskHandler) -> Self {
        self.handlers.push((handler.name().to_owned(), Rc::new(handler)));
        self
    }

    /// Tells of each attempt when its end is on disk at the broker, or was refused by it. For what must only be forgotten
    /// then.
    #[must_use]
    pub fn on_settled(mut self, told: impl Fn(&SettledTask) + 'static) -> Self {
        self.on_settled = Some(Rc::new(told));
        self
    }

    /// Starts a runtime and works until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn run_blocking(self) -> Result<(), Error> {
        actix_rt::System::new().block_on(self.run(stop_signal()))
    }

    /// Works until `stop` is ready or the broker says that it is to drain, then finishes what is in hand. To be called within
    /// an actix runtime. If this future is dropped, so is what is in hand.
    ///
    /// # Errors
    /// The address is none, nothing is watched, the broker does not want this worker or an operator puts it out
    /// ([`Error::Kicked`]), or a spider returned an [`super::Abort`]. A broker that is away is no error: it is waited for.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let spiders: BTreeMap<String, Rc<dyn AnySpider>> = self.spiders.iter().map(|s| (s.name().to_owned(), Rc::clone(s))).collect();
        let handlers: HashMap<String, Rc<dyn AnyHandler>> = self.handlers.iter().cloned().collect();
        let classes: BTreeSet<String> = spiders.keys().chain(handlers.keys()).cloned().collect();
        if classes.is_empty() || classes.len() < self.spiders.len() + self.handlers.len() {
            return Err(Error::Classes("a worker watches one class or task or more, each once".to_owned()));
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
        // The session goes on meanwhile, or the broker would give what we have to another.
        tasks.close("the worker stops");
        tokio::select! {
            refused = &mut keep => return put_out(&tasks, refused).await,
            (runs, ()) = async { tokio::join!(hands.finish(self.grace), finish(&tasks, self.grace)) } => runs?,
        }
        session.leave.notify_one();
        // A broker that does not read is not waited for.
        tokio::time::timeout(GOODBYE, keep).await.unwrap_or(Ok(()))
    }
}

/// Lets the tasks end, and their results arrive.
async fn finish(tasks: &Tasks, grace: Duration) {
    const WHY: &str = "the worker stops";
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
        log::warn!("the broker has not settled all that was reported");
    }
}

/// The broker does not want this worker: what is in hand is told, and is dropped soon.
async fn put_out(tasks: &Tasks, refused: Result<(), Error>) -> Result<(), Error> {
    if let Err(error) = &refused {
        tasks.cancel_all(&error.to_string());
        // What does not end by then is dropped with the worker.
        drop(tokio::time::timeout(GOODBYE, tasks.idle()).await);
    }
    refused
}

/// Drops what is at work when the worker is dropped.
struct StopAll<'a>(&'a Tasks);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.stop_all("the worker is gone");
    }
}
