//! The agenda: the next time of each job, and nothing else. A million jobs need some 100 MB.

use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use std::collections::{BTreeSet, HashMap};

/// An ordered map from time to jobs; each job is in it at most once.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_time: BTreeSet<(Timestamp, JobId)>,
    of_job: HashMap<JobId, Timestamp>,
}

impl Agenda {
    /// Adds, moves or removes a job.
    pub fn set(&mut self, job: JobId, at: Option<Timestamp>) {
        if let Some(old) = self.of_job.remove(&job) {
            self.by_time.remove(&(old, job));
        }
        if let Some(at) = at {
            self.of_job.insert(job, at);
            self.by_time.insert((at, job));
        }
    }

    /// The time of the first job.
    #[must_use]
    pub fn first(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns a due job; it is in the agenda again after the next `set`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, JobId)> {
        let (at, job) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.pop_first();
        self.of_job.remove(&job);
        Some((at, job))
    }

    /// Jobs with a time after `after` and not after `until`, the earliest first.
    pub fn between(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = (Timestamp, JobId)> + '_ {
        let from = (after.plus_ms(1), JobId(uuid::Uuid::nil()));
        self.by_time.range(from..).copied().take_while(move |(at, _)| *at <= until)
    }

    /// The number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_time.len()
    }
}
