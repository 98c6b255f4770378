//! Data that the last run of a job stored for the next one.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{job, job_data};
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};

/// The data for the next run of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredData {
    /// JSON.
    pub data: String,
    /// The run that stored it; `None`: it was set by hand.
    pub run: Option<Identity>,
    /// Who set it, if tokens are in use.
    pub by: Option<String>,
    /// When it was stored.
    pub update_time: Timestamp,
}

/// Reads the data for the next run of a job.
#[derive(Debug, Clone, Copy)]
pub struct GetJobData(pub JobId);

impl ReadOp for GetJobData {
    type Output = Option<StoredData>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let row = job_data::table.find(self.0);
        let run = sql::<Nullable<Text>>("NULLIF(run_identity, '')");
        let row = row.select((job_data::data, run, job_data::update_by, job_data::update_time)).get_result(from.conn).optional()?;
        Ok(row.map(|(data, run, by, update_time)| StoredData { data, run, by, update_time }))
    }
}

/// Sets or deletes the data by hand. Runs in progress already have their copy.
#[derive(Debug, Clone)]
pub struct PutJobData {
    /// The job.
    pub job_id: JobId,
    /// The data as JSON; `None` deletes it.
    pub data: Option<String>,
    /// Who sets it.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for PutJobData {
    type Output = ();

    fn weight(&self) -> usize {
        self.data.as_ref().map_or(0, String::len)
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let is_there = job::table.find(self.job_id).filter(job::is_deleted.eq(false)).select(job::version);
        is_there.get_result::<i64>(tx.conn).optional()?.ok_or(StoreError::NotFound)?;
        match &self.data {
            Some(data) => put(tx.conn, self.job_id, data, Left::By(self.by.as_deref()), self.now),
            None => remove(tx.conn, self.job_id),
        }
    }
}

/// The origin of the data.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    /// A run.
    Run(Identity),
    /// A caller, by hand.
    By(Option<&'a str>),
}

/// Stores data of a run, in the transaction of its end, or data set by hand.
pub(super) fn put(conn: &mut Conn, job: JobId, data: &str, left: Left<'_>, now: Timestamp) -> Result<(), StoreError> {
    let (run, by) = match left {
        Left::Run(identity) => (identity.to_string(), None),
        Left::By(by) => (String::new(), by),
    };
    let row = (job_data::data.eq(data), job_data::run_identity.eq(run), job_data::update_by.eq(by), job_data::update_time.eq(now));
    let insert = diesel::insert_into(job_data::table).values((job_data::job_id.eq(job), row));
    let rule = "(job_id) DO UPDATE SET data = excluded.data, run_identity = excluded.run_identity, update_by = excluded.update_by, \
        update_time = excluded.update_time";
    insert.with_conflict_rule(rule).execute(conn)?;
    Ok(())
}

/// Deletes the data of a job.
pub(super) fn remove(conn: &mut Conn, job: JobId) -> Result<(), StoreError> {
    diesel::delete(job_data::table.find(job)).execute(conn)?;
    Ok(())
}
