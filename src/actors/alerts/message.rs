//! Messages to the alert sender, and its handle.

use super::AlertActor;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::CurrentLink;
use crate::domain::ids::ChannelId;
use crate::protocol::alerts::AlertTestOutput;
use actix::Message;

/// From the service: send a test message to this channel at once.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TestChannel {
    /// The channel.
    pub id: ChannelId,
    /// The result of the delivery.
    pub reply: Reply<AlertTestOutput>,
}

/// Handle to the alert sender for other modules.
#[derive(Debug, Clone, Default)]
pub struct AlertsHandle(pub(in crate::actors) CurrentLink<AlertActor>);

impl AlertsHandle {
    /// See [`TestChannel`].
    #[must_use]
    pub fn test(&self, id: ChannelId) -> Answer<AlertTestOutput> {
        let (reply, answer) = reply();
        self.0.tell(TestChannel { id, reply });
        answer
    }
}
