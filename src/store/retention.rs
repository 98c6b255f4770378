//! Retention removes old rows in small steps: each step reads which rows may be deleted without blocking the writer, and then deletes
//! at most a few hundred of them in an operation that shares its transaction with other writes.
//!
//! Every deletion checks the rows again, because they may have changed since they were read.

use super::columns::block_keys;
use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{
    alert_delivery, alert_event, block, block_payload, fire, job, job_history, meta, run, run_instance, run_log, run_next,
};
use crate::domain::schedule::Policies;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum rows per step.
const ROWS: i64 = 200;
/// A step that has taken this long leaves the rest to the next one.
const STEP: Duration = Duration::from_millis(5);
/// Maximum runs and changes per read.
const LOOKED_AT: i64 = 200;
/// Maximum jobs per read whose ledger is searched.
const JOBS: usize = 50;

/// Key in `meta`: the time up to which ledger rows may have been deleted.
const LEDGER_CLEANED_UNTIL: &str = "ledger_cleaned_until";

/// Runs that may be deleted, among the next few hundred.
#[derive(Debug, Clone)]
pub struct OldRuns {
    /// Only runs after this number.
    pub after_no: i64,
    /// Default number of ended runs to keep per job.
    pub keep: u32,
    /// Default milliseconds to keep them.
    pub age_ms: u64,
    /// Limits of jobs that this round has seen before: the newest run to delete by number, and by age.
    pub limits: HashMap<String, RunLimit>,
    /// The current time.
    pub now: Timestamp,
}

/// The retention limits of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimit {
    /// Ended runs up to this number are deleted.
    upto_no: i64,
    /// Runs that ended before this are deleted.
    before: i64,
}

/// The result of [`OldRuns`].
#[derive(Debug, Clone, Default)]
pub struct FoundRuns {
    /// The runs.
    pub nos: Vec<i64>,
    /// Where to continue; `None`: there are no more.
    pub next: Option<i64>,
    /// The limits of each job.
    pub limits: HashMap<String, RunLimit>,
}

impl ReadOp for OldRuns {
    type Output = FoundRuns;

    fn read(&self, from: &mut Source<'_>) -> Result<FoundRuns, StoreError> {
        let rows: Vec<(i64, String, Option<i64>, bool)> = run::table
            .filter(run::no.gt(self.after_no))
            .order(run::no)
            .limit(LOOKED_AT)
            .select((run::no, run::job_id, run::finish_time, run::follow))
            .load(from.conn)?;
        let next = rows.last().map(|row| row.0).filter(|_| rows.len() as i64 == LOOKED_AT);
        let mut found = FoundRuns { nos: Vec::new(), next, limits: self.limits.clone() };
        for (no, job_id, finish, follow) in rows {
            let Some(finish) = finish.filter(|_| !follow) else { continue };
            let limit = match found.limits.get(&job_id) {
                Some(limit) => *limit,
                None => {
                    let limit = self.limit_of(from.conn, &job_id)?;
                    found.limits.insert(job_id, limit);
                    limit
                }
            };
            if no <= limit.upto_no || finish < limit.before {
                found.nos.push(no);
            }
        }
        Ok(found)
    }
}

impl OldRuns {
    fn limit_of(&self, conn: &mut Conn, job_id: &str) -> Result<RunLimit, StoreError> {
        let policies: Option<Option<String>> = job::table.find(job_id).select(job::policies).get_result(conn).optional()?;
        // Everything of a purged job is deleted.
        let Some(policies) = policies else { return Ok(RunLimit { upto_no: i64::MAX, before: i64::MAX }) };
        // Policies that cannot be parsed use the defaults.
        let own = policies.and_then(|text| serde_json::from_str::<Policies>(&text).ok()).unwrap_or_default().keep;
        let before = self.now.plus_ms(-i64::try_from(own.age.unwrap_or(self.age_ms)).unwrap_or(i64::MAX)).0;
        let ended = run::table.filter(run::job_id.eq(job_id)).filter(run::finish_time.is_not_null());
        let first_too_many = ended.order(run::no.desc()).offset(i64::from(own.runs.unwrap_or(self.keep))).limit(1).select(run::no);
        let upto_no = first_too_many.get_result(conn).optional()?.unwrap_or(i64::MIN);
        Ok(RunLimit { upto_no, before })
    }
}

/// Deletes ended runs whose ends were applied, with their blocks, payloads and logs, within the limits of one step.
#[derive(Debug, Clone)]
pub struct DeleteRuns(pub Vec<i64>);

/// The result of a deletion of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeletedRuns {
    /// Number of the given runs that are finished, from the front.
    pub runs: usize,
    /// Bytes of their deleted logs.
    pub log_bytes: u64,
}

impl WriteOp for DeleteRuns {
    type Output = DeletedRuns;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<DeletedRuns, StoreError> {
        let (begin, mut rows, mut done) = (Instant::now(), ROWS, DeletedRuns::default());
        for no in &self.0 {
            if rows <= 0 || begin.elapsed() > STEP {
                break;
            }
            let may_go = run::table.find(no).filter(run::finish_time.is_not_null()).filter(run::follow.eq(false));
            if may_go.select(run::no).get_result::<i64>(tx.conn).optional()?.is_some() {
                let (first, last) = block_keys(*no);
                // Their results were released at the end of the run.
                let keys: Vec<i64> =
                    block::table.filter(block::key.between(first, last)).order(block::key).limit(rows).select(block::key).load(tx.conn)?;
                if let (Some(low), Some(high)) = (keys.first(), keys.last()) {
                    super::failures::forget(tx.conn, (*low, *high))?;
                    diesel::delete(block_payload::table.filter(block_payload::key.between(low, high))).execute(tx.conn)?;
                    diesel::delete(block::table.filter(block::key.between(low, high))).execute(tx.conn)?;
                    rows -= 2 * keys.len() as i64;
                }
                if rows <= 0 {
                    break;
                }
                let (lines, bytes) = delete_lines(tx.conn, Some(*no), rows)?;
                rows -= lines;
                done.log_bytes += bytes;
                if rows <= 0 {
                    break;
                }
                rows -= diesel::delete(run_instance::table.filter(run_instance::run_no.eq(no))).execute(tx.conn)? as i64;
                rows -= super::attempts::forget(tx.conn, *no)? as i64;
                diesel::delete(run_next::table.find(*no)).execute(tx.conn)?;
                diesel::delete(run::table.find(no)).execute(tx.conn)?;
                rows -= 1;
            }
            done.runs += 1;
        }
        Ok(done)
    }
}

/// Deletes the oldest log lines of a run, or of all runs; returns their number and bytes.
fn delete_lines(conn: &mut Conn, run_no: Option<i64>, limit: i64) -> Result<(i64, u64), StoreError> {
    let mut query = run_log::table.order(run_log::id).limit(limit).select((run_log::id, octet_length(run_log::text))).into_boxed();
    if let Some(no) = run_no {
        query = query.filter(run_log::run_no.eq(no));
    }
    let lines: Vec<(i64, i32)> = query.load(conn)?;
    let ids: Vec<i64> = lines.iter().map(|line| line.0).collect();
    diesel::delete(run_log::table.filter(run_log::id.eq_any(ids))).execute(conn)?;
    Ok((lines.len() as i64, lines.iter().map(|line| line.1 as u64).sum()))
}

#[diesel::declare_sql_function]
extern "SQL" {
    /// Length of a text in bytes; does not read the text.
    fn octet_length(text: diesel::sql_types::Text) -> diesel::sql_types::Integer;
}

/// Bytes of the run logs after a line, up to a number of lines.
#[derive(Debug, Clone, Copy)]
pub struct LogBytes {
    /// Only lines after this one.
    pub after: i64,
}

impl ReadOp for LogBytes {
    /// The bytes, where to continue, and whether there may be more.
    type Output = (u64, i64, bool);

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        const LINES: i64 = 2_000;
        let lines: Vec<(i64, i32)> = run_log::table
            .filter(run_log::id.gt(self.after))
            .order(run_log::id)
            .limit(LINES)
            .select((run_log::id, octet_length(run_log::text)))
            .load(from.conn)?;
        let bytes = lines.iter().map(|line| line.1 as u64).sum();
        Ok((bytes, lines.last().map_or(self.after, |line| line.0), lines.len() as i64 == LINES))
    }
}

/// Deletes the oldest lines of all logs. Returns their bytes.
#[derive(Debug, Clone, Copy)]
pub struct DeleteOldestLines;

impl WriteOp for DeleteOldestLines {
    type Output = u64;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<u64, StoreError> {
        delete_lines(tx.conn, None, ROWS).map(|(_, bytes)| bytes)
    }
}

/// Ledger rows that may be deleted: of the next few jobs, at most one step's worth.
#[derive(Debug, Clone)]
pub struct OldFires {
    /// Only jobs after this one.
    pub after_job: String,
    /// Rows that end before this time are deleted.
    pub before: Timestamp,
}

/// The result of [`OldFires`].
#[derive(Debug, Clone, Default)]
pub struct FoundFires {
    /// The rows: job and scheduled time.
    pub rows: Vec<(String, i64)>,
    /// Where to continue; `None`: there are no more. A job with more rows than a step takes is returned again.
    pub next: Option<String>,
}

impl ReadOp for OldFires {
    type Output = FoundFires;

    fn read(&self, from: &mut Source<'_>) -> Result<FoundFires, StoreError> {
        let (mut cursor, mut rows) = (self.after_job.clone(), Vec::new());
        for _ in 0..JOBS {
            let next = fire::table.filter(fire::job_id.gt(&cursor)).order(fire::job_id).limit(1).select(fire::job_id);
            let Some(key) = next.get_result::<String>(from.conn).optional()? else { return Ok(FoundFires { rows, next: None }) };
            let is_there = job::table.find(&key).select(job::id).get_result::<String>(from.conn).optional()?.is_some();
            let before = if is_there { self.before.0 } else { i64::MAX };
            let old = fire::table.filter(fire::job_id.eq(&key)).filter(fire::planned_at.lt(before)).filter(fire::planned_until.lt(before));
            let room = ROWS - rows.len() as i64;
            let found: Vec<i64> = old.order(fire::planned_at).limit(room).select(fire::planned_at).load(from.conn)?;
            let full = found.len() as i64 == room;
            rows.extend(found.into_iter().map(|at| (key.clone(), at)));
            if full {
                return Ok(FoundFires { rows, next: Some(cursor) });
            }
            cursor = key;
        }
        Ok(FoundFires { rows, next: Some(cursor) })
    }
}

/// Deletes ledger rows, and stores until when: the verification of ledger and plan needs it.
#[derive(Debug, Clone)]
pub struct DeleteFires {
    /// The rows.
    pub rows: Vec<(String, i64)>,
    /// Rows that end before this time are deleted.
    pub before: Timestamp,
}

impl WriteOp for DeleteFires {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let until = cleaned_until(tx.conn)?.map_or(self.before, |until| until.max(self.before));
        let value = until.0.to_string();
        diesel::insert_into(meta::table)
            .values((meta::key.eq(LEDGER_CLEANED_UNTIL), meta::value.eq(&value)))
            .with_conflict_rule("(key) DO UPDATE SET value = excluded.value")
            .execute(tx.conn)?;
        for (job, planned_at) in &self.rows {
            diesel::delete(fire::table.find((job, planned_at))).execute(tx.conn)?;
        }
        Ok(())
    }
}

fn cleaned_until(conn: &mut Conn) -> Result<Option<Timestamp>, StoreError> {
    let value: Option<String> = meta::table.find(LEDGER_CLEANED_UNTIL).select(meta::value).get_result(conn).optional()?;
    Ok(value.and_then(|value| value.parse().ok()).map(Timestamp))
}

/// Ledger rows before this time may have been deleted; `None`: no row was.
#[derive(Debug, Clone, Copy)]
#[cfg(test)]
pub struct LedgerCleanedUntil;

#[cfg(test)]
impl ReadOp for LedgerCleanedUntil {
    type Output = Option<Timestamp>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        cleaned_until(from.conn)
    }
}

/// Job changes that may be deleted: those before a time, except the last one before it, which defines the job from then on; and
/// all changes of a purged job.
#[derive(Debug, Clone, Copy)]
pub struct OldChanges {
    /// Only changes after this one.
    pub after: i64,
    /// The time.
    pub before: Timestamp,
}

impl ReadOp for OldChanges {
    /// The changes, and where to continue; `None`: there are no more.
    type Output = (Vec<i64>, Option<i64>);

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows: Vec<(i64, String, i64)> = job_history::table
            .filter(job_history::id.gt(self.after))
            .order(job_history::id)
            .limit(LOOKED_AT)
            .select((job_history::id, job_history::job_id, job_history::at))
            .load(from.conn)?;
        let next = rows.last().map(|row| row.0).filter(|_| rows.len() as i64 == LOOKED_AT);
        let mut old = Vec::new();
        for (id, job_id, at) in rows {
            let is_there = job::table.find(&job_id).select(job::id).get_result::<String>(from.conn).optional()?.is_some();
            let goes = !is_there
                || at < self.before.0 && {
                    let later = job_history::table.filter(job_history::job_id.eq(&job_id)).filter(job_history::id.gt(id));
                    let later = later.filter(job_history::at.lt(self.before)).select(job_history::id).limit(1);
                    later.get_result::<i64>(from.conn).optional()?.is_some()
                };
            if goes {
                old.push(id);
            }
        }
        Ok((old, next))
    }
}

/// Deletes changes of jobs.
#[derive(Debug, Clone)]
pub struct DeleteChanges(pub Vec<i64>);

impl WriteOp for DeleteChanges {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::delete(job_history::table.filter(job_history::id.eq_any(&self.0))).execute(tx.conn)?;
        Ok(())
    }
}

/// The oldest processed events before a time whose messages were delivered or given up.
#[derive(Debug, Clone, Copy)]
pub struct OldEvents {
    /// The time.
    pub before: Timestamp,
}

impl ReadOp for OldEvents {
    type Output = Vec<i64>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = BigInt)]
            id: i64,
        }
        // Events are written almost in the order of time: the oldest are adjacent.
        let query = "SELECT id FROM (SELECT id, at, is_done FROM alert_event ORDER BY id LIMIT 1000) AS event WHERE at < $1 \
            AND is_done AND NOT EXISTS (SELECT 1 FROM alert_delivery WHERE event_id = event.id AND state IN ('waiting', 'sending')) LIMIT $2";
        let query = diesel::sql_query(query).bind::<BigInt, _>(self.before.0).bind::<BigInt, _>(ROWS / 2);
        Ok(query.load::<Row>(from.conn)?.into_iter().map(|row| row.id).collect())
    }
}

/// Deletes events and their deliveries.
#[derive(Debug, Clone)]
pub struct DeleteEvents(pub Vec<i64>);

impl WriteOp for DeleteEvents {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        diesel::delete(alert_delivery::table.filter(alert_delivery::event_id.eq_any(&self.0))).execute(tx.conn)?;
        diesel::delete(alert_event::table.filter(alert_event::id.eq_any(&self.0))).execute(tx.conn)?;
        Ok(())
    }
}
