//! What a task's actor is told, and its handle.

use super::TaskActor;
use crate::actors::allocator::WorkerPermit;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::explain::Part;
use crate::domain::ids::WorkerId;
use crate::domain::task::worker_pool::Ask;
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::task::{TaskRef, TaskReport};
use actix::Message;

/// From its job, as for a run of blocks: it is not to begin, if it was made ahead of its time and has not begun.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Withdraw(pub Reply<bool>);

/// From the service: where is each instance?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExplainTask(pub Reply<TaskDescription>);

/// What a task's actor knows of where it is.
#[derive(Debug)]
pub struct TaskDescription {
    /// As the API shows it.
    pub output: RunOutput,
    /// Its instances, or the only one.
    pub parts: Vec<Part>,
    /// What the first of those wants that have no worker.
    pub wish: Option<Box<Ask>>,
}

/// From the allocator: here is a permit.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Granted {
    /// For which instance.
    pub instance: u32,
    /// The permit. Dropped, it goes back.
    pub permit: WorkerPermit,
}

/// From the allocator: the permit of a task that was at a worker before it was asked for.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Occupied {
    /// Of which instance.
    pub instance: u32,
    /// The permit.
    pub permit: WorkerPermit,
}

/// From the allocator: no worker that is there may have it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Nobody {
    /// Which instance.
    pub instance: u32,
    /// Some watch its name, and may not have it for another reason.
    pub is_watched: bool,
}

/// From a worker's actor: what it says of an attempt.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Report {
    /// Who.
    pub worker: WorkerId,
    /// What. Boxed: most messages are small.
    pub report: Box<TaskReport>,
}

/// From a worker's actor: it has this attempt in hand, which the actor did not know.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Claimed {
    /// Who.
    pub worker: WorkerId,
    /// What.
    pub task: TaskRef,
}

/// From a worker's actor or the registry: nothing was heard of the attempt, or its worker is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LeaseOver {
    /// Who had it.
    pub worker: WorkerId,
    /// Which attempt; none: all that this worker has.
    pub task: Option<TaskRef>,
    /// Since when nothing was heard.
    pub heard: Timestamp,
    /// What happened.
    pub why: &'static str,
}

/// From a worker's actor: the worker has been at it for a while.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StillAtWork {
    /// At what.
    pub task: TaskRef,
    /// For so many milliseconds.
    pub since_ms: i64,
}

/// From the registry: the worker's actor was built anew and knows nothing of its tasks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerBack(pub WorkerId);

/// From the registry: the allocator was built anew and knows nothing.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskAgain;

/// From the service or the job: end it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopTask {
    /// Why.
    pub reason: String,
    /// Who, if that is known.
    pub by: Option<String>,
    /// The run, when it has ended.
    pub reply: Reply<RunOutput>,
}

/// From the registry: if it waits for its turn, look whether that has come.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// From the service: how is it?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeTask(pub Reply<RunOutput>);

/// A task, for other rooms.
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
    /// See [`Nobody`].
    pub fn nobody(&self, instance: u32, is_watched: bool) {
        self.0.tell(Nobody { instance, is_watched });
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
