//! Between the attempts of a run, and after its end.

use super::alerts::{self, NewEvent};
use super::attempts::{self, AttemptRow};
use super::dialect::{self, OnConflict};
use super::error::StoreError;
use super::hot::BeginRow;
use super::logs::{self, NewLine};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::plans;
use super::schema::{job, run, run_next};
use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::run::{Run, RunState};
use crate::domain::schedule::PlanState;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::HashSet;

/// An attempt of a run failed; the next one waits.
#[derive(Debug, Clone)]
pub struct RetryRun {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The next attempt.
    pub attempt: u32,
    /// Its earliest start.
    pub not_before: Timestamp,
    /// Why the last one failed.
    pub reason: String,
    /// When the last one began, if known.
    pub began: Option<Timestamp>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for RetryRun {
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let ended = AttemptRow {
            instance: 0,
            attempt: self.attempt - 1,
            peer: None,
            state: RunState::Failed,
            reason: Some(self.reason.clone()),
            start_time: self.began,
            finish_time: Some(self.now),
        };
        attempts::record_end(tx.conn, self.no, ended)?;
        diesel::update(run::table.find(self.no))
            .set((
                run::state.eq(RunState::Pending),
                run::attempt.eq(self.attempt as i32),
                run::not_before.eq(self.not_before),
                run::reason.eq(&self.reason),
                run::worker_id.eq(None::<String>),
                run::start_returned.eq(false),
                run::update_by.eq(None::<String>),
            ))
            .execute(tx.conn)?;
        // The next attempt clears it in the row.
        let line = NewLine { at: self.now, level: 3, source: "broker".to_owned(), text: self.reason.clone() };
        logs::insert_line(tx.conn, self.no, &line)
    }
}

/// An attempt of a run begins.
#[derive(Debug, Clone, Copy)]
pub struct BeginRun {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// Its new state.
    pub state: RunState,
    /// The worker that runs it.
    pub worker: Option<WorkerId>,
    /// Its second or a later attempt begins: which one, and when.
    pub again: Option<(u32, Timestamp)>,
    /// Its first attempt may be later than its job's limit.
    pub may_be_late: bool,
    /// Now; stored for the first attempt.
    pub now: Timestamp,
}

impl WriteOp for BeginRun {
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if BeginRow(self).execute(tx.conn)? == 0 {
            return tx.refuse_epoch(self.no);
        }
        if let Some((attempt, began)) = self.again {
            let peer = self.worker.map(|worker| worker.0);
            let row =
                AttemptRow { instance: 0, attempt, peer, state: self.state, reason: None, start_time: Some(began), finish_time: None };
            attempts::record(tx.conn, self.no, &row)?;
        }
        if self.may_be_late {
            let names = ((run::identity, run::job_id, run::job_name, run::planned_at.assume_not_null()), run::rules);
            let first = run::table.find(self.no).filter(run::start_time.eq(self.now)).filter(run::planned_at.is_not_null());
            if let Some((late, rules)) = first.select(names).get_result(tx.conn).optional()? {
                alerts::note_begin(tx.conn, &late, &rules, self.now)?;
            }
        }
        Ok(())
    }
}

/// The time that a run requests for the next run of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextAsked {
    /// The requested time.
    pub at: Timestamp,
    /// When it requested that, if it is a pause from then on; `None`: it named a time.
    pub from: Option<Timestamp>,
}

/// The end of a run, and the time that it requests: stored together until its job has applied both.
#[derive(Debug, Clone)]
pub struct WithNext<T> {
    /// The end. With a requested time it must request the notification of its job.
    pub end: T,
    /// The run.
    pub no: i64,
    /// The requested time, if any.
    pub next: Option<NextAsked>,
    /// Its last attempt, if it had more than one.
    pub last: Option<AttemptRow>,
}

impl<T: WriteOp> WriteOp for WithNext<T> {
    const BY_OWNER: bool = T::BY_OWNER;

    type Output = T::Output;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<T::Output, StoreError> {
        let output = self.end.apply(tx)?;
        if let Some(last) = &self.last {
            attempts::record(tx.conn, self.no, last)?;
        }
        if let Some(next) = self.next {
            let row = (run_next::run_no.eq(self.no), run_next::at.eq(next.at), run_next::asked_from.eq(next.from));
            let rule = "(run_no) DO UPDATE SET at = excluded.at, asked_from = excluded.asked_from";
            diesel::insert_into(run_next::table).values(row).with_conflict_rule(rule).execute(tx.conn)?;
        }
        Ok(output)
    }
}

/// The time that a run requested when it ended, if its job has not applied that yet.
#[derive(Debug, Clone, Copy)]
pub struct NextOf(pub i64);

impl ReadOp for NextOf {
    type Output = Option<NextAsked>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let row = run_next::table.find(self.0).select((run_next::at, run_next::asked_from)).get_result(from.conn).optional()?;
        Ok(row.map(|(at, from)| NextAsked { at, from }))
    }
}

/// The effects of a run's end on its job: the plan advances, and a queued run may begin. [`StoreError::Conflict`] contains
/// `plan` if the plan changed meanwhile.
#[derive(Debug, Clone)]
pub struct SettleRun {
    /// The run that ended; `None` to only release a queued run.
    pub ended: Option<Identity>,
    /// The job.
    pub job_id: JobId,
    /// The plan state before.
    pub was: PlanState,
    /// The plan state after.
    pub state: PlanState,
    /// The next scheduled time of the job.
    pub next_at: Option<Timestamp>,
    /// The queued run that may begin.
    pub release: Option<Identity>,
    /// Events that cause alerts.
    pub events: Vec<NewEvent>,
    /// The current time.
    pub now: Timestamp,
    /// Lines for the log of the run that ended.
    pub lines: Vec<NewLine>,
}

impl WriteOp for SettleRun {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        plans::move_plan(tx.conn, self.job_id, &self.was, &self.state, self.next_at)?;
        if let Some(identity) = self.ended {
            let ended = run::table.filter(run::identity.eq(identity));
            let ended = diesel::update(ended).set(run::follow.eq(false)).returning((run::no, run::state, run::finish_time));
            if let Some((no, state, finish)) = ended.get_result::<(i64, RunState, Option<Timestamp>)>(tx.conn).optional()? {
                diesel::delete(run_next::table.find(no)).execute(tx.conn)?;
                if state == RunState::Success {
                    plans::note_good_end(tx.conn, self.job_id, finish.unwrap_or_default())?;
                }
                logs::insert_lines(tx.conn, no, &self.lines)?;
            }
        }
        if let Some(identity) = self.release {
            let row = run::table.filter(run::identity.eq(identity)).filter(run::finish_time.is_null());
            // Not NULL: this distinguishes a run that was queued from one that may have begun already.
            diesel::update(row)
                .set((run::queued.eq(false), run::not_before.eq(self.now), run::reason.eq(None::<String>)))
                .execute(tx.conn)?;
        }
        alerts::insert_all(tx.conn, &self.events)
    }
}

/// An open run of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRun {
    /// Its id.
    pub identity: Identity,
    /// It waits until the other runs of its job are over.
    pub queued: bool,
    /// It waits until this time.
    pub not_before: Option<Timestamp>,
    /// That is its scheduled time: it was created ahead of it.
    pub is_ahead: bool,
}

/// The open runs of a job, the oldest first.
#[derive(Debug, Clone)]
pub struct OpenRunsOf(pub Vec<JobId>);

impl ReadOp for OpenRunsOf {
    type Output = Vec<(JobId, OpenRun)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let is_open = diesel::dsl::sql::<diesel::sql_types::Bool>(super::run_lists::IS_OPEN);
        let rows: Vec<_> = run::table
            .filter(run::job_id.eq_any(&self.0))
            .filter(is_open)
            .order(run::no)
            .select((run::job_id, run::identity, run::queued, run::not_before, run::planned_at, run::attempt))
            .load(from.conn)?;
        let open = rows.into_iter().map(|(job, identity, queued, not_before, planned_at, attempt)| {
            let is_ahead = Run::waits_for_plan(attempt, planned_at, not_before);
            (job, OpenRun { identity, queued, not_before, is_ahead })
        });
        Ok(open.collect())
    }
}

/// Jobs with unapplied changes: runs that ended (each is returned), or queued runs.
#[derive(Debug, Clone, Copy)]
pub struct UnsettledJobs;

impl ReadOp for UnsettledJobs {
    type Output = Vec<(JobId, Option<Identity>)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let flagged = diesel::dsl::sql::<diesel::sql_types::Bool>(dialect::by_database(from.conn, "follow = 1", "follow = TRUE"));
        let ended: Vec<(JobId, Identity)> = run::table
            .filter(flagged)
            .filter(run::finish_time.is_not_null())
            .order(run::no)
            .select((run::job_id, run::identity))
            .load(from.conn)?;
        let is_open = diesel::dsl::sql::<diesel::sql_types::Bool>(super::run_lists::IS_OPEN);
        let waiting: Vec<JobId> = run::table.filter(is_open).filter(run::queued).select(run::job_id).distinct().load(from.conn)?;
        let ended = ended.into_iter().map(|(job, identity)| (job, Some(identity)));
        Ok(ended.chain(waiting.into_iter().map(|job| (job, None))).collect())
    }
}

/// Jobs that should have applied something by now: runs that ended (each is returned), or a queued run without another run before it.
#[derive(Debug, Clone, Copy)]
pub struct OverdueJobs {
    /// Younger entries are ignored.
    pub before: Timestamp,
    /// At most this many of each.
    pub limit: usize,
}

impl ReadOp for OverdueJobs {
    type Output = Vec<(JobId, Option<Identity>)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = Text)]
            job_id: JobId,
            #[diesel(sql_type = Nullable<Text>)]
            identity: Option<Identity>,
        }
        let (before, limit) = (self.before, self.limit as i64);
        let flagged = dialect::by_database(from.conn, "INDEXED BY run_follow WHERE follow = 1", "WHERE follow = TRUE");
        let ended = format!(
            "SELECT job_id, identity FROM run {flagged} AND finish_time <= $1 \
             AND EXISTS (SELECT 1 FROM job WHERE id = job_id) ORDER BY no LIMIT $2"
        );
        let mut rows: Vec<Row> = diesel::sql_query(ended).bind::<BigInt, _>(before).bind::<BigInt, _>(limit).load(from.conn)?;
        // The states exactly as in the index.
        let hint = dialect::index(from.conn, " INDEXED BY run_open");
        let waiting = format!(
            "SELECT DISTINCT job_id, NULL AS identity FROM run AS waiting{hint} \
             WHERE state IN ('pending', 'scheduled', 'running') AND queued AND creation_time <= $1 \
             AND EXISTS (SELECT 1 FROM job WHERE id = job_id) AND NOT EXISTS (SELECT 1 FROM run AS other{hint} \
             WHERE other.job_id = waiting.job_id AND other.state IN ('pending', 'scheduled', 'running') AND NOT other.queued) LIMIT $2"
        );
        let waiting = diesel::sql_query(waiting).bind::<BigInt, _>(before).bind::<BigInt, _>(limit);
        rows.extend(waiting.load::<Row>(from.conn)?);
        Ok(rows.into_iter().map(|row| (row.job_id, row.identity)).collect())
    }
}

/// Runs of any job that failed finally and were not retried by another run, the oldest first. Deleted jobs are left out.
#[derive(Debug, Clone, Default)]
pub struct FindDead {
    /// Only those of this job.
    pub job_id: Option<JobId>,
    /// Only those of jobs that are in this group now.
    pub group: Option<String>,
    /// Only those created at this time or later.
    pub from: Option<Timestamp>,
    /// Only those created at this time or earlier.
    pub to: Option<Timestamp>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for FindDead {
    type Output = Vec<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Run>, StoreError> {
        /// Maximum failed runs per step.
        const LOOKED_AT: i64 = 500;
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let mut query = run::table.filter(run::state.eq(RunState::Failed)).filter(run::no.gt(after)).order(run::no).into_boxed();
            let jobs = job::table.filter(job::is_deleted.eq(false)).select(job::id);
            query = match &self.group {
                Some(group) => query.filter(run::job_id.eq_any(jobs.filter(job::group_name.eq(group)))),
                None => query.filter(run::job_id.eq_any(jobs)),
            };
            if let Some(key) = self.job_id {
                query = query.filter(run::job_id.eq(key));
            }
            if let Some(at) = self.from {
                query = query.filter(run::creation_time.ge(at));
            }
            if let Some(at) = self.to {
                query = query.filter(run::creation_time.le(at));
            }
            let failed: Vec<Run> = query.limit(LOOKED_AT).select(Run::as_select()).load(from.conn)?;
            let is_last = (failed.len() as i64) < LOOKED_AT;
            let Some(last) = failed.last() else { return Ok(found) };
            after = last.no;
            // A run is retried by another run of the same job.
            let jobs: HashSet<JobId> = failed.iter().map(|run| run.job_id).collect();
            let again = run::table.filter(run::job_id.eq_any(jobs)).filter(run::retry_of.is_not_null());
            let repeated: HashSet<Identity> = again.select(run::retry_of.assume_not_null()).load(from.conn)?.into_iter().collect();
            found.extend(failed.into_iter().filter(|run| !repeated.contains(&run.identity)));
            if is_last || found.len() >= self.limit {
                found.truncate(self.limit);
                return Ok(found);
            }
        }
    }
}
