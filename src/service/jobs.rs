//! Jobs: created here, read and changed through their actors.

use super::Service;
use crate::actors::job::{JobChange, JobHandle, TriggerOrder, check_trigger, conflict, flow_problem, job_from};
use crate::actors::reply::{problem_of, reply};
use crate::domain::ids::{IdPart, Identity, JobId};
use crate::domain::job::{Job, JobKind, limits};
use crate::domain::run::{Run, RunState};
use crate::domain::schedule::{LONGEST, Schedule};
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::protocol::api::{JobInput, Page, RunOutput, TriggerInput};
use crate::protocol::management::{AskInput, BackfillInput, BackfillOutput, DisableInput, JobActivity, JobOutput, JobStatus, LastRun};
use crate::protocol::problem::Problem;
use crate::store::{
    CheckFlow, GetRun, InsertJob, JobSort, LastRuns, ListJobs, LoadJobs, NextAsked, PurgeJob, ReadActivity, SortKey, StoreError,
    StoredActivity, StoredPlan,
};

/// Selects the jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only jobs whose id begins or ends with this.
    pub id: Option<IdPart>,
    /// A part of the name.
    pub name: Option<String>,
    /// Only enabled or only disabled jobs.
    pub enabled: Option<bool>,
    /// Only jobs of this kind.
    pub kind: Option<JobKind>,
    /// Only jobs of this group.
    pub group: Option<String>,
    /// Only jobs of these groups.
    pub among: Option<Vec<String>>,
    /// List the deleted jobs instead.
    pub deleted: bool,
    /// `creationTime`, `updateTime`, `name` or `nextFire`; a leading `-` reverses the order.
    pub sort: Option<String>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
}

fn output(job: Job, plan: &StoredPlan) -> JobOutput {
    JobOutput {
        cron: job.schedule.as_ref().and_then(Schedule::first_cron).map(str::to_owned),
        number: job.id.number(),
        job: job.without_secrets(),
        next_fire: plan.next_at,
        last_fire: plan.state.last_fire,
        last_run_time: None,
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

/// Maximum number of triggers in one call.
const MOST_TRIGGERS: usize = 1_000;

impl Service {
    /// Rejects a callback to a host that the broker never calls. The addresses behind a name are checked at the call.
    pub(super) fn check_target(&self, input: &JobInput) -> Result<(), Problem> {
        let url = input.callback.as_ref().and_then(|callback| url::Url::parse(&callback.url).ok());
        let Some((url, host)) = url.as_ref().and_then(|url| Some((url, url.host_str()?))) else { return Ok(()) };
        let refused = self.context.outbound.targets.refuses(host, url.port_or_known_default().unwrap_or(0));
        refused.map_or(Ok(()), |why| Err(Problem::invalid("callback.url", why)))
    }

    /// Creates a job.
    ///
    /// # Errors
    /// A value is invalid, or the name or the id is taken.
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
        // In its own task: if the caller disconnects, the job is still created, and the scheduler must receive it.
        actix::spawn(async move {
            let written = context.store.write(InsertJob { job: job.clone(), next_at }).await;
            if written.is_ok() {
                context.scheduler.planned(job.id, next_at);
            }
            stored.send(written.map_err(|error| conflict(&error, &job)).map(|()| output(job, &StoredPlan { state, next_at })));
        });
        answer.wait().await
    }

    /// Validates a new job without creating it.
    ///
    /// # Errors
    /// A value is invalid, or the name is taken.
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
    /// The job does not exist.
    pub async fn job(&self, id: JobId) -> Result<JobOutput, Problem> {
        let (job, plan) = self.stored_job(id, false).await?;
        let stored = self.context.store.read(ReadActivity(id)).await.map_err(|e| problem_of(&e))?;
        let mut activity = activity(stored);
        if let (Some(run), JobStatus::Waiting) = (activity.open_run, activity.status) {
            // For a short task, the store records the worker only at the end; the actor knows it earlier.
            let now = self.described(run, false).await.filter(|now| matches!(now.state, RunState::Running | RunState::Scheduled));
            if let Some(now) = now {
                (activity.status, activity.worker_id) = (JobStatus::Running, now.worker_id.or(activity.worker_id));
            }
        }
        Ok(JobOutput { activity: Some(activity), ..output(job, &plan) })
    }

    /// Lists jobs.
    ///
    /// # Errors
    /// The cursor or the sort key is invalid.
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
            among: filter.among,
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
        let ids = items.iter().map(|(job, _)| job.id).collect();
        let last_runs = self.context.store.read(LastRuns(ids)).await.map_err(|e| problem_of(&e))?;
        let listed = |(job, plan): (Job, StoredPlan)| JobOutput { last_run_time: last_runs.get(&job.id).copied(), ..output(job, &plan) };
        Ok(Page { items: items.into_iter().map(listed).collect(), next_cursor })
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
    /// The job does not exist or was changed in the meantime, a value is invalid, or the name is taken.
    pub async fn update_job(&self, id: JobId, input: JobInput, by: Option<String>) -> Result<JobOutput, Problem> {
        self.check_target(&input)?;
        self.change(id, JobChange::Values(Box::new(input)), by).await
    }

    /// Enables a job.
    ///
    /// # Errors
    /// The job does not exist.
    pub async fn enable_job(&self, id: JobId, by: Option<String>) -> Result<JobOutput, Problem> {
        self.change(id, JobChange::Enable, by).await
    }

    /// Disables a job: neither the plan nor a trigger starts it.
    ///
    /// # Errors
    /// The job does not exist, or the mode is unknown.
    pub async fn disable_job(&self, id: JobId, input: DisableInput, by: Option<String>) -> Result<JobOutput, Problem> {
        let stop = stops(&input)?;
        self.change(id, JobChange::Disable { reason: input.reason, stop }, by).await
    }

    /// Deletes a job: it can no longer be triggered; its runs stay.
    ///
    /// # Errors
    /// The job does not exist, or has changed since the version that the caller sent.
    pub async fn delete_job(&self, id: JobId, version: Option<i64>, by: Option<String>) -> Result<(), Problem> {
        self.change(id, JobChange::Delete { version }, by).await.map(drop)
    }

    /// Restores a deleted job, in disabled state.
    ///
    /// # Errors
    /// No deleted job has this id, or its name is taken now.
    pub async fn restore_job(&self, id: JobId, by: Option<String>) -> Result<JobOutput, Problem> {
        self.change(id, JobChange::Restore, by).await
    }

    /// Removes a deleted job from the store for good. The janitor removes the rest of its history later.
    ///
    /// # Errors
    /// The job does not exist, is not deleted, or has an active run.
    pub async fn purge_job(&self, id: JobId) -> Result<(), Problem> {
        self.context.store.write(PurgeJob(id)).await.map_err(|error| match error {
            StoreError::Conflict(what) if what == "open-runs" => {
                Problem::conflict("open-runs", "a run of the job is still active: stop it first")
            }
            StoreError::Conflict(_) => Problem::conflict("not-deleted", "only a deleted job can be purged"),
            other => problem_of(&other),
        })?;
        // A new job could reuse the id, so the actor must discard its cached state.
        if let Some(actor) = self.context.addresses.jobs.get(id) {
            actor.forget();
        }
        Ok(())
    }

    /// Triggers a job.
    ///
    /// # Errors
    /// The job does not exist, is disabled, or its definition is invalid.
    pub async fn trigger(&self, id: JobId, order: TriggerOrder) -> Result<RunOutput, Problem> {
        check_trigger(&order.input)?;
        let job = self.job_actor(id).await?;
        let triggered = job.trigger(order).wait().await?;
        match triggered.run {
            Some(run) => Ok(*run),
            None => self.run(triggered.identity).await,
        }
    }

    /// The actor of a job; it is started if necessary.
    async fn job_actor(&self, id: JobId) -> Result<JobHandle, Problem> {
        match self.context.addresses.jobs.get(id) {
            Some(job) => Ok(job),
            None => self.context.registry().open_job(id).wait().await,
        }
    }

    /// Triggers a job several times. Each trigger has its own answer, in the same order.
    ///
    /// # Errors
    /// The job does not exist, or there are too many triggers; then no run is created.
    pub async fn trigger_batch(&self, id: JobId, orders: Vec<TriggerOrder>) -> Result<Vec<Result<Identity, Problem>>, Problem> {
        if orders.is_empty() || orders.len() > MOST_TRIGGERS {
            return Err(Problem::invalid("body", format!("must have 1 to {MOST_TRIGGERS} triggers")));
        }
        for (i, order) in orders.iter().enumerate() {
            check_trigger(&order.input).map_err(|problem| {
                let field = problem.field.clone().unwrap_or_default();
                problem.at(format!("[{i}].{field}"))
            })?;
        }
        self.job_actor(id).await?.trigger_batch(orders).wait().await
    }

    /// Repeats a run, as a new run.
    ///
    /// # Errors
    /// The run does not exist, or its job cannot be triggered.
    pub async fn retry_run(&self, identity: Identity, by: Option<String>) -> Result<RunOutput, Problem> {
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        let run = run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))?;
        let input = TriggerInput { arguments: run.arguments_value(), priority: Some(run.priority), ..TriggerInput::default() };
        self.trigger(
            run.job_id,
            TriggerOrder { input, retry_of: Some(identity), trace: TraceContext::of_run(&run), by, ..TriggerOrder::default() },
        )
        .await
    }

    /// A run requests the next time of its job.
    ///
    /// # Errors
    /// The run does not exist, the input has no time, or the job is disabled.
    pub async fn ask_next(&self, identity: Identity, input: AskInput) -> Result<Option<Timestamp>, Problem> {
        let now = Timestamp::now();
        let next = match (input.at, input.in_ms) {
            (Some(at), None) => NextAsked { at, from: None },
            (None, Some(ms)) if ms > LONGEST => return Err(Problem::invalid("in", format!("must be at most {LONGEST} ms, not {ms}"))),
            (None, Some(ms)) => NextAsked { at: now.plus_ms(ms as i64), from: Some(now) },
            _ => return Err(Problem::invalid("at", "give exactly one of `at` and `in`")),
        };
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        let run = run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))?;
        let job = self.context.registry().open_job(run.job_id).wait().await?;
        job.ask_next(identity, next).wait().await
    }

    /// Creates runs for a past range of a job's plan.
    ///
    /// # Errors
    /// The job does not exist, or the range is invalid.
    pub async fn backfill(&self, id: JobId, input: BackfillInput, by: Option<String>) -> Result<BackfillOutput, Problem> {
        let job = self.context.registry().open_job(id).wait().await?;
        job.backfill(input, by).wait().await
    }
}

/// Validates the input, and returns whether the runs of the disabled job must be stopped.
pub(super) fn stops(input: &DisableInput) -> Result<bool, Problem> {
    if input.reason.as_ref().is_some_and(|reason| reason.chars().count() > limits::DESCRIPTION) {
        return Err(Problem::invalid("reason", format!("must be at most {} characters", limits::DESCRIPTION)));
    }
    match input.mode.as_deref() {
        None | Some("drain") => Ok(false),
        Some("stop") => Ok(true),
        Some(other) => Err(Problem::invalid("mode", format!("must be `drain` or `stop`, not `{other}`"))),
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
            let detail = format!("must be creationTime, updateTime, name or nextFire, not `{other}`");
            return Err(Problem::invalid("sort", detail));
        }
    };
    Ok((sort, descending))
}

/// The id and the sort value of the last item.
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
