//! Runs of block jobs, and tasks for all workers, that wait until any worker is eligible.

use crate::actors::run::RunHandle;
use crate::actors::task::{TaskEvent, TaskHandle};
use crate::domain::ids::{Identity, WorkerId};
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::{WorkerPool, WorkerRequest};
use std::collections::HashMap;
use std::sync::Arc;

/// What waits.
#[derive(Debug)]
pub(super) enum Waiter {
    Task(TaskHandle),
    Run(RunHandle),
}

impl Waiter {
    /// Notifies it; it sends its request again.
    pub(super) fn wake(&self) {
        match self {
            Self::Task(task) => task.tell(TaskEvent::WorkerFits),
            Self::Run(run) => run.workers_changed(),
        }
    }
}

#[derive(Debug)]
struct Unplaced {
    request: Box<WorkerRequest>,
    /// Why it waits.
    why: NotEligible,
    waiter: Waiter,
}

impl Unplaced {
    /// Whether it can go on, or the reason why it waits has changed.
    fn may_continue(&self, pool: &WorkerPool, worker: WorkerId, why: &NotEligible) -> bool {
        pool.suits(worker, &self.request) || self.why != *why
    }
}

/// See the module documentation. By handler, so that a worker concerns only those that need one of its names.
#[derive(Debug, Default)]
pub(super) struct UnplacedWork {
    by_handler: HashMap<Arc<str>, HashMap<Identity, Unplaced>>,
    handlers: HashMap<Identity, Arc<str>>,
}

impl UnplacedWork {
    pub(super) fn add(&mut self, request: Box<WorkerRequest>, why: NotEligible, waiter: Waiter) {
        let (identity, handler) = (request.requester.0, Arc::clone(&request.handler));
        self.handlers.insert(identity, Arc::clone(&handler));
        self.by_handler.entry(handler).or_default().insert(identity, Unplaced { request, why, waiter });
    }

    pub(super) fn remove(&mut self, identity: Identity) {
        let Some(handler) = self.handlers.remove(&identity) else { return };
        if let Some(runs) = self.by_handler.get_mut(&handler) {
            runs.remove(&identity);
            if runs.is_empty() {
                self.by_handler.remove(&handler);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// A worker that watches these names came, left or changed.
    pub(super) fn wake(&mut self, pool: &WorkerPool, worker: WorkerId, watched: &[String]) {
        for name in watched {
            let Some(runs) = self.by_handler.get_mut(name.as_str()) else { continue };
            let why = pool.not_eligible(name);
            for (identity, unplaced) in runs.extract_if(|_, unplaced| unplaced.may_continue(pool, worker, &why)) {
                self.handlers.remove(&identity);
                unplaced.waiter.wake();
            }
            if runs.is_empty() {
                self.by_handler.remove(name.as_str());
            }
        }
    }

    /// Removes all of them.
    pub(super) fn take_all(&mut self) -> Vec<(Box<WorkerRequest>, Waiter)> {
        self.handlers.clear();
        let all = self.by_handler.drain().flat_map(|(_, runs)| runs);
        all.map(|(_, unplaced)| (unplaced.request, unplaced.waiter)).collect()
    }
}
