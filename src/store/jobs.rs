//! Jobs and their properties.

use super::alerts::{self, NewEvent};
use super::columns::{Hex, damaged, from_json, id, json};
use super::dialect::Conn;
use super::error::StoreError;
use super::history::{self, Action};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::plans::{self, StoredPlan};
use super::schema::{job, job_property, plan, run};
use crate::domain::ids::{IdPart, JobId};
use crate::domain::job::{Job, Properties};
use crate::domain::schedule::{PlanState, Schedule};
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
        let key = self.job.id.to_string();
        if version_of(tx.conn, &key)?.is_some() {
            return Err(StoreError::Conflict("id".into()));
        }
        check_name(tx.conn, &self.job, &key)?;
        super::workflow::check_flow(tx.conn, &self.job)?;
        insert_job(tx.conn, &self.job, &key)?;
        insert_properties(tx.conn, &key, &self.job.properties)?;
        plans::insert_plan(tx.conn, &key, &PlanState::new(self.job.creation_time), self.next_at)?;
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
        let key = self.job.id.to_string();
        let version = version_of(tx.conn, &key)?.ok_or(StoreError::NotFound)?;
        if version != self.job.version {
            return Err(StoreError::Conflict("version".into()));
        }
        check_name(tx.conn, &self.job, &key)?;
        super::workflow::check_flow(tx.conn, &self.job)?;
        plans::move_plan(tx.conn, self.job.id, &self.was, &self.state, self.next_at)?;
        let (creation_time, create_by) = update_job(tx.conn, &self.job, &key)?;
        diesel::delete(job_property::table.filter(job_property::job_id.eq(&key))).execute(tx.conn)?;
        insert_properties(tx.conn, &key, &self.job.properties)?;
        // Under the old rules the ends of these runs may have been irrelevant; now the plan, or other runs, may wait for them.
        super::runs::follow_open(tx.conn, &key)?;
        super::groups::enter(tx.conn, self.job.group.as_deref(), self.job.update_by.as_deref(), self.job.update_time)?;
        let job = Job { version: version + 1, creation_time: Timestamp(creation_time), create_by, ..self.job.clone() };
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
        let key = self.0.to_string();
        let deleted = job::table.find(&key).select(job::is_deleted).get_result::<bool>(tx.conn).optional()?;
        if !deleted.ok_or(StoreError::NotFound)? {
            return Err(StoreError::Conflict("not-deleted".into()));
        }
        // Without the job, queued runs would never start, and the ends of runs would never be applied.
        let runs = run::table.filter(run::job_id.eq(&key));
        if runs.filter(run::finish_time.is_null()).select(run::no).limit(1).get_result::<i64>(tx.conn).optional()?.is_some() {
            return Err(StoreError::Conflict("open-runs".into()));
        }
        diesel::update(runs.filter(run::follow.eq(true))).set(run::follow.eq(false)).execute(tx.conn)?;
        diesel::delete(job_property::table.filter(job_property::job_id.eq(&key))).execute(tx.conn)?;
        diesel::delete(plan::table.find(&key)).execute(tx.conn)?;
        super::job_data::remove(tx.conn, &key)?;
        super::hooks::remove_hooks(tx.conn, &key)?;
        diesel::delete(job::table.find(&key)).execute(tx.conn)?;
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
        found.get_result::<String>(from.conn).optional()?.map(|text| id(&text)).transpose()
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
    pub kind: Option<crate::domain::job::JobKind>,
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
            query = query.filter(job::job_type.eq(kind.name()));
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
                    let after = after.to_string();
                    query = if self.descending {
                        query.filter($column.lt(key.clone()).or($column.eq(key).and(job::id.lt(after))))
                    } else {
                        query.filter($column.gt(key.clone()).or($column.eq(key).and(job::id.gt(after))))
                    };
                }
                if self.descending { query.order(($column.desc(), job::id.desc())) } else { query.order(($column, job::id)) }
            }};
        }
        let number = self.after.as_ref().and_then(|(key, _)| if let SortKey::Number(n) = key { Some(*n) } else { None });
        let text = self.after.as_ref().and_then(|(key, _)| if let SortKey::Text(text) = key { Some(text.clone()) } else { None });
        let query = match self.sort {
            JobSort::CreationTime => sorted!(job::creation_time, number),
            JobSort::UpdateTime => sorted!(job::update_time, number),
            JobSort::Name => sorted!(job::name, text),
            JobSort::NextFire => {
                query = query.filter(plan::next_at.is_not_null());
                sorted!(plan::next_at, number)
            }
        };
        let ids: Vec<String> = query.limit(self.limit as i64).load(from.conn)?;
        let ids = ids.iter().map(|text| id(text)).collect::<Result<Vec<JobId>, _>>()?;
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = job)]
struct JobRow {
    id: String,
    name: String,
    job_type: String,
    description: Option<String>,
    is_enabled: bool,
    is_deleted: bool,
    priority: i32,
    version: i64,
    create_by: Option<String>,
    update_by: Option<String>,
    creation_time: i64,
    update_time: i64,
    schedule: Option<String>,
    policies: Option<String>,
    callback: Option<String>,
    task: Option<String>,
    successors: Option<String>,
    group_name: Option<String>,
    disabled_reason: Option<String>,
}

fn version_of(conn: &mut Conn, key: &str) -> Result<Option<i64>, StoreError> {
    Ok(job::table.find(key).select(job::version).get_result(conn).optional()?)
}

fn check_name(conn: &mut Conn, job: &Job, key: &str) -> Result<(), StoreError> {
    let others = job::table.filter(job::name.eq(&job.name)).filter(job::is_deleted.eq(false)).filter(job::id.ne(key));
    let taken = !job.is_deleted && others.select(job::id).get_result::<String>(conn).optional()?.is_some();
    if taken { Err(StoreError::Conflict("name".into())) } else { Ok(()) }
}

fn insert_job(conn: &mut Conn, job: &Job, key: &str) -> Result<(), StoreError> {
    diesel::insert_into(job::table)
        .values((
            job::id.eq(key),
            job::name.eq(&job.name),
            job::job_type.eq(job.job_type.name()),
            job::description.eq(job.description.as_deref()),
            job::is_enabled.eq(job.is_enabled),
            job::is_deleted.eq(job.is_deleted),
            job::priority.eq(job.priority),
            job::version.eq(job.version),
            job::create_by.eq(job.create_by.as_deref()),
            job::update_by.eq(job.update_by.as_deref()),
            job::creation_time.eq(job.creation_time.0),
            job::update_time.eq(job.update_time.0),
            (
                job::schedule.eq(job.schedule.as_ref().map(json).transpose()?),
                job::policies.eq(job.policies.as_ref().map(json).transpose()?),
            ),
            job::callback.eq(job.callback.as_ref().map(json).transpose()?),
            (job::task.eq(job.task.as_ref().map(json).transpose()?), job::successors.eq(some_json(&job.successors)?)),
            (job::group_name.eq(job.group.as_deref()), job::disabled_reason.eq(job.disabled_reason.as_deref())),
        ))
        .execute(conn)?;
    Ok(())
}

/// Returns its creation time and creator.
fn update_job(conn: &mut Conn, job: &Job, key: &str) -> Result<(i64, Option<String>), StoreError> {
    let row = diesel::update(job::table.find(key)).set((
        job::name.eq(&job.name),
        job::job_type.eq(job.job_type.name()),
        job::description.eq(job.description.as_deref()),
        job::is_enabled.eq(job.is_enabled),
        job::is_deleted.eq(job.is_deleted),
        job::priority.eq(job.priority),
        job::version.eq(job.version + 1),
        job::update_by.eq(job.update_by.as_deref()),
        job::update_time.eq(job.update_time.0),
        (job::schedule.eq(job.schedule.as_ref().map(json).transpose()?), job::policies.eq(job.policies.as_ref().map(json).transpose()?)),
        job::callback.eq(job.callback.as_ref().map(json).transpose()?),
        (job::task.eq(job.task.as_ref().map(json).transpose()?), job::successors.eq(some_json(&job.successors)?)),
        (job::group_name.eq(job.group.as_deref()), job::disabled_reason.eq(job.disabled_reason.as_deref())),
    ));
    Ok(row.returning((job::creation_time, job::create_by)).get_result(conn)?)
}

/// The clock went back to `to`: later creation and change times of the job are set to this time.
pub(super) fn set_back(conn: &mut Conn, id: JobId, to: Timestamp) -> Result<(), StoreError> {
    let key = id.to_string();
    history::set_back(conn, &key, to)?;
    let later = job::table.find(&key).filter(job::update_time.gt(to.0));
    let Some((at, schedule)) = later.select((job::update_time, job::schedule)).get_result::<(i64, Option<String>)>(conn).optional()? else {
        return Ok(());
    };
    let schedule = schedule.map(|text| set_back_schedule(&text, to, Timestamp(at))).transpose()?;
    diesel::update(job::table.find(&key)).set((job::update_time.eq(to.0), job::schedule.eq(schedule))).execute(conn)?;
    diesel::update(job::table.find(&key).filter(job::creation_time.gt(to.0))).set(job::creation_time.eq(to.0)).execute(conn)?;
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

fn insert_properties(conn: &mut Conn, key: &str, properties: &Properties) -> Result<(), StoreError> {
    for (name, value) in &properties.0 {
        diesel::insert_into(job_property::table)
            .values((job_property::job_id.eq(key), job_property::key.eq(name), job_property::value.eq(value)))
            .execute(conn)?;
    }
    Ok(())
}

/// Jobs with their properties and plans, in no particular order.
pub(super) fn load(conn: &mut Conn, ids: &[JobId]) -> Result<Vec<(Job, StoredPlan)>, StoreError> {
    let keys: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let rows: Vec<JobRow> = job::table.filter(job::id.eq_any(&keys)).select(JobRow::as_select()).load(conn)?;
    let found = job_property::table
        .filter(job_property::job_id.eq_any(&keys))
        .select((job_property::job_id, job_property::key, job_property::value))
        .load::<(String, String, String)>(conn)?;
    let mut properties: HashMap<String, Properties> = HashMap::new();
    for (job, key, value) in found {
        properties.entry(job).or_default().0.insert(key, value);
    }
    let mut plans = plans::load_plans(conn, &keys)?;
    rows.into_iter()
        .map(|row| {
            let plan = plans.remove(&row.id).ok_or_else(|| damaged("plan of this job", &row.id))?;
            let properties = properties.remove(&row.id).unwrap_or_default();
            Ok((row.into_job(properties)?, plan))
        })
        .collect()
}

impl JobRow {
    fn into_job(self, properties: Properties) -> Result<Job, StoreError> {
        Ok(Job {
            id: id(&self.id)?,
            name: self.name,
            job_type: self.job_type.parse().map_err(|_| damaged("kind of job", &self.job_type))?,
            description: self.description,
            group: self.group_name,
            is_enabled: self.is_enabled,
            disabled_reason: self.disabled_reason,
            is_deleted: self.is_deleted,
            priority: self.priority,
            properties,
            schedule: self.schedule.as_deref().map(from_json).transpose()?,
            policies: self.policies.as_deref().map(from_json).transpose()?,
            callback: self.callback.as_deref().map(from_json).transpose()?,
            task: self.task.as_deref().map(from_json).transpose()?,
            successors: self.successors.as_deref().map(from_json).transpose()?.unwrap_or_default(),
            version: self.version,
            create_by: self.create_by,
            update_by: self.update_by,
            creation_time: Timestamp(self.creation_time),
            update_time: Timestamp(self.update_time),
        })
    }
}

/// The 32 digits of a job's id.
pub(super) fn job_key(job: JobId) -> Hex {
    Hex::of(job.0)
}
