//! Jobs and their properties.

use super::columns::{Hex, damaged, id};
use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{job, job_property};
use crate::domain::ids::JobId;
use crate::domain::job::{Job, Properties};
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::collections::HashMap;

/// Stores a new job. [`StoreError::Conflict`] says `id` or `name` if another one has it.
#[derive(Debug, Clone)]
pub struct InsertJob {
    /// The job.
    pub job: Job,
    /// The name of the token that makes it.
    pub by: Option<String>,
}

impl WriteOp for InsertJob {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let key = self.job.id.to_string();
        if version_of(tx.conn, &key)?.is_some() {
            return Err(StoreError::Conflict("id".into()));
        }
        check_name(tx.conn, &self.job, &key)?;
        insert_job(tx.conn, &self.job, &key, self.by.as_deref())?;
        insert_properties(tx.conn, &key, &self.job.properties)
    }
}

/// Changes a job to what is here; deleting and enabling are changes as well. The version is the one that the change was
/// made from. [`StoreError::Conflict`] says `version` or `name`.
#[derive(Debug, Clone)]
pub struct UpdateJob {
    /// All of its new values; its `creation_time` stays as it was.
    pub job: Job,
    /// The name of the token that changes it.
    pub by: Option<String>,
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
        let creation_time = update_job(tx.conn, &self.job, &key, self.by.as_deref())?;
        diesel::delete(job_property::table.filter(job_property::job_id.eq(&key))).execute(tx.conn)?;
        insert_properties(tx.conn, &key, &self.job.properties)?;
        Ok(Job { version: version + 1, creation_time: Timestamp(creation_time), ..self.job.clone() })
    }
}

/// A job, deleted or not.
#[derive(Debug, Clone, Copy)]
pub struct GetJob(pub JobId);

impl ReadOp for GetJob {
    type Output = Option<Job>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Job>, StoreError> {
        let row = job::table.find(self.0.to_string()).select(JobRow::as_select()).get_result(from.conn).optional()?;
        Ok(with_properties(from.conn, row.into_iter().collect())?.pop())
    }
}

/// Jobs that are not deleted, in the order in which they were made.
#[derive(Debug, Clone)]
pub struct ListJobs {
    /// Only those whose name contains this, without case.
    pub name: Option<String>,
    /// Only those that are enabled, or those that are not.
    pub enabled: Option<bool>,
    /// Only what follows the job that was made then and has this id.
    pub after: Option<(Timestamp, JobId)>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListJobs {
    type Output = Vec<Job>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Job>, StoreError> {
        let mut query = job::table.select(JobRow::as_select()).filter(job::is_deleted.eq(false)).into_boxed();
        if let Some(enabled) = self.enabled {
            query = query.filter(job::is_enabled.eq(enabled));
        }
        if let Some(part) = &self.name {
            query = query.filter(lower(job::name).like(like_pattern(part)).escape('\\'));
        }
        if let Some((time, after)) = self.after {
            let later = job::creation_time.eq(time.0).and(job::id.gt(after.to_string()));
            query = query.filter(job::creation_time.gt(time.0).or(later));
        }
        let rows = query.order((job::creation_time, job::id)).limit(self.limit as i64).load(from.conn)?;
        with_properties(from.conn, rows)
    }
}

#[diesel::declare_sql_function]
extern "SQL" {
    /// The text in lower case.
    fn lower(text: diesel::sql_types::Text) -> diesel::sql_types::Text;
}

fn like_pattern(part: &str) -> String {
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
    creation_time: i64,
    update_time: i64,
}

fn version_of(conn: &mut Conn, key: &str) -> Result<Option<i64>, StoreError> {
    Ok(job::table.find(key).select(job::version).get_result(conn).optional()?)
}

fn check_name(conn: &mut Conn, job: &Job, key: &str) -> Result<(), StoreError> {
    let others = job::table.filter(job::name.eq(&job.name)).filter(job::is_deleted.eq(false)).filter(job::id.ne(key));
    let taken = !job.is_deleted && others.select(job::id).get_result::<String>(conn).optional()?.is_some();
    if taken { Err(StoreError::Conflict("name".into())) } else { Ok(()) }
}

fn insert_job(conn: &mut Conn, job: &Job, key: &str, by: Option<&str>) -> Result<(), StoreError> {
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
            job::create_by.eq(by),
            job::update_by.eq(by),
            job::creation_time.eq(job.creation_time.0),
            job::update_time.eq(job.update_time.0),
        ))
        .execute(conn)?;
    Ok(())
}

/// Gives back when it was made.
fn update_job(conn: &mut Conn, job: &Job, key: &str, by: Option<&str>) -> Result<i64, StoreError> {
    let row = diesel::update(job::table.find(key)).set((
        job::name.eq(&job.name),
        job::job_type.eq(job.job_type.name()),
        job::description.eq(job.description.as_deref()),
        job::is_enabled.eq(job.is_enabled),
        job::is_deleted.eq(job.is_deleted),
        job::priority.eq(job.priority),
        job::version.eq(job.version + 1),
        job::update_by.eq(by),
        job::update_time.eq(job.update_time.0),
    ));
    Ok(row.returning(job::creation_time).get_result(conn)?)
}

fn insert_properties(conn: &mut Conn, key: &str, properties: &Properties) -> Result<(), StoreError> {
    for (name, value) in &properties.0 {
        diesel::insert_into(job_property::table)
            .values((job_property::job_id.eq(key), job_property::key.eq(name), job_property::value.eq(value)))
            .execute(conn)?;
    }
    Ok(())
}

fn with_properties(conn: &mut Conn, rows: Vec<JobRow>) -> Result<Vec<Job>, StoreError> {
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let found = job_property::table
        .filter(job_property::job_id.eq_any(ids))
        .select((job_property::job_id, job_property::key, job_property::value))
        .load::<(String, String, String)>(conn)?;
    let mut properties: HashMap<String, Properties> = HashMap::new();
    for (job, key, value) in found {
        properties.entry(job).or_default().0.insert(key, value);
    }
    rows.into_iter()
        .map(|row| {
            Ok(Job {
                id: id(&row.id)?,
                name: row.name,
                job_type: row.job_type.parse().map_err(|_| damaged("kind of job", &row.job_type))?,
                description: row.description,
                is_enabled: row.is_enabled,
                is_deleted: row.is_deleted,
                priority: row.priority,
                properties: properties.remove(&row.id).unwrap_or_default(),
                version: row.version,
                creation_time: Timestamp(row.creation_time),
                update_time: Timestamp(row.update_time),
            })
        })
        .collect()
}

/// The 32 digits of a job's id.
pub(super) fn job_key(job: JobId) -> Hex {
    Hex::of(job.0)
}
