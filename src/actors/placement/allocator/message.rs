//! Messages to the allocator, and its handle.

use super::Allocator;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::run::RunHandle;
use crate::actors::supervision::Link;
use crate::actors::task::TaskHandle;
use crate::domain::ids::WorkerId;
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::{Ask, Asker, Refusal, WorkerCapacity};
use actix::Message;

/// From a task: request a worker. The answer is `Granted` when there is a permit, or `NoEligibleWorker` at once if no worker is eligible;
/// then the request stays open.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskPlace {
    /// The request.
    pub ask: Box<Ask>,
    /// The task that receives the grant.
    pub task: TaskHandle,
}

/// From a task: withdraw its request.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WithdrawAsk(pub Asker);

/// From a task: a worker already runs it. The answer is `Occupied`, if that worker is known.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OccupyPlace {
    /// The worker that runs the task.
    pub worker: WorkerId,
    /// The instance of the task.
    pub instance: u32,
    /// The task that receives the permit.
    pub task: TaskHandle,
}

/// From a dropped permit: the slot is free again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReleasePlace {
    /// The worker of the slot.
    pub worker: WorkerId,
    /// The incarnation of the worker in which the permit was granted.
    pub life: u64,
}

/// From a worker: it has connected or its capacity changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HandHere {
    /// The worker.
    pub worker: WorkerId,
    /// The capacity that the worker reported.
    pub hand: Box<WorkerCapacity>,
    /// The worker is reachable.
    pub open: bool,
    /// Why an operator disabled new work for it, if so.
    pub barred: Option<String>,
}

/// From a worker: an operator disabled or enabled new work for it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct BarHand {
    /// The worker.
    pub worker: WorkerId,
    /// Why new work is disabled, if so.
    pub barred: Option<String>,
}

/// From a worker: it became reachable or unreachable.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OpenHand {
    /// The worker.
    pub worker: WorkerId,
    /// The worker is reachable.
    pub open: bool,
}

/// From a worker or the registry: the worker has gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HandGone(pub WorkerId);

/// From a run of a block job: find a worker. The answer is `worker_found`. If there is none, the run receives `workers_changed` once, when
/// there is one or the reason has changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct FindWorker {
    /// The request.
    pub ask: Box<Ask>,
    /// The run that receives the answer.
    pub run: RunHandle,
}

/// From a task that runs on all workers: list the eligible workers. If there is none and the task waits, it receives `WorkerFits` once,
/// when there is one or the reason has changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListHands {
    /// The request.
    pub ask: Box<Ask>,
    /// The task, if it waits for a worker.
    pub task: Option<TaskHandle>,
    /// The workers, ordered by name; or why there is none.
    pub reply: Reply<Result<Vec<WorkerId>, NotEligible>>,
}

/// From the service: explain why a task, or a run of a block job, has no worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExplainAsk {
    /// The request.
    pub ask: Box<Ask>,
    /// The connected workers, each with the reason why it does not get the work.
    pub reply: Reply<Vec<Refusal>>,
}

/// Handle to the allocator for other modules.
#[derive(Debug, Clone)]
pub struct AllocatorHandle(pub(in crate::actors) Link<Allocator>);

impl AllocatorHandle {
    /// See [`AskPlace`].
    pub fn ask(&self, ask: Box<Ask>, task: TaskHandle) {
        self.0.tell(AskPlace { ask, task });
    }
    /// See [`WithdrawAsk`].
    pub fn withdraw(&self, asker: Asker) {
        self.0.tell(WithdrawAsk(asker));
    }
    /// See [`OccupyPlace`].
    pub fn occupy(&self, worker: WorkerId, instance: u32, task: TaskHandle) {
        self.0.tell(OccupyPlace { worker, instance, task });
    }
    /// See [`ReleasePlace`].
    pub fn release(&self, worker: WorkerId, life: u64) {
        self.0.tell(ReleasePlace { worker, life });
    }
    /// See [`HandHere`].
    pub fn hand_here(&self, worker: WorkerId, hand: WorkerCapacity, open: bool, barred: Option<String>) {
        self.0.tell(HandHere { worker, hand: Box::new(hand), open, barred });
    }
    /// See [`OpenHand`].
    pub fn hand_open(&self, worker: WorkerId, open: bool) {
        self.0.tell(OpenHand { worker, open });
    }
    /// See [`BarHand`].
    pub fn bar_worker(&self, worker: WorkerId, barred: Option<String>) {
        self.0.tell(BarHand { worker, barred });
    }
    /// See [`HandGone`].
    pub fn hand_gone(&self, worker: WorkerId) {
        self.0.tell(HandGone(worker));
    }
    /// See [`ListHands`].
    #[must_use]
    pub fn list(&self, ask: Box<Ask>, task: Option<TaskHandle>) -> Answer<Result<Vec<WorkerId>, NotEligible>> {
        let (reply, answer) = reply();
        self.0.tell(ListHands { ask, task, reply });
        answer
    }
    /// See [`FindWorker`].
    pub fn find_worker(&self, ask: Box<Ask>, run: RunHandle) {
        self.0.tell(FindWorker { ask, run });
    }
    /// See [`ExplainAsk`].
    #[must_use]
    pub fn explain(&self, ask: Box<Ask>) -> Answer<Vec<Refusal>> {
        let (reply, answer) = reply();
        self.0.tell(ExplainAsk { ask, reply });
        answer
    }
}
