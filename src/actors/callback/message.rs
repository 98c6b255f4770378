//! Messages to the actor of a callback, and its handle.

use super::CallbackActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::protocol::api::RunOutput;
use actix::Message;

/// From the service or the run's job: stop the run, and cancel its request.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopCallback {
    /// The reason.
    pub reason: String,
    /// The caller, if known.
    pub by: Option<String>,
    /// Answered when the end is stored.
    pub reply: Reply<RunOutput>,
}

/// From the registry: a queued run should check whether it may begin.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// Handle to a callback run for other modules.
#[derive(Debug, Clone)]
pub struct CallbackHandle(pub(in crate::actors) Link<CallbackActor>);

/// From the service: the current state of the run.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DescribeCallback(pub Reply<RunOutput>);

impl CallbackHandle {
    /// See [`DescribeCallback`].
    #[must_use]
    pub fn describe(&self) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(DescribeCallback(reply));
        answer
    }
    /// See [`StopCallback`].
    #[must_use]
    pub fn stop(&self, reason: String, by: Option<String>) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.0.tell(StopCallback { reason, by, reply });
        answer
    }
    /// See [`CheckQueue`].
    pub fn check_queue(&self) {
        self.0.tell(CheckQueue);
    }
}
