//! Messages to the actor of a task, and its handle.

use super::TaskActor;
use crate::actors::allocator::WorkerPermit;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::explain::Part;
use crate::domain::ids::WorkerId;
use crate::domain::task::worker_pool::Ask;
use crate::domain::time::Timestamp;
use crate::domain::worker::NotEligible;
use crate::protocol::api::RunOutput;
use crate::protocol::task::{TaskRef, TaskReport};
use actix::Message;

/// From its job, as for a run of blocks: withdraw the task if it was created ahead of its time and has not begun.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Withdraw(pub Reply<bool>);

/// From the service: describe where each instance is.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExplainTask(pub Reply<TaskDescription>);

/// The state and the instances of a task.
#[derive(Debug)]
pub struct TaskDescription {
    /// The state in the format of the API.
    pub output: RunOutput,
    /// Its instances, or its only one.
    pub parts: Vec<Part>,
    /// The request of the first instance that has no worker.
    pub wish: Option<Box<Ask>>,
}

/// From the allocator: a permit.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Granted {
    /// The instance.
    pub instance: u32,
    /// The permit. Dropping it frees the slot.
    pub permit: WorkerPermit,
}

/// From the allocator: the permit of a task that was already at a worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Occupied {
    /// The instance.
    pub instance: u32,
    /// The permit.
    pub permit: WorkerPermit,
}

/// From the allocator: no connected worker is eligible.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NoEligibleWorker {
    /// The instance.
    pub instance: u32,
    /// Why not.
    pub why: NotEligible,
}

/// From a worker's actor: a report of an attempt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Report {
    /// The worker.
    pub worker: WorkerId,
    /// The report. Boxed, because most messages are small.
    pub report: Box<TaskReport>,
}

/// From a worker's actor: the worker runs this attempt, which the worker's actor did not know.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Claimed {
    /// The worker.
    pub worker: WorkerId,
    /// The attempt.
    pub task: TaskRef,
}

/// From a worker's actor or the registry: the lease of the attempt has expired, or its worker has gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LeaseOver {
    /// The worker that ran it.
    pub worker: WorkerId,
    /// The attempt; `None` for all attempts of this worker.
    pub task: Option<TaskRef>,
    /// Time of the last report.
    pub heard: Timestamp,
    /// The reason.
    pub why: &'static str,
}

/// From a worker's actor: the attempt has been running for a while.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StillAtWork {
    /// The attempt.
    pub task: TaskRef,
    /// Its age in milliseconds.
    pub since_ms: i64,
}

/// From the registry: the worker's actor was rebuilt and has lost its list of tasks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerBack(pub WorkerId);

/// From the registry: the allocator was rebuilt without state.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskAgain;

/// From the service or the job: stop the task.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopTask {
    /// The reason.
    pub reason: String,
    /// The caller, if known.
    pub by: Option<String>,
    /// The run after its end.
    pub reply: Reply<RunOutput>,
}

/// From the registry: if the run is queued, check whether it may begin.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// From the service: the current state of the run.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeTask(pub Reply<RunOutput>);

/// Handle to a task for other modules.
#[derive(Debug, Clone)]
pub struct TaskHandle(pub(in crate::actors) Link<TaskActor>);

impl TaskHandle {
    /// See [`Granted`].
    pub fn granted(&self, instance: u32, permit: WorkerPermit) {
        self.0.tell(Granted { instance, permit });
    }
    /// See [`Occupied`].
    pub fn occupied(&self, instance: u32, permit: WorkerPermit) {
        self.0.tell(Occupied { instance, permit });
    }
    /// See [`NoEligibleWorker`].
    pub fn no_worker(&self, instance: u32, why: NotEligible) {
        self.0.tell(NoEligibleWorker { instance, why });
    }
    /// See [`Report`].
    pub fn report(&self, worker: WorkerId, report: Box<TaskReport>) {
        self.0.tell(Report { worker, report });
    }
    /// See [`Claimed`].
    pub fn claimed(&self, worker: WorkerId, task: TaskRef) {
        self.0.tell(Claimed { worker, task });
    }
    /// See [`LeaseOver`].
    pub fn lease_over(&self, worker: WorkerId, task: Option<TaskRef>, heard: Timestamp, why: &'static str) {
        self.0.tell(LeaseOver { worker, task, heard, why });
    }
    /// See [`StillAtWork`].
    pub fn still_at_work(&self, task: TaskRef, since_ms: i64) {
        self.0.tell(StillAtWork { task, since_ms });
    }
    /// See [`WorkerBack`].
    pub fn worker_back(&self, id: WorkerId) {
        self.0.tell(WorkerBack(id));
    }
    /// See [`AskAgain`].
    pub fn ask_again(&self) {
        self.0.tell(AskAgain);
    }
    /// See [`ExplainTask`].
    #[must_use]
    pub fn explain(&self) -> Answer<TaskDescription> {
        let (reply, answer) = reply();
        self.0.tell(ExplainTask(reply));
        answer
    }
    /// See [`StopTask`].
    #[must_use]
    pub fn stop(&self, reason: String, by: Option<String>) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(StopTask { reason, by, reply });
        answer
    }
    /// See [`Withdraw`].
    #[must_use]
    pub fn withdraw(&self) -> Answer<bool> {
        let (reply, answer) = reply();
        self.0.tell(Withdraw(reply));
        answer
    }
    /// See [`CheckQueue`].
    pub fn check_queue(&self) {
        self.0.tell(CheckQueue);
    }
    /// See [`DescribeTask`].
    #[must_use]
    pub fn describe(&self) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(DescribeTask(reply));
        answer
    }
}
