//! Counters of a broker for monitoring.

use super::task_counts::TaskCounts;
use crate::domain::ids::BrokerId;
use crate::domain::run::RunState;
use crate::domain::series::Sums;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counters for monitoring.
#[derive(Debug, Default)]
pub struct Counts {
    planned_jobs: AtomicU64,
    fires: [AtomicU64; VERDICTS.len()],
    ended: [AtomicU64; ENDS.len()],
    results_lost: AtomicU64,
    /// Ended tasks by name.
    pub tasks: TaskCounts,
}

/// Possible outcomes of a scheduled time.
pub const VERDICTS: [&str; 4] = ["fired", "skipped", "missed", "merged"];
/// Possible final states of a run.
pub const ENDS: [RunState; 3] = [RunState::Success, RunState::Failed, RunState::Stopped];

impl Counts {
    /// Sets the number of jobs in the agenda.
    pub fn planned_jobs(&self, count: usize) {
        self.planned_jobs.store(count as u64, Relaxed);
    }

    /// Counts this number of scheduled times with this outcome.
    pub fn fired(&self, verdict: &str, instants: u64) {
        if let Some(i) = VERDICTS.iter().position(|name| *name == verdict) {
            self.fires[i].fetch_add(instants, Relaxed);
        }
    }

    /// Scheduled times by outcome, since the start of the broker.
    #[must_use]
    pub fn fires(&self) -> [(&'static str, u64); VERDICTS.len()] {
        std::array::from_fn(|i| (VERDICTS[i], self.fires[i].load(Relaxed)))
    }

    /// Counts a run that ended in this state.
    pub fn ended(&self, state: RunState) {
        if let Some(i) = ENDS.iter().position(|end| *end == state) {
            self.ended[i].fetch_add(1, Relaxed);
        }
    }

    /// Ended runs by final state, since the start of the broker.
    #[must_use]
    pub fn ends(&self) -> [(RunState, u64); ENDS.len()] {
        std::array::from_fn(|i| (ENDS[i], self.ended[i].load(Relaxed)))
    }

    /// Counts a block whose results were lost.
    pub fn results_lost(&self) {
        self.results_lost.fetch_add(1, Relaxed);
    }

    /// Blocks whose results were lost, since the start of the broker.
    #[must_use]
    pub fn lost_results(&self) -> u64 {
        self.results_lost.load(Relaxed)
    }

    /// Jobs in the agenda.
    #[must_use]
    pub fn agenda(&self) -> u64 {
        self.planned_jobs.load(Relaxed)
    }
}

/// At the leader: what the runs that other brokers execute have done since this broker started to lead, as these brokers report it.
#[derive(Debug, Default)]
pub struct CountsElsewhere(Mutex<Elsewhere>);

#[derive(Debug, Default)]
struct Elsewhere {
    sums: Sums,
    /// Requests without a result, by broker.
    waiting: HashMap<BrokerId, u64>,
}

impl CountsElsewhere {
    fn known(&self) -> MutexGuard<'_, Elsewhere> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The report of a broker: what has changed since its last one, and how many requests wait now.
    pub fn counted(&self, broker: BrokerId, sums: Sums, waiting: u64) {
        let mut known = self.known();
        add(&mut known.sums, sums);
        known.waiting.insert(broker, waiting);
    }

    /// The broker is not connected any more.
    pub fn left(&self, broker: BrokerId) {
        self.known().waiting.remove(&broker);
    }

    /// Adds what other brokers have counted.
    pub fn add_to(&self, sums: &mut Sums) {
        add(sums, self.known().sums.clone());
    }

    /// Requests of their runs without a result.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.known().waiting.values().sum()
    }
}

fn add(sums: &mut Sums, more: Sums) {
    for (name, count) in more {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}
