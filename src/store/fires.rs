//! The ledger of fires: one row for each planned instant of a job, whatever came of it. The row decides, not the memory
//! of whoever plans: told twice, an instant makes one run.

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

/// A row of the ledger as it is written.
#[derive(Debug, Clone)]
pub struct NewFire {
    /// The instant, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    pub planned_until: Timestamp,
    /// How many.
    pub instants: u64,
    /// Why it was planned.
    pub kind: Kind,
    /// What came of it.
    pub outcome: Outcome,
    /// The rule that decided.
    pub rule: &'static str,
    /// The same for people.
    pub reason: Option<String>,
}

/// What comes of a planned instant.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// This run.
    Fired(Box<NewRun>),
    /// None.
    Skipped,
    /// None: it was too late.
    Missed,
    /// It is part of this run.
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

/// Writes a decision: rows, runs and plan, all of them or none. An instant that stands in the ledger already is left
/// alone. [`StoreError::Conflict`] says `plan` if the plan went on meanwhile.
#[derive(Debug, Clone)]
pub struct WriteFires {
    /// The job.
    pub job_id: JobId,
    /// The version of the job that it was decided under.
    pub version: i64,
    /// The rows, in the order of time.
    pub rows: Vec<NewFire>,
    /// How far the plan was.
    pub was: PlanState,
    /// How far it is.
    pub state: PlanState,
    /// When it comes next.
    pub next_at: Option<Timestamp>,
    /// The clock went back: rows after this instant that made no run are taken back, and changes of the job that were made after
    /// it count from it on.
    pub rewind: Option<Timestamp>,
    /// What is worth an alert.
    pub events: Vec<NewEvent>,
    /// Now.
    pub now: Timestamp,
}

impl WriteOp for WriteFires {
    /// The runs that were made, in the order of time.
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
        if made.iter().any(Run::is_queued) {
            // Whose turn it is after them is settled when they are over.
            runs::follow_open(tx.conn, job_key(self.job_id).text())?;
        }
        alerts::insert_all(tx.conn, &self.events)?;
        Ok(made)
    }
}

/// Takes a fire back that was decided ahead of its time, and the run that was made for it, which has not begun: as if neither
/// had been. [`StoreError::Conflict`] says `plan` if the plan went on meanwhile, `begun` if the run is not as it was made.
#[derive(Debug, Clone)]
pub struct WithdrawFire {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub identity: Identity,
    /// Its instant.
    pub planned_at: Timestamp,
    /// How far the plan was.
    pub was: PlanState,
    /// How far it is.
    pub state: PlanState,
    /// When it comes next.
    pub next_at: Option<Timestamp>,
}

impl WriteOp for WithdrawFire {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        plans::move_plan(tx.conn, self.job_id, &self.was, &self.state, self.next_at)?;
        let begun = || StoreError::Conflict("begun".to_owned());
        let at = self.planned_at.0;
        let own = run::table
            .filter(run::identity.eq(self.identity.to_string()))
            .filter(run::planned_at.eq(at))
            .filter(run::not_before.eq(at))
            .filter(run::attempt.eq(1))
            .filter(run::state.eq(RunState::Pending.name()));
        let no: i64 = own.select(run::no).get_result(tx.conn).optional()?.ok_or_else(begun)?;
        diesel::delete(run_log::table.filter(run_log::run_no.eq(no))).execute(tx.conn)?;
        diesel::delete(run::table.find(no)).execute(tx.conn)?;
        let job = job_key(self.job_id);
        let row = fire::table.find((job.text(), at)).filter(fire::run_identity.eq(self.identity.to_string()));
        if diesel::delete(row).execute(tx.conn)? == 1 { Ok(()) } else { Err(begun()) }
    }
}

/// Records an instant that was told from outside and makes no run; nothing happens if something is recorded of it already.
#[derive(Debug, Clone)]
pub struct RecordSkip {
    /// The job.
    pub job_id: JobId,
    /// Its version.
    pub version: i64,
    /// The instant.
    pub planned_at: Timestamp,
    /// The rule that decided.
    pub rule: &'static str,
    /// Why.
    pub reason: String,
    /// Now.
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
        found.map(|run| run.as_deref().map(id).transpose()).transpose()
    }
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFire {
    /// The instant, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    pub planned_until: Timestamp,
    /// How many.
    pub instants: u64,
    /// Why it was planned.
    pub kind: Kind,
    /// fired, skipped, missed, merged.
    pub verdict: String,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The same for people.
    pub reason: Option<String>,
    /// The run.
    pub run: Option<Identity>,
    /// The version of the job that it was decided under.
    pub version: i64,
    /// When.
    pub creation_time: Timestamp,
}

/// Rows of the ledger of a job.
#[derive(Debug, Clone)]
pub struct ListFires {
    /// The job.
    pub job_id: JobId,
    /// Only those of this instant and later.
    pub from: Option<Timestamp>,
    /// Only those of this instant and earlier.
    pub to: Option<Timestamp>,
    /// Only those with this verdict.
    pub verdict: Option<String>,
    /// The oldest first.
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

/// The run of a planned instant: `None` if nothing is recorded of it, `Some(None)` if it made no run.
pub(super) fn find(conn: &mut Conn, job: JobId, planned_at: Timestamp) -> Result<Option<Option<String>>, StoreError> {
    let row = fire::table.find((job_key(job).text(), planned_at.0)).select((fire::verdict, fire::run_identity)).get_result(conn);
    let row: Option<(String, Option<String>)> = row.optional()?;
    Ok(row.map(|(verdict, run)| run.filter(|_| verdict == "fired")))
}

/// Turns an instant that made no run into one that did.
pub(super) fn make_up(conn: &mut Conn, job: JobId, planned_at: Timestamp, run: Identity, reason: &str) -> Result<(), StoreError> {
    diesel::update(fire::table.find((job_key(job).text(), planned_at.0)))
        .set((fire::verdict.eq("fired"), fire::rule.eq("backfill"), fire::reason.eq(reason), fire::run_identity.eq(run.to_string())))
        .execute(conn)?;
    Ok(())
}

/// Writes a row, and says whether it is new: one that stands there stays as it is.
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
