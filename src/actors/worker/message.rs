//! Messages to the actor of a worker, and its handle.

use super::WorkerActor;
use super::control::{DescribeWorker, SetAdminState, WorkerDescription};
use super::tasks::{AdoptTask, CancelTask, Reannounce, ReleaseTask, ReloadRecord, Reported, SendOrder, Settled};
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::session_sender::SessionSender;
use crate::actors::supervision::Link;
use crate::domain::ids::Identity;
use crate::domain::worker::WorkerRecord;
use crate::protocol::task::{SettledTask, TaskOrder, TaskRef, TaskReport};
use crate::protocol::worker::{FromWorker, ToWorker};
use actix::Message;
use std::time::Duration;
use tokio::sync::oneshot;

/// From the registry: the worker has connected or reconnected.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerSessionOpened(pub SessionSender);

/// From a session: the connection has closed. The end of an earlier connection is ignored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerSessionClosed {
    /// The number of the session.
    pub number: u64,
    /// The worker closed it on purpose.
    pub has_left: bool,
}

/// From a session or the HTTP transport: a message from the worker. The answer is a problem if the message was rejected.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerMessage {
    /// The message.
    pub message: FromWorker,
    /// Answered when the message is handled, and stored where necessary.
    pub reply: Reply<()>,
}

/// From a run: send this message to the worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SendToWorker(pub ToWorker);

/// From the HTTP transport: fetch the messages for the worker. The answer comes with the first message, or empty after the wait.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct FetchMessages {
    /// Maximum time to wait.
    pub wait: Duration,
    /// The messages, oldest first.
    pub reply: Reply<Vec<ToWorker>>,
}

/// From the registry: the actor of this task died. The next one does not know which attempt the worker has.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TaskDied(pub Identity);

/// From the registry: the broker shuts down; notify the worker.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DisconnectWorker(pub String);

/// Handle to a worker for other modules.
#[derive(Debug, Clone)]
pub struct WorkerHandle(pub(in crate::actors) Link<WorkerActor>);

impl WorkerHandle {
    /// See [`WorkerSessionOpened`].
    pub fn session_opened(&self, sender: SessionSender) {
        self.0.tell(WorkerSessionOpened(sender));
    }
    /// See [`WorkerSessionClosed`].
    pub fn session_closed(&self, number: u64, has_left: bool) {
        self.0.tell(WorkerSessionClosed { number, has_left });
    }
    /// See [`WorkerMessage`].
    #[must_use]
    pub fn message(&self, message: FromWorker) -> Answer<()> {
        let (reply, answer) = reply();
        self.0.tell(WorkerMessage { message, reply });
        answer
    }
    /// See [`SendToWorker`].
    pub fn send(&self, message: ToWorker) {
        self.0.tell(SendToWorker(message));
    }
    /// See [`FetchMessages`].
    #[must_use]
    pub fn fetch(&self, wait: Duration) -> Answer<Vec<ToWorker>> {
        let (reply, answer) = reply();
        self.0.tell(FetchMessages { wait, reply });
        answer
    }
    /// See [`SetAdminState`].
    pub fn set_admin_state(&self, record: WorkerRecord) {
        self.0.tell(SetAdminState(Box::new(record)));
    }
    /// See [`DescribeWorker`].
    #[must_use]
    pub fn describe(&self) -> Answer<WorkerDescription> {
        let (reply, answer) = reply();
        self.0.tell(DescribeWorker(reply));
        answer
    }
    /// See [`SendOrder`].
    pub fn send_order(&self, order: TaskOrder) {
        self.0.tell(SendOrder(Box::new(order)));
    }
    /// See [`AdoptTask`].
    pub fn adopt_task(&self, task: TaskRef, lease: u64) {
        self.0.tell(AdoptTask { task, lease });
    }
    /// See [`CancelTask`].
    pub fn cancel(&self, task: TaskRef, reason: String) {
        self.0.tell(CancelTask { task, reason });
    }
    /// See [`ReleaseTask`].
    pub fn release_task(&self, task: TaskRef) {
        self.0.tell(ReleaseTask(task));
    }
    /// See [`Settled`].
    pub fn settled(&self, settled: SettledTask) {
        self.0.tell(Settled(settled));
    }
    /// See [`Reported`].
    pub fn reported(&self, reports: Vec<(TaskReport, Option<oneshot::Sender<SettledTask>>)>) {
        self.0.tell(Reported(reports));
    }
    /// See [`ReloadRecord`].
    #[must_use]
    pub fn reload_record(&self) -> Answer<()> {
        let (reply, answer) = reply();
        self.0.tell(ReloadRecord(reply));
        answer
    }
    /// See [`Reannounce`].
    pub fn reannounce(&self) {
        self.0.tell(Reannounce);
    }
    /// See [`TaskDied`].
    pub fn task_died(&self, task: Identity) {
        self.0.tell(TaskDied(task));
    }
    /// See [`DisconnectWorker`].
    pub fn disconnect(&self, why: &str) {
        self.0.tell(DisconnectWorker(why.to_owned()));
    }
}
