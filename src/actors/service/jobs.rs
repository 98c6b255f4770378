//! Jobs: created here, asked and changed through their actors.

use super::Service;
use crate::actors::job::{JobChange, JobHandle, TriggerOrder, arguments_of, check_trigger, conflict, flow_problem, job_from};
use crate::actors::reply::{problem_of, reply};
use crate::domain::ids::{IdPart, Identity, JobId};
use crate::domain::job::{Job, JobKind, limits};
use crate::domain::run::{Run, RunState};
use crate::domain::schedule::{LONGEST, Schedule};
use crate::domain::time::Timestamp;
use crate::protocol::api::{JobInput, Page, RunOutput, TriggerInput};
use crate::protocol::management::{
    AskInput, BackfillInput, BackfillOutput, DisableInput, JobActivity, JobOutput, JobStatus, LastRun, RedriveJobInput, RedriveOutput,
};
use crate::protocol::problem::Problem;
use crate::store::{
    CheckFlow, GetRun, InsertJob, JobSort, ListJobs, LoadJobs, NextAsked, PurgeJob, ReadActivity, SortKey, StoreError, StoredActivity,
    StoredPlan,
};

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only those whose id begins or ends with this.
    pub id: Option<IdPart>,
    /// A part of the name.
    pub name: Option<String>,
    /// Enabled or not.
    pub enabled: Option<bool>,
    /// Of this kind.
    pub kind: Option<JobKind>,
    /// Of this group.
    pub group: Option<String>,
    /// Deleted ones instead.
    pub deleted: bool,
    /// `creationTime`, `updateTime`, `name` or `nextFire`, with `-` in front the other way round.
    pub sort: Option<String>,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// The most items in the answer.
    pub limit: usize,
}

fn output(job: Job, plan: &StoredPlan) -> JobOutput {
    JobOutput {
        cron: job.schedule.as_ref().and_then(Schedule::first_cron).map(str::to_owned),
        number: job.id.number(),
        job: job.without_secrets(),
        next_fire: plan.next_at,
        last_fire: plan.state.last_fire,
        fires: plan.state.fires,
        failures: plan.state.failures,
        activity: None,
    }
}

fn activity(stored: StoredActivity) -> JobActivity {
    let StoredActivity { runs, average_ms, last, open } = stored;
    let is_begun = |run: &Run| run.state == RunState::Running || run.state == RunState::Scheduled && run.worker_id.is_some();
    let status = match &open {
        None => JobStatus::Idle,
        Some(run) if is_begun(run) => JobStatus::Running,
        Some(_) => JobStatus::Waiting,
    };
    let worker_of = |run: &Option<Run>| run.as_ref().and_then(|run| run.worker_id);
    JobActivity {
        status,
        runs,
        average_ms,
        open_run: open.as_ref().map(|run| run.identity),
        worker_id: worker_of(&open).or_else(|| worker_of(&last)),
        last_run: last.map(|run| LastRun {
            identity: run.identity,
            state: run.state,
            start_time: run.start_time,
            finish_time: run.finish_time,
            took_ms: run.start_time.zip(run.finish_time).map(|(start, end)| end.since_ms(start).max(0) as u64),
        }),
    }
}

/// Triggers of one call.
const MOST_TRIGGERS: usize = 1_000;

impl Service {
    /// Refuses a callback to where the broker will never make a request. What a name leads to is seen when it is called.
    pub(super) fn check_target(&self, input: &JobInput) -> Result<(), Problem> {
        let url = input.callback.as_ref().and_then(|callback| url::Url::parse(&callback.url).ok());
        let Some((url, host)) = url.as_ref().and_then(|url| Some((url, url.host_str()?))) else { return Ok(()) };
        let refused = self.context.outbound.targets.refuses(host, url.port_or_known_default().unwrap_or(0));
        refused.map_or(Ok(()), |why| Err(Problem::invalid("callback.url", why)))
    }

    /// Creates a job.
    ///
    /// # Errors
    /// A value is not allowed, or the name or the id is taken.
    pub async fn create_job(&self, input: JobInput, by: Option<String>) -> Result<JobOutput, Problem> {
        let now = Timestamp::now();
        self.check_target(&input)?;
        let job = job_from(input, by, now)?;
        let state = crate::domain::schedule::PlanState::new(now);
        let plan =
            job.schedule.as_ref().unwrap_or(&Schedule::default()).compile().map_err(|e| Problem::invalid("schedule", e.to_string()))?;
        let next_at = if job.is_enabled { plan.next(&state, false).map(|next| next.at) } else { None };
        let (stored, answer) = reply();
        let context = self.context.clone();
        // By itself: if the caller hangs up, the job is made all the same, and the scheduler is to know it.
        actix::spawn(async move {
            let written = context.store.write(InsertJob { job: job.clone(), next_at }).await;
            if let (Ok(()), Some(scheduler)) = (&written, context.scheduler()) {
                scheduler.planned(job.id, next_at);
            }
            stored.send(written.map_err(|error| conflict(&error, &job)).map(|()| output(job, &StoredPlan { state, next_at })));
        });
        answer.wait().await
    }

    /// What creating a job would do, without doing it.
    ///
    /// # Errors
    /// A value is not allowed, or the name is taken.
    pub async fn check_job(&self, input: JobInput, by: Option<String>) -> Result<JobOutput, Problem> {
        let now = Timestamp::now();
        self.check_target(&input)?;
        let job = job_from(input, by, now)?;
        let named = self.context.store.read(crate::store::JobNamed(job.name.clone())).await.map_err(|e| problem_of(&e))?;
        if named.is_some() {
            return Err(conflict(&StoreError::Conflict("name".to_owned()), &job));
        }
        let fault = self.context.store.read(CheckFlow(vec![job.clone()])).await.map_err(|e| problem_of(&e))?;
        if let Some((_, fault)) = fault {
            return Err(flow_problem(&fault));
        }
        let state = crate::domain::schedule::PlanState::new(now);
        let plan =
            job.schedule.as_ref().unwrap_or(&Schedule::default()).compile().map_err(|e| Problem::invalid("schedule", e.to_string()))?;
        let next_at = if job.is_enabled { plan.next(&state, false).map(|next| next.at) } else { None };
        Ok(output(job, &StoredPlan { state, next_at }))
    }

    pub(super) async fn stored_job(&self, id: JobId, deleted: bool) -> Result<(Job, StoredPlan), Problem> {
        let found = self.context.store.read(LoadJobs(vec![id])).await.map_err(|e| problem_of(&e))?.pop();
        found.filter(|(job, _)| deleted || !job.is_deleted).ok_or_else(|| Problem::not_found(format!("there is no job {id}")))
    }

    /// A job that is not deleted.
    ///
    /// # Errors
    /// There is none.
    pub async fn job(&self, id: JobId) -> Result<JobOutput, Problem> {
        let (job, plan) = self.stored_job(id, false).await?;
        let stored = self.context.store.read(ReadActivity(id)).await.map_err(|e| problem_of(&e))?;
        let mut activity = activity(stored);
        if let (Some(run), JobStatus::Waiting) = (activity.open_run, activity.status) {
            // That a short task is at a worker is written with its end: its actor knows before.
            let now = self.described(run).await.filter(|now| matches!(now.state, RunState::Running | RunState::Scheduled));
            if let Some(now) = now {
                (activity.status, activity.worker_id) = (JobStatus::Running, now.worker_id.or(activity.worker_id));
            }
        }
        Ok(JobOutput { activity: Some(activity), ..output(job, &plan) })
    }

    /// Lists jobs.
    ///
    /// # Errors
    /// The cursor is none of ours, or nothing can be sorted by that.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Page<JobOutput>, Problem> {
        let (sort, descending) = read_sort(filter.sort.as_deref())?;
        let after = filter.cursor.as_deref().map(|text| read_cursor(text, sort)).transpose()?;
        let limit = filter.limit;
        let query = ListJobs {
            id: filter.id,
            name: filter.name,
            enabled: filter.enabled,
            kind: filter.kind,
            group: filter.group,
            deleted: filter.deleted,
            sort,
            descending,
            after,
            limit: limit + 1,
        };
        let mut items = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|(job, plan)| cursor(job, plan, sort));
        Ok(Page { items: items.into_iter().map(|(job, plan)| output(job, &plan)).collect(), next_cursor })
    }

    pub(super) async fn change(&self, id: JobId, change: JobChange, by: Option<String>) -> Result<JobOutput, Problem> {
        let actor = self.context.registry().open_job(id).wait().await?;
        actor.change(change, by).wait().await?;
        let (job, plan) = self.stored_job(id, true).await?;
        Ok(output(job, &plan))
    }

    /// Changes a job.
    ///
    /// # Errors
    /// There is none, a value is not allowed, the name is taken, or it was changed meanwhile.
    pub async fn update_job(&self, id: JobId, input: JobInput, by: Option<String>) -> Result<JobOutput, Problem> {
        self.check_target(&input)?;
        self.change(id, JobChange::Values(Box::new(input)), by).await
    }

    /// Enables a job.
    ///
    /// # Errors
    /// There is none.
    pub async fn enable_job(&self, id: JobId, by: Option<String>) -> Result<JobOutput, Problem> {
        self.change(id, JobChange::Enable, by).await
    }

    /// Disables a job: it runs neither by itself nor when triggered.
    ///
    /// # Errors
    /// There is none, or the mode is not known.
    pub async fn disable_job(&self, id: JobId, input: DisableInput, by: Option<String>) -> Result<JobOutput, Problem> {
        let stop = stops(&input)?;
        self.change(id, JobChange::Disable { reason: input.reason, stop }, by).await
    }

    /// Deletes a job: it can no longer be triggered; its runs stay.
    ///
    /// # Errors
    /// There is none, or it was changed since the version that the caller names.
    pub async fn delete_job(&self, id: JobId, version: Option<i64>, by: Option<String>) -> Result<(), Problem> {
        self.change(id, JobChange::Delete { version }, by).await.map(drop)
    }

    /// Takes a deletion back; the job is disabled then.
    ///
    /// # Errors
    /// There is none that is deleted, or its name is taken now.
    pub async fn restore_job(&self, id: JobId, by: Option<String>) -> Result<JobOutput, Problem> {
        self.change(id, JobChange::Restore, by).await
    }

    /// Takes a deleted job out of the store for good; what is left of its past goes with the next cleaning.
    ///
    /// # Errors
    /// There is none, it is not deleted, or a run of it is not over.
    pub async fn purge_job(&self, id: JobId) -> Result<(), Problem> {
        self.context.store.write(PurgeJob(id)).await.map_err(|error| match error {
            StoreError::Conflict(what) if what == "open-runs" => {
                Problem::conflict("open-runs", "a run of the job is not over: stop it first")
            }
            StoreError::Conflict(_) => Problem::conflict("not-deleted", "only a deleted job can be purged"),
            other => problem_of(&other),
        })?;
        // What its actor knows would be wrong of another job under the same id.
        if let Some(actor) = self.context.addresses.jobs.get(id) {
            actor.forget();
        }
        Ok(())
    }

    /// Triggers a job.
    ///
    /// # Errors
    /// There is none, it is disabled, or it cannot be run as it stands.
    pub async fn trigger(&self, id: JobId, order: TriggerOrder) -> Result<RunOutput, Problem> {
        check_trigger(&order.input)?;
        let job = self.job_actor(id).await?;
        let triggered = job.trigger(order).wait().await?;
        match triggered.run {
            Some(run) => Ok(*run),
            None => self.run(triggered.identity).await,
        }
    }

    /// The actor of a job, started if need be.
    async fn job_actor(&self, id: JobId) -> Result<JobHandle, Problem> {
        match self.context.addresses.jobs.get(id) {
            Some(job) => Ok(job),
            None => self.context.registry().open_job(id).wait().await,
        }
    }

    /// Triggers a job many times; each has its own answer, in their order.
    ///
    /// # Errors
    /// There is no such job, or so many are not taken at once; then none is made.
    pub async fn trigger_batch(&self, id: JobId, orders: Vec<TriggerOrder>) -> Result<Vec<Result<Identity, Problem>>, Problem> {
        if orders.is_empty() || orders.len() > MOST_TRIGGERS {
            return Err(Problem::invalid("body", format!("1 to {MOST_TRIGGERS} triggers are taken at once")));
        }
        for (i, order) in orders.iter().enumerate() {
            check_trigger(&order.input).map_err(|problem| {
                let field = problem.field.clone().unwrap_or_default();
                problem.at(format!("[{i}].{field}"))
            })?;
        }
        self.job_actor(id).await?.trigger_batch(orders).wait().await
    }

    /// Runs what a run did once more, as a run of its own.
    ///
    /// # Errors
    /// There is no such run, or its job cannot be triggered.
    pub async fn retry_run(&self, identity: Identity, by: Option<String>) -> Result<RunOutput, Problem> {
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        let run = run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))?;
        let input = TriggerInput { arguments: arguments_of(&run), priority: Some(run.priority), ..TriggerInput::default() };
        self.trigger(run.job_id, TriggerOrder { input, retry_of: Some(identity), trace_id: run.trace_id, by, ..TriggerOrder::default() })
            .await
    }

    /// A run says when its job is to be run next.
    ///
    /// # Errors
    /// There is no such run, the input names no time, or the job is disabled.
    pub async fn ask_next(&self, identity: Identity, input: AskInput) -> Result<Option<Timestamp>, Problem> {
        let now = Timestamp::now();
        let next = match (input.at, input.in_ms) {
            (Some(at), None) => NextAsked { at, from: None },
            (None, Some(ms)) if ms > LONGEST => return Err(Problem::invalid("in", format!("{ms} ms is more than {LONGEST}"))),
            (None, Some(ms)) => NextAsked { at: now.plus_ms(ms as i64), from: Some(now) },
            _ => return Err(Problem::invalid("at", "one of `at` and `in` is expected")),
        };
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        let run = run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))?;
        let job = self.context.registry().open_job(run.job_id).wait().await?;
        job.ask_next(identity, next).wait().await
    }

    /// Makes runs for a past range of a job's plan.
    ///
    /// # Errors
    /// There is no such job, or the range is none.
    pub async fn backfill(&self, id: JobId, input: BackfillInput, by: Option<String>) -> Result<BackfillOutput, Problem> {
        let job = self.context.registry().open_job(id).wait().await?;
        job.backfill(input, by).wait().await
    }

    /// Runs the dead runs of a job again.
    ///
    /// # Errors
    /// There is no such job, or it is disabled.
    pub async fn redrive(&self, id: JobId, input: RedriveJobInput, by: Option<String>) -> Result<RedriveOutput, Problem> {
        let job = self.context.registry().open_job(id).wait().await?;
        job.redrive(input, by).wait().await
    }
}

/// Whether a job that is disabled so has its runs stopped, if all that is said is allowed.
pub(super) fn stops(input: &DisableInput) -> Result<bool, Problem> {
    if input.reason.as_ref().is_some_and(|reason| reason.chars().count() > limits::DESCRIPTION) {
        return Err(Problem::invalid("reason", format!("at most {} characters are taken", limits::DESCRIPTION)));
    }
    match input.mode.as_deref() {
        None | Some("drain") => Ok(false),
        Some("stop") => Ok(true),
        Some(other) => Err(Problem::invalid("mode", format!("`{other}` is neither drain nor stop"))),
    }
}

fn read_sort(text: Option<&str>) -> Result<(JobSort, bool), Problem> {
    let text = text.unwrap_or("creationTime");
    let (descending, name) = text.strip_prefix('-').map_or((false, text), |name| (true, name));
    let sort = match name {
        "creationTime" => JobSort::CreationTime,
        "updateTime" => JobSort::UpdateTime,
        "name" => JobSort::Name,
        "nextFire" => JobSort::NextFire,
        other => {
            let detail = format!("`{other}` is none of creationTime, updateTime, name and nextFire");
            return Err(Problem::invalid("sort", detail));
        }
    };
    Ok((sort, descending))
}

/// The id and what the list is sorted by, of the last item.
fn cursor(job: &Job, plan: &StoredPlan, sort: JobSort) -> String {
    let key = match sort {
        JobSort::CreationTime => job.creation_time.0.to_string(),
        JobSort::UpdateTime => job.update_time.0.to_string(),
        JobSort::Name => job.name.clone(),
        JobSort::NextFire => plan.next_at.unwrap_or_default().0.to_string(),
    };
    format!("{}-{key}", job.id)
}

fn read_cursor(text: &str, sort: JobSort) -> Result<(SortKey, JobId), Problem> {
    let read = || {
        let (id, key) = text.split_once('-')?;
        let key = if sort == JobSort::Name { SortKey::Text(key.to_owned()) } else { SortKey::Number(key.parse().ok()?) };
        Some((key, id.parse().ok()?))
    };
    read().ok_or_else(|| Problem::invalid("cursor", "not a cursor of this list"))
}
