//! What a callback's actor is told, and its handle.

use super::CallbackActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::protocol::api::RunOutput;
use actix::Message;

/// From the service or the run's job: end it, and drop the request if one is under way.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopCallback {
    /// Why.
    pub reason: String,
    /// Who, if that is known.
    pub by: Option<String>,
    /// Stored.
    pub reply: Reply<RunOutput>,
}

/// From the registry: the turn of a run that waited for it may have come.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CheckQueue;

/// A callback run, for other rooms.
#[derive(Debug, Clone)]
pub struct CallbackHandle(pub(in crate::actors) Link<CallbackActor>);

/// From the service: where is the run?
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
