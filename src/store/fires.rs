//! The ledger of fires: one row for each planned instant of a job, whatever came of it. The row decides, not the memory
//! of whoever plans: told twice, an instant makes one run.

use super::dialect::Conn;
use super::error::StoreError;
use super::jobs::job_key;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::fire;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// What came of a planned instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A run.
    Fired,
    /// A run that could not begin.
    Failed,
    /// No run, and why.
    Skipped,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Records why a planned instant makes no run; nothing happens if something is recorded of it already.
#[derive(Debug, Clone)]
pub struct RecordSkip {
    /// The job.
    pub job_id: JobId,
    /// The instant.
    pub planned_at: Timestamp,
    /// Why.
    pub reason: String,
    /// Now.
    pub now: Timestamp,
}

impl WriteOp for RecordSkip {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if find(tx.conn, self.job_id, self.planned_at)?.is_none() {
            insert(tx.conn, self.job_id, self.planned_at, Verdict::Skipped, Some(&self.reason), None, self.now)?;
        }
        Ok(())
    }
}

/// What is recorded of a planned instant: nothing, no run, or a run.
#[derive(Debug, Clone, Copy)]
pub struct FireOf {
    /// The job.
    pub job_id: JobId,
    /// The instant.
    pub planned_at: Timestamp,
}

impl ReadOp for FireOf {
    type Output = Option<Option<Identity>>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let found = find(from.conn, self.job_id, self.planned_at)?;
        found
            .map(|run| run.map(|run| run.parse().map_err(|_| StoreError::Failed(format!("`{run}` is no identity")))).transpose())
            .transpose()
    }
}

/// The run of a planned instant: `None` if nothing is recorded of it, `Some(None)` if it made no run.
pub(super) fn find(conn: &mut Conn, job: JobId, planned_at: Timestamp) -> Result<Option<Option<String>>, StoreError> {
    let row = fire::table.find((job_key(job).text(), planned_at.0)).select(fire::run_identity).get_result(conn);
    Ok(row.optional()?)
}

pub(super) fn insert(
    conn: &mut Conn,
    job: JobId,
    planned_at: Timestamp,
    verdict: Verdict,
    reason: Option<&str>,
    run: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    diesel::insert_into(fire::table)
        .values((
            fire::job_id.eq(job_key(job).text()),
            fire::planned_at.eq(planned_at.0),
            fire::verdict.eq(verdict.name()),
            fire::reason.eq(reason),
            fire::run_identity.eq(run),
            fire::creation_time.eq(now.0),
        ))
        .execute(conn)?;
    Ok(())
}
