//! From a broker that owns runs to the leader.

use crate::protocol::ownership::ToLeader;
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sends messages to the leader. While there is no connection they wait.
#[derive(Debug, Clone)]
pub struct LeaderLink(UnboundedSender<Outgoing>);

/// A message that is to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// The message.
    pub message: ToLeader,
    /// Its bulk data, which follows in a frame of its own.
    pub bulk: Option<Bytes>,
}

impl From<ToLeader> for Outgoing {
    fn from(message: ToLeader) -> Self {
        Self { message, bulk: None }
    }
}

impl LeaderLink {
    /// A link, and the messages that are to be sent.
    #[must_use]
    pub fn new() -> (Self, UnboundedReceiver<Outgoing>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends a message.
    pub fn send(&self, message: ToLeader) {
        // Without a receiver this broker owns no runs any more.
        let _ = self.0.send(message.into());
    }

    /// Sends a message with bulk data.
    pub fn send_bulk(&self, message: ToLeader, bulk: Bytes) {
        let _ = self.0.send(Outgoing { message, bulk: Some(bulk) });
    }
}
