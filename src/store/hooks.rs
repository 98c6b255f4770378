//! Hooks: addresses at which other systems trigger a job.

use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{job, job_hook};
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A hook as it is stored.
#[derive(Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = job_hook)]
pub struct StoredHook {
    /// Its id: 32 hexadecimal digits.
    pub id: String,
    /// The job that it triggers.
    pub job_id: JobId,
    /// Its name, unique in the job.
    pub name: String,
    /// The secret of the callers.
    pub secret: String,
    /// Who created it.
    pub create_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
}

impl std::fmt::Debug for StoredHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hook {}", self.id)
    }
}

/// Stores a new hook. [`StoreError::Conflict`] contains `name` if the job has a hook of that name, `count` if it has too many.
#[derive(Debug, Clone)]
pub struct InsertHook {
    /// The hook.
    pub hook: StoredHook,
    /// Maximum number of hooks of a job.
    pub most: usize,
}

impl WriteOp for InsertHook {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let of_job = job::table.find(self.hook.job_id).filter(job::is_deleted.eq(false)).select(job::id);
        of_job.get_result::<JobId>(tx.conn).optional()?.ok_or(StoreError::NotFound)?;
        let names = job_hook::table.filter(job_hook::job_id.eq(self.hook.job_id)).select(job_hook::name);
        let names: Vec<String> = names.load(tx.conn)?;
        if names.contains(&self.hook.name) {
            return Err(StoreError::Conflict("name".into()));
        }
        if names.len() >= self.most {
            return Err(StoreError::Conflict("count".into()));
        }
        diesel::insert_into(job_hook::table).values(&self.hook).execute(tx.conn)?;
        Ok(())
    }
}

/// Deletes a hook of a job.
#[derive(Debug, Clone)]
pub struct DeleteHook {
    /// The job.
    pub job: JobId,
    /// The id of the hook.
    pub hook: String,
}

impl WriteOp for DeleteHook {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let rows = job_hook::table.find(&self.hook).filter(job_hook::job_id.eq(self.job));
        if diesel::delete(rows).execute(tx.conn)? == 0 { Err(StoreError::NotFound) } else { Ok(()) }
    }
}

/// The hooks of a job, by name.
#[derive(Debug, Clone, Copy)]
pub struct ListHooks(pub JobId);

impl ReadOp for ListHooks {
    type Output = Vec<StoredHook>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows = job_hook::table.filter(job_hook::job_id.eq(self.0)).order(job_hook::name);
        Ok(rows.select(StoredHook::as_select()).load(from.conn)?)
    }
}

/// A hook.
#[derive(Debug, Clone)]
pub struct GetHook(pub String);

impl ReadOp for GetHook {
    type Output = Option<StoredHook>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(job_hook::table.find(&self.0).select(StoredHook::as_select()).get_result(from.conn).optional()?)
    }
}

/// Deletes the hooks of a job that is removed for good.
pub(super) fn remove_hooks(conn: &mut Conn, job: JobId) -> Result<(), StoreError> {
    diesel::delete(job_hook::table.filter(job_hook::job_id.eq(job))).execute(conn)?;
    Ok(())
}
