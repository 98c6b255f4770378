//! Groups: names that jobs and nodes refer to.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::history::{self, Action};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{job, job_group, job_property, node};
use crate::domain::ids::{GroupId, JobId, WorkerId};
use crate::domain::job::same_key;
use crate::domain::task::TaskSettings;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::collections::{BTreeSet, HashMap};

/// A group as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = job_group)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// Its name, unique.
    pub name: String,
    /// Free text for people.
    pub description: Option<String>,
    /// Who created it.
    pub create_by: Option<String>,
    /// Who changed it last.
    pub update_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

/// Stores a new group. [`StoreError::Conflict`] contains `name` if another group has that name.
#[derive(Debug, Clone)]
pub struct InsertGroup(pub Group);

impl WriteOp for InsertGroup {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        check_name(tx.conn, &self.0)?;
        diesel::insert_into(job_group::table).values(&self.0).execute(tx.conn)?;
        Ok(())
    }
}

/// Renames or changes a group; its jobs, its workers, the tasks and block jobs that require workers of it, and the channels and tokens
/// that are limited to it use the new name from then on, which is a change of each job. [`StoreError::Conflict`] contains `name` if
/// another group has that name.
#[derive(Debug, Clone)]
pub struct UpdateGroup(pub Group);

impl WriteOp for UpdateGroup {
    /// The changed jobs, and the workers of the group.
    type Output = (Vec<JobId>, Vec<WorkerId>);

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        let new = &self.0;
        let old: Option<String> = job_group::table.find(new.id).select(job_group::name).get_result(tx.conn).optional()?;
        let old = old.ok_or(StoreError::NotFound)?;
        check_name(tx.conn, new)?;
        diesel::update(job_group::table.find(new.id))
            .set((
                job_group::name.eq(&new.name),
                job_group::description.eq(&new.description),
                job_group::update_by.eq(&new.update_by),
                job_group::update_time.eq(new.update_time),
            ))
            .execute(tx.conn)?;
        if old == new.name {
            return Ok((Vec::new(), Vec::new()));
        }
        super::access_tokens::rename_group(tx.conn, &old, &new.name)?;
        super::channels::rename_group(tx.conn, &old, new)?;
        let ids = jobs_that_name(tx.conn, &old)?;
        for chunk in ids.chunks(500) {
            for (mut renamed, _) in super::jobs::load(tx.conn, chunk)? {
                if renamed.group.as_ref() == Some(&old) {
                    renamed.group = Some(new.name.clone());
                }
                if let Some(task) = renamed.task.as_mut().filter(|task| asks_for(task, &old)) {
                    task.group = Some(new.name.clone());
                }
                for (key, value) in &mut renamed.properties.0 {
                    if same_key(key, "WorkerGroup") && is_group(value, &old) {
                        value.clone_from(&new.name);
                        let row = job_property::table.filter(job_property::job_id.eq(renamed.id)).filter(job_property::key.eq(key));
                        diesel::update(row).set(job_property::value.eq(&new.name)).execute(tx.conn)?;
                    }
                }
                renamed.version += 1;
                renamed.update_by.clone_from(&new.update_by);
                renamed.update_time = renamed.update_time.max(new.update_time);
                diesel::update(job::table.find(renamed.id))
                    .set((
                        job::group_name.eq(&renamed.group),
                        job::task.eq(&renamed.task),
                        job::version.eq(renamed.version),
                        job::update_by.eq(&renamed.update_by),
                        job::update_time.eq(renamed.update_time),
                    ))
                    .execute(tx.conn)?;
                history::record_change(tx.conn, &renamed, Action::Updated, new.update_by.as_deref())?;
            }
        }
        Ok((ids, super::worker_records::regroup(tx.conn, &old, &new.name)?))
    }
}

/// Whether the task requires workers of this group. Compares like the worker pool.
fn asks_for(task: &TaskSettings, group: &str) -> bool {
    task.group.as_ref().is_some_and(|asked| asked.eq_ignore_ascii_case(group))
}

/// Whether a property of a block job requires workers of this group.
fn is_group(value: &str, group: &str) -> bool {
    value.trim().eq_ignore_ascii_case(group)
}

/// The jobs in a group, and those whose tasks or runs require workers of it.
fn jobs_that_name(conn: &mut Conn, group: &str) -> Result<Vec<JobId>, StoreError> {
    let rows = job::table.filter(job::group_name.eq(group).or(job::task.like("%\"group\":%")));
    let rows: Vec<(JobId, Option<String>, Option<TaskSettings>)> = rows.select((job::id, job::group_name, job::task)).load(conn)?;
    let named =
        |of: Option<String>, task: Option<TaskSettings>| of.as_deref() == Some(group) || task.is_some_and(|task| asks_for(&task, group));
    let mut jobs: BTreeSet<JobId> = rows.into_iter().filter_map(|(job, of, task)| named(of, task).then_some(job)).collect();
    let asks = diesel::dsl::sql::<diesel::sql_types::Bool>("replace(lower(key), '_', '') = 'workergroup'");
    let rows: Vec<(JobId, String)> = job_property::table.filter(asks).select((job_property::job_id, job_property::value)).load(conn)?;
    jobs.extend(rows.into_iter().filter_map(|(job, value)| is_group(&value, group).then_some(job)));
    Ok(jobs.into_iter().collect())
}

/// Deletes a group. [`StoreError::Conflict`] contains `jobs` while an undeleted job is in it.
#[derive(Debug, Clone, Copy)]
pub struct DeleteGroup(pub GroupId);

impl WriteOp for DeleteGroup {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let name: Option<String> = job_group::table.find(self.0).select(job_group::name).get_result(tx.conn).optional()?;
        let jobs = job::table.filter(job::group_name.eq(name.ok_or(StoreError::NotFound)?)).filter(job::is_deleted.eq(false));
        if jobs.count().get_result::<i64>(tx.conn)? > 0 {
            return Err(StoreError::Conflict("jobs".into()));
        }
        diesel::delete(job_group::table.find(self.0)).execute(tx.conn)?;
        Ok(())
    }
}

/// Groups by name, with the number of jobs and nodes in each.
#[derive(Debug, Clone, Default)]
pub struct ListGroups {
    /// Only the group with this id or name.
    pub id_or_name: Option<String>,
    /// Only those with one of these names.
    pub among: Option<Vec<String>>,
    /// Only those whose name is after this one.
    pub after: Option<String>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListGroups {
    type Output = Vec<(Group, u64, u64)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut query = job_group::table.select(Group::as_select()).order(job_group::name).limit(self.limit as i64).into_boxed();
        if let Some(key) = &self.id_or_name {
            query = query.filter(job_group::id.eq(key.to_ascii_lowercase()).or(job_group::name.eq(key)));
        }
        if let Some(names) = &self.among {
            query = query.filter(job_group::name.eq_any(names));
        }
        if let Some(after) = &self.after {
            query = query.filter(job_group::name.gt(after));
        }
        let groups: Vec<Group> = query.load(from.conn)?;
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let jobs: Vec<(Option<String>, i64)> = job::table
            .filter(job::group_name.eq_any(&names))
            .filter(job::is_deleted.eq(false))
            .group_by(job::group_name)
            .select((job::group_name, diesel::dsl::count_star()))
            .load(from.conn)?;
        let jobs: HashMap<String, u64> = jobs.into_iter().filter_map(|(name, count)| Some((name?, count as u64))).collect();
        let said: Vec<(String, i64)> =
            node::table.group_by(node::group).select((node::group, diesel::dsl::count_star())).load(from.conn)?;
        let mut nodes: HashMap<String, u64> = HashMap::new();
        for (name, count) in said {
            // Compared like in the matchmaker.
            *nodes.entry(name.to_lowercase()).or_default() += count as u64;
        }
        let count = |group: Group| {
            let of_nodes = nodes.get(&group.name.to_lowercase()).copied().unwrap_or_default();
            let of_jobs = jobs.get(&group.name).copied().unwrap_or_default();
            (group, of_jobs, of_nodes)
        };
        Ok(groups.into_iter().map(count).collect())
    }
}

/// The jobs of a group that are not deleted, and whether they are enabled.
#[derive(Debug, Clone)]
pub struct JobsInGroup(pub String);

impl ReadOp for JobsInGroup {
    type Output = Vec<(JobId, bool)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows = job::table.filter(job::group_name.eq(&self.0)).filter(job::is_deleted.eq(false));
        Ok(rows.order(job::id).select((job::id, job::is_enabled)).load(from.conn)?)
    }
}

fn check_name(conn: &mut Conn, group: &Group) -> Result<(), StoreError> {
    let others = job_group::table.filter(job_group::name.eq(&group.name)).filter(job_group::id.ne(group.id));
    let taken = others.select(job_group::id).get_result::<GroupId>(conn).optional()?.is_some();
    if taken { Err(StoreError::Conflict("name".into())) } else { Ok(()) }
}

/// Creates a group on its first use.
pub(super) fn enter(conn: &mut Conn, name: Option<&str>, by: Option<&str>, now: Timestamp) -> Result<(), StoreError> {
    let Some(name) = name else { return Ok(()) };
    diesel::insert_into(job_group::table)
        .values((
            job_group::id.eq(GroupId::at(now)),
            job_group::name.eq(name),
            job_group::create_by.eq(by),
            job_group::update_by.eq(by),
            job_group::creation_time.eq(now),
            job_group::update_time.eq(now),
        ))
        .with_conflict_rule("DO NOTHING")
        .execute(conn)?;
    Ok(())
}
