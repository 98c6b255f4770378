//! A summary of a job's runs: their number, average duration, last run and open run.

use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::run_lists::IS_OPEN;
use super::schema::{job, run};
use super::tasks::AverageTime;
use crate::domain::ids::JobId;
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable};
use std::collections::HashMap;

/// Maximum number of runs in the average.
const AVERAGE_OF: i64 = 100;

/// The summary of a job's runs.
#[derive(Debug, Clone, Copy)]
pub struct ReadActivity(pub JobId);

/// See [`ReadActivity`].
#[derive(Debug, Clone)]
pub struct StoredActivity {
    /// Number of stored runs.
    pub runs: u64,
    /// Average duration of the last hundred successful runs, in milliseconds.
    pub average_ms: Option<u64>,
    /// The last created run that has ended.
    pub last: Option<Run>,
    /// The oldest run that is not over.
    pub open: Option<Run>,
}

impl ReadOp for ReadActivity {
    type Output = StoredActivity;

    fn read(&self, from: &mut Source<'_>) -> Result<StoredActivity, StoreError> {
        let own = || run::table.filter(run::job_id.eq(self.0));
        let runs: i64 = own().count().get_result(from.conn)?;
        let last = own().filter(run::finish_time.is_not_null()).order(run::no.desc()).select(Run::as_select());
        let last: Option<Run> = last.first(from.conn).optional()?;
        let open = own().filter(sql::<Bool>(IS_OPEN)).order(run::no).select(Run::as_select());
        let open: Option<Run> = open.first(from.conn).optional()?;
        Ok(StoredActivity { runs: runs as u64, average_ms: AverageTime { job_id: self.0, runs: AVERAGE_OF }.read(from)?, last, open })
    }
}

/// When the last run of each of these jobs was created, for those that have one.
#[derive(Debug, Clone)]
pub struct LastRuns(pub Vec<JobId>);

impl ReadOp for LastRuns {
    type Output = HashMap<JobId, Timestamp>;

    fn read(&self, from: &mut Source<'_>) -> Result<HashMap<JobId, Timestamp>, StoreError> {
        // One step in the index of runs by job for each job, however many runs it has.
        let last = "(SELECT run.creation_time FROM run WHERE run.job_id = job.id ORDER BY run.no DESC LIMIT 1)";
        let rows = job::table.filter(job::id.eq_any(&self.0)).select((job::id, sql::<Nullable<BigInt>>(last)));
        let rows: Vec<(JobId, Option<Timestamp>)> = rows.load(from.conn)?;
        Ok(rows.into_iter().filter_map(|(id, at)| Some((id, at?))).collect())
    }
}
