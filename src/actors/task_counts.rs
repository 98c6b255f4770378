//! Ended tasks by the name of their handler, for monitoring.

use super::counts::ENDS;
use crate::domain::run::RunState;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of names: tasks of further ones are counted together.
const MOST_NAMES: usize = 200;
/// Their name.
const OTHERS: &str = "(others)";

/// See the module documentation.
#[derive(Debug, Default)]
pub struct TaskCounts(Mutex<BTreeMap<String, [u64; ENDS.len()]>>);

impl TaskCounts {
    /// Counts a task that ended in this state.
    pub fn ended(&self, handler: &str, state: RunState) {
        let Some(i) = ENDS.iter().position(|end| *end == state) else { return };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = counts.get_mut(handler) {
            known[i] += 1;
            return;
        }
        let name = if counts.len() < MOST_NAMES { handler } else { OTHERS };
        counts.entry(name.to_owned()).or_default()[i] += 1;
    }

    /// Each name with the counts by final state, in the order of [`ENDS`].
    #[must_use]
    pub fn all(&self) -> Vec<(String, [u64; ENDS.len()])> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(name, counts)| (name.clone(), *counts)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let counts = TaskCounts::default();
        for name in 0..MOST_NAMES + 5 {
            counts.ended(&format!("task-{name}"), RunState::Success);
        }
        counts.ended("task-0", RunState::Failed);
        counts.ended("task-0", RunState::Running);
        let all = counts.all();
        let of = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, counts)| *counts);
        assert_eq!((of("task-0"), of(OTHERS), all.len()), (Some([1, 1, 0]), Some([5, 0, 0]), MOST_NAMES + 1));
    }
}
