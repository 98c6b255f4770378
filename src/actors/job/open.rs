//! The active runs of a job, the oldest first.

use crate::domain::ids::Identity;
use crate::domain::schedule::Open;
use crate::domain::time::Timestamp;
use crate::store::OpenRun;
use std::collections::{BTreeMap, HashMap};

/// See the module documentation. Thousands of short tasks may be active at once, with frequent inserts and removals.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRuns {
    runs: BTreeMap<u64, OpenRun>,
    places: HashMap<Identity, u64>,
    queued: usize,
    next: u64,
}

impl OpenRuns {
    pub(super) fn counts(&self) -> Open {
        Open { at_work: self.runs.len() - self.queued, queued: self.queued }
    }

    pub(super) fn push(&mut self, run: OpenRun) {
        self.remove(run.identity);
        self.queued += usize::from(run.queued);
        self.places.insert(run.identity, self.next);
        self.runs.insert(self.next, run);
        self.next += 1;
    }

    pub(super) fn remove(&mut self, identity: Identity) {
        if let Some(run) = self.places.remove(&identity).and_then(|place| self.runs.remove(&place)) {
            self.queued -= usize::from(run.queued);
        }
    }

    /// The run leaves the queue.
    pub(super) fn release(&mut self, identity: Identity) {
        if let Some(run) = self.places.get(&identity).and_then(|place| self.runs.get_mut(place))
            && std::mem::take(&mut run.queued)
        {
            self.queued -= 1;
        }
    }

    pub(super) fn first(&self) -> Option<Identity> {
        self.runs.values().next().map(|run| run.identity)
    }

    /// The run that has been queued longest.
    pub(super) fn first_queued(&self) -> Option<Identity> {
        if self.queued == 0 {
            return None;
        }
        self.runs.values().find(|run| run.queued).map(|run| run.identity)
    }

    /// The run that was created ahead of its time, if that time is after `now`, with that time. There is at most one.
    pub(super) fn ahead_at(&self, now: Timestamp) -> Option<(Identity, Timestamp)> {
        self.runs.values().rev().filter(|run| run.is_ahead).find_map(|run| Some((run.identity, run.not_before.filter(|at| *at > now)?)))
    }

    pub(super) fn all(&self) -> Vec<Identity> {
        self.runs.values().map(|run| run.identity).collect()
    }
}

impl FromIterator<OpenRun> for OpenRuns {
    fn from_iter<I: IntoIterator<Item = OpenRun>>(runs: I) -> Self {
        let mut out = Self::default();
        runs.into_iter().for_each(|run| out.push(run));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_kept_in_order() {
        let [a, b, c] = [1, 2, 3].map(|n| Identity(uuid::Uuid::from_u128(n)));
        let run = |identity, queued| OpenRun { identity, queued, not_before: None, is_ahead: false };
        let mut open: OpenRuns = [run(a, false), run(b, true), run(c, true)].into_iter().collect();
        assert_eq!((open.counts(), open.first(), open.first_queued()), (Open { at_work: 1, queued: 2 }, Some(a), Some(b)));
        open.remove(a);
        open.release(b);
        open.release(b);
        assert_eq!((open.counts(), open.first_queued()), (Open { at_work: 1, queued: 1 }, Some(c)));
        open.remove(c);
        open.remove(c);
        assert_eq!((open.counts(), open.all()), (Open { at_work: 1, queued: 0 }, vec![b]));
    }
}
