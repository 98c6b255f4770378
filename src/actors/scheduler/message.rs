//! Messages to the scheduler, and its handle.

use super::Scheduler;
use crate::actors::supervision::CurrentLink;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use actix::Message;

/// From a job or the service: when the scheduler should send `Due` to the job. `None`: never, or not until a run has ended.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Planned {
    /// The job.
    pub job_id: JobId,
    /// The time.
    pub at: Option<Timestamp>,
    /// Do not send `Due` before that time.
    pub at_its_time: bool,
}

/// Handle to the scheduler for other modules.
#[derive(Debug, Clone, Default)]
pub struct SchedulerHandle(pub(in crate::actors) CurrentLink<Scheduler>);

impl SchedulerHandle {
    /// Sets the next scheduled time of the job; the scheduler sends `Due` a little earlier.
    pub fn planned(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at, at_its_time: false });
    }

    /// Like [`Self::planned`], but `Due` is not sent before its time.
    pub fn planned_not_before(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at, at_its_time: true });
    }
}
