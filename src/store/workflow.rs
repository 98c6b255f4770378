//! Successors of jobs: checks that they exist, and that they do not form a loop.

use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::job;
use crate::domain::ids::JobId;
use crate::domain::job::{Job, Successor};
use crate::domain::workflow::{Walk, loop_from};
use diesel::prelude::*;

/// Why jobs cannot follow one another like this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowFault {
    /// The successor with this index names no job.
    Missing(usize),
    /// Each job leads to the next, and the last to the first; their names.
    Loop(Vec<String>),
    /// There are too many successors.
    Endless,
}

impl FlowFault {
    /// The text of the rejection; [`FlowFault::read`] parses it.
    fn written(&self) -> StoreError {
        StoreError::Conflict(match self {
            Self::Missing(i) => format!("successor-missing {i}"),
            Self::Loop(names) => format!("successor-loop {}", names.join("\n")),
            Self::Endless => "successor-endless".to_owned(),
        })
    }

    /// Parses the text of a conflict about successors; `None` for other conflicts.
    #[must_use]
    pub fn read(conflict: &str) -> Option<Self> {
        if let Some(i) = conflict.strip_prefix("successor-missing ") {
            return i.parse().ok().map(Self::Missing);
        }
        if let Some(names) = conflict.strip_prefix("successor-loop ") {
            return Some(Self::Loop(names.lines().map(str::to_owned).collect()));
        }
        (conflict == "successor-endless").then_some(Self::Endless)
    }
}

/// The jobs with these names or ids, in the same order; deleted jobs do not count.
#[derive(Debug, Clone)]
pub struct FindJobs(pub Vec<String>);

impl ReadOp for FindJobs {
    type Output = Vec<Option<JobId>>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        self.0.iter().map(|name| find_job(from.conn, name)).collect()
    }
}

/// Checks whether jobs that will be stored together may follow one another; returns the first fault.
#[derive(Debug, Clone)]
pub struct CheckFlow(pub Vec<Job>);

impl ReadOp for CheckFlow {
    type Output = Option<(usize, FlowFault)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        for (i, job) in self.0.iter().enumerate() {
            if let Some(fault) = fault_of(from.conn, job, &self.0)? {
                return Ok(Some((i, fault)));
            }
        }
        Ok(None)
    }
}

/// Rejects a job with missing successors or successors that lead back to it. Runs inside the transaction that stores the job, so two
/// concurrent changes cannot form a loop.
pub(super) fn check_flow(conn: &mut Conn, job: &Job) -> Result<(), StoreError> {
    match fault_of(conn, job, std::slice::from_ref(job))? {
        None => Ok(()),
        Some(fault) => Err(fault.written()),
    }
}

/// `new` are the jobs after the change: they take precedence over stored ones. Only the changed jobs are checked: a job whose successor
/// was deleted meanwhile can still be disabled, or get another schedule.
fn fault_of(conn: &mut Conn, job: &Job, new: &[Job]) -> Result<Option<FlowFault>, StoreError> {
    if job.is_deleted || job.successors.is_empty() {
        return Ok(None);
    }
    let row = job::table.find(job.id).select((job::name, job::is_deleted, job::successors));
    let before: Option<(String, bool, Option<Vec<Successor>>)> = row.get_result(conn).optional()?;
    let (same_name, same_list) = match before {
        None => (false, false),
        Some((name, is_deleted, list)) => (name == job.name && !is_deleted, list.unwrap_or_default() == job.successors),
    };
    if same_list && same_name && new.len() == 1 {
        return Ok(None);
    }
    if !same_list {
        for (i, successor) in job.successors.iter().enumerate() {
            if resolve(conn, &successor.job, new)?.is_none() {
                return Ok(Some(FlowFault::Missing(i)));
            }
        }
    }
    let found = loop_from(job.id, |id| -> Result<Vec<JobId>, StoreError> {
        let named = match new.iter().find(|job| job.id == id) {
            Some(job) => job.successors.clone(),
            None => stored_successors(conn, id)?,
        };
        let found = named.iter().map(|successor| resolve(conn, &successor.job, new)).collect::<Result<Vec<_>, _>>()?;
        Ok(found.into_iter().flatten().collect())
    })?;
    Ok(match found {
        Walk::Open => None,
        Walk::Endless => Some(FlowFault::Endless),
        Walk::Loop(way) => {
            let name = |id: &JobId| match new.iter().find(|job| job.id == *id) {
                Some(job) => Ok(job.name.clone()),
                None => Ok(job::table.find(id).select(job::name).get_result(conn)?),
            };
            Some(FlowFault::Loop(way.iter().map(name).collect::<Result<_, StoreError>>()?))
        }
    })
}

fn resolve(conn: &mut Conn, name: &str, new: &[Job]) -> Result<Option<JobId>, StoreError> {
    let as_id = name.parse::<JobId>().ok();
    let own = new.iter().filter(|job| !job.is_deleted).find(|job| Some(job.id) == as_id);
    if let Some(job) = own.or_else(|| new.iter().find(|job| !job.is_deleted && job.name == name)) {
        return Ok(Some(job.id));
    }
    // The stored job with this name may get another name in this change.
    Ok(find_job(conn, name)?.filter(|id| new.iter().all(|job| job.id != *id)))
}

/// By id, else by name.
pub(super) fn find_job(conn: &mut Conn, name: &str) -> Result<Option<JobId>, StoreError> {
    let living = job::table.filter(job::is_deleted.eq(false)).select(job::id);
    if let Ok(key) = name.parse::<JobId>()
        && let Some(found) = living.filter(job::id.eq(key)).get_result(conn).optional()?
    {
        return Ok(Some(found));
    }
    Ok(living.filter(job::name.eq(name)).get_result(conn).optional()?)
}

fn stored_successors(conn: &mut Conn, key: JobId) -> Result<Vec<Successor>, StoreError> {
    let found: Option<Option<Vec<Successor>>> = job::table.find(key).select(job::successors).get_result(conn).optional()?;
    Ok(found.flatten().unwrap_or_default())
}
