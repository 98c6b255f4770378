//! Assigns tasks to slots at workers: the shell around a [`WorkerPool`].
//!
//! It stores nothing. After a restart, the workers and the tasks send their state again.

mod message;

pub use message::{
    AllocatorHandle, AskPlace, BarHand, ExplainAsk, HandGone, HandHere, ListHands, OccupyPlace, OpenHand, ReleasePlace, WithdrawAsk,
    WorkerPermit,
};

use super::supervision::{ExitGuard, Link};
use super::task::{TaskEvent, TaskHandle};
use crate::domain::ids::Identity;
use crate::domain::task::TaskSettings;
use crate::domain::task::worker_pool::{Asked, Asker, Grant, WorkerPool};
use crate::domain::worker::NotEligible;
use actix::{Actor, AsyncContext, Context, Handler};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module documentation.
#[derive(Debug)]
pub struct Allocator {
    guard: ExitGuard,
    worker_pool: WorkerPool,
    /// The tasks that wait for a grant.
    askers: HashMap<Asker, TaskHandle>,
    /// The tasks for all workers that wait until there is one.
    unplaced: HashMap<Identity, Unplaced>,
}

/// A task that needs all eligible workers, when there is none.
#[derive(Debug)]
struct Unplaced {
    handler: Arc<str>,
    settings: Arc<TaskSettings>,
    task: TaskHandle,
}

impl Allocator {
    /// An allocator without workers or requests.
    #[must_use]
    pub fn new(guard: ExitGuard) -> Self {
        Self { guard, worker_pool: WorkerPool::default(), askers: HashMap::new(), unplaced: HashMap::new() }
    }

    fn permit(&self, grant: Grant, ctx: &Context<Self>) -> WorkerPermit {
        let this = AllocatorHandle(Link::new(ctx.address(), Arc::clone(self.guard.stats())));
        WorkerPermit::new(grant.worker, grant.life, this)
    }

    fn tell(&mut self, grants: Vec<Grant>, ctx: &Context<Self>) {
        for grant in grants {
            let permit = self.permit(grant, ctx);
            // If the request was withdrawn, dropping the permit frees the slot.
            if let Some(task) = self.askers.remove(&grant.asker) {
                task.tell(TaskEvent::Granted(grant.asker.1, permit));
            }
        }
    }

    /// A worker became eligible: tells the tasks that waited for any.
    fn wake_unplaced(&mut self) {
        let worker_pool = &self.worker_pool;
        let fits = |_: &Identity, waits: &mut Unplaced| worker_pool.all(&waits.handler, &waits.settings).is_ok();
        for (_, waits) in self.unplaced.extract_if(fits) {
            waits.task.tell(TaskEvent::WorkerFits);
        }
    }
}

impl Actor for Allocator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 16);
    }
}

impl Handler<AskPlace> for Allocator {
    type Result = ();
    fn handle(&mut self, AskPlace { ask, task }: AskPlace, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.ask");
        let asker = ask.asker;
        match self.worker_pool.ask(*ask) {
            Asked::Granted(grant) => task.tell(TaskEvent::Granted(asker.1, self.permit(grant, ctx))),
            Asked::Waits => drop(self.askers.insert(asker, task)),
            Asked::NoWorker(why) => {
                task.tell(TaskEvent::NoEligibleWorker(asker.1, why));
                self.askers.insert(asker, task);
            }
        }
    }
}

impl Handler<WithdrawAsk> for Allocator {
    type Result = ();
    fn handle(&mut self, WithdrawAsk(asker): WithdrawAsk, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.withdraw");
        self.worker_pool.withdraw(asker);
        self.askers.remove(&asker);
        self.unplaced.remove(&asker.0);
    }
}

impl Handler<OccupyPlace> for Allocator {
    type Result = ();
    fn handle(&mut self, OccupyPlace { worker, instance, task }: OccupyPlace, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.occupy");
        if let Some(life) = self.worker_pool.occupy(worker) {
            let this = AllocatorHandle(Link::new(ctx.address(), Arc::clone(self.guard.stats())));
            task.tell(TaskEvent::Occupied(instance, WorkerPermit::new(worker, life, this)));
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
        let grants = self.worker_pool.join(worker, *hand, open, barred);
        self.tell(grants, ctx);
        self.wake_unplaced();
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
        self.wake_unplaced();
    }
}

impl Handler<HandGone> for Allocator {
    type Result = ();
    fn handle(&mut self, HandGone(worker): HandGone, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.hand_gone");
        let (grants, orphans) = self.worker_pool.leave(worker);
        self.tell(grants, ctx);
        for asker in orphans {
            if let Some(task) = self.askers.get(&asker) {
                task.tell(TaskEvent::NoEligibleWorker(asker.1, NotEligible::Unsuitable));
            }
        }
    }
}

impl Handler<ListHands> for Allocator {
    type Result = ();
    fn handle(&mut self, ListHands { identity, task, handler, settings, reply }: ListHands, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.list");
        let all = self.worker_pool.all(&handler, &settings);
        match task.filter(|_| all.is_err()) {
            Some(task) => drop(self.unplaced.insert(identity, Unplaced { handler, settings, task })),
            None => drop(self.unplaced.remove(&identity)),
        }
        reply.send(Ok(all));
    }
}

impl Handler<ExplainAsk> for Allocator {
    type Result = ();
    fn handle(&mut self, ExplainAsk { ask, reply }: ExplainAsk, _: &mut Self::Context) {
        let _timed = self.guard.timed("allocator.explain");
        reply.send(Ok(self.worker_pool.explain(&ask)));
    }
}
