//! The way out to a connected peer: actors see this, never a socket.

use actix::{Message, Recipient};
use bytes::Bytes;

/// What a session writes to its socket.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub enum Frame {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Bytes),
    /// The last message: why the broker hangs up.
    Close(String),
}

/// A connected session. Two are equal if they are the same connection.
#[derive(Clone)]
pub struct Outlet {
    /// Counts the connections of this process.
    pub number: u64,
    /// The session.
    pub session: Recipient<Frame>,
}

impl Outlet {
    /// Writes a frame. What is written to a session that is gone is lost; its actor hears of that by itself.
    pub fn send(&self, frame: Frame) {
        self.session.do_send(frame);
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.number)
    }
}
