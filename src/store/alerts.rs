//! Events that may cause alerts: written in the transaction of their cause, sent afterwards.

use super::dialect::{self, Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::run_lists::IS_OPEN;
use super::schema::{alert_event, job, plan};
use crate::domain::ids::{Identity, JobId};
use crate::domain::run::RunRules;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use serde_json::json;

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// failed, missed, late, silent, recovered, disabled.
    pub event: &'static str,
    /// The job.
    pub job_id: JobId,
    /// The run, if it is about one.
    pub identity: Option<Identity>,
    /// When it happened.
    pub at: Timestamp,
    /// For people and programs: `{"jobName":…,"reason":…}` as JSON.
    pub detail: String,
}

impl NewEvent {
    /// An event of a job.
    #[must_use]
    pub fn new(
        event: &'static str,
        (job_id, job_name, group): (JobId, &str, Option<&str>),
        identity: Option<Identity>,
        at: Timestamp,
        reason: &str,
    ) -> Self {
        let detail = json!({ "jobName": job_name, "group": group, "reason": reason }).to_string();
        Self { event, job_id, identity, at, detail }
    }
}

pub(super) fn insert_all(conn: &mut Conn, events: &[NewEvent]) -> Result<(), StoreError> {
    for event in events {
        diesel::insert_into(alert_event::table)
            .values((
                alert_event::event.eq(event.event),
                alert_event::job_id.eq(event.job_id),
                alert_event::run_identity.eq(event.identity),
                alert_event::at.eq(event.at),
                alert_event::detail.eq(&event.detail),
                alert_event::is_done.eq(false),
            ))
            // A run is reported late only once.
            .with_conflict_rule("DO NOTHING")
            .execute(conn)?;
    }
    Ok(())
}

/// A run has begun whose job wants an alert for a late start.
pub(super) fn note_begin(conn: &mut Conn, run: &LateRun, rules: &RunRules, now: Timestamp) -> Result<(), StoreError> {
    let late = now.since_ms(run.planned_at);
    if rules.late_after.is_some_and(|after| late >= after as i64) {
        let event = late_event(conn, run, now, &format!("the run began {late} ms after its scheduled time"))?;
        insert_all(conn, &[event])?;
    }
    Ok(())
}

fn late_event(conn: &mut Conn, run: &LateRun, now: Timestamp, reason: &str) -> Result<NewEvent, StoreError> {
    let group = job::table.find(run.job_id).select(job::group_name).get_result::<Option<String>>(conn).optional()?.flatten();
    let job = (run.job_id, run.job_name.as_str(), group.as_deref());
    Ok(NewEvent::new("late", job, Some(run.identity), now, reason))
}

/// A run that may be late.
#[derive(Debug, Clone, QueryableByName, Queryable)]
pub struct LateRun {
    #[diesel(sql_type = Text)]
    identity: Identity,
    #[diesel(sql_type = Text)]
    job_id: JobId,
    #[diesel(sql_type = Text)]
    job_name: String,
    #[diesel(sql_type = BigInt)]
    planned_at: Timestamp,
}

/// Runs that are late to begin and not yet reported as late.
#[derive(Debug, Clone, Copy)]
pub struct LateRuns {
    /// The current time.
    pub now: Timestamp,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for LateRuns {
    type Output = Vec<LateRun>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        // There are few open runs, and one index contains only them.
        let (hint, after) = (dialect::index(from.conn, " INDEXED BY run_open"), dialect::json_number(from.conn, "rules", "lateAfter"));
        let query = format!(
            "SELECT identity, job_id, job_name, planned_at FROM run{hint} \
             WHERE {IS_OPEN} AND start_time IS NULL AND planned_at IS NOT NULL \
             AND rules LIKE '%\"lateAfter\"%' AND planned_at + {after} <= $1 \
             AND NOT EXISTS (SELECT 1 FROM alert_event WHERE event = 'late' AND run_identity = run.identity) LIMIT $2"
        );
        let query = diesel::sql_query(query).bind::<BigInt, _>(self.now).bind::<BigInt, _>(self.limit as i64);
        Ok(query.load(from.conn)?)
    }
}

/// Records that these runs are late.
#[derive(Debug, Clone)]
pub struct NoteLate {
    /// The runs.
    pub runs: Vec<LateRun>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for NoteLate {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for run in &self.runs {
            let late = self.now.since_ms(run.planned_at);
            let event = late_event(tx.conn, run, self.now, &format!("the run has not begun {late} ms after its scheduled time"))?;
            insert_all(tx.conn, &[event])?;
        }
        Ok(())
    }
}

/// A job without a successful run for too long.
#[derive(Debug, Clone, QueryableByName)]
pub struct SilentJob {
    #[diesel(sql_type = Text)]
    id: JobId,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    group_name: Option<String>,
    #[diesel(sql_type = BigInt)]
    since: Timestamp,
}

/// Jobs without a successful run for too long that are not yet reported. The time counts from the last successful run, or
/// from the job's last change if that is later.
#[derive(Debug, Clone, Copy)]
pub struct SilentJobs {
    /// The current time.
    pub now: Timestamp,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for SilentJobs {
    type Output = Vec<SilentJob>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let (hint, after) =
            (dialect::index(from.conn, " INDEXED BY job_silent"), dialect::json_number(from.conn, "policies", "silentAfter"));
        let has_it = dialect::may_be_silent(from.conn);
        let later = dialect::by_database(from.conn, "max", "greatest");
        let query = format!(
            "SELECT id, name, group_name, since FROM (SELECT job.id, name, group_name, told_silent, \
             {later}(update_time, coalesce(ended_well, 0)) AS since, {after} AS silent_after \
             FROM job{hint} JOIN plan ON plan.job_id = job.id WHERE {has_it} AND is_enabled AND NOT is_deleted) AS watched \
             WHERE since + silent_after <= $1 AND (told_silent IS NULL OR told_silent < since) LIMIT $2"
        );
        let query = diesel::sql_query(query).bind::<BigInt, _>(self.now).bind::<BigInt, _>(self.limit as i64);
        Ok(query.load(from.conn)?)
    }
}

/// Records that these jobs are silent. Leaves out jobs with a successful run since then.
#[derive(Debug, Clone)]
pub struct NoteSilent {
    /// The jobs.
    pub jobs: Vec<SilentJob>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for NoteSilent {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        for silent in &self.jobs {
            let still = plan::ended_well.is_null().or(plan::ended_well.le(silent.since));
            let told = diesel::update(plan::table.find(silent.id).filter(still)).set(plan::told_silent.eq(self.now)).execute(tx.conn)?;
            if told > 0 {
                let job = (silent.id, silent.name.as_str(), silent.group_name.as_deref());
                let (for_ms, since) = (self.now.since_ms(silent.since), silent.since);
                let reason = format!("no run has succeeded for {for_ms} ms, since {since}");
                insert_all(tx.conn, &[NewEvent::new("silent", job, None, self.now, &reason)])?;
            }
        }
        Ok(())
    }
}
