//! Large reports that arrive at the same time: how many bytes of them the broker holds.
//!
//! What has arrived counts, not what a peer declares. Together they get [`MOST`] bytes, and those of one token three quarters of that;
//! the others wait, and their peers with them, since nothing more is read. The oldest report of each token never waits, so one that is
//! larger than the limit is accepted too, and reports that have arrived in part cannot wait for each other forever.

use crate::config::tokens::TokenKey;
use crate::protocol::exposition::Exposition;
use crate::protocol::problem::Problem;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Reports of fewer bytes do not count.
const LARGE: usize = 1 << 20;
/// Bytes of large reports that are held at a time, of all tokens and of one.
const MOST: usize = 64 << 20;
const MOST_OF_ONE: usize = MOST - MOST / 4;
/// Reports are counted in steps of this many bytes.
const STEP: usize = 256 << 10;
/// How long a large report waits for others; then its node must retry later.
const PATIENCE: Duration = Duration::from_secs(20);

static INTAKE: Intake = Intake { reports: Mutex::new(Reports { by_number: BTreeMap::new(), last: 0 }), freed: Notify::const_new() };

struct Intake {
    reports: Mutex<Reports>,
    freed: Notify,
}

/// The large reports that are in memory, the oldest first.
struct Reports {
    by_number: BTreeMap<u64, (Option<TokenKey>, usize)>,
    last: u64,
}

impl Reports {
    fn begin(&mut self, share: Option<TokenKey>) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, (share, 0));
        self.last
    }

    /// Lets a report have this many bytes; `false`: it must wait.
    fn grow(&mut self, number: u64, bytes: usize) -> bool {
        let Some((share, held)) = self.by_number.get(&number) else { return true };
        let of_one = || self.by_number.iter().filter(move |(_, (other, _))| other == share);
        let is_oldest = of_one().next().is_some_and(|(oldest, _)| *oldest == number);
        let sum = |bytes: usize, (_, (_, more)): (&u64, &(Option<TokenKey>, usize))| bytes + more;
        let more = bytes.saturating_sub(*held);
        let fits = of_one().fold(more, sum) <= MOST_OF_ONE && self.by_number.iter().fold(more, sum) <= MOST;
        if is_oldest || fits {
            self.by_number.entry(number).and_modify(|(_, held)| *held = bytes.max(*held));
        }
        is_oldest || fits
    }
}

/// Writes the metrics of the reports.
pub fn write(page: &mut Exposition) {
    let bytes: usize = reports(|reports| reports.by_number.values().map(|(_, bytes)| bytes).sum());
    page.metric("webloom_report_bytes", "gauge", "Bytes of large reports that arrive or are being stored.");
    page.sample("webloom_report_bytes", &[], bytes as f64);
}

/// A report that arrives. Its bytes count until it is dropped.
pub struct Arrival {
    share: Option<TokenKey>,
    number: Option<u64>,
    counted: usize,
    /// When it has waited too long.
    latest: Option<Instant>,
}

impl Arrival {
    /// A report of a caller with this share.
    #[must_use]
    pub fn of(share: Option<TokenKey>) -> Self {
        Self { share, number: None, counted: 0, latest: None }
    }

    /// Counts what has arrived, and waits until there is memory for it.
    ///
    /// # Errors
    /// It waited too long.
    pub async fn reaches(&mut self, bytes: usize) -> Result<(), Problem> {
        if bytes < LARGE || bytes <= self.counted {
            return Ok(());
        }
        let bytes = bytes.next_multiple_of(STEP);
        let number = *self.number.get_or_insert_with(|| reports(|reports| reports.begin(self.share)));
        loop {
            let freed = INTAKE.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if reports(|reports| reports.grow(number, bytes)) {
                self.counted = bytes;
                return Ok(());
            }
            let latest = *self.latest.get_or_insert_with(|| Instant::now() + PATIENCE);
            if timeout_at(latest, freed).await.is_err() {
                return Err(Problem::busy("other large reports are being processed; retry later"));
            }
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            reports(|reports| reports.by_number.remove(&number));
            INTAKE.freed.notify_waiters();
        }
    }
}

fn reports<T>(change: impl FnOnce(&mut Reports) -> T) -> T {
    change(&mut INTAKE.reports.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leaves_memory_for_others_and_the_oldest_report_never_waits() {
        let mut reports = Reports { by_number: BTreeMap::new(), last: 0 };
        let [first, second, other, late] = ["a", "a", "b", "b"].map(|text| reports.begin(Some(TokenKey::of(text))));
        assert!(reports.grow(first, 40 << 20));
        assert!(reports.grow(second, 8 << 20));
        assert!(!reports.grow(second, 9 << 20), "three quarters for one token");
        assert!(reports.grow(other, 15 << 20) && reports.grow(late, 1 << 20));
        assert!(!reports.grow(late, 2 << 20), "all is in use");
        assert!(reports.grow(first, 500 << 20), "the oldest of its token");
        assert!(reports.grow(other, 16 << 20), "also of this one");
        reports.by_number.remove(&first);
        assert!(reports.grow(second, 9 << 20), "it is the oldest now");
        assert!(reports.grow(late, 2 << 20), "there is memory again");
    }
}
