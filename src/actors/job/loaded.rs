//! What a job's actor knows of its job, read when it is first needed.

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

/// See the module's text.
#[derive(Debug)]
pub(super) struct LoadedJob {
    pub(super) context: BrokerContext,
    pub(super) id: JobId,
    pub(super) known: Option<Known>,
}

/// A job as it was read from the store.
#[derive(Debug)]
pub struct Loaded {
    /// The job.
    pub job: Job,
    /// How far its plan is decided.
    pub plan: StoredPlan,
    /// Its runs that are not over.
    pub open: Vec<OpenRun>,
    /// What its last run left for the next one.
    pub data: Option<Arc<str>>,
}

/// A job as it is worked with.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) job: Job,
    pub(super) rules: Policies,
    pub(super) plan: Plan,
    pub(super) stored: StoredPlan,
    pub(super) open: OpenRuns,
    /// What the last run left for the next one.
    pub(super) data: Option<Arc<str>>,
    /// What its arguments are, if a trigger brings none: the text that is stored.
    pub(super) arguments: Option<String>,
    /// What runs of a task job take along of its task.
    pub(super) task: Arc<TaskSettings>,
    settings: OnceCell<Arc<Settings>>,
}

/// Properties of a job, as its runs hand them on.
pub(super) type Texts = Arc<BTreeMap<String, String>>;

/// What the properties of a job mean to its runs: read once for all of them.
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
        // It was checked when it was stored; a later version may know other rules.
        let compiled = compiled.map_err(|e| Problem::conflict("schedule", format!("the stored schedule is not understood: {e}")))?;
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

    /// What the job's properties mean to a run of it; how to download is nothing to a run without blocks.
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

    /// The properties that its runs hand on.
    pub(super) fn properties(&self) -> Texts {
        self.settings().map_or_else(|_| Arc::new(self.job.properties.0.clone()), |settings| Arc::clone(&settings.properties))
    }

    /// How many of its runs are not over.
    pub(super) fn open_counts(&self) -> Open {
        self.open.counts()
    }

    /// When it comes next, as things stand.
    pub(super) fn next_at(&self, state: &crate::domain::schedule::PlanState, is_open: bool) -> Option<Timestamp> {
        if !self.job.is_enabled || self.job.is_deleted {
            return None;
        }
        self.plan.next(state, is_open).map(|next| next.at)
    }

    /// Something that happened to the job, for those who want to hear of it.
    pub(super) fn event(&self, event: &'static str, identity: Option<Identity>, at: Timestamp, reason: &str) -> NewEvent {
        NewEvent::new(event, (self.job.id, &self.job.name, self.job.group.as_deref()), identity, at, reason)
    }
}

impl LoadedJob {
    pub(super) fn new(context: BrokerContext, id: JobId) -> Self {
        Self { context, id, known: None }
    }

    /// Takes what was read ahead of time, unless it has read for itself since.
    pub(super) fn prepare(&mut self, loaded: Loaded) {
        if self.known.is_none() {
            // If it is not understood, whoever asks next is told so.
            self.known = Known::new(loaded).ok();
        }
    }

    /// The job, read if need be.
    pub(super) async fn known(&mut self) -> Result<&mut Known, Problem> {
        if self.known.is_none() {
            let store = &self.context.store;
            // In this order: a run that ends in between is missing from the second, not from both.
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
        Ok(self.known.as_mut().expect("it was read just now"))
    }

    /// The job, if it is not deleted.
    pub(super) async fn living(&mut self) -> Result<&mut Known, Problem> {
        let id = self.id;
        let known = self.known().await?;
        if known.job.is_deleted { Err(Problem::not_found(format!("there is no job {id}"))) } else { Ok(known) }
    }

    /// Looks anew which runs are not over: before somebody is turned away because of one.
    pub(super) async fn look_again(&mut self) -> Result<(), Problem> {
        let open = self.context.store.read(OpenRunsOf(vec![self.id])).await.map_err(|e| problem_of(&e))?;
        if let Some(known) = &mut self.known {
            known.open = open.into_iter().map(|(_, run)| run).collect();
        }
        Ok(())
    }

    /// Forgets what it knows after a write that was refused or failed: the next one reads what is true.
    pub(super) fn forget(&mut self, error: &StoreError) -> Problem {
        self.known = None;
        match error {
            StoreError::Conflict(what) if what == "plan" => Problem::busy("the plan of the job went on meanwhile"),
            other => problem_of(other),
        }
    }

    /// Tells the scheduler when the job comes next.
    pub(super) fn announce(&self) {
        self.announce_next(self.known.as_ref().is_some_and(|known| !known.may_be_ahead()));
    }

    /// The same; `at_its_time`: it is not to be told before.
    pub(super) fn announce_next(&self, at_its_time: bool) {
        if let (Some(scheduler), Some(known)) = (self.context.scheduler(), &self.known) {
            // A clock that went back meanwhile is seen here: the scheduler reads only what is stored when it sees that.
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
