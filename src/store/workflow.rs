//! Which jobs begin after which: whether the names of successors lead somewhere, and nowhere back.

use super::columns::{from_json, id};
use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::job;
use crate::domain::ids::JobId;
use crate::domain::job::{Job, Successor};
use crate::domain::workflow::{Walk, loop_from};
use diesel::prelude::*;

/// Why jobs cannot follow one another so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowFault {
    /// The successor at this place names no job.
    Missing(usize),
    /// One leads to the next, and the last to the first; their names.
    Loop(Vec<String>),
    /// Too many follow.
    Endless,
}

impl FlowFault {
    /// As a refusal's text; [`FlowFault::read`] understands it.
    fn written(&self) -> StoreError {
        StoreError::Conflict(match self {
            Self::Missing(i) => format!("successor-missing {i}"),
            Self::Loop(names) => format!("successor-loop {}", names.join("\n")),
            Self::Endless => "successor-endless".to_owned(),
        })
    }

    /// What a conflict says of successors, if it does.
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

/// The jobs that these names or ids mean, in their order; those that are deleted are none.
#[derive(Debug, Clone)]
pub struct FindJobs(pub Vec<String>);

impl ReadOp for FindJobs {
    type Output = Vec<Option<JobId>>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        self.0.iter().map(|name| find(from.conn, name)).collect()
    }
}

/// Whether jobs that are to be stored together may follow one another as they say; the first that may not, and why.
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

/// Refuses a job whose successors are not there or lead back to it. Inside the transaction that stores it: two changes at
/// one time cannot close a loop between them.
pub(super) fn check_flow(conn: &mut Conn, job: &Job) -> Result<(), StoreError> {
    match fault_of(conn, job, std::slice::from_ref(job))? {
        None => Ok(()),
        Some(fault) => Err(fault.written()),
    }
}

/// `new` are the jobs as they will be: they count before what is stored. Only what a change touches is looked at: a job whose
/// successor was deleted meanwhile can still be disabled, or given another schedule.
fn fault_of(conn: &mut Conn, job: &Job, new: &[Job]) -> Result<Option<FlowFault>, StoreError> {
    if job.is_deleted || job.successors.is_empty() {
        return Ok(None);
    }
    let row = job::table.find(job.id.to_string()).select((job::name, job::is_deleted, job::successors));
    let before: Option<(String, bool, Option<String>)> = row.get_result(conn).optional()?;
    let (same_name, same_list) = match before {
        None => (false, false),
        Some((name, is_deleted, list)) => {
            let list: Vec<Successor> = list.as_deref().map(from_json).transpose()?.unwrap_or_default();
            (name == job.name && !is_deleted, list == job.successors)
        }
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
                None => Ok(job::table.find(id.to_string()).select(job::name).get_result(conn)?),
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
    // What is stored under this name may have another one from now on.
    Ok(find(conn, name)?.filter(|id| new.iter().all(|job| job.id != *id)))
}

/// By its id, else by its name.
fn find(conn: &mut Conn, name: &str) -> Result<Option<JobId>, StoreError> {
    let living = job::table.filter(job::is_deleted.eq(false)).select(job::id);
    if let Ok(key) = name.parse::<JobId>() {
        let found: Option<String> = living.filter(job::id.eq(key.to_string())).get_result(conn).optional()?;
        if let Some(text) = found {
            return Ok(Some(id(&text)?));
        }
    }
    living.filter(job::name.eq(name)).get_result::<String>(conn).optional()?.map(|text| id(&text)).transpose()
}

fn stored_successors(conn: &mut Conn, key: JobId) -> Result<Vec<Successor>, StoreError> {
    let found: Option<Option<String>> = job::table.find(key.to_string()).select(job::successors).get_result(conn).optional()?;
    found.flatten().as_deref().map(from_json).transpose().map(Option::unwrap_or_default)
}
