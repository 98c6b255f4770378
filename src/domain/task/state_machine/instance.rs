//! One instance of a task.

use super::{Limit, Phase};
use crate::domain::ids::WorkerId;

/// Maximum number of workers that an instance remembers as unsuccessful.
const MOST_EXCLUDED: usize = 16;

/// One instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Its state.
    pub phase: Phase,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Lost attempts that do not count, because the broker died meanwhile.
    pub uncounted: u32,
    /// An earlier actor began its attempt: its loss may be the fault of that actor.
    pub is_taken_over: bool,
    /// Workers that did not complete it.
    pub excluded: Vec<WorkerId>,
    /// The reason for its state.
    pub reason: Option<String>,
    /// The time limit of its attempt.
    pub limit: Limit,
}

impl Instance {
    /// An instance without any attempt.
    #[must_use]
    pub fn new() -> Self {
        Self {
            phase: Phase::Requesting,
            attempt: 1,
            failures: 0,
            uncounted: 0,
            is_taken_over: false,
            excluded: Vec::new(),
            reason: None,
            limit: Limit::default(),
        }
    }

    /// Attempts that were lost with their worker, or rejected.
    pub(super) fn lost(&self) -> u32 {
        (self.attempt - 1).saturating_sub(self.failures + self.uncounted)
    }

    /// It continues after the broker or its actor died: with this attempt, of which `failures` failed before. Earlier lost attempts
    /// no longer count.
    #[must_use]
    pub fn taken_over(phase: Phase, attempt: u32, failures: u32) -> Self {
        let uncounted = (attempt.max(1) - 1).saturating_sub(failures);
        let is_taken_over = matches!(phase, Phase::Unclear(_));
        Self { phase, attempt, failures, uncounted, is_taken_over, ..Self::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    pub(super) fn exclude(&mut self, worker: WorkerId) {
        if !self.excluded.contains(&worker) {
            self.excluded.push(worker);
            if self.excluded.len() > MOST_EXCLUDED {
                self.excluded.remove(0);
            }
        }
    }

    /// The worker that has it.
    #[must_use]
    pub fn worker(&self) -> Option<WorkerId> {
        match self.phase {
            Phase::AtWorker(worker) | Phase::Ending(worker, ..) => Some(worker),
            _ => None,
        }
    }
}

impl Default for Instance {
    fn default() -> Self {
        Self::new()
    }
}
