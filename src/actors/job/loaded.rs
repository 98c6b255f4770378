//! The cached state of a job in its actor; it is read when it is first needed.

use super::open::OpenRuns;
use crate::actors::context::BrokerContext;
use crate::actors::reply::problem_of;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::{InvalidProperty, Job, JobKind};
use crate::domain::schedule::{Open, Plan, Policies, Schedule};
use crate::domain::settings::{DownloadSettings, QueueSettings};
use crate::domain::task::TaskSettings;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{DataOf, LoadJobs, NewEvent, OpenRun, OpenRunsOf, StoreError, StoredPlan};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct LoadedJob {
    pub(super) context: BrokerContext,
    pub(super) id: JobId,
    pub(super) known: Option<Known>,
}

/// A job as read from the store.
#[derive(Debug)]
pub struct Loaded {
    /// The job.
    pub job: Job,
    /// How far the plan is decided.
    pub plan: StoredPlan,
    /// The active runs of the job.
    pub open: Vec<OpenRun>,
    /// Data that the last run left for the next one.
    pub data: Option<Arc<str>>,
}

/// A loaded job with its compiled rules and plan.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) job: Job,
    pub(super) rules: Policies,
    pub(super) plan: Plan,
    pub(super) stored: StoredPlan,
    pub(super) open: OpenRuns,
    /// Data that the last run left for the next one.
    pub(super) data: Option<Arc<str>>,
    /// The stored text of the default arguments, used if a trigger has none.
    pub(super) arguments: Option<String>,
    /// The task settings that the runs of a task job receive.
    pub(super) task: Arc<TaskSettings>,
    settings: OnceCell<Arc<Settings>>,
}

/// The properties of a job, as its runs pass them on.
pub(super) type Texts = Arc<BTreeMap<String, String>>;

/// The parsed properties of a job, shared by its runs.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) properties: Texts,
    pub(super) download: DownloadSettings,
    pub(super) queue: QueueSettings,
}

impl Known {
    fn new(loaded: Loaded) -> Result<Self, Problem> {
        let Loaded { job, plan, open, data } = loaded;
        let compiled = job.schedule.as_ref().unwrap_or(&Schedule::default()).compile();
        // The schedule was valid when it was stored; a later version of the program may have other rules.
        let compiled = compiled.map_err(|e| Problem::conflict("schedule", format!("the stored schedule is invalid: {e}")))?;
        let rules = job.rules().map_err(|e| of_property(&e))?;
        let task = Arc::new(TaskSettings { arguments: None, ..job.task.clone().unwrap_or_default() });
        let arguments = match (job.job_type, &job.task) {
            (JobKind::Task, Some(TaskSettings { arguments: Some(arguments), .. })) => Some(arguments.to_string()),
            (JobKind::Task, _) => job.properties.get("Arguments").map(|text| serde_json::Value::from(text).to_string()),
            _ => job.properties.get("Arguments").map(str::to_owned),
        };
        let (open, settings) = (open.into_iter().collect(), OnceCell::new());
        Ok(Self { job, rules, plan: compiled, stored: plan, open, data, arguments, task, settings })
    }

    /// The parsed properties of the job. Download settings are read only for block jobs.
    pub(super) fn settings(&self) -> Result<Arc<Settings>, Problem> {
        if let Some(settings) = self.settings.get() {
            return Ok(Arc::clone(settings));
        }
        let given = &self.job.properties;
        let mut settings = Settings { properties: Arc::new(given.0.clone()), ..Settings::default() };
        if self.job.job_type == JobKind::Block {
            settings.download = given.download().map_err(|e| of_property(&e))?;
            settings.queue = given.queue().map_err(|e| of_property(&e))?;
        }
        Ok(Arc::clone(self.settings.get_or_init(|| Arc::new(settings))))
    }

    /// The properties that the runs pass on.
    pub(super) fn properties(&self) -> Texts {
        self.settings().map_or_else(|_| Arc::new(self.job.properties.0.clone()), |settings| Arc::clone(&settings.properties))
    }

    /// Counts of the active runs.
    pub(super) fn open_counts(&self) -> Open {
        self.open.counts()
    }

    /// The next scheduled time in the current state.
    pub(super) fn next_at(&self, state: &crate::domain::schedule::PlanState, is_open: bool) -> Option<Timestamp> {
        if !self.job.is_enabled || self.job.is_deleted {
            return None;
        }
        self.plan.next(state, is_open).map(|next| next.at)
    }

    /// An event of the job, for alerts.
    pub(super) fn event(&self, event: &'static str, identity: Option<Identity>, at: Timestamp, reason: &str) -> NewEvent {
        NewEvent::new(event, (self.job.id, &self.job.name, self.job.group.as_deref()), identity, at, reason)
    }
}

impl LoadedJob {
    pub(super) fn new(context: BrokerContext, id: JobId) -> Self {
        Self { context, id, known: None }
    }

    /// Uses the state that was read in advance, unless the actor has already read its own.
    pub(super) fn prepare(&mut self, loaded: Loaded) {
        if self.known.is_none() {
            // If the state is invalid, the next caller gets the error.
            self.known = Known::new(loaded).ok();
        }
    }

    /// The job, read from the store if it is not loaded.
    pub(super) async fn known(&mut self) -> Result<&mut Known, Problem> {
        if self.known.is_none() {
            let store = &self.context.store;
            // Keep this order: a run that ends in between is missing from the second read, but not from both.
            let mut jobs = store.read(LoadJobs(vec![self.id])).await.map_err(|e| problem_of(&e))?;
            let (job, plan) = jobs.pop().ok_or_else(|| Problem::not_found(format!("there is no job {}", self.id)))?;
            let open = store.read(OpenRunsOf(vec![self.id])).await.map_err(|e| problem_of(&e))?;
            let open = open.into_iter().map(|(_, run)| run).collect();
            let data = if job.job_type == JobKind::Task {
                store.read(DataOf(vec![self.id])).await.map_err(|e| problem_of(&e))?.into_values().next()
            } else {
                None
            };
            self.known = Some(Known::new(Loaded { job, plan, open, data })?);
        }
        Ok(self.known.as_mut().expect("the job was loaded above"))
    }

    /// The job, if it is not deleted.
    pub(super) async fn living(&mut self) -> Result<&mut Known, Problem> {
        let id = self.id;
        let known = self.known().await?;
        if known.job.is_deleted { Err(Problem::not_found(format!("there is no job {id}"))) } else { Ok(known) }
    }

    /// Reads the active runs again, before one of them causes a rejection.
    pub(super) async fn look_again(&mut self) -> Result<(), Problem> {
        let open = self.context.store.read(OpenRunsOf(vec![self.id])).await.map_err(|e| problem_of(&e))?;
        if let Some(known) = &mut self.known {
            known.open = open.into_iter().map(|(_, run)| run).collect();
        }
        Ok(())
    }

    /// Discards the cached state after a rejected or failed write; the next call reads it again.
    pub(super) fn forget(&mut self, error: &StoreError) -> Problem {
        self.known = None;
        match error {
            StoreError::Conflict(what) if what == "plan" => Problem::busy("the plan of the job changed in the meantime; retry"),
            other => problem_of(other),
        }
    }

    /// Sends the scheduler the next scheduled time of the job.
    pub(super) fn announce(&self) {
        self.announce_next(self.known.as_ref().is_some_and(|known| !known.may_be_ahead()));
    }

    /// The same; with `at_its_time` the scheduler must not send `Due` before that time.
    pub(super) fn announce_next(&self, at_its_time: bool) {
        if let (Some(scheduler), Some(known)) = (self.context.scheduler(), &self.known) {
            // A clock that went back in the meantime is detected here: at that event the scheduler reads only the stored state.
            let on = known.job.is_enabled && !known.job.is_deleted;
            let now = Timestamp::now();
            let at = if on && known.stored.state.is_from_later(now) { Some(now) } else { known.stored.next_at };
            if at_its_time { scheduler.planned_not_before(self.id, at) } else { scheduler.planned(self.id, at) }
        }
    }
}

pub(super) fn of_property(e: &InvalidProperty) -> Problem {
    Problem::invalid(format!("properties.{}", e.key), e.detail.clone())
}
