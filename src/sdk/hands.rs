//! The runs in progress: one future each.

use super::carry::{Over, carry};
use super::client::Client;
use super::error::Error;
use super::run::RunContext;
use super::spider::AnySpider;
use super::task::Tasks;
use crate::domain::ids::{Identity, WorkerId};
use crate::protocol::worker::{StartRun, ToWorker};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};

/// The runs in progress.
pub(super) struct RunsInFlight {
    worker: WorkerId,
    in_flight: usize,
    client: Rc<Client>,
    spiders: BTreeMap<String, Rc<dyn AnySpider>>,
    known: Rc<RefCell<BTreeSet<Identity>>>,
    ready: Option<oneshot::Sender<()>>,
    runs: BTreeMap<Identity, (Rc<RunContext>, watch::Sender<Option<Over>>)>,
    at_work: JoinSet<Carried>,
}

/// A run that has ended here, with its result.
pub(super) type Carried = (Identity, Result<(), Error>);

impl RunsInFlight {
    pub(super) fn new(
        worker: WorkerId,
        in_flight: usize,
        client: Rc<Client>,
        spiders: BTreeMap<String, Rc<dyn AnySpider>>,
        known: Rc<RefCell<BTreeSet<Identity>>>,
        ready: Option<oneshot::Sender<()>>,
    ) -> Self {
        Self { worker, in_flight, client, spiders, known, ready, runs: BTreeMap::new(), at_work: JoinSet::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.at_work.is_empty()
    }

    /// The next run that ends here.
    pub(super) async fn next(&mut self) -> Option<Result<Carried, JoinError>> {
        self.at_work.join_next().await
    }

    /// Handles an order of the broker.
    pub(super) fn take(&mut self, order: ToWorker, tasks: &Tasks) {
        match order {
            ToWorker::Start(order) => self.start(order),
            ToWorker::Ended { identity, state, .. } => {
                if let Some((_, halt)) = self.runs.get(&identity) {
                    halt.send_replace(Some(Over::Ended(state)));
                }
            }
            ToWorker::Error(problem) => log::warn!("broker rejected a message: {problem}"),
            ToWorker::Watching { class_names } => {
                log::info!("watching classes={}", class_names.join(","));
                // The receiver may be gone.
                self.ready.take().map(|ready| ready.send(()));
            }
            ToWorker::Drain { reason } => {
                log::info!("draining: {}", reason.as_deref().unwrap_or("no reason given"));
                tasks.close("the worker is draining");
            }
            // The socket handles these.
            ToWorker::Welcome { .. } | ToWorker::Kicked { .. } => {}
            ToWorker::Tasks(_) | ToWorker::Cancel { .. } | ToWorker::Settled(_) => {}
        }
    }

    fn start(&mut self, order: StartRun) {
        let identity = order.identity;
        if let Some((run, _)) = self.runs.get(&identity) {
            // A repeated order: the broker has not received, or has forgotten, that the start returned.
            if run.start_returned.get() && !order.start_returned {
                let run = Rc::clone(run);
                actix_rt::spawn(async move { run.client.start_returned(identity, None).await });
            }
            return;
        }
        let Some(spider) = self.spiders.get(&order.class_name).cloned() else {
            log::warn!("received a run of an unwatched class run_id={identity} class={}", order.class_name);
            return;
        };
        log::info!("run started run_id={identity} class={} again={}", order.class_name, order.start_returned);
        let run = Rc::new(RunContext::new(order, Rc::clone(&self.client)));
        let (halt, halted) = watch::channel(None);
        self.runs.insert(identity, (Rc::clone(&run), halt));
        self.known.borrow_mut().insert(identity);
        let (worker, in_flight) = (self.worker, self.in_flight);
        self.at_work.spawn_local(async move {
            let done = carry(&run, &*spider, worker, in_flight, halted).await;
            if let Ok(Over::Ended(state)) = done {
                spider.end(&run, state);
            }
            (identity, done.map(drop))
        });
    }

    /// Handles the end of a run here. Some errors concern the whole worker.
    pub(super) fn done(&mut self, done: Result<Carried, JoinError>) -> Result<(), Error> {
        match done {
            Ok((identity, done)) => {
                self.runs.remove(&identity);
                self.known.borrow_mut().remove(&identity);
                match done {
                    // The error 403 concerns the worker; all others only this run.
                    Err(Error::Refused(problem)) if problem.status != 403 => {
                        log::error!("cannot continue run run_id={identity}: {problem}");
                        Ok(())
                    }
                    done => done,
                }
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Ok(()),
        }
    }

    /// Lets the runs finish their current blocks.
    pub(super) async fn finish(&mut self, grace: Duration) -> Result<(), Error> {
        for (_, halt) in self.runs.values() {
            halt.send_if_modified(|over| over.is_none().then(|| *over = Some(Over::Stop)).is_some());
        }
        let all = async {
            while let Some(done) = self.at_work.join_next().await {
                self.done(done)?;
            }
            Ok(())
        };
        tokio::time::timeout(grace, all).await.unwrap_or_else(|_| {
            log::warn!("blocks not finished in {} s, they will be delivered again", grace.as_secs());
            Ok(())
        })
    }
}
