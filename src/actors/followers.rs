//! Who waits for more of the log of a run, and how much each log holds.
//!
//! A bell for each run that somebody waits for: rung when a line was stored, and when the run goes on or ends. The sizes
//! are what bounds a log; they are read from the store when a run is written to for the first time.

use crate::domain::ids::Identity;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Lines of one run that are kept.
pub const MOST_LINES: u64 = 10_000;
/// Bytes of text of one run that are kept.
pub const MOST_BYTES: u64 = 4 << 20;
/// Logs whose size is remembered; what was forgotten is read anew.
const REMEMBERED: usize = 10_000;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Followers {
    /// Those that are sent every line, and not only the next one.
    pub(super) streams: AtomicUsize,
    is_closed: AtomicBool,
    bells: Mutex<HashMap<Identity, Arc<Notify>>>,
    sizes: Mutex<HashMap<i64, Size>>,
}

/// How much the log of a run holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub lines: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// More was offered: nothing is taken any more.
    pub is_full: bool,
}

impl Size {
    /// As it was read from the store.
    #[must_use]
    pub fn read(lines: u64, bytes: u64) -> Self {
        Self { lines, bytes, is_full: lines > MOST_LINES || bytes > MOST_BYTES }
    }

    /// How many of these lines still fit, given the bytes of each; they are counted.
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

/// What the last line of a log says that is full.
#[must_use]
pub fn full() -> String {
    format!("the log is full: at most {MOST_LINES} lines and {MOST_BYTES} bytes are kept, what follows is dropped")
}

/// What may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The first so many lines.
    pub taken: usize,
    /// It is full since just now: a last line is to say so.
    pub filled: bool,
}

/// Waits for the bell of one run, and takes it down when nobody else does.
#[derive(Debug)]
pub struct Waiting<'a> {
    followers: &'a Followers,
    identity: Identity,
    bell: Arc<Notify>,
}

impl Waiting<'_> {
    /// The next ring, counted from this call: to be called before one looks.
    pub fn ring(&self) -> impl Future<Output = ()> + '_ {
        self.bell.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut bells = self.followers.bells.lock().unwrap_or_else(PoisonError::into_inner);
        // This one and the map's own: nobody else waits.
        if Arc::strong_count(&self.bell) <= 2 {
            bells.remove(&self.identity);
        }
    }
}

impl Followers {
    /// Somebody waits for more of this run.
    #[must_use]
    pub fn wait_for(&self, identity: Identity) -> Waiting<'_> {
        let bell = Arc::clone(self.bells.lock().unwrap_or_else(PoisonError::into_inner).entry(identity).or_default());
        Waiting { followers: self, identity, bell }
    }

    /// There is more of this run.
    pub fn ring(&self, identity: Identity) {
        if let Some(bell) = self.bells.lock().unwrap_or_else(PoisonError::into_inner).get(&identity) {
            bell.notify_waiters();
        }
    }

    /// The broker goes down: whoever waits is rung, and nobody waits any more.
    pub fn close(&self) {
        self.is_closed.store(true, Relaxed);
        for bell in self.bells.lock().unwrap_or_else(PoisonError::into_inner).values() {
            bell.notify_waiters();
        }
    }

    /// The broker goes down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Whether the size of this log is known.
    #[must_use]
    pub fn knows(&self, run_no: i64) -> bool {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&run_no)
    }

    /// What the store says of a size; what is known already is newer.
    pub fn learn(&self, run_no: i64, size: Size) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= REMEMBERED {
            sizes.clear();
        }
        sizes.entry(run_no).or_insert(size);
    }

    /// Makes room for lines of these lengths; they count from now on.
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
