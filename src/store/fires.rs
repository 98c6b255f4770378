//! The ledger of fires: one row for each scheduled time of a job, with its outcome. The row decides, not the memory of the
//! scheduler: a time that is triggered twice makes one run.

use super::alerts::{self, NewEvent};
use super::columns::{Hex, damaged, id};
use super::dialect::Conn;
use super::error::StoreError;
use super::hot::InsertFire;
use super::jobs::job_key;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::plans;
use super::runs::{self, NewRun};
use super::schema::{fire, run, run_log};
use crate::domain::ids::{Identity, JobId};
use crate::domain::run::{Run, RunState};
use crate::domain::schedule::{Kind, PlanState};
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A new row of the ledger.
#[derive(Debug, Clone)]
pub struct NewFire {
    /// The scheduled time, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    pub planned_until: Timestamp,
    /// How many fires the row covers.
    pub instants: u64,
    /// Why it was scheduled.
    pub kind: Kind,
    /// The outcome.
    pub outcome: Outcome,
    /// The rule that decided.
    pub rule: &'static str,
    /// The same as a text for people.
    pub reason: Option<String>,
}

/// The outcome of a scheduled time.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It made this run.
    Fired(Box<NewRun>),
    /// It made no run.
    Skipped,
    /// It made no run because it was too late.
    Missed,
    /// It was merged into this run.
    Merged(Option<Identity>),
}

impl Outcome {
    /// Its name.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self {
            Self::Fired(_) => "fired",
            Self::Skipped => "skipped",
            Self::Missed => "missed",
            Self::Merged(_) => "merged",
        }
    }
}

/// Writes a decision: rows, runs and plan in one transaction. Scheduled times that are in the ledger already do not change.
/// [`StoreError::Conflict`] contains `plan` if the plan changed meanwhile.
#[derive(Debug, Clone)]
pub struct WriteFires {
    /// The job.
    pub job_id: JobId,
    /// The version of the job when it was decided.
    pub version: i64,
    /// The rows, in the order of time.
    pub rows: Vec<NewFire>,
    /// The plan state before.
    pub was: PlanState,
    /// The plan state after.
    pub state: PlanState,
    /// The next scheduled time of the job.
    pub next_at: Option<Timestamp>,
    /// The clock went back: rows after this time that made no run are withdrawn, and later changes of the job take effect from this time.
    pub rewind: Option<Timestamp>,
    /// Events that cause alerts.
    pub events: Vec<NewEvent>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for WriteFires {
    /// The new runs, ordered by time.
    type Output = Vec<Run>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<Run>, StoreError> {
        plans::move_plan(tx.conn, self.job_id, &self.was, &self.state, self.next_at)?;
        if let Some(after) = self.rewind {
            let later = fire::table.filter(fire::job_id.eq(job_key(self.job_id).text().to_owned())).filter(fire::planned_at.gt(after.0));
            diesel::delete(later.filter(fire::verdict.ne("fired"))).execute(tx.conn)?;
            super::jobs::set_back(tx.conn, self.job_id, after)?;
        }
        let mut made = Vec::new();
        for row in &self.rows {
            let is_new = insert_fire(tx.conn, self.job_id, self.version, row, self.now)?;
            if let Outcome::Fired(new) = &row.outcome
                && is_new
            {
                made.push(runs::insert_run(tx, new, Some(row.planned_at), None)?);
            }
        }
        if made.iter().any(|run: &Run| run.queued) {
            // The ends of these runs decide which queued run follows.
            runs::follow_open(tx.conn, job_key(self.job_id).text())?;
        }
        alerts::insert_all(tx.conn, &self.events)?;
        Ok(made)
    }
}

/// Withdraws a fire that was decided ahead of its time, with its run, which has not begun. [`StoreError::Conflict`]
/// contains `plan` if the plan changed meanwhile, `begun` if the run has changed.
#[derive(Debug, Clone)]
pub struct WithdrawFire {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub identity: Identity,
    /// Its scheduled time.
    pub planned_at: Timestamp,
    /// The plan state before.
    pub was: PlanState,
    /// The plan state after.
    pub state: PlanState,
    /// The next scheduled time of the job.
    pub next_at: Option<Timestamp>,
}

impl WriteOp for WithdrawFire {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let begun = || StoreError::Conflict("begun".to_owned());
        let at = self.planned_at.0;
        let own = run::table
            .filter(run::identity.eq(self.identity.to_string()))
            .filter(run::planned_at.eq(at))
            .filter(run::not_before.eq(at))
            .filter(run::attempt.eq(1))
            .filter(run::state.eq(RunState::Pending.name()));
        let no: i64 = own.select(run::no).get_result(tx.conn).optional()?.ok_or_else(begun)?;
        let job = job_key(self.job_id);
        let row = fire::table.find((job.text(), at)).filter(fire::run_identity.eq(self.identity.to_string()));
        if !diesel::select(diesel::dsl::exists(row.clone())).get_result::<bool>(tx.conn)? {
            return Err(begun());
        }
        plans::move_plan(tx.conn, self.job_id, &self.was, &self.state, self.next_at)?;
        diesel::delete(row).execute(tx.conn)?;
        diesel::delete(run_log::table.filter(run_log::run_no.eq(no))).execute(tx.conn)?;
        diesel::delete(run::table.find(no)).execute(tx.conn)?;
        Ok(())
    }
}

/// Records an externally triggered time that makes no run; does nothing if the time has a row already.
#[derive(Debug, Clone)]
pub struct RecordSkip {
    /// The job.
    pub job_id: JobId,
    /// Its version.
    pub version: i64,
    /// The scheduled time.
    pub planned_at: Timestamp,
    /// The rule that decided.
    pub rule: &'static str,
    /// The reason.
    pub reason: String,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for RecordSkip {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = NewFire {
            planned_at: self.planned_at,
            planned_until: self.planned_at,
            instants: 1,
            kind: Kind::Outside,
            outcome: Outcome::Skipped,
            rule: self.rule,
            reason: Some(self.reason.clone()),
        };
        insert_fire(tx.conn, self.job_id, self.version, &row, self.now).map(drop)
    }
}

/// The recorded outcome of a scheduled time: nothing, no run, or a run.
#[derive(Debug, Clone, Copy)]
pub struct FireOf {
    /// The job.
    pub job_id: JobId,
    /// The scheduled time.
    pub planned_at: Timestamp,
}

impl ReadOp for FireOf {
    type Output = Option<Option<Identity>>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let found = find(from.conn, self.job_id, self.planned_at)?;
        found.map(|run| run.as_deref().map(id).transpose()).transpose()
    }
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFire {
    /// The scheduled time, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    pub planned_until: Timestamp,
    /// How many fires the row covers.
    pub instants: u64,
    /// Why it was scheduled.
    pub kind: Kind,
    /// fired, skipped, missed, merged.
    pub verdict: String,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The same as a text for people.
    pub reason: Option<String>,
    /// The run.
    pub run: Option<Identity>,
    /// The version of the job when it was decided.
    pub version: i64,
    /// When it was decided.
    pub creation_time: Timestamp,
}

/// Rows of the ledger of a job.
#[derive(Debug, Clone)]
pub struct ListFires {
    /// The job.
    pub job_id: JobId,
    /// Only those at this time or later.
    pub from: Option<Timestamp>,
    /// Only those at this time or earlier.
    pub to: Option<Timestamp>,
    /// Only those with this verdict.
    pub verdict: Option<String>,
    /// Oldest first instead of newest first.
    pub ascending: bool,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListFires {
    type Output = Vec<StoredFire>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut query = fire::table.filter(fire::job_id.eq(self.job_id.to_string())).select(FireRow::as_select()).into_boxed();
        if let Some(from) = self.from {
            query = query.filter(fire::planned_until.ge(from.0));
        }
        if let Some(to) = self.to {
            query = query.filter(fire::planned_at.le(to.0));
        }
        if let Some(verdict) = &self.verdict {
            query = query.filter(fire::verdict.eq(verdict));
        }
        query = if self.ascending { query.order(fire::planned_at.asc()) } else { query.order(fire::planned_at.desc()) };
        query.limit(self.limit as i64).load(from.conn)?.into_iter().map(FireRow::into_fire).collect()
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = fire)]
struct FireRow {
    planned_at: i64,
    kind: String,
    verdict: String,
    rule: Option<String>,
    reason: Option<String>,
    run_identity: Option<String>,
    version: i64,
    planned_until: i64,
    instants: i64,
    creation_time: i64,
}

impl FireRow {
    fn into_fire(self) -> Result<StoredFire, StoreError> {
        Ok(StoredFire {
            planned_at: Timestamp(self.planned_at),
            planned_until: Timestamp(self.planned_until),
            instants: self.instants as u64,
            kind: Kind::named(&self.kind).ok_or_else(|| damaged("kind of fire", &self.kind))?,
            verdict: self.verdict,
            rule: self.rule,
            reason: self.reason,
            run: self.run_identity.as_deref().map(id).transpose()?,
            version: self.version,
            creation_time: Timestamp(self.creation_time),
        })
    }
}

/// The run of a scheduled time: `None` without a row, `Some(None)` if the time made no run.
pub(super) fn find(conn: &mut Conn, job: JobId, planned_at: Timestamp) -> Result<Option<Option<String>>, StoreError> {
    let row = fire::table.find((job_key(job).text(), planned_at.0)).select((fire::verdict, fire::run_identity)).get_result(conn);
    let row: Option<(String, Option<String>)> = row.optional()?;
    Ok(row.map(|(verdict, run)| run.filter(|_| verdict == "fired")))
}

/// Changes the row of a time that made no run: it has a run now.
pub(super) fn make_up(conn: &mut Conn, job: JobId, planned_at: Timestamp, run: Identity, reason: &str) -> Result<(), StoreError> {
    diesel::update(fire::table.find((job_key(job).text(), planned_at.0)))
        .set((fire::verdict.eq("fired"), fire::rule.eq("backfill"), fire::reason.eq(reason), fire::run_identity.eq(run.to_string())))
        .execute(conn)?;
    Ok(())
}

/// Inserts a row; returns whether it is new. An existing row does not change.
pub(super) fn insert_fire(conn: &mut Conn, job: JobId, version: i64, row: &NewFire, now: Timestamp) -> Result<bool, StoreError> {
    let run = match &row.outcome {
        Outcome::Fired(run) => Some(run.identity),
        Outcome::Merged(run) => *run,
        Outcome::Skipped | Outcome::Missed => None,
    };
    let row = InsertFire {
        job_id: job_key(job),
        planned_at: row.planned_at.0,
        kind: row.kind.name(),
        verdict: row.outcome.verdict(),
        rule: row.rule,
        reason: row.reason.as_deref(),
        run_identity: run.map(|run| Hex::of(run.0)),
        version,
        planned_until: row.planned_until.0,
        instants: row.instants as i64,
        creation_time: now.0,
    };
    Ok(row.execute(conn)? == 1)
}
