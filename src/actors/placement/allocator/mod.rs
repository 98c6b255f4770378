//! Assigns tasks to slots at workers, and runs of block jobs to workers: the shell around a [`WorkerPool`].
//!
//! It stores nothing. After a crash, the workers, the tasks and the runs send their state again.

mod message;
#[cfg(test)]
mod tests;
mod unplaced;

pub use message::{
    AllocatorHandle, AskPlace, BarHand, ExplainAsk, FindWorker, HandGone, HandHere, ListHands, OccupyPlace, OpenHand, ReleasePlace,
    WithdrawAsk,
};

use super::{Permit, WorkerSlot};
use crate::actors::context::AddressBook;
use crate::actors::run::{Choice, RunHandle};
use crate::actors::supervision::{ExitGuard, Link};
use crate::actors::task::{TaskEvent, TaskHandle};
use crate::domain::ids::WorkerId;
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::{Ask, Asked, Asker, Grant, WorkerPool};
use crate::protocol::problem::Problem;
use actix::{Actor, AsyncContext, Context, Handler};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use unplaced::{UnplacedRuns, Waiter};

/// Time that the workers have to send their state to an allocator that replaces a crashed one.
const REBUILDING: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub struct Allocator {
    guard: ExitGuard,
    worker_pool: WorkerPool,
    /// The tasks that wait for a grant.
    askers: HashMap<Asker, TaskHandle>,
    unplaced: UnplacedRuns,
    addresses: Arc<AddressBook>,
    /// It replaces a crashed one, and may not have all workers yet: it reports to none that there is no worker.
    is_rebuilding: bool,
}

impl Allocator {
    /// An allocator without workers or requests. `is_rebuilding`: it replaces a crashed one.
    #[must_use]
    pub fn new(guard: ExitGuard, addresses: Arc<AddressBook>, is_rebuilding: bool) -> Self {
        let (worker_pool, askers, unplaced) = (WorkerPool::default(), HashMap::new(), UnplacedRuns::default());
        Self { guard, worker_pool, askers, unplaced, addresses, is_rebuilding }
    }

    /// The permit for a slot that the worker pool counts as used.
    fn permit(&self, worker: WorkerId, life: u64, ctx: &Context<Self>) -> Permit<WorkerSlot> {
        let this = AllocatorHandle(Link::new(ctx.address(), Arc::clone(self.guard.stats())));
        Permit::new(WorkerSlot { worker }, move || this.release(worker, life))
    }

    fn tell(&mut self, grants: Vec<Grant>, ctx: &Context<Self>) {
        for grant in grants {
            let permit = self.permit(grant.worker, grant.life, ctx);
            // If the request was withdrawn, dropping the permit frees the slot.
            if let Some(task) = self.askers.remove(&grant.asker) {
                task.tell(TaskEvent::Granted(grant.asker.1, permit));
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

    /// The workers have had time to send their state: those that found no worker ask again.
    fn rebuilt(&mut self) {
        self.is_rebuilding = false;
        for task in self.askers.values() {
            task.tell(TaskEvent::AskAgain);
        }
        for (ask, waiter) in self.unplaced.take_all() {
            match waiter {
                Waiter::Run(run) => self.find_worker(ask, run),
                Waiter::Task(_) => waiter.wake(),
            }
        }
    }

    /// Answers a run, once for each request: at once, or, if there is no worker yet and the allocator is being rebuilt, when that is over.
    fn find_worker(&mut self, ask: Box<Ask>, run: RunHandle) {
        let worker = self.worker_pool.find(&ask, |worker| self.addresses.runs_by_worker.count(worker));
        let why = worker.as_ref().err().cloned();
        if why.is_none() || !self.is_rebuilding {
            run.worker_found(Choice { watches: self.addresses.watches(), worker });
        }
        if let Some(why) = why {
            self.unplaced.enter(ask, why, Waiter::Run(run));
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

impl Handler<AskPlace> for Allocator {
    type Result = ();
    fn handle(&mut self, AskPlace { ask, task }: AskPlace, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.ask");
        let asker = ask.asker;
        match self.worker_pool.ask(*ask) {
            Asked::Granted(grant) => task.tell(TaskEvent::Granted(asker.1, self.permit(grant.worker, grant.life, ctx))),
            Asked::NoWorker(why) if !self.is_rebuilding => {
                task.tell(TaskEvent::NoEligibleWorker(asker.1, why));
                self.askers.insert(asker, task);
            }
            Asked::Waits | Asked::NoWorker(_) => drop(self.askers.insert(asker, task)),
        }
    }
}

impl Handler<WithdrawAsk> for Allocator {
    type Result = ();
    fn handle(&mut self, WithdrawAsk(asker): WithdrawAsk, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.withdraw");
        self.worker_pool.withdraw(asker);
        self.askers.remove(&asker);
        self.unplaced.leave(asker.0);
    }
}

impl Handler<OccupyPlace> for Allocator {
    type Result = ();
    fn handle(&mut self, OccupyPlace { worker, instance, task }: OccupyPlace, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.occupy");
        if let Some(life) = self.worker_pool.occupy(worker) {
            task.tell(TaskEvent::Occupied(instance, self.permit(worker, life, ctx)));
        }
    }
}

impl Handler<ReleasePlace> for Allocator {
    type Result = ();
    fn handle(&mut self, ReleasePlace { worker, life }: ReleasePlace, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.release");
        let grants = self.worker_pool.release(worker, life);
        self.tell(grants, ctx);
    }
}

impl Handler<HandHere> for Allocator {
    type Result = ();
    fn handle(&mut self, HandHere { worker, hand, open, barred }: HandHere, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.hand_here");
        let mut watched = hand.handlers.clone();
        watched.extend(self.worker_pool.watched_by(worker).into_iter().filter(|name| !hand.handlers.contains(name)));
        let grants = self.worker_pool.join(worker, *hand, open, barred);
        self.tell(grants, ctx);
        self.workers_changed(worker, &watched);
    }
}

impl Handler<OpenHand> for Allocator {
    type Result = ();
    fn handle(&mut self, OpenHand { worker, open }: OpenHand, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.open_hand");
        let grants = self.worker_pool.set_open(worker, open);
        self.tell(grants, ctx);
    }
}

impl Handler<BarHand> for Allocator {
    type Result = ();
    fn handle(&mut self, BarHand { worker, barred }: BarHand, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.bar_hand");
        let grants = self.worker_pool.bar(worker, barred);
        self.tell(grants, ctx);
        self.workers_changed(worker, &self.worker_pool.watched_by(worker));
    }
}

impl Handler<HandGone> for Allocator {
    type Result = ();
    fn handle(&mut self, HandGone(worker): HandGone, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.hand_gone");
        let watched = self.worker_pool.watched_by(worker);
        let (grants, orphans) = self.worker_pool.leave(worker);
        self.tell(grants, ctx);
        self.workers_changed(worker, &watched);
        for asker in orphans {
            if let Some(task) = self.askers.get(&asker) {
                task.tell(TaskEvent::NoEligibleWorker(asker.1, NotEligible::Unsuitable));
            }
        }
    }
}

impl Handler<ListHands> for Allocator {
    type Result = ();
    fn handle(&mut self, ListHands { ask, task, reply }: ListHands, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.list");
        if self.is_rebuilding {
            return reply.send(Err(Problem::busy("the allocator does not have all workers yet; retry later")));
        }
        self.unplaced.leave(ask.asker.0);
        let all = self.worker_pool.all(&ask.handler, &ask.settings);
        if let (Err(why), Some(task)) = (&all, task) {
            self.unplaced.enter(ask, why.clone(), Waiter::Task(task));
        }
        reply.send(Ok(all));
    }
}

impl Handler<FindWorker> for Allocator {
    type Result = ();
    fn handle(&mut self, FindWorker { ask, run }: FindWorker, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.find_worker");
        self.unplaced.leave(ask.asker.0);
        self.find_worker(ask, run);
    }
}

impl Handler<ExplainAsk> for Allocator {
    type Result = ();
    fn handle(&mut self, ExplainAsk { ask, reply }: ExplainAsk, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.explain");
        reply.send(Ok(self.worker_pool.explain(&ask)));
    }
}
