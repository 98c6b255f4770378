//! Load and health of the store: waiting writes, counters, and errors.

use super::error::StoreError;
use crate::domain::time::Timestamp;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum bytes that may wait to be written.
const MOST_BYTES: usize = 256 << 20;

/// Milliseconds that the result of a disk check stays valid.
const CHECK_HOLDS_MS: i64 = 200;
/// Milliseconds after a disk error during which the store counts as not ready. The leader renews its lease more often than this, so
/// with a full disk the store stays not ready.
const DISK_TROUBLE_HOLDS_MS: i64 = 3_000;

/// Upper bounds of the durations of transactions, in microseconds.
pub const BOUNDS_US: [u64; 12] = [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000];

/// How long committed transactions took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionTimes {
    /// Number of transactions up to each of [`BOUNDS_US`].
    pub upto: [u64; BOUNDS_US.len()],
    /// Number of transactions.
    pub count: u64,
    /// Microseconds of all of them.
    pub sum: u64,
}

/// Load and health of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Writes that wait or are in progress.
    pub depth: usize,
    /// Bytes of these writes.
    pub depth_bytes: usize,
    /// Writes since the store was opened, including rejected ones.
    pub written: u64,
    /// Transactions committed.
    pub batches: u64,
    /// Panics caught.
    pub restarts: u64,
    /// Transactions and reads that failed.
    pub failures: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// How long transactions took.
    pub times: TransactionTimes,
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
    is_away: AtomicBool,
    /// Without a writer: readers alone find out that the server is away.
    is_read_only: bool,
    waited_in_vain: AtomicBool,
    is_stalled: AtomicBool,
    is_closing: AtomicBool,
    /// Time and error of the last write that the disk rejected.
    disk_trouble: Mutex<Option<(Timestamp, StoreError)>>,
    // Written on errors and read by people: no actor waits for it.
    last_error: Mutex<Option<String>>,
    /// Transactions up to each bound and above the one before, and those above all.
    took: [AtomicU64; BOUNDS_US.len() + 1],
    took_us: AtomicU64,
}

impl Gauge {
    /// The gauge of a store that only reads.
    pub(super) fn read_only() -> Self {
        Self { is_read_only: true, ..Self::new(1) }
    }

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
            is_away: AtomicBool::new(false),
            is_read_only: false,
            waited_in_vain: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            disk_trouble: Mutex::new(None),
            last_error: Mutex::new(None),
            took: Default::default(),
            took_us: AtomicU64::new(0),
        }
    }

    /// A reader has waited for the server of the database in vain, or reached it.
    pub(super) fn set_waited_in_vain(&self, in_vain: bool) {
        self.waited_in_vain.store(in_vain, Relaxed);
    }

    /// Whether a store without a writer has waited for the server in vain. Where there is one, it notices that the server is away.
    pub(super) fn waited_in_vain(&self) -> bool {
        self.is_read_only && self.waited_in_vain.load(Relaxed)
    }

    /// The server of the database went away, or is back.
    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Relaxed);
    }

    /// The server of the database has not answered for long, or answers again. Returns whether this is new.
    pub(super) fn set_stalled(&self, is_stalled: bool) -> bool {
        self.is_stalled.swap(is_stalled, Relaxed) != is_stalled
    }

    /// Whether the server of the database cannot be reached at present, or does not answer.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Relaxed) || self.is_stalled.load(Relaxed)
    }

    /// The store is being closed: what cannot be written soon fails.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Relaxed);
    }

    /// See [`Gauge::close`].
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Enters the queue if there is capacity.
    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> Option<Waiting> {
        let waiting = Waiting { gauge: Arc::clone(self), bytes, is_patient: false };
        let depth = self.depth.fetch_add(1, Relaxed);
        let waiting_bytes = self.bytes.fetch_add(bytes, Relaxed);
        // A write larger than the limit is accepted if the queue is empty.
        let fits = depth < self.most && (waiting_bytes == 0 || waiting_bytes + bytes <= MOST_BYTES);
        fits.then_some(waiting)
    }

    /// Enters the queue regardless of its length.
    pub(super) fn write_unbounded(self: &Arc<Self>, bytes: usize) -> Waiting {
        self.depth.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        Waiting { gauge: Arc::clone(self), bytes, is_patient: true }
    }

    /// Whether the next write may be rejected. Reserves capacity for writes that are about to come.
    pub(super) fn is_busy(&self) -> bool {
        self.depth.load(Relaxed) * 10 > self.most * 9 || self.bytes.load(Relaxed) > MOST_BYTES / 10 * 9
    }

    /// Whether a write of this many bytes would be accepted now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let waiting = self.bytes.load(Relaxed);
        self.depth.load(Relaxed) * 10 <= self.most * 9 && (waiting == 0 || waiting + bytes <= MOST_BYTES)
    }

    pub(super) fn committed(&self, ops: usize, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.took[BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.took_us.fetch_add(us, Relaxed);
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

    /// The disk has just rejected a write.
    pub(super) fn disk_refused(&self, error: &StoreError) {
        *self.disk_trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some((Timestamp::steady(), error.clone()));
    }

    /// The recent disk error, if any. On a full disk a write may succeed in space that another one has just freed, so one success does
    /// not show that the disk is healthy.
    pub(super) fn recent_disk_trouble(&self) -> Option<StoreError> {
        let trouble = self.disk_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(at, _)| Timestamp::steady().since_ms(*at) < DISK_TROUBLE_HOLDS_MS).map(|(_, error)| error.clone())
    }

    /// A write has just succeeded.
    pub(super) fn checked(&self, now: Timestamp) {
        self.checked_at.store(now.0, Relaxed);
    }

    /// Whether a recent check found that the disk accepts writes, without a failure since.
    pub(super) fn was_checked(&self, now: Timestamp) -> bool {
        (0..CHECK_HOLDS_MS).contains(&now.since_ms(Timestamp(self.checked_at.load(Relaxed))))
    }

    fn times(&self) -> TransactionTimes {
        let mut times = TransactionTimes { sum: self.took_us.load(Relaxed), ..TransactionTimes::default() };
        for (i, took) in self.took.iter().enumerate() {
            times.count += took.load(Relaxed);
            if let Some(upto) = times.upto.get_mut(i) {
                *upto = times.count;
            }
        }
        times
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
            times: self.times(),
        }
    }
}

/// An entry in the queue; released when dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    gauge: Arc<Gauge>,
    bytes: usize,
    is_patient: bool,
}

impl Waiting {
    /// It entered regardless of the length of the queue.
    pub(super) fn is_patient(&self) -> bool {
        self.is_patient
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gauge.depth.fetch_sub(1, Relaxed);
        self.gauge.bytes.fetch_sub(self.bytes, Relaxed);
    }
}
