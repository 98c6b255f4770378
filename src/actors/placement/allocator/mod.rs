//! Assigns tasks to slots at workers, and runs of block jobs to workers: the shell around a [`WorkerPool`].
//!
//! It stores nothing. After a crash, the workers, the tasks and the runs send their state again.

mod message;
#[cfg(test)]
mod tests;
mod unplaced;

pub use message::{
    AllocatorHandle, ExplainRequest, FindWorker, ListWorkers, OccupySlot, ReleaseSlot, RequestSlot, SetDisabled, SetReachable,
    WithdrawRequest, WorkerJoined, WorkerLeft,
};

use super::{Permit, WorkerSlot};
use crate::actors::context::AddressBook;
use crate::actors::run::{Choice, RunHandle};
use crate::actors::supervision::{ExitGuard, Link};
use crate::actors::task::{TaskEvent, TaskHandle};
use crate::domain::ids::WorkerId;
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::{Grant, RequestOutcome, Requester, WorkerPool, WorkerRequest};
use crate::protocol::problem::Problem;
use actix::{Actor, AsyncContext, Context, Handler};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use unplaced::{UnplacedWork, Waiter};

/// Time that the workers have to send their state to an allocator that replaces a crashed one.
const REBUILDING: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub struct Allocator {
    guard: ExitGuard,
    worker_pool: WorkerPool,
    /// The tasks that wait for a grant.
    waiting_tasks: HashMap<Requester, TaskHandle>,
    unplaced: UnplacedWork,
    addresses: Arc<AddressBook>,
    /// It replaces a crashed one, and may not have all workers yet: it reports to none that there is no worker.
    is_rebuilding: bool,
}

impl Allocator {
    /// An allocator without workers or requests. `is_rebuilding`: it replaces a crashed one.
    #[must_use]
    pub fn new(guard: ExitGuard, addresses: Arc<AddressBook>, is_rebuilding: bool) -> Self {
        let (worker_pool, waiting_tasks, unplaced) = (WorkerPool::default(), HashMap::new(), UnplacedWork::default());
        Self { guard, worker_pool, waiting_tasks, unplaced, addresses, is_rebuilding }
    }

    /// The permit for a slot that the worker pool counts as used.
    fn permit(&self, worker: WorkerId, incarnation: u64, ctx: &Context<Self>) -> Permit<WorkerSlot> {
        let this = Link::new(ctx.address(), Arc::clone(self.guard.stats()));
        Permit::new(WorkerSlot { worker }, move || this.tell(ReleaseSlot { worker, incarnation }))
    }

    fn tell(&mut self, grants: Vec<Grant>, ctx: &Context<Self>) {
        for grant in grants {
            let permit = self.permit(grant.worker, grant.incarnation, ctx);
            // If the request was withdrawn, dropping the permit frees the slot.
            if let Some(task) = self.waiting_tasks.remove(&grant.requester) {
                task.tell(TaskEvent::Granted(grant.requester.1, permit));
            }
        }
    }

    /// A worker that watches these names came, left or changed.
    fn workers_changed(&mut self, worker: WorkerId, watched: &[String]) {
        self.addresses.watches_changed();
        if !self.is_rebuilding && !self.unplaced.is_empty() {
            self.unplaced.wake(&self.worker_pool, worker, watched);
        }
    }

    /// The workers have had time to send their state: those that found no worker request again.
    fn rebuilt(&mut self) {
        self.is_rebuilding = false;
        for task in self.waiting_tasks.values() {
            task.tell(TaskEvent::RequestAgain);
        }
        for (request, waiter) in self.unplaced.take_all() {
            match waiter {
                Waiter::Run(run) => self.find_worker(request, run),
                Waiter::Task(_) => waiter.wake(),
            }
        }
    }

    /// Answers a run, once for each request: at once, or, if there is no worker yet and the allocator is being rebuilt, when that is over.
    fn find_worker(&mut self, request: Box<WorkerRequest>, run: RunHandle) {
        let worker = self.worker_pool.find(&request, |worker| self.addresses.runs_by_worker.count(worker));
        let why = worker.as_ref().err().cloned();
        if why.is_none() || !self.is_rebuilding {
            run.worker_found(Choice { watches: self.addresses.watches(), worker });
        }
        if let Some(why) = why {
            self.unplaced.add(request, why, Waiter::Run(run));
        }
    }
}

impl Actor for Allocator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 16);
        if self.is_rebuilding {
            ctx.run_later(REBUILDING, |this, _| this.rebuilt());
        }
    }
}

impl Handler<RequestSlot> for Allocator {
    type Result = ();
    fn handle(&mut self, RequestSlot { request, task }: RequestSlot, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.ask");
        let requester = request.requester;
        match self.worker_pool.request(*request) {
            RequestOutcome::Granted { grant, moved } => {
                task.tell(TaskEvent::Granted(requester.1, self.permit(grant.worker, grant.incarnation, ctx)));
                self.tell(moved, ctx);
            }
            RequestOutcome::NoWorker(why) if !self.is_rebuilding => {
                task.tell(TaskEvent::NoEligibleWorker(requester.1, why));
                self.waiting_tasks.insert(requester, task);
            }
            RequestOutcome::Waits | RequestOutcome::NoWorker(_) => drop(self.waiting_tasks.insert(requester, task)),
        }
    }
}

impl Handler<WithdrawRequest> for Allocator {
    type Result = ();
    fn handle(&mut self, WithdrawRequest(requester): WithdrawRequest, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.withdraw");
        self.worker_pool.withdraw(requester);
        self.waiting_tasks.remove(&requester);
        self.unplaced.remove(requester.0);
    }
}

impl Handler<OccupySlot> for Allocator {
    type Result = ();
    fn handle(&mut self, OccupySlot { worker, instance, task }: OccupySlot, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.occupy");
        if let Some(incarnation) = self.worker_pool.occupy(worker) {
            task.tell(TaskEvent::Occupied(instance, self.permit(worker, incarnation, ctx)));
        }
    }
}

impl Handler<ReleaseSlot> for Allocator {
    type Result = ();
    fn handle(&mut self, ReleaseSlot { worker, incarnation }: ReleaseSlot, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.release");
        let grants = self.worker_pool.release(worker, incarnation);
        self.tell(grants, ctx);
    }
}

impl Handler<WorkerJoined> for Allocator {
    type Result = ();
    fn handle(&mut self, WorkerJoined { worker, capacity, is_reachable, disabled }: WorkerJoined, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.worker_joined");
        let mut watched = capacity.handlers.clone();
        watched.extend(self.worker_pool.watched_by(worker).into_iter().filter(|name| !capacity.handlers.contains(name)));
        let grants = self.worker_pool.join(worker, *capacity, is_reachable, disabled);
        self.tell(grants, ctx);
        self.workers_changed(worker, &watched);
    }
}

impl Handler<SetReachable> for Allocator {
    type Result = ();
    fn handle(&mut self, SetReachable { worker, is_reachable }: SetReachable, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.set_reachable");
        let grants = self.worker_pool.set_reachable(worker, is_reachable);
        self.tell(grants, ctx);
    }
}

impl Handler<SetDisabled> for Allocator {
    type Result = ();
    fn handle(&mut self, SetDisabled { worker, disabled }: SetDisabled, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.set_disabled");
        let grants = self.worker_pool.set_disabled(worker, disabled);
        self.tell(grants, ctx);
        self.workers_changed(worker, &self.worker_pool.watched_by(worker));
    }
}

impl Handler<WorkerLeft> for Allocator {
    type Result = ();
    fn handle(&mut self, WorkerLeft(worker): WorkerLeft, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.worker_left");
        let watched = self.worker_pool.watched_by(worker);
        let (grants, without_target) = self.worker_pool.leave(worker);
        self.tell(grants, ctx);
        self.workers_changed(worker, &watched);
        for requester in without_target {
            if let Some(task) = self.waiting_tasks.get(&requester) {
                task.tell(TaskEvent::NoEligibleWorker(requester.1, NotEligible::Unsuitable));
            }
        }
    }
}

impl Handler<ListWorkers> for Allocator {
    type Result = ();
    fn handle(&mut self, ListWorkers { request, task, reply }: ListWorkers, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.list");
        if self.is_rebuilding {
            return reply.send(Err(Problem::busy("the allocator does not have all workers yet; retry later")));
        }
        self.unplaced.remove(request.requester.0);
        let all = self.worker_pool.all(&request.handler, &request.settings);
        if let (Err(why), Some(task)) = (&all, task) {
            self.unplaced.add(request, why.clone(), Waiter::Task(task));
        }
        reply.send(Ok(all));
    }
}

impl Handler<FindWorker> for Allocator {
    type Result = ();
    fn handle(&mut self, FindWorker { request, run }: FindWorker, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.find_worker");
        self.unplaced.remove(request.requester.0);
        self.find_worker(request, run);
    }
}

impl Handler<ExplainRequest> for Allocator {
    type Result = ();
    fn handle(&mut self, ExplainRequest { request, reply }: ExplainRequest, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.explain");
        reply.send(Ok(self.worker_pool.explain(&request)));
    }
}
