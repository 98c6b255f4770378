//! From a broker that owns runs to the leader.

use crate::protocol::ownership::ToLeader;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sends messages to the leader. While there is no connection they wait: there is one for each run that ends.
#[derive(Debug, Clone)]
pub struct LeaderLink(UnboundedSender<ToLeader>);

impl LeaderLink {
    /// A link, and the messages that are to be sent.
    #[must_use]
    pub fn new() -> (Self, UnboundedReceiver<ToLeader>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends a message.
    pub fn send(&self, message: ToLeader) {
        // Without a receiver this broker owns no runs any more.
        let _ = self.0.send(message);
    }
}
