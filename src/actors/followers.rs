//! Subscribers to the logs of runs, and the size of each log.
//!
//! Each run with a subscriber has a notifier: it fires when a line is stored and when the run continues or ends. The sizes limit
//! each log; they are read from the store at the first write to a run.

use crate::domain::ids::Identity;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Maximum number of lines that are kept per run.
pub const MOST_LINES: u64 = 10_000;
/// Maximum bytes of text that are kept per run.
pub const MOST_BYTES: u64 = 4 << 20;
/// Number of logs whose size is cached; other sizes are read from the store again.
const REMEMBERED: usize = 10_000;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Followers {
    /// Open streams that receive every line, not only the next one.
    streams: AtomicUsize,
    is_closed: AtomicBool,
    bells: Mutex<HashMap<Identity, Arc<Notify>>>,
    sizes: Mutex<HashMap<i64, Size>>,
}

/// The size of the log of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub lines: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Lines were dropped; the log accepts no more.
    pub is_full: bool,
}

impl Size {
    /// The size as read from the store.
    #[must_use]
    pub fn read(lines: u64, bytes: u64) -> Self {
        Self { lines, bytes, is_full: lines > MOST_LINES || bytes > MOST_BYTES }
    }

    /// Counts the lines that still fit, by their length in bytes, and returns their number.
    fn take(&mut self, lengths: &[usize]) -> usize {
        let mut taken = 0;
        for length in lengths {
            if self.is_full || self.lines >= MOST_LINES || self.bytes + *length as u64 > MOST_BYTES {
                break;
            }
            self.lines += 1;
            self.bytes += *length as u64;
            taken += 1;
        }
        taken
    }
}

/// The text of the last line of a full log.
#[must_use]
pub fn full() -> String {
    format!("the log is full: it keeps at most {MOST_LINES} lines and {MOST_BYTES} bytes, later lines are dropped")
}

/// How many of the offered lines fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The number of lines that fit, from the first.
    pub taken: usize,
    /// The log became full with this call; the caller appends the final line.
    pub filled: bool,
}

/// Waits for the notifier of one run and removes it after the last subscriber.
#[derive(Debug)]
pub struct Waiting<'a> {
    followers: &'a Followers,
    identity: Identity,
    bell: Arc<Notify>,
}

impl Waiting<'_> {
    /// Completes at the next notification after this call. Call it before checking the state.
    pub fn ring(&self) -> impl Future<Output = ()> + '_ {
        self.bell.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut bells = self.followers.bells.lock().unwrap_or_else(PoisonError::into_inner);
        // Only this one and the map's own reference are left: there is no other subscriber.
        if Arc::strong_count(&self.bell) <= 2 {
            bells.remove(&self.identity);
        }
    }
}

impl Followers {
    /// Adds a subscriber, unless there are already this many.
    pub fn enter(&self, most: usize) -> bool {
        !self.is_closed() && self.streams.fetch_update(Relaxed, Relaxed, |now| (now < most).then_some(now + 1)).is_ok()
    }

    /// Removes a subscriber.
    pub fn leave(&self) {
        self.streams.fetch_sub(1, Relaxed);
    }

    /// Subscribes to the log of this run.
    #[must_use]
    pub fn wait_for(&self, identity: Identity) -> Waiting<'_> {
        let bell = Arc::clone(self.bells.lock().unwrap_or_else(PoisonError::into_inner).entry(identity).or_default());
        Waiting { followers: self, identity, bell }
    }

    /// Notifies the subscribers of this run.
    pub fn ring(&self, identity: Identity) {
        if let Some(bell) = self.bells.lock().unwrap_or_else(PoisonError::into_inner).get(&identity) {
            bell.notify_waiters();
        }
    }

    /// Notifies all subscribers and ends the subscriptions, because the broker is shutting down.
    pub fn close(&self) {
        self.is_closed.store(true, Relaxed);
        for bell in self.bells.lock().unwrap_or_else(PoisonError::into_inner).values() {
            bell.notify_waiters();
        }
    }

    /// The broker is shutting down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Whether the size of this log is cached.
    #[must_use]
    pub fn knows(&self, run_no: i64) -> bool {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&run_no)
    }

    /// Caches a size from the store. An existing entry is newer and stays.
    pub fn learn(&self, run_no: i64, size: Size) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= REMEMBERED {
            sizes.clear();
        }
        sizes.entry(run_no).or_insert(size);
    }

    /// Reserves space for lines of these lengths; they count from now on.
    #[must_use]
    pub fn make_room(&self, run_no: i64, lengths: &[usize]) -> Room {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let size = sizes.entry(run_no).or_default();
        let taken = size.take(lengths);
        let filled = taken < lengths.len() && !size.is_full;
        size.is_full |= filled;
        Room { taken, filled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_full_once() {
        let followers = Followers::default();
        followers.learn(1, Size { lines: MOST_LINES - 1, bytes: 0, is_full: false });
        followers.learn(1, Size::default());
        assert_eq!(followers.make_room(1, &[5, 5]), Room { taken: 1, filled: true });
        assert_eq!(followers.make_room(1, &[5]), Room { taken: 0, filled: false });
        followers.learn(2, Size { lines: 0, bytes: MOST_BYTES - 9, is_full: false });
        assert_eq!(followers.make_room(2, &[5, 5, 1]), Room { taken: 1, filled: true }, "what follows a gap is not taken");
    }

    #[test]
    fn a_bell_is_there_while_somebody_waits() {
        let followers = Followers::default();
        let run = Identity::random();
        let (one, other) = (followers.wait_for(run), followers.wait_for(run));
        drop(one);
        assert_eq!(followers.bells.lock().expect("a lock").len(), 1);
        drop(other);
        assert_eq!(followers.bells.lock().expect("a lock").len(), 0);
        followers.ring(run);
    }
}
