//! Tokens that are limited to groups of jobs: what they may call, and which jobs and runs they see.
//!
//! A job or run of another group is answered as if it did not exist. A call that is not about a job or a run is rejected, unless the route
//! table states that its handler limits itself.

use super::Edge;
use super::auth::Caller;
use super::body::id;
use super::error::Failure;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::Properties;
use crate::protocol::api::JobInput;
use crate::protocol::problem::Problem;
use actix_web::HttpRequest;

/// What a limited token may reach by an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Nothing: the call is rejected.
    Closed,
    /// The handler limits itself.
    Itself,
    /// The job that the path names.
    Job,
    /// The run that the path names.
    Run,
}

impl Scope {
    /// The scope of an address.
    pub(super) fn of(path: &str) -> Self {
        let is_under = |noun: &str| path.strip_prefix(noun).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match () {
            () if is_under("/api/v1/jobs/{id}") => Self::Job,
            () if is_under("/api/v1/runs/{id}") => Self::Run,
            () => Self::Closed,
        }
    }

    /// Checks that a limited caller may reach the object of a call.
    ///
    /// # Errors
    /// It may not, or the store fails.
    pub(super) async fn check(self, edge: &Edge, request: &HttpRequest, caller: &Caller) -> Result<(), Failure> {
        match self {
            Self::Itself => Ok(()),
            Self::Closed => Err(Problem::forbidden("this token is limited to groups of jobs, and this call concerns others, too").into()),
            Self::Job => {
                let job: JobId = id(edge, request, "id").await?;
                let group = edge.service.group_of_job(job).await?;
                if is_in(caller, group.as_deref()) { Ok(()) } else { Err(Problem::not_found(format!("there is no job {job}")).into()) }
            }
            Self::Run => {
                let run: Identity = id(edge, request, "id").await?;
                let group = edge.service.group_of_run(run).await?;
                if is_in(caller, group.as_deref()) { Ok(()) } else { Err(Problem::not_found(format!("there is no run {run}")).into()) }
            }
        }
    }
}

/// Whether the caller may see jobs of this group.
fn is_in(caller: &Caller, group: Option<&str>) -> bool {
    caller.groups.as_ref().is_none_or(|groups| group.is_some_and(|group| groups.iter().any(|one| one == group)))
}

/// Checks a job that a caller creates: a limited token must put it into one of its groups.
///
/// # Errors
/// It is in none of them, or it starts a job of another group.
pub(super) async fn check_new_job(edge: &Edge, caller: &Caller, input: &JobInput) -> Result<(), Failure> {
    if !is_in(caller, input.group.as_deref().map(str::trim)) {
        return Err(outside(caller));
    }
    check_started_jobs(edge, caller, input, None).await
}

/// Checks a change of a job: a limited token must leave it in one of its groups.
///
/// # Errors
/// Same as [`check_new_job`].
pub(super) async fn check_changed_job(edge: &Edge, caller: &Caller, job: JobId, input: &JobInput) -> Result<(), Failure> {
    if input.group.as_deref().is_some_and(|group| !is_in(caller, Some(group.trim()))) {
        return Err(outside(caller));
    }
    check_started_jobs(edge, caller, input, Some(job)).await
}

/// A job names others that it starts: successors, and the job that starts a worker. A limited token may name only jobs of its groups. What
/// the job named before, it may keep.
async fn check_started_jobs(edge: &Edge, caller: &Caller, input: &JobInput, changed: Option<JobId>) -> Result<(), Failure> {
    if caller.groups.is_none() {
        return Ok(());
    }
    let before = match changed {
        Some(job) => Some(edge.service.job(job).await?.job),
        None => None,
    };
    let worker_job = |properties: &Properties| properties.worker_job().ok().flatten().map(|(job, _)| job.to_owned());
    let kept: Vec<String> = before
        .iter()
        .flat_map(|job| job.successors.iter().map(|successor| successor.job.clone()).chain(worker_job(&job.properties)))
        .collect();
    let new_worker_job = worker_job(&Properties(input.properties.clone().unwrap_or_default()));
    let successors = input.successors.iter().flatten().map(|successor| ("successors", successor.job.clone()));
    for (field, job) in successors.chain(new_worker_job.map(|job| ("properties.WorkerJob", job))) {
        if !kept.contains(&job) && !is_in(caller, edge.service.group_of_named(job.clone()).await?.as_deref()) {
            return Err(Problem::invalid(field, format!("there is no job `{job}` in the groups of this token")).into());
        }
    }
    Ok(())
}

fn outside(caller: &Caller) -> Failure {
    let groups = caller.groups.as_deref().unwrap_or_default().join("`, `");
    Problem::forbidden(format!("this token is limited to the groups `{groups}`: set `group` to one of them")).at("group").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_jobs_runs_and_what_limits_itself_is_open() {
        for (path, scope) in [
            ("/api/v1/jobs/{id}", Scope::Job),
            ("/api/v1/jobs/{id}/trigger", Scope::Job),
            ("/api/v1/runs/{id}/logs/stream", Scope::Run),
            ("/api/v1/jobs/import", Scope::Closed),
            ("/api/v1/jobs/{identity}", Scope::Closed),
            ("/api/v1/nodes/{id}", Scope::Closed),
            ("/requestqueue/{identity}", Scope::Closed),
        ] {
            assert_eq!(Scope::of(path), scope, "{path}");
        }
    }
}
