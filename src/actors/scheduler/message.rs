//! What the scheduler is told, and its handle.

use super::Scheduler;
use crate::actors::supervision::Link;
use crate::domain::ids::JobId;
use crate::domain::schedule::AHEAD_MS;
use crate::domain::time::Timestamp;
use actix::Message;

/// From a job or the desk: when the job is to be told that it is due; none: not, or not until a run has ended.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Planned {
    /// Which.
    pub job_id: JobId,
    /// When.
    pub at: Option<Timestamp>,
}

/// Jobs that come within so many milliseconds are told together: what they write shares a commit, and nothing is urgent yet.
const TOGETHER_MS: i64 = 25;

/// When a job that comes at `at` is told for the first time: not more than [`AHEAD_MS`] before.
pub(super) fn ahead_of(at: Timestamp) -> Timestamp {
    let latest = at.plus_ms(TOGETHER_MS - 1 - AHEAD_MS);
    latest.plus_ms(-latest.0.rem_euclid(TOGETHER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_told_together_and_not_too_early() {
        let told: Vec<i64> = (10_000..10_100).map(|at| at - ahead_of(Timestamp(at)).0).collect();
        assert_eq!((told.iter().min(), told.iter().max()), (Some(&(AHEAD_MS - TOGETHER_MS + 1)), Some(&AHEAD_MS)));
        let together: std::collections::BTreeSet<_> = (10_000..10_100).map(|at| ahead_of(Timestamp(at))).collect();
        assert!(together.len() <= 5, "{together:?}");
    }
}

/// The scheduler, for other rooms.
#[derive(Debug, Clone)]
pub struct SchedulerHandle(pub(in crate::actors) Link<Scheduler>);

impl SchedulerHandle {
    /// When the job comes next: it is told a little before that.
    pub fn planned(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at: at.map(ahead_of) });
    }

    /// As [`Self::planned`], and the job is not told before its time.
    pub fn planned_not_before(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at });
    }
}
