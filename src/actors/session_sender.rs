//! The way out to a connected peer: actors see this, never a socket.

use super::budget::{Full, Share};
use actix::{Message, Recipient};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::Waker;

/// Bytes that may wait for a peer that does not read them. What is written to it after that cuts it off.
pub const MOST_UNSENT: usize = 64 << 20;
/// Of these, what does not count in the budget: a peer that reads gets its messages also when others have used up its share.
const FREE: usize = 64 << 10;

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

impl Frame {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Close(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// The connection below a session, or below any call: it can be cut from any thread.
#[derive(Debug, Default)]
pub struct Line {
    is_cut: AtomicBool,
    waker: AtomicWaker,
}

impl Line {
    /// Ends the connection, whatever it is doing.
    pub fn cut(&self) {
        self.is_cut.store(true, Relaxed);
        self.waker.wake();
    }

    /// It is to end. Whoever asks is woken when that changes.
    #[must_use]
    pub fn is_cut(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.is_cut.load(Relaxed)
    }
}

/// What was given to a session and is not sent yet, in bytes.
#[derive(Debug)]
pub struct Backlog {
    share: Share,
    line: Option<Arc<Line>>,
    unsent: AtomicUsize,
    /// Of these, what the session has put into its connection's buffer.
    buffered: AtomicUsize,
    is_over: AtomicBool,
}

fn counted(unsent: usize) -> usize {
    unsent.saturating_sub(FREE)
}

impl Backlog {
    /// Of a session on this connection, counted as part of this share.
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

    /// The session has put so many bytes into its connection's buffer.
    pub fn buffered(&self, bytes: usize) {
        self.buffered.fetch_add(bytes, Relaxed);
    }

    /// The connection has sent what was in its buffer.
    pub fn flushed(&self) {
        let bytes = self.buffered.swap(0, Relaxed);
        if bytes > 0 {
            let before = self.unsent.fetch_sub(bytes, Relaxed);
            self.share.shrink(counted(before) - counted(before.saturating_sub(bytes)));
        }
    }

    /// The session is over: what was not sent never will be.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.share.shrink(counted(self.unsent.load(Relaxed)));
    }
}

/// A connected session. Two are equal if they are the same connection.
#[derive(Clone)]
pub struct SessionSender {
    /// Counts the connections of this process.
    pub number: u64,
    /// The session.
    pub session: Recipient<Frame>,
    /// What it has not sent yet.
    pub backlog: Arc<Backlog>,
}

impl SessionSender {
    /// Writes a frame. What is written to a session that is gone is lost; its actor hears of that by itself. A peer that has
    /// not read what was written to it before is cut off.
    pub fn send(&self, frame: Frame) {
        if self.backlog.is_over.load(Relaxed) {
            return;
        }
        if self.backlog.add(frame.bytes()).is_ok() {
            return self.session.do_send(frame);
        }
        self.backlog.end();
        log::warn!("socket cut session={}: the peer does not read what is sent to it", self.number);
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
        let backlog = Backlog::new(budget.share(""), None);
        backlog.add(FREE).expect("free");
        assert_eq!(budget.used(), 0);
        backlog.add(3 * FREE).expect("the share");
        assert_eq!(backlog.add(1), Err(Full::Share));
        let other = Backlog::new(budget.share(""), None);
        other.add(FREE).expect("free for each");
        backlog.buffered(2 * FREE);
        assert_eq!(budget.used(), 3 * FREE, "it is not sent yet");
        backlog.flushed();
        assert_eq!(budget.used(), FREE);
        drop((backlog, other));
        assert_eq!(budget.used(), 0);
    }
}
