//! What the scheduler is told, and its handle.

use super::Scheduler;
use crate::actors::supervision::Link;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use actix::Message;

/// From a job or the service: when the job is to be told that it is due; none: not, or not until a run has ended.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Planned {
    /// Which.
    pub job_id: JobId,
    /// When.
    pub at: Option<Timestamp>,
    /// It is not to be told before.
    pub at_its_time: bool,
}

/// The scheduler, for other rooms.
#[derive(Debug, Clone)]
pub struct SchedulerHandle(pub(in crate::actors) Link<Scheduler>);

impl SchedulerHandle {
    /// When the job comes next: it is told a little before that.
    pub fn planned(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at, at_its_time: false });
    }

    /// As [`Self::planned`], and the job is not told before its time.
    pub fn planned_not_before(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at, at_its_time: true });
    }
}
