//! What the scheduler is told, and its handle.

use super::Scheduler;
use crate::actors::supervision::Link;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use actix::Message;

/// From a job or the desk: when the job comes next; none: not, or not until a run has ended.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Planned {
    /// Which.
    pub job_id: JobId,
    /// When.
    pub at: Option<Timestamp>,
}

/// The scheduler, for other rooms.
#[derive(Debug, Clone)]
pub struct SchedulerHandle(pub(in crate::actors) Link<Scheduler>);

impl SchedulerHandle {
    /// See [`Planned`].
    pub fn planned(&self, job_id: JobId, at: Option<Timestamp>) {
        self.0.tell(Planned { job_id, at });
    }
}
