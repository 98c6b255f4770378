//! Tokens with a name. Only the hash of a token's text is stored.

use super::columns::json;
use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{access_token, job, run};
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A token as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = access_token)]
pub struct StoredToken {
    /// Its name, unique.
    pub name: String,
    /// The name of its role.
    pub role: String,
    /// SHA-256 of its text, 64 hexadecimal digits.
    pub hash: String,
    /// The groups of jobs that it is limited to, as a JSON array; `None`: all.
    pub job_groups: Option<String>,
    /// When it expires.
    pub expire_time: Option<Timestamp>,
    /// Who created it.
    pub create_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
}

/// Stores a new token. [`StoreError::Conflict`] contains `name` if another token has that name, `count` if there are too many.
#[derive(Debug, Clone)]
pub struct InsertToken {
    /// The token.
    pub token: StoredToken,
    /// Maximum number of tokens.
    pub most: usize,
}

impl WriteOp for InsertToken {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let same = access_token::table.find(&self.token.name).select(access_token::name);
        if same.get_result::<String>(tx.conn).optional()?.is_some() {
            return Err(StoreError::Conflict("name".into()));
        }
        if access_token::table.count().get_result::<i64>(tx.conn)? >= self.most as i64 {
            return Err(StoreError::Conflict("count".into()));
        }
        diesel::insert_into(access_token::table).values(&self.token).execute(tx.conn)?;
        Ok(())
    }
}

/// Deletes a token.
#[derive(Debug, Clone)]
pub struct DeleteToken(pub String);

impl WriteOp for DeleteToken {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let deleted = diesel::delete(access_token::table.find(&self.0)).execute(tx.conn)?;
        if deleted == 0 { Err(StoreError::NotFound) } else { Ok(()) }
    }
}

/// All tokens, by name.
#[derive(Debug, Clone, Copy)]
pub struct ListTokens;

impl ReadOp for ListTokens {
    type Output = Vec<StoredToken>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(access_token::table.order(access_token::name).select(StoredToken::as_select()).load(from.conn)?)
    }
}

/// Tokens that are limited to a group follow its new name.
pub(super) fn rename_group(conn: &mut Conn, old: &str, new: &str) -> Result<(), StoreError> {
    let limited = access_token::table.filter(access_token::job_groups.is_not_null());
    let rows: Vec<(String, Option<Vec<String>>)> = limited.select((access_token::name, access_token::job_groups)).load(conn)?;
    for (name, groups) in rows {
        let mut groups = groups.unwrap_or_default();
        let Some(group) = groups.iter_mut().find(|group| *group == old) else { continue };
        new.clone_into(group);
        diesel::update(access_token::table.find(name)).set(access_token::job_groups.eq(json(&groups)?)).execute(conn)?;
    }
    Ok(())
}

/// The group of a job, which may be deleted.
#[derive(Debug, Clone, Copy)]
pub struct GroupOfJob(pub JobId);

impl ReadOp for GroupOfJob {
    type Output = Option<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let row = job::table.find(self.0).select(job::group_name);
        Ok(row.get_result::<Option<String>>(from.conn).optional()?.flatten())
    }
}

/// The group of the job with this name or id.
#[derive(Debug, Clone)]
pub struct GroupOfNamed(pub String);

impl ReadOp for GroupOfNamed {
    type Output = Option<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        // A name may look like the id of another job: both must be found as they are when the job is started.
        super::workflow::find_job(from.conn, &self.0)?.map_or(Ok(None), |job| GroupOfJob(job).read(from))
    }
}

/// The present group of a run's job.
#[derive(Debug, Clone, Copy)]
pub struct GroupOfRun(pub Identity);

impl ReadOp for GroupOfRun {
    type Output = Option<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let of = run::table.filter(run::identity.eq(self.0)).select(run::job_id);
        of.get_result(from.conn).optional()?.map_or(Ok(None), |job| GroupOfJob(job).read(from))
    }
}
