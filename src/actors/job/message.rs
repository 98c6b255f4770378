//! What a job's actor is told, and its handle.

use super::JobActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::ids::Identity;
use crate::protocol::api::TriggerInput;
use actix::Message;

/// From the desk: run the job now. Answered when the run is stored and has its actor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Trigger {
    /// How.
    pub input: TriggerInput,
    /// The run.
    pub reply: Reply<Identity>,
}

/// From the registry: it was idle and is in no directory any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Rest;

/// A job, for other rooms.
#[derive(Debug, Clone)]
pub struct JobHandle(pub(in crate::actors) Link<JobActor>);

impl JobHandle {
    /// See [`Trigger`].
    #[must_use]
    pub fn trigger(&self, input: TriggerInput) -> Answer<Identity> {
        let (reply, answer) = reply();
        self.0.tell(Trigger { input, reply });
        answer
    }
    /// See [`Rest`].
    pub fn rest(&self) {
        self.0.tell(Rest);
    }
}
