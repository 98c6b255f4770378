//! What an operator should look at.

use super::columns::id;
use super::deliveries::Detail;
use super::dialect;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{alert_event, job, plan, run};
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use std::collections::HashSet;

/// Maximum number of failed runs, or of events, that are read for one answer.
const MOST_ROWS: i64 = 500;

/// What a job is listed for.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTrouble {
    /// The job.
    pub job_id: JobId,
    /// Its name.
    pub job_name: String,
    /// The latest run that is concerned.
    pub identity: Option<Identity>,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    pub at: Timestamp,
}

/// Jobs whose latest run failed for good, the latest failure first.
#[derive(Debug, Clone, Copy)]
pub struct FailedJobs {
    /// Only runs that ended at this time or later.
    pub since: Timestamp,
    /// At most this many jobs.
    pub limit: usize,
}

impl ReadOp for FailedJobs {
    type Output = Vec<JobTrouble>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (i64, String, String, String, Option<String>, Option<i64>);
        let rows: Vec<Row> = run::table
            .filter(run::state.eq("failed"))
            .order(run::no.desc())
            .limit(MOST_ROWS)
            .select((run::no, run::job_id, run::job_name, run::identity, run::reason, run::finish_time))
            .load(from.conn)?;
        let (mut jobs, mut seen) = (Vec::new(), HashSet::new());
        for (no, job_id, job_name, identity, reason, ended) in rows {
            let ended = Timestamp(ended.unwrap_or_default());
            if ended < self.since || jobs.len() >= self.limit || !seen.insert(job_id.clone()) {
                continue;
            }
            let better = run::table.filter(run::job_id.eq(&job_id)).filter(run::no.gt(no)).filter(run::state.eq("success"));
            let is_over: bool = diesel::select(diesel::dsl::exists(better)).get_result(from.conn)?;
            let is_there = job::table.find(&job_id).filter(job::is_deleted.eq(false));
            if !is_over && diesel::select(diesel::dsl::exists(is_there)).get_result::<bool>(from.conn)? {
                jobs.push(JobTrouble { job_id: id(&job_id)?, job_name, identity: Some(id(&identity)?), reason, at: ended });
            }
        }
        Ok(jobs)
    }
}

/// Jobs that have been reported as silent and have not succeeded since.
#[derive(Debug, Clone, Copy)]
pub struct SilentNow {
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for SilentNow {
    type Output = Vec<JobTrouble>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (String, String, Option<i64>, Option<i64>);
        let rows: Vec<Row> = job::table
            .inner_join(plan::table.on(plan::job_id.eq(job::id)))
            // Exactly as in the index.
            .filter(sql::<Bool>(dialect::may_be_silent(from.conn)))
            .filter(job::is_enabled.eq(true).and(job::is_deleted.eq(false)))
            .filter(plan::told_silent.is_not_null())
            .filter(plan::ended_well.is_null().or(plan::ended_well.lt(plan::told_silent)))
            .filter(plan::told_silent.ge(job::update_time.nullable()))
            .order(plan::told_silent.desc())
            .limit(self.limit as i64)
            .select((job::id, job::name, plan::told_silent, plan::ended_well))
            .load(from.conn)?;
        let rows = rows.into_iter().map(|(job_id, job_name, told, ended_well)| {
            let reason =
                ended_well.map_or("no run has succeeded yet".to_owned(), |at| format!("no run has succeeded since {}", Timestamp(at)));
            Ok(JobTrouble { job_id: id(&job_id)?, job_name, identity: None, reason: Some(reason), at: Timestamp(told.unwrap_or_default()) })
        });
        rows.collect()
    }
}

/// Jobs with an event of this kind, the latest first; one event for each job.
#[derive(Debug, Clone, Copy)]
pub struct EventsOf {
    /// `missed` or `late`.
    pub event: &'static str,
    /// Only events at this time or later.
    pub since: Timestamp,
    /// At most this many jobs.
    pub limit: usize,
}

impl ReadOp for EventsOf {
    type Output = Vec<JobTrouble>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (String, Option<String>, Option<String>, i64, String);
        let rows: Vec<Row> = alert_event::table
            .order(alert_event::id.desc())
            .limit(MOST_ROWS)
            .select((alert_event::event, alert_event::job_id, alert_event::run_identity, alert_event::at, alert_event::detail))
            .load(from.conn)?;
        let (mut jobs, mut seen) = (Vec::new(), HashSet::new());
        for (event, job_id, identity, at, detail) in rows {
            let Some(job_id) = job_id else { continue };
            if event != self.event || at < self.since.0 || jobs.len() >= self.limit || !seen.insert(job_id.clone()) {
                continue;
            }
            // Unreadable details are empty.
            let Detail { job_name, reason, .. } = serde_json::from_str(&detail).unwrap_or_default();
            let identity = identity.as_deref().map(id).transpose()?;
            jobs.push(JobTrouble { job_id: id(&job_id)?, job_name: job_name.unwrap_or_default(), identity, reason, at: Timestamp(at) });
        }
        Ok(jobs)
    }
}

/// Jobs with runs that should have begun before this time and wait for a worker, a node or a slot: the oldest run of each.
#[derive(Debug, Clone, Copy)]
pub struct OverdueRuns {
    /// The time.
    pub before: Timestamp,
    /// At most this many jobs.
    pub limit: usize,
}

impl ReadOp for OverdueRuns {
    type Output = Vec<JobTrouble>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (String, String, String, i64, Option<i64>);
        let rows: Vec<Row> = run::table
            .filter(sql::<Bool>("state IN ('pending', 'scheduled', 'running')"))
            .filter(run::start_time.is_null())
            // A queued run waits by intention.
            .filter(run::queued.eq(false).and(run::not_before.is_null()))
            .filter(run::creation_time.lt(self.before.0))
            .filter(run::planned_at.is_null().or(run::planned_at.lt(self.before.0)))
            .order(run::no)
            .limit(MOST_ROWS)
            .select((run::job_id, run::job_name, run::identity, run::creation_time, run::planned_at))
            .load(from.conn)?;
        let mut seen = HashSet::new();
        let oldest = rows.into_iter().filter(|(job_id, ..)| seen.insert(job_id.clone())).take(self.limit);
        let jobs = oldest.map(|(job_id, job_name, identity, made, planned)| {
            let at = Timestamp(planned.map_or(made, |planned| planned.max(made)));
            Ok(JobTrouble { job_id: id(&job_id)?, job_name, identity: Some(id(&identity)?), reason: None, at })
        });
        jobs.collect()
    }
}

/// Free and total bytes of the disk that the store writes to; `None` if the system does not tell.
#[derive(Debug, Clone, Copy)]
pub struct DiskSpace;

impl ReadOp for DiskSpace {
    type Output = Option<(u64, u64)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        if matches!(from.conn, dialect::Conn::Postgres(_)) {
            return Ok(None);
        }
        // The folder of the segments may not exist yet.
        let folder = from.segments.parent().unwrap_or(from.segments);
        let Ok(found) = nix::sys::statvfs::statvfs(folder) else { return Ok(None) };
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Ok(Some((bytes(found.blocks_available()), bytes(found.blocks()))))
    }
}
