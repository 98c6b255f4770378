//! Export and import of jobs in bulk, as a team keeps them in a file: exported in the order of their names, imported by name.

use super::Service;
use crate::actors::job::{JobChange, apply, flow_problem, job_from};
use crate::actors::reply::problem_of;
use crate::domain::ids::JobId;
use crate::domain::job::Job;
use crate::domain::time::Timestamp;
use crate::domain::workflow::order;
use crate::protocol::api::JobInput;
use crate::protocol::management::{ExportedJob, ImportedJob};
use crate::protocol::problem::Problem;
use crate::store::{CheckFlow, GetJob, JobNamed, JobSort, ListJobs, SortKey};
use std::collections::{HashMap, HashSet};

/// Number of jobs per read of an export.
const PAGE: usize = 500;

fn exported(job: Job) -> ExportedJob {
    let job = job.without_secrets();
    ExportedJob {
        name: job.name,
        job_type: job.job_type,
        description: job.description,
        group: job.group,
        priority: job.priority,
        is_enabled: job.is_enabled,
        disabled_reason: job.disabled_reason,
        properties: job.properties.0,
        schedule: job.schedule,
        policies: job.policies,
        callback: job.callback,
        task: job.task,
        successors: job.successors,
    }
}

/// The change for one job of a file.
enum Step {
    Create,
    Update(JobId),
    Nothing(JobId),
}

/// Adds the index of the job in the file to a problem.
fn of_job(problem: Problem, i: usize) -> Problem {
    let field = match problem.field.as_deref() {
        Some(field) => format!("jobs[{i}].{field}"),
        None => format!("jobs[{i}]"),
    };
    problem.at(field)
}

/// The write order: each job comes after its successors, because a successor must exist when it is referenced.
fn write_order(jobs: &[Job]) -> Vec<usize> {
    let place: HashMap<String, usize> =
        jobs.iter().enumerate().flat_map(|(i, job)| [(job.name.clone(), i), (job.id.to_string(), i)]).collect();
    let named = |job: &Job| job.successors.iter().filter_map(|successor| place.get(&successor.job).copied()).collect();
    order(&jobs.iter().map(named).collect::<Vec<_>>())
}

impl Service {
    /// All jobs that are not deleted, by name. Optionally only those of a group, or with a text in their name.
    ///
    /// # Errors
    /// The store fails.
    pub async fn export_jobs(&self, group: Option<String>, name: Option<String>) -> Result<Vec<ExportedJob>, Problem> {
        let mut out = Vec::new();
        let mut after = None;
        loop {
            let query =
                ListJobs { name: name.clone(), group: group.clone(), sort: JobSort::Name, after, limit: PAGE, ..ListJobs::default() };
            let jobs = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
            let is_last = jobs.len() < PAGE;
            after = jobs.last().map(|(job, _)| (SortKey::Text(job.name.clone()), job.id));
            out.extend(jobs.into_iter().map(|(job, _)| exported(job)));
            if is_last {
                return Ok(out);
            }
        }
    }

    /// Creates or updates jobs by name, as defined in a file. Values that the file does not contain stay unchanged. All jobs are
    /// validated before the first is written.
    ///
    /// # Errors
    /// A job is invalid; then nothing is written. Or a job was changed in the meantime; then the jobs before it are written.
    pub async fn import_jobs(&self, inputs: Vec<JobInput>, dry_run: bool, by: Option<String>) -> Result<Vec<ImportedJob>, Problem> {
        let now = Timestamp::now();
        let (mut names, mut ids) = (HashSet::new(), HashSet::new());
        let (mut steps, mut jobs) = (Vec::with_capacity(inputs.len()), Vec::with_capacity(inputs.len()));
        for (i, input) in inputs.iter().enumerate() {
            let name = input.name.clone().unwrap_or_default();
            if !names.insert(name) {
                return Err(of_job(Problem::invalid("name", "another job of this file has the same name"), i));
            }
            if input.id.is_some_and(|id| !ids.insert(id)) {
                return Err(of_job(Problem::invalid("id", "another job of this file has the same id"), i));
            }
            let (step, job) = self.plan_import(input, by.as_deref(), now).await.map_err(|problem| of_job(problem, i))?;
            steps.push(step);
            jobs.push(job);
        }
        let written_as = write_order(&jobs);
        if jobs.iter().any(|job| !job.successors.is_empty()) {
            let fault = self.context.store.read(CheckFlow(jobs)).await.map_err(|e| problem_of(&e))?;
            if let Some((i, fault)) = fault {
                return Err(of_job(flow_problem(&fault), i));
            }
        }
        let mut out: Vec<Option<ImportedJob>> = steps.iter().map(|_| None).collect();
        let mut todo: Vec<Option<(JobInput, Step)>> = inputs.into_iter().zip(steps).map(Some).collect();
        for i in written_as {
            let Some((input, step)) = todo[i].take() else { continue };
            let name = input.name.clone().unwrap_or_default();
            let done = match step {
                Step::Nothing(id) => Ok(("unchanged", Some(id))),
                Step::Create if dry_run => Ok(("created", None)),
                Step::Update(id) if dry_run => Ok(("updated", Some(id))),
                Step::Create => self.create_job(input, by.clone()).await.map(|job| ("created", Some(job.job.id))),
                Step::Update(id) => self.change(id, JobChange::Values(Box::new(input)), by.clone()).await.map(|_| ("updated", Some(id))),
            };
            let (action, id) = done.map_err(|problem| of_job(problem, i))?;
            out[i] = Some(ImportedJob { name, action: action.to_owned(), id });
        }
        Ok(out.into_iter().flatten().collect())
    }

    async fn plan_import(&self, input: &JobInput, by: Option<&str>, now: Timestamp) -> Result<(Step, Job), Problem> {
        self.check_target(input)?;
        let store = &self.context.store;
        let name = input.name.clone().ok_or_else(|| Problem::invalid("name", "a job needs a name: 1 to 50 characters"))?;
        let Some(id) = store.read(JobNamed(name)).await.map_err(|e| problem_of(&e))? else {
            let job = job_from(input.clone(), by.map(str::to_owned), now)?;
            let taken = store.read(GetJob(job.id)).await.map_err(|e| problem_of(&e))?.is_some();
            return if taken {
                Err(Problem::conflict("id-taken", format!("a job with the id {} already exists", job.id)).at("id"))
            } else {
                Ok((Step::Create, job))
            };
        };
        let (old, _) = self.stored_job(id, false).await?;
        let mut new = old.clone();
        apply(&mut new, input.clone(), now)?;
        Ok((if new == old { Step::Nothing(id) } else { Step::Update(id) }, new))
    }
}
