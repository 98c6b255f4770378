//! Processes the end of a run: counts failures, advances the plan, and starts the next run in the queue.

use super::loaded::LoadedJob;
use super::message::JobChange;
use super::successors::{Succession, SuccessorsBegun};
use crate::actors::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::job::JobKind;
use crate::domain::run::{BROKER, Run, RunState};
use crate::domain::schedule::{Schedule, settle};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{DataOf, GetRun, NewLine, NextAsked, NextOf, SettleRun, StoredPlan};

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
        let waiting = known.open.first_queued();
        let release = waiting.filter(|_| known.open_counts().at_work == 0);
        let ended = ended.filter(|run| run.follow);
        let is_planned = known.stored.next_at == known.next_at(&known.stored.state, known.open_counts().any());
        if ended.is_none() && release.is_none() && is_planned {
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
        let lines = begun.unwrap_or_default();
        let has_lines = !lines.is_empty();
        let asked = match ended.as_ref().filter(|run| matches!(run.kind, JobKind::Task | JobKind::Callback)) {
            Some(run) => self.context.store.read(NextOf(run.no)).await.map_err(|e| problem_of(&e))?,
            None => None,
        };
        if asked.is_some() {
            self.withdraw().await?;
        }
        let known = self.known().await?;
        let was = known.stored.state;
        let how = ended.as_ref().map(|run| (run.state, run.finish_time.unwrap_or(run.creation_time)));
        let aftermath = settle(&was, how, known.open_counts());
        let now = Timestamp::now();
        let mut state = aftermath.state;
        if let (Some(asked), Some(run)) = (asked, &ended) {
            if known.job.is_enabled && !known.job.is_deleted {
                log::info!("run requested the next time of its job job_id={} run_id={} at={}", known.job.id, run.identity, asked.at);
                state.ask(asked.at, asked.from, now);
            } else {
                log::warn!("run requested the next time of a disabled job job_id={} run_id={}", known.job.id, run.identity);
            }
        }
        let mut events = Vec::new();
        if let (Some(run), Some((_, finish))) = (&ended, how) {
            let event = |name, reason: &str| known.event(name, Some(run.identity), finish, reason);
            if aftermath.failed {
                events.push(event("failed", run.reason.as_deref().unwrap_or_default()));
            }
            if let Some(failures) = aftermath.recovered_after {
                events.push(event("recovered", &format!("after {failures} failures")));
            }
        }
        let next_at = known.next_at(&state, known.open_counts().any());
        let alarm = !events.is_empty();
        let ended = ended.map(|run| run.identity);
        let settle = SettleRun { ended, job_id: known.job.id, was, state, next_at, release, events, lines, now };
        if let Err(error) = self.context.store.write_unbounded(settle).await {
            return Err(self.forget(&error));
        }
        let known = self.known().await?;
        known.stored = StoredPlan { state, next_at };
        if let Some(identity) = release {
            known.open.release(identity);
            drop(self.context.registry().start_run(identity));
        }
        if alarm {
            self.context.alarm();
        }
        if let Some(identity) = ended.filter(|_| has_lines) {
            self.context.followers.ring(identity);
        }
        self.announce();
        Ok(None)
    }

    /// Disables a job that was planned to run once or failed too often. This is the first step: if the broker crashes in between,
    /// the end of the run is processed again.
    async fn disable_after(&mut self, run: &Run) -> Result<(), Problem> {
        let known = self.known().await?;
        if !known.job.is_enabled || known.job.is_deleted {
            return Ok(());
        }
        let failures = known.stored.state.failures + u32::from(run.state == RunState::Failed);
        let too_many = known.rules.max_failures.filter(|most| run.state == RunState::Failed && failures >= *most);
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
        self.withdraw().await?;
        let known = self.living().await?;
        let was = known.stored.state;
        let mut state = was;
        state.ask(next.at, next.from, Timestamp::now());
        let next_at = known.next_at(&state, known.open_counts().any());
        let asked = crate::store::MovePlan { job_id: known.job.id, was, state, next_at };
        log::info!("run requested the next time of its job job_id={} run_id={identity} at={}", self.id, next.at);
        if let Err(error) = self.context.store.write_unbounded(asked).await {
            return Err(self.forget(&error));
        }
        self.known().await?.stored = StoredPlan { state, next_at };
        self.announce();
        Ok(next_at)
    }
}
