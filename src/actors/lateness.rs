//! How late fires are: from the planned instant to the ledger, from there to the order, from there to the first sign of
//! work. Written by many, read by whoever looks at the metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the buckets, in milliseconds.
pub const BOUNDS_MS: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000];

/// A distribution of milliseconds.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One for each bound, and one for what is above.
    buckets: [AtomicU64; BOUNDS_MS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn add(&self, ms: i64) {
        let ms = ms.max(0) as u64;
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(ms, Relaxed);
    }

    /// How many there are up to each bound, all of them, and their sum.
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

/// See the module's text.
#[derive(Debug, Default)]
pub struct Lateness {
    /// From the planned instant to the ledger.
    pub to_ledger: Histogram,
    /// From the ledger to the order to a worker or the request.
    pub to_sent: Histogram,
    /// From the order to the first sign of work.
    pub to_started: Histogram,
}

impl Lateness {
    /// A fire stands in the ledger.
    pub fn recorded(&self, ms: i64) {
        self.to_ledger.add(ms);
    }
    /// Its run was sent to whoever carries it out.
    pub fn sent(&self, ms: i64) {
        self.to_sent.add(ms);
    }
    /// Its run has begun there.
    pub fn started(&self, ms: i64) {
        self.to_started.add(ms);
    }
}
