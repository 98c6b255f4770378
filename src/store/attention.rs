//! What an operator should look at.

use super::deliveries::Detail;
use super::dialect;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::run_lists::in_state;
use super::schema::{alert_event, job, plan, run};
use crate::domain::ids::{Identity, JobId};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};

/// Maximum number of failed runs, or of events of one kind, that are searched for one answer: the latest ones.
const MOST_ROWS: i64 = 10_000;
/// When an attempt that has not begun should have begun.
const SHOULD_BEGIN: &str = "coalesce(not_before, planned_at, creation_time)";

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
        type Row = (JobId, String, Identity, Option<String>, Option<Timestamp>);
        let failed = in_state(from.conn, RunState::Failed);
        let newest = format!(
            "run.no IN (SELECT max(f.no) FROM (SELECT no, job_id, finish_time FROM run WHERE {failed} ORDER BY no DESC LIMIT {MOST_ROWS}) AS f \
             WHERE f.finish_time >= {} GROUP BY f.job_id) \
             AND NOT EXISTS (SELECT 1 FROM run AS later WHERE later.job_id = run.job_id AND later.no > run.no AND later.state = 'success')",
            self.since.0
        );
        let rows: Vec<Row> = run::table
            .filter(sql::<Bool>(&newest))
            .filter(run::job_id.eq_any(job::table.filter(job::is_deleted.eq(false)).select(job::id)))
            .order(run::no.desc())
            .limit(self.limit as i64)
            .select((run::job_id, run::job_name, run::identity, run::reason, run::finish_time))
            .load(from.conn)?;
        let jobs = rows.into_iter().map(|(job_id, job_name, identity, reason, ended)| JobTrouble {
            job_id,
            job_name,
            identity: Some(identity),
            reason,
            at: ended.unwrap_or_default(),
        });
        Ok(jobs.collect())
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
        type Row = (JobId, String, Option<Timestamp>, Option<Timestamp>);
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
            let reason = ended_well.map_or("no run has succeeded yet".to_owned(), |at| format!("no run has succeeded since {at}"));
            JobTrouble { job_id, job_name, identity: None, reason: Some(reason), at: told.unwrap_or_default() }
        });
        Ok(rows.collect())
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
        type Row = (JobId, Option<Identity>, Timestamp, String);
        let newest = format!(
            "id IN (SELECT max(e.id) FROM (SELECT id, job_id, at FROM alert_event WHERE event = '{}' ORDER BY id DESC LIMIT {MOST_ROWS}) AS e \
             WHERE e.at >= {} GROUP BY e.job_id) AND job_id IN (SELECT job.id FROM job WHERE NOT job.is_deleted)",
            self.event, self.since.0
        );
        let rows: Vec<Row> = alert_event::table
            .filter(sql::<Bool>(&newest))
            .order(alert_event::id.desc())
            .limit(self.limit as i64)
            .select((alert_event::job_id.assume_not_null(), alert_event::run_identity, alert_event::at, alert_event::detail))
            .load(from.conn)?;
        let jobs = rows.into_iter().map(|(job_id, identity, at, detail)| {
            // Unreadable details are empty.
            let Detail { job_name, reason, .. } = serde_json::from_str(&detail).unwrap_or_default();
            JobTrouble { job_id, job_name: job_name.unwrap_or_default(), identity, reason, at }
        });
        Ok(jobs.collect())
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
        type Row = (JobId, String, Identity, Timestamp);
        // A queued run waits by intention, and so does one that is to begin later.
        let oldest = format!(
            "no IN (SELECT min(no) FROM run WHERE {} AND NOT queued AND {SHOULD_BEGIN} < {} GROUP BY job_id)",
            in_state(from.conn, RunState::Pending),
            self.before.0
        );
        let rows: Vec<Row> = run::table
            .filter(sql::<Bool>(&oldest))
            .order(run::no)
            .limit(self.limit as i64)
            .select((run::job_id, run::job_name, run::identity, sql::<BigInt>(SHOULD_BEGIN)))
            .load(from.conn)?;
        let trouble = |(job_id, job_name, identity, at)| JobTrouble { job_id, job_name, identity: Some(identity), reason: None, at };
        Ok(rows.into_iter().map(trouble).collect())
    }
}

/// Free and total bytes that the store can use of its disk, without what is reserved for others; `None` if the system does not tell.
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
        let used = found.blocks().saturating_sub(found.blocks_free());
        Ok(Some((bytes(found.blocks_available()), bytes(used + found.blocks_available()))))
    }
}
