//! Aggregated numbers for monitoring.

use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::run_lists::IS_OPEN;
use super::schema::run;
use crate::domain::ids::JobId;
use diesel::dsl::count_star;
use diesel::prelude::*;

/// Number of open runs by state; `queued` are those that wait behind another run of their job.
#[derive(Debug, Clone, Copy)]
pub struct OpenRunCounts;

impl ReadOp for OpenRunCounts {
    type Output = Vec<(String, u64)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let is_open = || diesel::dsl::sql::<diesel::sql_types::Bool>(IS_OPEN);
        let rows: Vec<(String, i64)> =
            run::table.filter(is_open()).group_by(run::state).select((run::state, count_star())).load(from.conn)?;
        let queued: i64 = run::table.filter(is_open()).filter(run::queued).count().get_result(from.conn)?;
        let of = |state: &str| rows.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count as u64);
        let states = ["pending", "scheduled", "running"].map(|state| {
            let count = of(state);
            (state.to_owned(), if state == "pending" { count.saturating_sub(queued as u64) } else { count })
        });
        Ok(states.into_iter().chain([("queued".to_owned(), queued as u64)]).collect())
    }
}

/// Milliseconds from the scheduled time to the start of a job's latest runs, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct LatenessOf {
    /// The job.
    pub job_id: JobId,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for LatenessOf {
    type Output = Vec<i64>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let begun = run::table.filter(run::job_id.eq(self.job_id));
        let begun = begun.filter(run::planned_at.is_not_null()).filter(run::start_time.is_not_null());
        let late = (run::start_time - run::planned_at).assume_not_null();
        Ok(begun.order(run::no.desc()).limit(self.limit as i64).select(late).load(from.conn)?)
    }
}

/// The same for the latest runs of all jobs: the job's id, its name at that time, and the milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct RecentLateness {
    /// Maximum number of runs that are read.
    pub limit: usize,
}

impl ReadOp for RecentLateness {
    type Output = Vec<(String, String, i64)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (String, String, Option<i64>, Option<i64>);
        let rows: Vec<Row> = run::table
            .order(run::no.desc())
            .limit(self.limit as i64)
            .select((run::job_id, run::job_name, run::planned_at, run::start_time))
            .load(from.conn)?;
        Ok(rows.into_iter().filter_map(|(job, name, planned, begun)| Some((job, name, begun? - planned?))).collect())
    }
}
