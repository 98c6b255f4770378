//! The worker: some spiders, a connection, and the runs in hand.

use super::carry::{Over, carry};
use super::client::Client;
use super::error::Error;
use super::run::RunContext;
use super::signal::stop_signal;
use super::socket::Session;
use super::spider::{AnySpider, Spider};
use crate::domain::ids::{Identity, WorkerId};
use crate::protocol::worker::{StartRun, ToWorker};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Blocks of a run in hand at a time.
const IN_FLIGHT: usize = 4;
/// The time that blocks in hand have to be finished when the worker is to stop.
const GRACE: Duration = Duration::from_secs(10);
/// The time that the last message to the broker may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A program that carries out runs. Build it, give it spiders, run it.
pub struct Worker {
    broker: String,
    token: Option<String>,
    name: String,
    id: WorkerId,
    in_flight: usize,
    grace: Duration,
    ready: Option<oneshot::Sender<()>>,
    spiders: Vec<Rc<dyn AnySpider>>,
}

impl Worker {
    /// For the broker at `http://host:port`.
    #[must_use]
    pub fn new(broker: impl Into<String>) -> Self {
        let program = std::env::args().next().unwrap_or_default();
        let name = program.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let (id, spiders) = (WorkerId::random(), Vec::new());
        Self { broker: broker.into(), token: None, name, id, in_flight: IN_FLIGHT, grace: GRACE, ready: None, spiders }
    }

    /// The token that the broker asks for.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The name that the broker shows; else that of the program.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The id under which the broker knows it; else a new one each time.
    #[must_use]
    pub fn id(mut self, id: WorkerId) -> Self {
        self.id = id;
        self
    }

    /// Blocks of a run in hand at a time, at least one; else 4. Each is in memory with all its pages.
    #[must_use]
    pub fn in_flight(mut self, blocks: usize) -> Self {
        self.in_flight = blocks.max(1);
        self
    }

    /// The time that blocks in hand have to be finished when the worker is to stop; else 10 s. What is not finished is
    /// delivered again.
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

    /// Starts a runtime and works until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn run_blocking(self) -> Result<(), Error> {
        actix_rt::System::new().block_on(self.run(stop_signal()))
    }

    /// Works until `stop` is ready, then finishes the blocks in hand. To be called within an actix runtime.
    ///
    /// # Errors
    /// The address is none, no class is watched, the broker does not want this worker, or a spider returned an
    /// [`super::Abort`]. A broker that is away is no error: it is waited for.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let spiders: BTreeMap<String, Rc<dyn AnySpider>> = self.spiders.iter().map(|s| (s.name().to_owned(), Rc::clone(s))).collect();
        if spiders.is_empty() || spiders.len() < self.spiders.len() {
            return Err(Error::Classes("a worker watches one class or more, each once".to_owned()));
        }
        let client = Rc::new(Client::new(&self.broker, self.token.as_deref())?);
        let (send, mut orders) = mpsc::unbounded_channel();
        let known = Rc::new(RefCell::new(BTreeSet::new()));
        let session = Session {
            client: Rc::clone(&client),
            worker: self.id,
            name: self.name.clone(),
            classes: spiders.keys().cloned().collect(),
            runs: Rc::clone(&known),
            orders: send,
            leave: Notify::new(),
        };
        let mut hands = Hands {
            worker: self.id,
            in_flight: self.in_flight,
            client,
            spiders,
            known,
            ready: self.ready,
            runs: BTreeMap::new(),
            tasks: JoinSet::new(),
        };
        let (mut keep, mut stop) = (std::pin::pin!(session.keep()), std::pin::pin!(stop));
        loop {
            tokio::select! {
                () = &mut stop => break,
                refused = &mut keep => return refused,
                Some(order) = orders.recv() => hands.take(order),
                Some(done) = hands.tasks.join_next(), if !hands.tasks.is_empty() => hands.done(done)?,
            }
        }
        // The session goes on meanwhile, or the broker would give our runs to another.
        tokio::select! {
            refused = &mut keep => return refused,
            finished = hands.finish(self.grace) => finished?,
        }
        session.leave.notify_one();
        // A broker that does not read is not waited for.
        tokio::time::timeout(GOODBYE, keep).await.unwrap_or(Ok(()))
    }
}

/// The runs in hand.
struct Hands {
    worker: WorkerId,
    in_flight: usize,
    client: Rc<Client>,
    spiders: BTreeMap<String, Rc<dyn AnySpider>>,
    known: Rc<RefCell<BTreeSet<Identity>>>,
    ready: Option<oneshot::Sender<()>>,
    runs: BTreeMap<Identity, (Rc<RunContext>, watch::Sender<Option<Over>>)>,
    tasks: JoinSet<(Identity, Result<(), Error>)>,
}

impl Hands {
    fn take(&mut self, order: ToWorker) {
        match order {
            ToWorker::Start(order) => self.start(order),
            ToWorker::Ended { identity, state, .. } => {
                if let Some((_, halt)) = self.runs.get(&identity) {
                    halt.send_replace(Some(Over::Ended(state)));
                }
            }
            ToWorker::Error(problem) => log::warn!("message was not taken by the broker: {problem}"),
            ToWorker::Watching { class_names } => {
                log::info!("watching classes={}", class_names.join(","));
                // Who asked may have lost interest.
                self.ready.take().map(|ready| ready.send(()));
            }
            ToWorker::Welcome { .. } => {}
            ToWorker::Tasks(_) | ToWorker::Cancel { .. } | ToWorker::Settled(_) | ToWorker::Drain { .. } | ToWorker::Kicked { .. } => {}
        }
    }

    fn start(&mut self, order: StartRun) {
        let identity = order.identity;
        if let Some((run, _)) = self.runs.get(&identity) {
            // Said again: the broker has not heard, or has forgotten, that the start returned.
            if run.start_returned.get() && !order.start_returned {
                let run = Rc::clone(run);
                actix_rt::spawn(async move { run.client.start_returned(identity, None).await });
            }
            return;
        }
        let Some(spider) = self.spiders.get(&order.class_name).cloned() else {
            log::warn!("run of a class that is not watched run={identity} class={}", order.class_name);
            return;
        };
        log::info!("run begins run={identity} class={} again={}", order.class_name, order.start_returned);
        let run = Rc::new(RunContext::new(order, Rc::clone(&self.client)));
        let (halt, halted) = watch::channel(None);
        self.runs.insert(identity, (Rc::clone(&run), halt));
        self.known.borrow_mut().insert(identity);
        let (worker, in_flight) = (self.worker, self.in_flight);
        self.tasks.spawn_local(async move {
            let done = carry(&run, &*spider, worker, in_flight, halted).await;
            if let Ok(Over::Ended(state)) = done {
                spider.end(&run, state);
            }
            (identity, done.map(drop))
        });
    }

    fn done(&mut self, done: Result<(Identity, Result<(), Error>), tokio::task::JoinError>) -> Result<(), Error> {
        match done {
            Ok((identity, done)) => {
                self.runs.remove(&identity);
                self.known.borrow_mut().remove(&identity);
                match done {
                    // These concern the worker; anything else only this run.
                    Err(Error::Refused(problem)) if !matches!(problem.status, 401 | 403) => {
                        log::error!("run cannot be gone on with run={identity}: {problem}");
                        Ok(())
                    }
                    done => done,
                }
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Ok(()),
        }
    }

    /// Lets the runs finish what they have in hand.
    async fn finish(&mut self, grace: Duration) -> Result<(), Error> {
        for (_, halt) in self.runs.values() {
            halt.send_if_modified(|over| over.is_none().then(|| *over = Some(Over::Stop)).is_some());
        }
        let all = async {
            while let Some(done) = self.tasks.join_next().await {
                self.done(done)?;
            }
            Ok(())
        };
        tokio::time::timeout(grace, all).await.unwrap_or_else(|_| {
            log::warn!("blocks in hand are not finished in {} s, they will be delivered again", grace.as_secs());
            Ok(())
        })
    }
}
