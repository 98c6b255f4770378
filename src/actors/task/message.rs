//! The messages that only tasks accept.

use crate::actors::placement::{Permit, WorkerSlot};
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::task::TaskHandle;
use crate::domain::explain::Instance;
use crate::domain::ids::WorkerId;
use crate::domain::time::Timestamp;
use crate::domain::worker::NotEligible;
use crate::domain::worker_pool::WorkerRequest;
use crate::protocol::api::RunOutput;
use crate::protocol::task::{TaskRef, TaskReport};

/// To a task.
#[derive(Debug)]
pub enum TaskEvent {
    /// From the allocator: a permit. Dropping it frees the slot.
    Granted(u32, Permit<WorkerSlot>),
    /// From the allocator: the permit of an instance that was already at a worker.
    Occupied(u32, Permit<WorkerSlot>),
    /// From the allocator: no connected worker is eligible for an instance, and why not.
    NoEligibleWorker(u32, NotEligible),
    /// From the allocator: a worker is eligible for the task, which needs all workers and had none; or the reason why there is none has changed.
    WorkerFits,
    /// From a worker's actor: a report of an attempt. Boxed, because most messages are small.
    Report(WorkerId, Box<TaskReport>),
    /// From a worker's actor: the worker runs this attempt, which is not in the list of the worker's actor.
    Claimed(WorkerId, TaskRef),
    /// From a worker's actor or the registry: the lease of the attempt has expired, or its worker has gone.
    LeaseOver {
        /// The worker that ran it.
        worker: WorkerId,
        /// The attempt; `None` for all attempts of this worker.
        task: Option<TaskRef>,
        /// Time of the last message about it.
        last_message: Timestamp,
        /// The reason.
        why: &'static str,
    },
    /// From a worker's actor: the attempt has been running for a while; the number is its age in milliseconds.
    StillRunning(TaskRef, i64),
    /// From the registry: the worker's actor was rebuilt and has lost its list of tasks.
    WorkerRestarted(WorkerId),
    /// From the registry: the allocator was rebuilt without state.
    RequestAgain,
    /// From the service: describe where each instance is.
    Explain(Reply<TaskDescription>),
}

/// The state and the instances of a task.
#[derive(Debug)]
pub struct TaskDescription {
    /// The state in the format of the API.
    pub output: RunOutput,
    /// Its instances, or its only one.
    pub instances: Vec<Instance>,
    /// The request of the first instance that has no worker.
    pub request: Option<Box<WorkerRequest>>,
}

impl TaskHandle {
    /// See [`TaskEvent::Explain`].
    #[must_use]
    pub fn explain(&self) -> Answer<TaskDescription> {
        let (reply, answer) = reply();
        self.tell(TaskEvent::Explain(reply));
        answer
    }
}
