//! Jobs and their properties.

use super::alerts::{self, NewEvent};
use super::columns::{damaged, json, stored};
use super::dialect::Conn;
use super::error::StoreError;
use super::history::{self, Action};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::plans::{self, StoredPlan};
use super::schema::{job, job_property, plan, run};
use crate::domain::callback::Callback;
use crate::domain::ids::{IdPart, JobId};
use crate::domain::job::{Job, JobKind, Properties, Successor};
use crate::domain::schedule::{PlanState, Policies, Schedule};
use crate::domain::task::TaskSettings;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::collections::HashMap;

/// Stores a new job, and the start of its plan. `StoreError::Conflict` contains `id` or `name` if another job has it, or a text
/// for `FlowFault`.
#[derive(Debug, Clone)]
pub struct InsertJob {
    /// The job; `create_by` is the caller.
    pub job: Job,
    /// The next scheduled time of the job.
    pub next_at: Option<Timestamp>,
}

impl WriteOp for InsertJob {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let key = self.job.id;
        if job::table.find(key).select(job::version).get_result::<i64>(tx.conn).optional()?.is_some() {
            return Err(StoreError::Conflict("id".into()));
        }
        check_name(tx.conn, &self.job)?;
        super::workflow::check_flow(tx.conn, &self.job)?;
        put_job(tx.conn, &self.job, true)?;
        insert_properties(tx.conn, key, &self.job.properties)?;
        plans::insert_plan(tx.conn, key, &PlanState::new(self.job.creation_time), self.next_at)?;
        super::groups::enter(tx.conn, self.job.group.as_deref(), self.job.create_by.as_deref(), self.job.creation_time)?;
        history::record_change(tx.conn, &self.job, Action::Created, self.job.create_by.as_deref())
    }
}

/// Updates a job; deleting and enabling are updates as well. The version is the one that the change is based on, and the plan restarts
/// from `state`. [`StoreError::Conflict`] contains `version`, `name`, or `plan` if the plan changed meanwhile.
#[derive(Debug, Clone)]
pub struct UpdateJob {
    /// All new values; `creation_time` does not change, and `update_by` is the caller.
    pub job: Job,
    /// The kind of the change.
    pub action: Action,
    /// The plan state when the change was made.
    pub was: PlanState,
    /// The plan state after the change.
    pub state: PlanState,
    /// The next scheduled time of the job.
    pub next_at: Option<Timestamp>,
    /// Events that cause alerts.
    pub events: Vec<NewEvent>,
}

impl WriteOp for UpdateJob {
    type Output = Job;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Job, StoreError> {
        let key = self.job.id;
        let stored = job::table.find(key).select((job::version, job::creation_time, job::create_by)).get_result(tx.conn).optional()?;
        let (version, creation_time, create_by): (i64, _, _) = stored.ok_or(StoreError::NotFound)?;
        if version != self.job.version {
            return Err(StoreError::Conflict("version".into()));
        }
        check_name(tx.conn, &self.job)?;
        super::workflow::check_flow(tx.conn, &self.job)?;
        plans::move_plan(tx.conn, self.job.id, &self.was, &self.state, self.next_at)?;
        let job = Job { version: version + 1, creation_time, create_by, ..self.job.clone() };
        put_job(tx.conn, &job, false)?;
        diesel::delete(job_property::table.filter(job_property::job_id.eq(key))).execute(tx.conn)?;
        insert_properties(tx.conn, key, &self.job.properties)?;
        // Under the old rules the ends of these runs may have been irrelevant; now the plan, or other runs, may wait for them.
        super::runs::follow_open(tx.conn, key)?;
        super::groups::enter(tx.conn, self.job.group.as_deref(), self.job.update_by.as_deref(), self.job.update_time)?;
        history::record_change(tx.conn, &job, self.action, job.update_by.as_deref())?;
        alerts::insert_all(tx.conn, &self.events)?;
        Ok(job)
    }
}

/// Deletes the row of a deleted job; the next cleanup removes its runs, ledger and changes. [`StoreError::Conflict`] contains
/// `not-deleted`, or `open-runs` while a run of it is not over.
#[derive(Debug, Clone, Copy)]
pub struct PurgeJob(pub JobId);

impl WriteOp for PurgeJob {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let key = self.0;
        let deleted = job::table.find(key).select(job::is_deleted).get_result::<bool>(tx.conn).optional()?;
        if !deleted.ok_or(StoreError::NotFound)? {
            return Err(StoreError::Conflict("not-deleted".into()));
        }
        // Without the job, queued runs would never start, and the ends of runs would never be applied.
        let runs = run::table.filter(run::job_id.eq(key));
        if runs.filter(run::finish_time.is_null()).select(run::no).limit(1).get_result::<i64>(tx.conn).optional()?.is_some() {
            return Err(StoreError::Conflict("open-runs".into()));
        }
        diesel::update(runs.filter(run::follow.eq(true))).set(run::follow.eq(false)).execute(tx.conn)?;
        diesel::delete(job_property::table.filter(job_property::job_id.eq(key))).execute(tx.conn)?;
        diesel::delete(plan::table.find(key)).execute(tx.conn)?;
        super::job_data::remove(tx.conn, key)?;
        super::hooks::remove_hooks(tx.conn, key)?;
        diesel::delete(job::table.find(key)).execute(tx.conn)?;
        Ok(())
    }
}

/// A job, deleted or not.
#[derive(Debug, Clone, Copy)]
pub struct GetJob(pub JobId);

impl ReadOp for GetJob {
    type Output = Option<Job>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Job>, StoreError> {
        Ok(load(from.conn, &[self.0])?.pop().map(|(job, _)| job))
    }
}

/// Jobs and their plan states, including deleted jobs, in no particular order.
#[derive(Debug, Clone)]
pub struct LoadJobs(pub Vec<JobId>);

impl ReadOp for LoadJobs {
    type Output = Vec<(Job, StoredPlan)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        load(from.conn, &self.0)
    }
}

/// The undeleted job with this name.
#[derive(Debug, Clone)]
pub struct JobNamed(pub String);

impl ReadOp for JobNamed {
    type Output = Option<JobId>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<JobId>, StoreError> {
        let found = job::table.filter(job::name.eq(&self.0)).filter(job::is_deleted.eq(false)).select(job::id);
        Ok(found.get_result(from.conn).optional()?)
    }
}

/// The sort key of jobs; equal keys are ordered by id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobSort {
    /// Creation time.
    #[default]
    CreationTime,
    /// Time of the last change.
    UpdateTime,
    /// Name, compared as bytes.
    Name,
    /// Next scheduled time; jobs without one are left out.
    NextFire,
}

/// The sort key of a job in a sorted list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SortKey {
    /// For times.
    Number(i64),
    /// For names.
    Text(String),
}

/// Jobs.
#[derive(Debug, Clone, Default)]
pub struct ListJobs {
    /// Only those whose id begins or ends with this.
    pub id: Option<IdPart>,
    /// Only those whose name contains this, without case.
    pub name: Option<String>,
    /// Only those that are enabled, or those that are not.
    pub enabled: Option<bool>,
    /// Only those of this kind.
    pub kind: Option<JobKind>,
    /// Only those of this group.
    pub group: Option<String>,
    /// Only those of these groups.
    pub among: Option<Vec<String>>,
    /// Deleted jobs instead of undeleted ones.
    pub deleted: bool,
    /// The sort order.
    pub sort: JobSort,
    /// In descending order.
    pub descending: bool,
    /// Only what follows this key and id.
    pub after: Option<(SortKey, JobId)>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListJobs {
    type Output = Vec<(Job, StoredPlan)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut query = job::table.inner_join(plan::table.on(plan::job_id.eq(job::id))).select(job::id).into_boxed();
        query = query.filter(job::is_deleted.eq(self.deleted));
        if let Some(part) = &self.id {
            let (begins, ends) = (format!("{}%", part.digits()), format!("%{}", part.digits()));
            query = query.filter(job::id.like(begins).or(job::id.like(ends)));
        }
        if let Some(enabled) = self.enabled {
            query = query.filter(job::is_enabled.eq(enabled));
        }
        if let Some(kind) = self.kind {
            query = query.filter(job::job_type.eq(kind));
        }
        if let Some(group) = &self.group {
            query = query.filter(job::group_name.eq(group));
        }
        if let Some(groups) = &self.among {
            query = query.filter(job::group_name.eq_any(groups));
        }
        if let Some(part) = &self.name {
            query = query.filter(lower(job::name).like(like_pattern(part)).escape('\\'));
        }
        macro_rules! sorted {
            ($column:expr, $key:expr) => {{
                if let (Some(key), Some((_, after))) = ($key, &self.after) {
                    query = if self.descending {
                        query.filter($column.lt(key.clone()).or($column.eq(key).and(job::id.lt(*after))))
                    } else {
                        query.filter($column.gt(key.clone()).or($column.eq(key).and(job::id.gt(*after))))
                    };
                }
                if self.descending { query.order(($column.desc(), job::id.desc())) } else { query.order(($column, job::id)) }
            }};
        }
        let number = self.after.as_ref().and_then(|(key, _)| if let SortKey::Number(n) = key { Some(*n) } else { None });
        let text = self.after.as_ref().and_then(|(key, _)| if let SortKey::Text(text) = key { Some(text.clone()) } else { None });
        let query = match self.sort {
            JobSort::CreationTime => sorted!(job::creation_time, number.map(Timestamp)),
            JobSort::UpdateTime => sorted!(job::update_time, number.map(Timestamp)),
            JobSort::Name => sorted!(job::name, text),
            JobSort::NextFire => {
                query = query.filter(plan::next_at.is_not_null());
                sorted!(plan::next_at, number.map(Timestamp))
            }
        };
        let ids: Vec<JobId> = query.limit(self.limit as i64).load(from.conn)?;
        let place: HashMap<JobId, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let mut jobs = load(from.conn, &ids)?;
        jobs.sort_by_key(|(job, _)| place.get(&job.id).copied());
        Ok(jobs)
    }
}

#[diesel::declare_sql_function]
extern "SQL" {
    /// The text in lower case.
    fn lower(text: diesel::sql_types::Text) -> diesel::sql_types::Text;
}

pub(super) fn like_pattern(part: &str) -> String {
    let mut pattern = String::from("%");
    for c in part.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c.to_ascii_lowercase());
    }
    pattern.push('%');
    pattern
}

fn check_name(conn: &mut Conn, job: &Job) -> Result<(), StoreError> {
    let others = job::table.filter(job::name.eq(&job.name)).filter(job::is_deleted.eq(false)).filter(job::id.ne(job.id));
    let taken = !job.is_deleted && others.select(job::id).get_result::<JobId>(conn).optional()?.is_some();
    if taken { Err(StoreError::Conflict("name".into())) } else { Ok(()) }
}

/// Inserts or updates the row of a job. An update leaves the time of its creation and its creator.
fn put_job(conn: &mut Conn, job: &Job, is_new: bool) -> Result<(), StoreError> {
    let columns = (
        job::name.eq(&job.name),
        job::job_type.eq(job.job_type),
        job::description.eq(&job.description),
        job::is_enabled.eq(job.is_enabled),
        job::is_deleted.eq(job.is_deleted),
        job::priority.eq(job.priority),
        job::version.eq(job.version),
        job::update_by.eq(&job.update_by),
        job::update_time.eq(job.update_time),
        job::schedule.eq(&job.schedule),
        job::policies.eq(&job.policies),
        job::callback.eq(&job.callback),
        job::task.eq(&job.task),
        job::successors.eq(some_json(&job.successors)?),
        job::group_name.eq(&job.group),
        job::disabled_reason.eq(&job.disabled_reason),
    );
    if is_new {
        let origin = (job::id.eq(job.id), job::create_by.eq(&job.create_by), job::creation_time.eq(job.creation_time));
        diesel::insert_into(job::table).values((origin, columns)).execute(conn)?;
    } else {
        diesel::update(job::table.find(job.id)).set(columns).execute(conn)?;
    }
    Ok(())
}

/// The clock went back to `to`: later creation and change times of the job are set to this time.
pub(super) fn set_back(conn: &mut Conn, id: JobId, to: Timestamp) -> Result<(), StoreError> {
    history::set_back(conn, id, to)?;
    let later = job::table.find(id).filter(job::update_time.gt(to)).select((job::update_time, job::schedule));
    let Some((at, schedule)) = later.get_result::<(Timestamp, Option<String>)>(conn).optional()? else { return Ok(()) };
    let schedule = schedule.map(|text| set_back_schedule(&text, to, at)).transpose()?;
    diesel::update(job::table.find(id)).set((job::update_time.eq(to), job::schedule.eq(schedule))).execute(conn)?;
    diesel::update(job::table.find(id).filter(job::creation_time.gt(to))).set(job::creation_time.eq(to)).execute(conn)?;
    Ok(())
}

/// See [`Schedule::set_back`]; a schedule that this version cannot parse does not change.
pub(super) fn set_back_schedule(text: &str, to: Timestamp, at: Timestamp) -> Result<String, StoreError> {
    let Ok(mut schedule) = serde_json::from_str::<Schedule>(text) else { return Ok(text.to_owned()) };
    schedule.set_back(to, at);
    json(&schedule)
}

/// A list as JSON; `None` for an empty list.
fn some_json<T: serde::Serialize>(list: &[T]) -> Result<Option<String>, StoreError> {
    (!list.is_empty()).then(|| json(&list)).transpose()
}

fn insert_properties(conn: &mut Conn, job: JobId, properties: &Properties) -> Result<(), StoreError> {
    for (name, value) in &properties.0 {
        diesel::insert_into(job_property::table)
            .values((job_property::job_id.eq(job), job_property::key.eq(name), job_property::value.eq(value)))
            .execute(conn)?;
    }
    Ok(())
}

/// Jobs with their properties and plans, in no particular order.
pub(super) fn load(conn: &mut Conn, ids: &[JobId]) -> Result<Vec<(Job, StoredPlan)>, StoreError> {
    let jobs: Vec<Job> = job::table.filter(job::id.eq_any(ids)).select(Job::as_select()).load(conn)?;
    let found = job_property::table
        .filter(job_property::job_id.eq_any(ids))
        .select((job_property::job_id, job_property::key, job_property::value))
        .load::<(JobId, String, String)>(conn)?;
    let mut properties: HashMap<JobId, Properties> = HashMap::new();
    for (job, key, value) in found {
        properties.entry(job).or_default().0.insert(key, value);
    }
    let mut plans = plans::load_plans(conn, ids)?;
    jobs.into_iter()
        .map(|job| {
            let plan = plans.remove(&job.id).ok_or_else(|| damaged("plan of this job", job.id))?;
            Ok((Job { properties: properties.remove(&job.id).unwrap_or_default(), ..job }, plan))
        })
        .collect()
}

// Without its properties, see `load`.
stored! {
    Job from job {
        id: JobId,
        name: String,
        job_type: JobKind,
        description: Option<String>,
        is_enabled: bool,
        is_deleted: bool,
        priority: i32,
        version: i64,
        create_by: Option<String>,
        update_by: Option<String>,
        creation_time: Timestamp,
        update_time: Timestamp,
        schedule: Option<Schedule>,
        policies: Option<Policies>,
        callback: Option<Callback>,
        task: Option<TaskSettings>,
        disabled_reason: Option<String>,
    } {
        group_name: Option<String>,
        successors: Option<Vec<Successor>>,
    }
    group: group_name,
    successors: successors.unwrap_or_default(),
    properties: Properties::default(),
}
