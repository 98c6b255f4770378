//! The ledger of fires: one row for each scheduled time of a job, with its outcome. The row decides, not the memory of the
//! scheduler: a time that is triggered twice makes one run.

use super::alerts::{self, NewEvent};
use super::dialect::Conn;
use super::error::StoreError;
use super::hot::{FireRun, Fired, InsertFire, InsertRow, MovePlanRow};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::plans;
use super::runs;
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
    Fired(Box<Run>),
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
        let made = self.write_rows(tx)?;
        if made.iter().any(|run: &Run| run.queued) {
            // The ends of these runs decide which queued run follows.
            runs::follow_open(tx.conn, self.job_id)?;
        }
        alerts::insert_all(tx.conn, &self.events)?;
        Ok(made)
    }
}

impl WriteFires {
    /// Writes plan, rows and runs; returns the new runs.
    fn write_rows(&self, tx: &mut Tx<'_>) -> Result<Vec<Run>, StoreError> {
        if let (Conn::Postgres(_), [row], None) = (&mut *tx.conn, self.rows.as_slice(), self.rewind)
            && let Outcome::Fired(new) = &row.outcome
        {
            return self.write_run(tx.conn, row, new);
        }
        plans::move_plan(tx.conn, self.job_id, &self.was, &self.state, self.next_at)?;
        if let Some(after) = self.rewind {
            let later = fire::table.filter(fire::job_id.eq(self.job_id)).filter(fire::planned_at.gt(after));
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
        Ok(made)
    }

    /// Almost all decisions make one run. With PostgreSQL one statement writes all of it: each statement is a message and an answer.
    fn write_run(&self, conn: &mut Conn, row: &NewFire, new: &Run) -> Result<Vec<Run>, StoreError> {
        let run = Run { planned_at: Some(row.planned_at), ..new.clone() };
        let statement = FireRun {
            plan: MovePlanRow::new(self.job_id, &self.was, &self.state, self.next_at),
            fire: new_row(self.job_id, self.version, row, self.now),
            run: InsertRow { run: &run, idempotency_key: None },
        };
        let fired: Fired = statement.get_result(conn)?;
        if !fired.is_moved {
            return Err(plans::refusal(conn, self.job_id)?);
        }
        Ok(fired.no.map(|no| Run { no, owner: fired.owner, ..run }).into_iter().collect())
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
        let at = self.planned_at;
        let own = run::table
            .filter(run::identity.eq(self.identity))
            .filter(run::planned_at.eq(at))
            .filter(run::not_before.eq(at))
            .filter(run::attempt.eq(1))
            .filter(run::state.eq(RunState::Pending));
        let no: i64 = own.select(run::no).get_result(tx.conn).optional()?.ok_or_else(begun)?;
        let row = fire::table.find((self.job_id, at)).filter(fire::run_identity.eq(self.identity));
        if !diesel::select(diesel::dsl::exists(row)).get_result::<bool>(tx.conn)? {
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
        find(from.conn, self.job_id, self.planned_at)
    }
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = fire)]
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
    #[diesel(column_name = run_identity)]
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
        let mut query = fire::table.filter(fire::job_id.eq(self.job_id)).select(StoredFire::as_select()).into_boxed();
        if let Some(from) = self.from {
            query = query.filter(fire::planned_until.ge(from));
        }
        if let Some(to) = self.to {
            query = query.filter(fire::planned_at.le(to));
        }
        if let Some(verdict) = &self.verdict {
            query = query.filter(fire::verdict.eq(verdict));
        }
        query = if self.ascending { query.order(fire::planned_at.asc()) } else { query.order(fire::planned_at.desc()) };
        Ok(query.limit(self.limit as i64).load(from.conn)?)
    }
}

/// The run of a scheduled time: `None` without a row, `Some(None)` if the time made no run.
pub(super) fn find(conn: &mut Conn, job: JobId, planned_at: Timestamp) -> Result<Option<Option<Identity>>, StoreError> {
    let row = fire::table.find((job, planned_at)).select((fire::verdict, fire::run_identity)).get_result(conn);
    let row: Option<(String, Option<Identity>)> = row.optional()?;
    Ok(row.map(|(verdict, run)| run.filter(|_| verdict == "fired")))
}

/// Changes the row of a time that made no run: it has a run of a backfill now, which does not count towards the limit of the plan.
pub(super) fn make_up(conn: &mut Conn, job: JobId, planned_at: Timestamp, run: Identity, reason: &str) -> Result<(), StoreError> {
    diesel::update(fire::table.find((job, planned_at)))
        .set((
            fire::kind.eq(Kind::Backfill),
            fire::verdict.eq("fired"),
            fire::rule.eq("backfill"),
            fire::reason.eq(reason),
            fire::run_identity.eq(run),
        ))
        .execute(conn)?;
    Ok(())
}

/// Inserts a row; returns whether it is new. An existing row does not change.
pub(super) fn insert_fire(conn: &mut Conn, job: JobId, version: i64, row: &NewFire, now: Timestamp) -> Result<bool, StoreError> {
    Ok(new_row(job, version, row, now).execute(conn)? == 1)
}

fn new_row(job_id: JobId, version: i64, row: &NewFire, now: Timestamp) -> InsertFire<'_> {
    let run = match &row.outcome {
        Outcome::Fired(run) => Some(run.identity),
        Outcome::Merged(run) => *run,
        Outcome::Skipped | Outcome::Missed => None,
    };
    InsertFire { job_id, row, run, instants: row.instants as i64, version, now }
}
