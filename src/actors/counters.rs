//! What the process of a broker counts, whether it leads or executes runs for a leader.

use super::counts::Counts;
use super::downloads::Downloads;
use super::lateness::{BOUNDS_MS, Histogram, Lateness};
use super::recorder::OpenMinute;
use crate::domain::series::{Sums, bucket};
use std::sync::Arc;

/// The counters of a process. They begin at its start, and outlive its roles.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// How late fires are.
    pub lateness: Arc<Lateness>,
    /// Fires and runs.
    pub counts: Arc<Counts>,
    /// Downloads.
    pub downloads: Arc<Downloads>,
    /// What is not in the time series yet.
    pub minute: Arc<OpenMinute>,
}

impl Counters {
    /// All counts since the start of the process, by the names of the time series.
    #[must_use]
    pub fn totals(&self) -> Sums {
        let ends = self.counts.ends().map(|(state, count)| (format!("runs.{}", state.name()), count));
        let fires = self.counts.fires().map(|(verdict, count)| (format!("fires.{verdict}"), count));
        let (success, failed, bytes) = self.downloads.totals();
        let downloads = [("requests.success", success), ("requests.failed", failed), ("bytes", bytes)];
        let errors = self.downloads.errors().into_iter().map(|(kind, count)| (format!("errors.{kind}"), count));
        let late = &self.lateness;
        let durations = [("lateness", &late.to_ledger), ("delay", &late.to_sent), ("answer", &self.downloads.answer)];
        let durations = durations.into_iter().flat_map(|(name, histogram)| buckets(name, histogram));
        let downloads = downloads.map(|(name, count)| (name.to_owned(), count));
        ends.into_iter().chain(fires).chain(downloads).chain(errors).chain(durations).collect()
    }

    /// What was counted since the last call; the next interval begins. A broker that does not lead sends this to the leader. If it leads later, its
    /// time series contain only what was counted after the last call.
    #[must_use]
    pub fn take_changes(&self) -> Sums {
        self.minute.take_changes(self.totals())
    }
}

/// The counts of a histogram by bound. What is above the last bound counts as it.
fn buckets(name: &str, histogram: &Histogram) -> Vec<(String, u64)> {
    let (upto, count, _) = histogram.read();
    let last = BOUNDS_MS.len() - 1;
    let of = |i: usize| (if i == last { count } else { upto[i] }).saturating_sub(if i == 0 { 0 } else { upto[i - 1] });
    BOUNDS_MS.iter().enumerate().map(|(i, bound)| (bucket(name, *bound), of(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::RunState;

    #[test]
    fn what_was_counted_is_reported_once() {
        let counters = Counters::default();
        assert_eq!(counters.take_changes(), Sums::new());
        counters.counts.ended(RunState::Success);
        counters.counts.ended(RunState::Success);
        counters.lateness.recorded(3);
        let expected = [("lateness/5".to_owned(), 1), ("runs.success".to_owned(), 2)];
        assert_eq!(counters.take_changes(), Sums::from(expected));
        assert_eq!(counters.take_changes(), Sums::new());
    }
}
