//! Sends frames to a connected peer; actors use this and never see a socket.

use super::budget::{Full, Share};
use actix::{Message, Recipient};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::Waker;

/// Maximum bytes that wait for a peer. A write beyond this limit closes the connection.
pub const MOST_UNSENT: usize = 64 << 20;
/// The part of these bytes outside of the budget, so that a peer that reads gets its messages when its share is used up.
const FREE: usize = 64 << 10;

/// A frame that a session writes to its socket.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub enum Frame {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Bytes),
    /// The last message: the reason why the broker closes the connection.
    Close(String),
    /// Like [`Frame::Close`], but because this broker ends: the client connects to the next leader.
    Restart(String),
}

impl Frame {
    /// Length of the payload in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Close(text) | Self::Restart(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// The connection below a session or a call; any thread can cut it.
#[derive(Debug, Default)]
pub struct Line {
    is_cut: AtomicBool,
    is_finished: AtomicBool,
    waker: AtomicWaker,
}

impl Line {
    /// Closes the connection in any state.
    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
        self.waker.wake();
    }

    /// Marks the end of what the broker sends: the connection closes its write half when the rest is flushed.
    pub fn finish(&self) {
        self.is_finished.store(true, Relaxed);
    }

    /// Whether the broker sends nothing more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_finished.load(Relaxed)
    }

    /// Whether the connection must close. Wakes this waker when that changes.
    #[must_use]
    pub fn is_cut(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.is_cut.load(Relaxed)
    }
}

/// Bytes that were given to a session and are not sent yet.
#[derive(Debug)]
pub struct Backlog {
    share: Share,
    line: Option<Arc<Line>>,
    unsent: AtomicUsize,
    /// The part of them that is in the connection's buffer.
    buffered: AtomicUsize,
    is_over: AtomicBool,
}

fn counted(unsent: usize) -> usize {
    unsent.saturating_sub(FREE)
}

impl Backlog {
    /// The backlog of a session on this connection, counted against this share.
    #[must_use]
    pub fn new(share: Share, line: Option<Arc<Line>>) -> Self {
        Self { share, line, unsent: AtomicUsize::new(0), buffered: AtomicUsize::new(0), is_over: AtomicBool::new(false) }
    }

    fn add(&self, bytes: usize) -> Result<(), Full> {
        let before = self.unsent.fetch_add(bytes, Relaxed);
        let now = before.saturating_add(bytes);
        let room = if now > MOST_UNSENT { Err(Full::Share) } else { self.share.grow(counted(now) - counted(before)) };
        if room.is_err() {
            self.unsent.fetch_sub(bytes, Relaxed);
        }
        room
    }

    /// Bytes that are not sent yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.unsent.load(Relaxed)
    }

    /// Counts bytes that the session wrote to the connection's buffer.
    pub fn buffered(&self, bytes: usize) {
        self.buffered.fetch_add(bytes, Relaxed);
    }

    /// Counts the buffered bytes as sent.
    pub fn flushed(&self) {
        let bytes = self.buffered.swap(0, Relaxed);
        if bytes > 0 {
            let before = self.unsent.fetch_sub(bytes, Relaxed);
            self.share.shrink(counted(before) - counted(before.saturating_sub(bytes)));
        }
    }

    /// The last frame is in the connection's buffer.
    pub fn finished(&self) {
        if let Some(line) = &self.line {
            line.finish();
        }
    }

    /// The session has ended; the unsent bytes are discarded.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.share.shrink(counted(self.unsent.load(Relaxed)));
    }
}

/// A connected session. Two values are equal if they are the same connection.
#[derive(Clone)]
pub struct SessionSender {
    /// The number of the connection, counted from the start of this process.
    pub number: u64,
    /// The session.
    pub session: Recipient<Frame>,
    /// Bytes that are not sent yet.
    pub backlog: Arc<Backlog>,
}

impl SessionSender {
    /// Sends a frame. Frames to a closed session are lost; its actor is notified separately. If the peer does not read and the
    /// backlog is full, the connection is cut.
    pub fn send(&self, frame: Frame) {
        if !self.is_open() {
            return;
        }
        if self.backlog.add(frame.bytes()).is_ok() {
            return self.session.do_send(frame);
        }
        self.cut();
    }

    /// Whether the session has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.backlog.is_over.load(Relaxed)
    }

    /// Cuts the connection, because the peer does not read. What waits for it is lost.
    pub fn cut(&self) {
        if self.backlog.is_over.swap(true, Relaxed) {
            return;
        }
        log::warn!("connection closed because the peer does not read session={}", self.number);
        if let Some(line) = &self.backlog.line {
            line.cut();
        }
    }
}

impl std::fmt::Debug for SessionSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::budget::Budget;

    #[test]
    fn what_is_not_sent_counts_beyond_what_is_free() {
        let budget = Budget::new(4 * FREE);
        let backlog = Backlog::new(budget.share(None), None);
        backlog.add(FREE).expect("free");
        assert_eq!(budget.used(), 0);
        backlog.add(3 * FREE).expect("the share");
        assert_eq!(backlog.add(1), Err(Full::Share));
        let other = Backlog::new(budget.share(None), None);
        other.add(FREE).expect("free for each");
        backlog.buffered(2 * FREE);
        assert_eq!(budget.used(), 3 * FREE, "it is not sent yet");
        backlog.flushed();
        assert_eq!(budget.used(), FREE);
        drop((backlog, other));
        assert_eq!(budget.used(), 0);
    }
}
