//! Creates runs from scheduled times and triggers.

use super::input::arguments_text;
use super::loaded::{Known, LoadedJob, Texts, of_property};
use super::message::{TriggerOrder, Triggered};
use super::ports::REPLACED;
use crate::actors::context::BrokerContext;
use crate::actors::reply::problem_of;
use crate::actors::run::stored_output;
use crate::domain::ids::Identity;
use crate::domain::job::{Job, JobKind};
use crate::domain::run::{BROKER, Run, RunRules, RunState};
use crate::domain::schedule::{FireOutcome, JobPorts, Kind, Overlap, Policies, Row, job_core};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{FireOf, InsertRun, Inserted, Marks, NewFire, OpenRun, Outcome, RecordSkip, RunOfKey, StoreError};
use std::collections::HashMap;
use std::sync::Arc;

impl LoadedJob {
    /// Processes everything that is due or almost due, and announces the next scheduled time.
    pub(super) async fn due(&mut self) {
        let mut result = job_core::due(self, Timestamp::now()).await;
        if result.as_ref().is_err_and(|problem| problem.status == 503) {
            // The cached state was outdated; the second attempt uses the stored state.
            result = job_core::due(self, Timestamp::now()).await;
        }
        match result {
            Ok(waits) => self.announce(waits),
            // The scheduler sends `Due` again soon.
            Err(problem) => log::error!("failed to process due fires job_id={}: {problem}", self.id),
        }
    }

    /// Starts the actor of a new run, unless the run is queued.
    pub(super) fn begin(&mut self, run: Run, properties: &Texts, now: Timestamp) {
        if let Some(planned) = run.planned_at {
            self.context.counters.lateness.recorded(now.since_ms(planned));
        }
        if run.state.is_final() {
            return self.context.registry().run_ended(run.identity, run.job_id, run.state, run.follow);
        }
        if let Some(known) = &mut self.known {
            known.open.push(OpenRun { identity: run.identity, queued: run.queued, not_before: run.not_before, is_ahead: run.is_ahead() });
        }
        if !run.queued {
            self.context.registry().start_new_run(run, Arc::clone(properties));
        }
    }

    /// Creates a run now, for a manual trigger or for another scheduler.
    pub(super) async fn trigger(&mut self, order: TriggerOrder) -> Result<Triggered, Problem> {
        let id = self.id;
        self.living().await?;
        let now = Timestamp::now();
        let input = &order.input;
        if let Some(planned_at) = input.fire_time {
            // A repeated call for the same scheduled time gets the same answer, even if the job changed in the meantime.
            match self.context.store.read(FireOf { job_id: id, planned_at }).await.map_err(|e| problem_of(&e))? {
                Some(Some(identity)) => return Ok(Triggered { identity, run: None }),
                Some(None) => return Err(Problem::conflict("fire-skipped", format!("the fire of {planned_at} was already skipped"))),
                None => {}
            }
        }
        if let Some(key) = &input.idempotency_key {
            // A repeated idempotency key also gets the same answer. Check it before any run is stopped or rejected.
            let known = self.context.store.read(RunOfKey { job_id: id, key: key.clone() }).await.map_err(|e| problem_of(&e))?;
            if let Some(run) = known {
                return Ok(Triggered { identity: run.identity, run: None });
            }
        }
        if order.alone || self.living().await?.overlap() != Overlap::Allow {
            // A trigger takes precedence over a run that was created ahead of its time.
            job_core::withdraw(self).await?;
        }
        let verdict = self.admit(&order, now).await?;
        let version = self.living().await?.job.version;
        let queued = match verdict {
            Admission::Now => false,
            Admission::Queued => true,
            Admission::No(rule, reason) => {
                if let Some(planned_at) = input.fire_time {
                    let skip = RecordSkip { job_id: id, version, planned_at, rule, reason: reason.clone(), now };
                    self.context.store.write(skip).await.map_err(|e| problem_of(&e))?;
                }
                return Err(Problem::conflict(rule, reason));
            }
        };
        let known = self.living().await?;
        let mut run = known.new_run(now, queued)?;
        let marks = known.fill_in(&mut run, &order)?;
        let fire = input.fire_time.map(|at| (at, Kind::Outside));
        let properties = known.properties();
        let insert = InsertRun { run, marks, version, fire, key: input.idempotency_key.clone() };
        // A follow-up of an ended run was accepted together with that run, so it must not be rejected.
        let store = &self.context.store;
        let inserted = if order.after.is_some() { store.write_unbounded(insert).await } else { store.write(insert).await };
        self.made(inserted, &properties, now)
    }

    /// Handles the result of the write of a trigger.
    pub(super) fn made(&mut self, done: Result<Inserted, StoreError>, properties: &Texts, now: Timestamp) -> Result<Triggered, Problem> {
        match done {
            Ok(inserted) => Ok(self.inserted(inserted, properties, now)),
            Err(error) => Err(self.forget(&error)),
        }
    }

    /// Handles a run that was created now or earlier.
    pub(super) fn inserted(&mut self, inserted: Inserted, properties: &Texts, now: Timestamp) -> Triggered {
        let Inserted { run, already } = inserted;
        let identity = run.identity;
        // The actor of a new task knows no more than the stored row.
        let shown = (run.kind == JobKind::Task).then(|| Box::new(stored_output(&run)));
        if !already {
            self.begin(run, properties, now);
        }
        Triggered { identity, run: shown }
    }

    /// The fast path of a trigger: the job is loaded and permits any number of concurrent runs, so nothing must be read. Many of
    /// these writes may be in progress at once; all other work is sequential.
    pub(super) fn quick(&self, order: &TriggerOrder, now: Timestamp) -> Option<Result<(InsertRun, Texts), Problem>> {
        let known = self.known.as_ref().filter(|known| !known.job.is_deleted && known.job.is_enabled)?;
        if order.input.fire_time.is_some() || order.alone || known.overlap() != Overlap::Allow {
            return None;
        }
        let run = known.new_run(now, false).and_then(|mut run| {
            let marks = known.fill_in(&mut run, order)?;
            let (version, key) = (known.job.version, order.input.idempotency_key.clone());
            let insert = InsertRun { run, marks, version, fire: None, key };
            Ok((insert, known.properties()))
        });
        Some(run)
    }

    /// Whether a trigger creates a run now.
    async fn admit(&mut self, order: &TriggerOrder, now: Timestamp) -> Result<Admission, Problem> {
        let known = self.living().await?;
        if !known.job.is_enabled {
            let because = known.job.disabled_reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            return Ok(Admission::No("job-disabled", format!("the job `{}` is disabled{because}", known.job.name)));
        }
        let late = order.input.fire_time.map_or(0, |planned| now.since_ms(planned));
        if let Some(limit) = known.job.properties.stale_after().map_err(|e| of_property(&e))?.filter(|limit| late > *limit) {
            return Ok(Admission::No("stale", format!("the fire is {late} ms late, the limit is {limit} ms")));
        }
        let policy = if order.alone { Overlap::Skip } else { known.overlap() };
        if policy == Overlap::Allow || !known.open_counts().any() {
            return Ok(Admission::Now);
        }
        self.look_again().await?;
        let known = self.living().await?;
        let Some(other) = known.open.first() else { return Ok(Admission::Now) };
        Ok(match policy {
            Overlap::Allow => Admission::Now,
            _ if order.waits => Admission::Queued,
            Overlap::QueueOne if known.open_counts().queued > 0 => {
                Admission::No("still-running", format!("run {other} of the job is not over, and another run is already queued"))
            }
            Overlap::QueueOne | Overlap::QueueAll => Admission::Queued,
            Overlap::Skip => Admission::No("still-running", format!("run {other} of the job is not over")),
            Overlap::Replace => {
                let open = known.open.all();
                let (stopped, failure) = stop_all(&self.context, &open, REPLACED, Some(BROKER)).await;
                let known = self.living().await?;
                stopped.into_iter().for_each(|run| known.open.remove(run));
                if let Some(problem) = failure {
                    return Err(problem);
                }
                Admission::Now
            }
        })
    }
}

enum Admission {
    Now,
    Queued,
    No(&'static str, String),
}

/// Stops the runs concurrently. Returns those that have ended, and the error of one that goes on.
pub(super) async fn stop_all(
    context: &BrokerContext,
    open: &[Identity],
    reason: &str,
    by: Option<&str>,
) -> (Vec<Identity>, Option<Problem>) {
    let stops = open.iter().map(|identity| context.stop_run(*identity, reason.to_owned(), by.map(str::to_owned)));
    let (mut ended, mut failure) = (Vec::new(), None);
    for (identity, stopped) in open.iter().zip(futures_util::future::join_all(stops).await) {
        match stopped {
            Err(problem) if problem.status >= 500 => {
                log::warn!("failed to stop a run run_id={identity}: {problem}");
                failure = Some(problem);
            }
            // With another error it had ended before.
            Ok(_) | Err(_) => ended.push(*identity),
        }
    }
    (ended, failure)
}

impl Known {
    /// The policy for a fire while another run of the job is active.
    pub(super) fn overlap(&self) -> Overlap {
        self.core.rules.overlap.unwrap_or(if self.core.plan.is_empty() { Overlap::Allow } else { Overlap::Skip })
    }

    /// The rows of a decision, with the runs that begin with them.
    pub(super) fn new_fires(&self, rows: &[Row], now: Timestamp) -> Result<Vec<NewFire>, Problem> {
        // Few rows, and nearly always one.
        let mut runs: Vec<(Timestamp, Box<Run>)> = Vec::new();
        for row in rows {
            if let FireOutcome::Fire { queued } = row.fate {
                let mut run = self.planned_run(now, queued);
                run.not_before = (row.at > now && !queued).then_some(row.at);
                runs.push((row.at, Box::new(run)));
            }
        }
        let waiting = self.open.first_queued();
        let starting = runs.len();
        let identities: HashMap<Timestamp, Identity> =
            if rows.len() == starting { HashMap::new() } else { runs.iter().map(|(at, run)| (*at, run.identity)).collect() };
        let mut runs = runs.into_iter();
        let fires = rows.iter().map(|row| NewFire {
            planned_at: row.at,
            planned_until: row.until,
            instants: row.instants,
            kind: row.kind,
            outcome: match &row.fate {
                FireOutcome::Fire { .. } => Outcome::Fired(runs.next().expect("it was made above, in this order").1),
                FireOutcome::Skipped => Outcome::Skipped,
                FireOutcome::Missed => Outcome::Missed,
                FireOutcome::Merged(into) => Outcome::Merged(into.map_or(waiting, |at| identities.get(&at).copied())),
            },
            rule: row.rule,
            reason: row.reason.clone(),
        });
        Ok(fires.collect())
    }

    /// A run for the plan. If the definition of the job is invalid, this creates a failed run with the reason, because a plan
    /// that cannot be decided would stop.
    fn planned_run(&self, now: Timestamp, queued: bool) -> Run {
        self.new_run(now, queued).unwrap_or_else(|problem| {
            let mut run = self.bare_run(now, String::new());
            (run.state, run.reason, run.finish_time, run.follow) = (RunState::Failed, Some(problem.detail), Some(now), true);
            run
        })
    }

    /// Copies the values of a trigger into the run. Returns the failures of another run that it begins with.
    fn fill_in(&self, run: &mut Run, order: &TriggerOrder) -> Result<Option<Marks>, Problem> {
        if let Some(arguments) = &order.input.arguments {
            run.arguments = Some(arguments_text(self.job.job_type, arguments)?);
        }
        run.priority = order.input.priority.unwrap_or(run.priority);
        run.retry_of = order.retry_of;
        if let Some(trace) = &order.trace {
            run.trace_id = Some(trace.trace_id.clone());
            run.rules.parent_span = trace.span;
        }
        run.rules.by.clone_from(&order.by);
        run.rules.after = order.after;
        let marks = order.first.as_ref().map(|first| super::first_requests::fill_in(run, first)).transpose()?;
        super::input::check_arguments(run)?;
        Ok(marks)
    }

    /// A run with the current definition of the job.
    pub(super) fn new_run(&self, now: Timestamp, queued: bool) -> Result<Run, Problem> {
        let job = &self.job;
        let mut run = self.bare_run(now, class_of(job)?);
        if queued {
            run.queued = true;
            run.reason = Some("waits until the other runs of the job are over".to_owned());
        }
        let settings = self.settings()?;
        (run.download, run.queue) = (settings.download.clone(), settings.queue.clone());
        run.rules.application = super::input::application_of(job)?;
        // A queued run waits at its job.
        run.owner = if queued || !self.may_be_elsewhere() { None } else { self.owners.choose(job.job_type) };
        Ok(run)
    }

    /// Whether other brokers may execute its runs.
    fn may_be_elsewhere(&self) -> bool {
        match self.job.job_type {
            JobKind::Callback => true,
            // Only the leader can trigger the job that starts a worker.
            JobKind::Block => matches!(self.job.properties.worker_job(), Ok(None)),
            JobKind::Task | JobKind::Application => false,
        }
    }

    fn bare_run(&self, now: Timestamp, class_name: String) -> Run {
        let job = &self.job;
        Run {
            job_name: job.name.clone(),
            class_name,
            arguments: self.arguments.clone(),
            priority: job.priority,
            rules: RunRules {
                timeout: self.core.rules.timeout,
                late_after: self.core.rules.late_after,
                retry: (self.core.rules.retry.limit > 0).then(|| self.core.rules.retry.clone()),
                callback: job.callback.clone(),
                task: (job.job_type == JobKind::Task).then(|| self.task.clone()),
                data: self.data.clone(),
                ..RunRules::default()
            },
            follow: self.follows(),
            ..Run::new(job.id, job.job_type, now)
        }
    }

    /// Whether the job must process the end of a run even if the run succeeds.
    fn follows(&self) -> bool {
        let Policies { max_failures, silent_after, .. } = &self.core.rules;
        self.core.plan.has_rests()
            || self.job.schedule.as_ref().is_some_and(crate::domain::schedule::Schedule::is_once)
            || matches!(self.overlap(), Overlap::QueueOne | Overlap::QueueAll)
            || max_failures.is_some()
            || silent_after.is_some()
            || self.core.state.failures > 0
            || !self.job.successors.is_empty()
    }
}

fn class_of(job: &Job) -> Result<String, Problem> {
    match (job.job_type, if job.job_type == JobKind::Task { job.handler() } else { job.properties.class_name() }, &job.callback) {
        (JobKind::Callback, _, Some(callback)) => Ok(callback.title()),
        (JobKind::Callback, _, None) => Err(Problem::invalid("callback", "the job has no `callback`")),
        (_, Some(name), _) => Ok(name.to_owned()),
        (JobKind::Application, None, _) => Ok(String::new()),
        (JobKind::Task, None, _) => Err(Problem::invalid("task.handler", "the job has no `task.handler`")),
        (JobKind::Block, None, _) => Err(Problem::invalid("properties.FullClassName", "the job has no `FullClassName`")),
    }
}
