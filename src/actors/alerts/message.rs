//! What the alerts' actor is told, and its handle.

use super::AlertActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::ids::ChannelId;
use crate::protocol::alerts::AlertTestOutput;
use actix::Message;

/// From the service: send a message to this channel at once.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TestChannel {
    /// Which.
    pub id: ChannelId,
    /// What came of it.
    pub reply: Reply<AlertTestOutput>,
}

/// The alerts' actor, for other rooms.
#[derive(Debug, Clone)]
pub struct AlertsHandle(pub(in crate::actors) Link<AlertActor>);

impl AlertsHandle {
    /// See [`TestChannel`].
    #[must_use]
    pub fn test(&self, id: ChannelId) -> Answer<AlertTestOutput> {
        let (reply, answer) = reply();
        self.0.tell(TestChannel { id, reply });
        answer
    }
}
