//! The agenda: which job comes when, and nothing else. A million jobs are some 100 MB.

use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use std::collections::{BTreeSet, HashMap};

/// An ordered map from time to jobs; each job stands in it once.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_time: BTreeSet<(Timestamp, JobId)>,
    of_job: HashMap<JobId, Timestamp>,
}

impl Agenda {
    /// Enters a job, moves it, or strikes it out.
    pub fn set(&mut self, job: JobId, at: Option<Timestamp>) {
        if let Some(old) = self.of_job.remove(&job) {
            self.by_time.remove(&(old, job));
        }
        if let Some(at) = at {
            self.of_job.insert(job, at);
            self.by_time.insert((at, job));
        }
    }

    /// When the first job comes.
    #[must_use]
    pub fn first(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out a job that is due; it stands in the agenda again when it is set again.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, JobId)> {
        let (at, job) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.pop_first();
        self.of_job.remove(&job);
        Some((at, job))
    }

    /// Jobs that come after `after` and not after `until`, the earliest first.
    pub fn between(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = (Timestamp, JobId)> + '_ {
        let from = (after.plus_ms(1), JobId(uuid::Uuid::nil()));
        self.by_time.range(from..).copied().take_while(move |(at, _)| *at <= until)
    }

    /// How many jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_time.len()
    }
}
