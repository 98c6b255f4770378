//! Latency of fires: from the scheduled time to the ledger, from there to the order, from there to the first sign of work. Many
//! actors write it; the metrics read it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the buckets, in milliseconds.
pub const BOUNDS_MS: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000];

/// A histogram of milliseconds.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One bucket for each bound, and one for larger values.
    buckets: [AtomicU64; BOUNDS_MS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Records one value.
    pub fn add(&self, ms: i64) {
        let ms = ms.max(0) as u64;
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(ms, Relaxed);
    }

    /// Cumulative count for each bound, the total count, and the sum.
    #[must_use]
    pub fn read(&self) -> ([u64; BOUNDS_MS.len()], u64, u64) {
        let mut upto = [0; BOUNDS_MS.len()];
        let mut count = 0;
        for (i, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            if let Some(slot) = upto.get_mut(i) {
                *slot = count;
            }
        }
        (upto, count, self.sum.load(Relaxed))
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Lateness {
    /// From the scheduled time to the ledger.
    pub to_ledger: Histogram,
    /// From the ledger to the order that is sent to a worker, or to the HTTP request.
    pub to_sent: Histogram,
    /// From the order to the first sign of work.
    pub to_started: Histogram,
}

impl Lateness {
    /// Records that a fire was stored in the ledger.
    pub fn recorded(&self, ms: i64) {
        self.to_ledger.add(ms);
    }
    /// Records that the run was sent to its worker or its endpoint.
    pub fn sent(&self, ms: i64) {
        self.to_sent.add(ms);
    }
    /// Records that the run began there.
    pub fn started(&self, ms: i64) {
        self.to_started.add(ms);
    }
}
