//! How the store is doing: what waits, what was written, what went wrong.

use super::error::StoreError;
use crate::domain::time::Timestamp;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes that may wait to be written.
const MOST_BYTES: usize = 256 << 20;

/// Milliseconds for which a check of the disk holds.
const CHECK_HOLDS_MS: i64 = 200;
/// Milliseconds after the disk refused a write, in which the store counts as not ready. The leader renews its lease more often than
/// this, so on a full disk it never counts as ready.
const DISK_TROUBLE_HOLDS_MS: i64 = 3_000;

/// How the store is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Writes that wait or are being written.
    pub depth: usize,
    /// … and the bytes they take.
    pub depth_bytes: usize,
    /// Writes done since the store was opened, refused ones too.
    pub written: u64,
    /// Transactions committed.
    pub batches: u64,
    /// Panics caught.
    pub restarts: u64,
    /// Transactions and reads that failed.
    pub failures: u64,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

#[derive(Debug)]
pub(super) struct Gauge {
    most: usize,
    depth: AtomicUsize,
    bytes: AtomicUsize,
    written: AtomicU64,
    batches: AtomicU64,
    restarts: AtomicU64,
    failures: AtomicU64,
    checked_at: AtomicI64,
    /// When and how the disk refused a write last.
    disk_trouble: Mutex<Option<(Timestamp, StoreError)>>,
    // Written when something goes wrong and read by people: no room waits for it.
    last_error: Mutex<Option<String>>,
}

impl Gauge {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            depth: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            checked_at: AtomicI64::new(0),
            disk_trouble: Mutex::new(None),
            last_error: Mutex::new(None),
        }
    }

    /// A place in the queue, if there is one.
    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> Option<Waiting> {
        let waiting = Waiting { gauge: Arc::clone(self), bytes };
        let depth = self.depth.fetch_add(1, Relaxed);
        let waiting_bytes = self.bytes.fetch_add(bytes, Relaxed);
        // One that is larger than everything allowed still gets in alone.
        let fits = depth < self.most && (waiting_bytes == 0 || waiting_bytes + bytes <= MOST_BYTES);
        fits.then_some(waiting)
    }

    /// A place in the queue, whatever is there.
    pub(super) fn write_unbounded(self: &Arc<Self>, bytes: usize) -> Waiting {
        self.depth.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        Waiting { gauge: Arc::clone(self), bytes }
    }

    /// Whether the next write may well be refused. Leaves room for those that are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.depth.load(Relaxed) * 10 > self.most * 9 || self.bytes.load(Relaxed) > MOST_BYTES / 10 * 9
    }

    /// Whether a write of this many bytes would be taken now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let waiting = self.bytes.load(Relaxed);
        self.depth.load(Relaxed) * 10 <= self.most * 9 && (waiting == 0 || waiting + bytes <= MOST_BYTES)
    }

    pub(super) fn committed(&self, ops: usize) {
        self.written.fetch_add(ops as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed);
    }

    pub(super) fn panicked(&self) {
        self.restarts.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self, error: &str) {
        self.failures.fetch_add(1, Relaxed);
        self.checked_at.store(0, Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// The disk refused a write just now.
    pub(super) fn disk_refused(&self, error: &StoreError) {
        *self.disk_trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some((Timestamp::steady(), error.clone()));
    }

    /// Why the disk refused a write a moment ago. On a full disk a write may succeed in the room that another one has just given
    /// back, so one success does not show that the disk is well.
    pub(super) fn recent_disk_trouble(&self) -> Option<StoreError> {
        let trouble = self.disk_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(at, _)| Timestamp::steady().since_ms(*at) < DISK_TROUBLE_HOLDS_MS).map(|(_, error)| error.clone())
    }

    /// Something was stored just now.
    pub(super) fn checked(&self, now: Timestamp) {
        self.checked_at.store(now.0, Relaxed);
    }

    /// Whether a check a moment ago found that the disk takes what is written, and nothing failed since.
    pub(super) fn was_checked(&self, now: Timestamp) -> bool {
        (0..CHECK_HOLDS_MS).contains(&now.since_ms(Timestamp(self.checked_at.load(Relaxed))))
    }

    pub(super) fn stats(&self) -> StoreStats {
        StoreStats {
            depth: self.depth.load(Relaxed),
            depth_bytes: self.bytes.load(Relaxed),
            written: self.written.load(Relaxed),
            batches: self.batches.load(Relaxed),
            restarts: self.restarts.load(Relaxed),
            failures: self.failures.load(Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// A place in the queue; given back when dropped, however that comes about.
#[derive(Debug)]
pub(super) struct Waiting {
    gauge: Arc<Gauge>,
    bytes: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gauge.depth.fetch_sub(1, Relaxed);
        self.gauge.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
