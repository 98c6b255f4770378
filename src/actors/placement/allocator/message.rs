//! Messages to the allocator, and its handle.

use super::Allocator;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::run::RunHandle;
use crate::actors::supervision::CurrentLink;
use crate::actors::task::TaskHandle;
use crate::domain::ids::WorkerId;
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::{Requester, WorkerCapacity, WorkerObstacle, WorkerRequest};
use actix::Message;

/// From a task: request a worker. The answer is `Granted` when there is a permit, or `NoEligibleWorker` at once if no worker is eligible;
/// then the request stays open.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RequestSlot {
    /// The request.
    pub request: Box<WorkerRequest>,
    /// The task that receives the grant.
    pub task: TaskHandle,
}

/// From a task: withdraw its request.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WithdrawRequest(pub Requester);

/// From a task: a worker already runs it. The answer is `Occupied`, if that worker is known.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OccupySlot {
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
pub struct ReleaseSlot {
    /// The worker of the slot.
    pub worker: WorkerId,
    /// The incarnation of the worker in which the permit was granted.
    pub incarnation: u64,
}

/// From a worker: it has connected or its capacity changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerJoined {
    /// The worker.
    pub worker: WorkerId,
    /// The capacity that the worker reported.
    pub capacity: Box<WorkerCapacity>,
    /// The worker is reachable.
    pub is_reachable: bool,
    /// Why an operator disabled new work for it, if so.
    pub disabled: Option<String>,
}

/// From a worker: an operator disabled or enabled new work for it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetDisabled {
    /// The worker.
    pub worker: WorkerId,
    /// Why new work is disabled, if so.
    pub disabled: Option<String>,
}

/// From a worker: it became reachable or unreachable.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SetReachable {
    /// The worker.
    pub worker: WorkerId,
    /// The worker is reachable.
    pub is_reachable: bool,
}

/// From a worker or the registry: the worker has gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerLeft(pub WorkerId);

/// From a run of a block job: find a worker. The answer is `worker_found`. If there is none, the run receives `workers_changed` once, when
/// there is one or the reason has changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct FindWorker {
    /// The request.
    pub request: Box<WorkerRequest>,
    /// The run that receives the answer.
    pub run: RunHandle,
}

/// From a task that runs on all workers: list the eligible workers. If there is none and the task waits, it receives `WorkerFits` once,
/// when there is one or the reason has changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListWorkers {
    /// The request.
    pub request: Box<WorkerRequest>,
    /// The task, if it waits for a worker.
    pub task: Option<TaskHandle>,
    /// The workers, ordered by name; or why there is none.
    pub reply: Reply<Result<Vec<WorkerId>, NotEligible>>,
}

/// From the service: explain why a task, or a run of a block job, has no worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExplainRequest {
    /// The request.
    pub request: Box<WorkerRequest>,
    /// The connected workers, each with the reason why it does not get the work.
    pub reply: Reply<Vec<WorkerObstacle>>,
}

/// Handle to the allocator for other modules.
#[derive(Debug, Clone, Default)]
pub struct AllocatorHandle(pub(in crate::actors) CurrentLink<Allocator>);

impl AllocatorHandle {
    /// See [`RequestSlot`].
    pub fn request_slot(&self, request: Box<WorkerRequest>, task: TaskHandle) {
        self.0.tell(RequestSlot { request, task });
    }
    /// See [`WithdrawRequest`].
    pub fn withdraw(&self, requester: Requester) {
        self.0.tell(WithdrawRequest(requester));
    }
    /// See [`OccupySlot`].
    pub fn occupy_slot(&self, worker: WorkerId, instance: u32, task: TaskHandle) {
        self.0.tell(OccupySlot { worker, instance, task });
    }
    /// See [`WorkerJoined`].
    pub fn worker_joined(&self, worker: WorkerId, capacity: WorkerCapacity, is_reachable: bool, disabled: Option<String>) {
        self.0.tell(WorkerJoined { worker, capacity: Box::new(capacity), is_reachable, disabled });
    }
    /// See [`SetReachable`].
    pub fn set_reachable(&self, worker: WorkerId, is_reachable: bool) {
        self.0.tell(SetReachable { worker, is_reachable });
    }
    /// See [`SetDisabled`].
    pub fn set_disabled(&self, worker: WorkerId, disabled: Option<String>) {
        self.0.tell(SetDisabled { worker, disabled });
    }
    /// See [`WorkerLeft`].
    pub fn worker_left(&self, worker: WorkerId) {
        self.0.tell(WorkerLeft(worker));
    }
    /// See [`ListWorkers`].
    #[must_use]
    pub fn list_workers(&self, request: Box<WorkerRequest>, task: Option<TaskHandle>) -> Answer<Result<Vec<WorkerId>, NotEligible>> {
        let (reply, answer) = reply();
        self.0.tell(ListWorkers { request, task, reply });
        answer
    }
    /// See [`FindWorker`].
    pub fn find_worker(&self, request: Box<WorkerRequest>, run: RunHandle) {
        self.0.tell(FindWorker { request, run });
    }
    /// See [`ExplainRequest`].
    #[must_use]
    pub fn explain(&self, request: Box<WorkerRequest>) -> Answer<Vec<WorkerObstacle>> {
        let (reply, answer) = reply();
        self.0.tell(ExplainRequest { request, reply });
        answer
    }
}
