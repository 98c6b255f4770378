//! Updates a job. Everything due under the old definition is processed first; the new plan applies from then on.

use super::fires::stop_all;
use super::input::apply;
use super::loaded::LoadedJob;
use super::message::JobChange;
use super::successors::flow_problem;
use crate::actors::reply::problem_of;
use crate::domain::job::Job;
use crate::domain::schedule::{Schedule, changed, job_core};
use crate::protocol::problem::Problem;
use crate::store::{Action, FlowFault, StoreError, UpdateJob};

impl LoadedJob {
    /// Changes the job and returns the new version.
    pub(super) async fn change(&mut self, change: JobChange, by: Option<String>) -> Result<Job, Problem> {
        let restores = matches!(change, JobChange::Restore);
        if self.known().await?.job.is_deleted != restores {
            return Err(if restores {
                Problem::conflict("not-deleted", format!("the job {} is not deleted", self.id))
            } else {
                Problem::not_found(format!("there is no job {}", self.id))
            });
        }
        let now = job_core::prepare_change(self).await?;
        let known = self.known().await?;
        let old = known.job.clone();
        let mut job = old.clone();
        let stops = matches!(change, JobChange::Disable { stop: true, .. });
        let mut given_up = None;
        let action = match change {
            JobChange::Values(input) => {
                apply(&mut job, *input, now)?;
                Action::Updated
            }
            JobChange::Enable => {
                (job.is_enabled, job.disabled_reason) = (true, None);
                Action::Enabled
            }
            JobChange::Disable { reason, .. } => {
                (job.is_enabled, job.disabled_reason) = (false, reason);
                Action::Disabled
            }
            JobChange::GiveUp { reason } => {
                given_up = Some(reason.clone());
                (job.is_enabled, job.disabled_reason) = (false, Some(reason));
                Action::Disabled
            }
            JobChange::Delete { version } => {
                if let Some(version) = version.filter(|version| *version != old.version) {
                    return Err(conflict(&StoreError::Conflict("version".to_owned()), &Job { version, ..old }));
                }
                job.is_deleted = true;
                Action::Deleted
            }
            JobChange::Restore => {
                (job.is_deleted, job.is_enabled) = (false, false);
                job.disabled_reason = Some("the job was deleted and restored".to_owned());
                Action::Restored
            }
        };
        job.update_time = now;
        job.update_by = by;
        let was = known.core.state;
        let state = changed(&was, now, job.is_enabled && !old.is_enabled, job.schedule != old.schedule);
        let plan = job.schedule.as_ref().unwrap_or(&Schedule::default()).compile().map_err(super::input::of_schedule)?;
        let comes = job.is_enabled && !job.is_deleted;
        let next_at = if comes { plan.next(&state, known.open_counts().any()).map(|next| next.at) } else { None };
        let events: Vec<_> = given_up.iter().map(|reason| known.event("disabled", None, now, reason)).collect();
        let alarm = !events.is_empty();
        let update = UpdateJob { job: job.clone(), action, was, state, next_at, events };
        let written = self.context.store.write(update).await;
        // In all cases, read the state of the job again.
        let open = self.known.take().map(|known| known.open.all()).unwrap_or_default();
        let job = written.map_err(|error| conflict(&error, &job))?;
        self.context.scheduler.planned(self.id, next_at);
        if alarm {
            self.context.alarm();
        }
        if stops {
            stop_all(&self.context, &open, "its job was disabled", job.update_by.as_deref()).await;
        }
        Ok(job)
    }
}

/// Maps a conflict in the store to a problem for the client.
#[must_use]
pub fn conflict(error: &StoreError, job: &Job) -> Problem {
    match error {
        StoreError::Conflict(what) if what == "name" => {
            Problem::conflict("name-taken", format!("a job named {:?} already exists: use another name, or change that job", job.name))
                .at("name")
        }
        StoreError::Conflict(what) if what == "id" => {
            Problem::conflict("id-taken", format!("a job with the id {} already exists", job.id)).at("id")
        }
        StoreError::Conflict(what) if what == "version" => {
            Problem::conflict("version", "the job has changed since that version was read; read it again".to_owned()).at("version")
        }
        StoreError::Conflict(what) if FlowFault::read(what).is_some() => {
            FlowFault::read(what).map_or_else(Problem::internal, |fault| flow_problem(&fault))
        }
        StoreError::Conflict(what) if what == "plan" => Problem::busy("the plan of the job changed in the meantime; retry"),
        other => problem_of(other),
    }
}
