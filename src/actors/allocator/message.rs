//! What the allocator is told, and its handle.

use super::Allocator;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::actors::task::TaskHandle;
use crate::domain::ids::WorkerId;
use crate::domain::task::TaskSettings;
use crate::domain::task::worker_pool::{Ask, Asker, Refusal, WorkerCapacity};
use actix::Message;
use std::sync::Arc;

/// From a task: it wants a worker. Answered by `Granted` when there is a permit, and by `Nobody` at once if no worker may
/// have it; then it waits all the same.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskPlace {
    /// What it wants.
    pub ask: Box<Ask>,
    /// Where the grant goes.
    pub task: TaskHandle,
}

/// From a task: it wants none any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WithdrawAsk(pub Asker);

/// From a task: a worker has it already. Answered by `Occupied`, if that worker is known.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OccupyPlace {
    /// Who has it.
    pub worker: WorkerId,
    /// Which instance.
    pub instance: u32,
    /// Where the permit goes.
    pub task: TaskHandle,
}

/// From a [`WorkerPermit`]: it is free again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReleasePlace {
    /// Where.
    pub worker: WorkerId,
    /// In which life of the worker it was given.
    pub life: u64,
}

/// From a worker: it is there, or says something else of itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HandHere {
    /// Who.
    pub worker: WorkerId,
    /// What it says of itself.
    pub hand: Box<WorkerCapacity>,
    /// It can be reached.
    pub open: bool,
    /// An operator lets it have nothing new.
    pub barred: bool,
}

/// From a worker: an operator lets it have nothing new, or lets it again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct BarHand {
    /// Who.
    pub worker: WorkerId,
    /// Whether.
    pub barred: bool,
}

/// From a worker: it can be reached, or cannot for the moment.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OpenHand {
    /// Who.
    pub worker: WorkerId,
    /// Whether.
    pub open: bool,
}

/// From a worker or the registry: it is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HandGone(pub WorkerId);

/// From a task that goes to all: who may have it?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListHands {
    /// The name that is watched.
    pub handler: Arc<str>,
    /// What its job says.
    pub settings: Arc<TaskSettings>,
    /// The workers, by name.
    pub reply: Reply<Vec<WorkerId>>,
}

/// From the service: why has a task no worker?
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ExplainAsk {
    /// What it asks for.
    pub ask: Box<Ask>,
    /// The workers that are there, and why none of them has it.
    pub reply: Reply<Vec<Refusal>>,
}

/// A permit at a worker for one task, counted off with a grant. It goes back when it is dropped, on whatever way.
#[derive(Debug)]
pub struct WorkerPermit {
    worker: WorkerId,
    life: u64,
    allocator: AllocatorHandle,
}

impl WorkerPermit {
    pub(super) fn new(worker: WorkerId, life: u64, allocator: AllocatorHandle) -> Self {
        Self { worker, life, allocator }
    }

    /// At which worker.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        self.allocator.0.tell(ReleasePlace { worker: self.worker, life: self.life });
    }
}

/// The allocator, for other rooms.
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
    /// See [`HandHere`].
    pub fn hand_here(&self, worker: WorkerId, hand: WorkerCapacity, open: bool, barred: bool) {
        self.0.tell(HandHere { worker, hand: Box::new(hand), open, barred });
    }
    /// See [`OpenHand`].
    pub fn hand_open(&self, worker: WorkerId, open: bool) {
        self.0.tell(OpenHand { worker, open });
    }
    /// See [`BarHand`].
    pub fn worker_open(&self, worker: WorkerId, open: bool) {
        self.0.tell(BarHand { worker, barred: !open });
    }
    /// See [`HandGone`].
    pub fn hand_gone(&self, worker: WorkerId) {
        self.0.tell(HandGone(worker));
    }
    /// See [`ListHands`].
    #[must_use]
    pub fn list(&self, handler: Arc<str>, settings: Arc<TaskSettings>) -> Answer<Vec<WorkerId>> {
        let (reply, answer) = reply();
        self.0.tell(ListHands { handler, settings, reply });
        answer
    }
    /// See [`ExplainAsk`].
    #[must_use]
    pub fn explain(&self, ask: Box<Ask>) -> Answer<Vec<Refusal>> {
        let (reply, answer) = reply();
        self.0.tell(ExplainAsk { ask, reply });
        answer
    }
}
