//! Processes the end of a run: counts failures, advances the plan, and starts the next run in the queue.

use super::loaded::LoadedJob;
use super::message::JobChange;
use super::successors::{Succession, SuccessorsBegun};
use crate::actors::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::job::JobKind;
use crate::domain::run::{BROKER, Run, RunState};
use crate::domain::schedule::{RunEnd, Schedule, job_core};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{DataOf, GetRun, NewLine, NextAsked, NextOf};

/// What is stored with the effects of an end.
pub(super) struct Ending {
    /// The run that ended, if its end has effects.
    pub(super) ended: Option<Run>,
    /// Lines for its log.
    pub(super) lines: Vec<NewLine>,
}

impl LoadedJob {
    /// Processes the end of a run of the job. If it returns successors, the end stays open until they have begun.
    pub(super) async fn run_over(&mut self, identity: Option<Identity>, follow: bool) -> Option<Succession> {
        self.deal_with_end(identity, follow, None).await
    }

    /// Continues after the successors of a run have begun or could not be triggered.
    pub(super) async fn successors_begun(&mut self, begun: SuccessorsBegun) {
        match begun.lines {
            Ok(lines) => drop(self.deal_with_end(Some(begun.run), true, Some(lines)).await),
            Err(problem) => self.end_remains(Some(begun.run), &problem),
        }
    }

    async fn deal_with_end(&mut self, identity: Option<Identity>, follow: bool, begun: Option<Vec<NewLine>>) -> Option<Succession> {
        let mut result = self.settle(identity, follow, begun.clone()).await;
        if result.as_ref().is_err_and(|problem| problem.status == 503) {
            result = self.settle(identity, follow, begun).await;
        }
        result.unwrap_or_else(|problem| {
            self.end_remains(identity, &problem);
            None
        })
    }

    /// The end stays marked in the store and is processed again: soon, or after a restart of the broker.
    fn end_remains(&self, identity: Option<Identity>, problem: &Problem) {
        if problem.status >= 500 {
            self.settle_later(identity);
        }
        log::error!("failed to process the end of a run job_id={} run_id={identity:?}: {problem}", self.id);
    }

    async fn settle(
        &mut self,
        identity: Option<Identity>,
        follow: bool,
        begun: Option<Vec<NewLine>>,
    ) -> Result<Option<Succession>, Problem> {
        let ended = match identity.filter(|_| follow) {
            None => None,
            Some(identity) => {
                let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
                run.filter(|run| run.state.is_final())
            }
        };
        if let (Some(identity), Some(known)) = (identity, &mut self.known) {
            known.open.remove(identity);
        }
        let known = self.known().await?;
        identity.into_iter().for_each(|identity| known.open.remove(identity));
        let ended = ended.filter(|run| run.follow);
        if job_core::is_settled(self, ended.is_some()).await? {
            return Ok(None);
        }
        if ended.as_ref().is_some_and(|run| run.kind == JobKind::Task) {
            // The run may have left data for the next one.
            let data = self.context.store.read(DataOf(vec![self.id])).await.map_err(|e| problem_of(&e))?;
            self.known().await?.data = data.into_values().next();
        }
        if let (Some(run), None) = (&ended, &begun) {
            self.disable_after(run).await?;
            // Before the end counts as processed: after a crash in between, they are triggered again with the same key.
            if let Some(succession) = self.successors_of(run).await? {
                return Ok(Some(succession));
            }
        }
        let asked = match ended.as_ref().filter(|run| matches!(run.kind, JobKind::Task | JobKind::Callback)) {
            Some(run) => self.context.store.read(NextOf(run.no)).await.map_err(|e| problem_of(&e))?,
            None => None,
        };
        if let (Some(asked), Some(run)) = (asked, &ended) {
            if self.known().await?.core.is_on {
                log::info!("run requested the next time of its job job_id={} run_id={} at={}", self.id, run.identity, asked.at);
            } else {
                log::warn!("run requested the next time of a disabled job job_id={} run_id={}", self.id, run.identity);
            }
        }
        let end = ended.as_ref().map(|run| RunEnd {
            state: run.state,
            at: run.finish_time.unwrap_or(run.creation_time),
            asked: asked.map(|asked| (asked.at, asked.from)),
        });
        job_core::settle_end(self, end, Ending { ended, lines: begun.unwrap_or_default() }).await?;
        Ok(None)
    }

    /// Disables a job that was planned to run once or failed too often. This is the first step: if the broker crashes in between,
    /// the end of the run is processed again.
    async fn disable_after(&mut self, run: &Run) -> Result<(), Problem> {
        let known = self.known().await?;
        if !known.job.is_enabled || known.job.is_deleted {
            return Ok(());
        }
        let failures = known.core.state.failures + u32::from(run.state == RunState::Failed);
        let too_many = known.core.rules.max_failures.filter(|most| run.state == RunState::Failed && failures >= *most);
        let is_once = known.job.schedule.as_ref().is_some_and(Schedule::is_once) && run.planned_at.is_some();
        let change = if let Some(most) = too_many {
            JobChange::GiveUp { reason: format!("{most} runs failed one after the other") }
        } else if is_once {
            // This was planned, so it causes no alert.
            JobChange::Disable { reason: Some("the job was planned to run once".to_owned()), stop: false }
        } else {
            return Ok(());
        };
        log::warn!("job disabled job_id={} change={change:?}", self.id);
        self.change(change, Some(BROKER.to_owned())).await.map(drop)
    }

    /// A run requests the next time of its job.
    pub(super) async fn ask_next(&mut self, identity: Identity, next: NextAsked) -> Result<Option<Timestamp>, Problem> {
        let known = self.living().await?;
        if !known.job.is_enabled {
            return Err(Problem::conflict("job-disabled", format!("the job `{}` is disabled", known.job.name)));
        }
        log::info!("run requested the next time of its job job_id={} run_id={identity} at={}", self.id, next.at);
        job_core::ask(self, next.at, next.from).await
    }
}
