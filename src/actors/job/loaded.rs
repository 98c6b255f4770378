//! The cached state of a job in its actor; it is read when it is first needed.

use super::open::OpenRuns;
use crate::actors::context::BrokerContext;
use crate::actors::reply::problem_of;
use crate::actors::run_owners::RunOwnersHandle;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::{InvalidProperty, Job, JobKind};
use crate::domain::schedule::{JobCore, Open, Schedule, may_be_ahead};
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
    pub(super) core: JobCore,
    pub(super) open: OpenRuns,
    /// Data that the last run left for the next one.
    pub(super) data: Option<Arc<str>>,
    /// The stored text of the default arguments, used if a trigger has none.
    pub(super) arguments: Option<String>,
    /// The task settings that the runs of a task job receive.
    pub(super) task: Arc<TaskSettings>,
    settings: OnceCell<Arc<Settings>>,
    /// Chooses the brokers that execute its runs.
    pub(super) owners: RunOwnersHandle,
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
    fn new(loaded: Loaded, owners: RunOwnersHandle) -> Result<Self, Problem> {
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
        let core = JobCore {
            may_be_ahead: may_be_ahead(&rules) && kind_may_be_ahead(job.job_type, &task),
            rules,
            plan: compiled,
            state: plan.state,
            next_at: plan.next_at,
            is_on: job.is_enabled && !job.is_deleted,
            changed_at: job.update_time,
            leaves_data: job.job_type == JobKind::Task,
        };
        Ok(Self { job, core, open, data, arguments, task, settings, owners })
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
            self.known = Known::new(loaded, self.context.run_owners.clone()).ok();
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
            self.known = Some(Known::new(Loaded { job, plan, open, data }, self.context.run_owners.clone())?);
        }
        Ok(self.known.as_mut().expect("the job was loaded above"))
    }

    /// The job, if it is not deleted.
    pub(super) async fn living(&mut self) -> Result<&mut Known, Problem> {
        let id = self.id;
        let known = self.known().await?;
        if known.job.is_deleted { Err(Problem::not_found(format!("there is no job {id}"))) } else { Ok(known) }
    }

    /// Discards the cached state after a rejected or failed write; the next call reads it again.
    pub(super) fn forget(&mut self, error: &StoreError) -> Problem {
        self.known = None;
        match error {
            StoreError::Conflict(what) if what == "plan" => Problem::busy("the plan of the job changed in the meantime; retry"),
            other => problem_of(other),
        }
    }
}

/// Whether runs of this kind may be created ahead of their time.
fn kind_may_be_ahead(kind: JobKind, task: &TaskSettings) -> bool {
    match kind {
        JobKind::Block => true,
        // After a crash it is unknown whether such a task was sent, so without a second attempt it would be given up.
        JobKind::Task => task.lost_attempts != Some(0),
        // Nodes are chosen and requests sent at the scheduled time: there is little to prepare.
        JobKind::Callback | JobKind::Application => false,
    }
}

pub(super) fn of_property(e: &InvalidProperty) -> Problem {
    Problem::invalid(format!("properties.{}", e.key), e.detail.clone())
}
