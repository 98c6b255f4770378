//! Runs.

use super::columns::{Hex, block_keys, damaged, from_json, id, queue_settings, settings};
use super::dialect::{self, Conn};
use super::error::StoreError;
use super::failures::Marks;
use super::fires::{self, NewFire, Outcome};
use super::hot::{FinishRow, FollowRow, InsertRow, StartReturnedRow, StateRow};
use super::jobs::job_key;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::results;
use super::schema::{KEY_IS, run};
use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::run::{Counters, Run, RunRules, RunState};
use crate::domain::schedule::Kind;
use crate::domain::settings::{DownloadSettings, QueueSettings};
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

/// A run to create.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub identity: Identity,
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub job_name: String,
    /// The class whose worker runs it.
    pub class_name: String,
    /// Arguments for the worker.
    pub arguments: Option<String>,
    /// Its first state; `failed` if it cannot begin.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// A higher value runs first.
    pub priority: i32,
    /// Settings for the nodes.
    pub download: DownloadSettings,
    /// Settings of its queue.
    pub queue: QueueSettings,
    /// What kind of work it is.
    pub kind: JobKind,
    /// Settings copied from its job.
    pub rules: RunRules,
    /// It waits until this time.
    pub not_before: Option<Timestamp>,
    /// It waits until the other runs of its job are over.
    pub queued: bool,
    /// The effect of its end on its job is not yet applied.
    pub follow: bool,
    /// The run that it retries.
    pub retry_of: Option<Identity>,
    /// W3C trace id.
    pub trace_id: String,
    /// When it is created.
    pub creation_time: Timestamp,
    /// When it ended, if it cannot begin.
    pub finish_time: Option<Timestamp>,
    /// The failures of another run that it begins with. [`StoreError::Conflict`] contains [`Marks::CHANGED`] if they changed meanwhile.
    pub marks: Option<Marks>,
}

impl NewRun {
    fn into_run(self, no: i64, planned_at: Option<Timestamp>) -> Run {
        Run {
            identity: self.identity,
            no,
            job_id: self.job_id,
            job_name: self.job_name,
            class_name: self.class_name,
            arguments: self.arguments,
            state: self.state,
            reason: self.reason,
            priority: self.priority,
            download: self.download,
            queue: self.queue,
            start_returned: false,
            block_times: 0,
            counters: Counters::default(),
            kind: self.kind,
            rules: self.rules,
            attempt: 1,
            not_before: self.not_before,
            queued: self.queued,
            result: None,
            follow: self.follow,
            retry_of: self.retry_of,
            trace_id: Some(self.trace_id),
            planned_at,
            start_time: None,
            creation_time: self.creation_time,
            finish_time: self.finish_time,
            update_by: None,
            worker_id: None,
        }
    }
}

/// Stores a new run that was triggered by hand or externally, and the ledger row of its scheduled time. If the time or the key has a run
/// already, nothing is written and that run is returned; if the time was skipped, [`StoreError::Conflict`] contains `fire`.
#[derive(Debug, Clone)]
pub struct InsertRun {
    /// The run.
    pub run: NewRun,
    /// The version of its job.
    pub version: i64,
    /// The scheduled time, if there is one, and why it was scheduled.
    pub fire: Option<(Timestamp, Kind)>,
    /// The idempotency key: repeated triggers with one key make one run.
    pub key: Option<String>,
}

/// Inserts several runs in one transaction. Each result is its own: the rejection of a run does not affect the others.
#[derive(Debug, Clone)]
pub struct InsertRuns(pub Vec<InsertRun>);

impl WriteOp for InsertRuns {
    type Output = Vec<Result<Inserted, StoreError>>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        let mut done = Vec::with_capacity(self.0.len());
        for insert in &self.0 {
            done.push(match insert.apply(tx) {
                Err(error) if !error.is_refusal() => return Err(error),
                outcome => outcome,
            });
        }
        Ok(done)
    }
}

/// The run that a trigger with this key made.
#[derive(Debug, Clone)]
pub struct RunOfKey {
    /// The job.
    pub job_id: JobId,
    /// The key.
    pub key: String,
}

impl ReadOp for RunOfKey {
    type Output = Option<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Run>, StoreError> {
        let found = run::table.filter(run::job_id.eq(self.job_id.to_string())).filter(sql::<Bool>(KEY_IS).bind::<Text, _>(&self.key));
        found.select(RunRow::as_select()).get_result(from.conn).optional()?.map(TryInto::try_into).transpose()
    }
}

/// The result of [`InsertRun`].
#[derive(Debug, Clone, PartialEq)]
pub struct Inserted {
    /// The run.
    pub run: Run,
    /// It existed before.
    pub already: bool,
}

impl WriteOp for InsertRun {
    type Output = Inserted;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Inserted, StoreError> {
        let new = &self.run;
        if let Some(key) = &self.key {
            let found = run::table.filter(run::job_id.eq(new.job_id.to_string())).filter(sql::<Bool>(KEY_IS).bind::<Text, _>(key));
            if let Some(row) = found.select(RunRow::as_select()).get_result(tx.conn).optional()? {
                return Ok(Inserted { run: row.try_into()?, already: true });
            }
        }
        let planned_at = self.fire.map(|(at, _)| at);
        if let Some((planned_at, kind)) = self.fire {
            match fires::find(tx.conn, new.job_id, planned_at)? {
                Some(Some(identity)) => {
                    let run = by_identity(tx.conn, &identity)?.ok_or_else(|| damaged("run of this fire", &identity))?.try_into()?;
                    return Ok(Inserted { run, already: true });
                }
                Some(None) if kind == Kind::Backfill => {
                    let reason = "made up for by a backfill";
                    fires::make_up(tx.conn, new.job_id, planned_at, new.identity, reason)?;
                }
                Some(None) => return Err(StoreError::Conflict("fire".into())),
                None => {
                    let row = NewFire {
                        planned_at,
                        planned_until: planned_at,
                        instants: 1,
                        kind,
                        outcome: Outcome::Fired(Box::new(new.clone())),
                        rule: if kind == Kind::Backfill { "backfill" } else { "told" },
                        reason: new.reason.clone(),
                    };
                    fires::insert_fire(tx.conn, new.job_id, self.version, &row, new.creation_time)?;
                }
            }
        }
        let run = insert_run(tx, new, planned_at, self.key.as_deref())?;
        if run.queued {
            // The ends of earlier runs must notify the job, to release this one.
            follow_open(tx.conn, &new.job_id.to_string())?;
        }
        Ok(Inserted { run, already: false })
    }
}

/// Updates the state of a run.
#[derive(Debug, Clone)]
pub struct SetRunState {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// Its new state.
    pub state: RunState,
    /// The reason; replaces the old one.
    pub reason: Option<String>,
    /// Its worker; `None` if it has none now.
    pub worker: Option<WorkerId>,
}

impl WriteOp for SetRunState {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let worker = self.worker.map(|worker| Hex::of(worker.0));
        let row = StateRow { no: self.no, epoch: self.epoch, state: self.state.name(), reason: self.reason.as_deref(), worker };
        if row.execute(tx.conn)? == 1 { Ok(()) } else { tx.refuse_epoch(self.no) }
    }
}

/// The worker has pushed its first requests.
#[derive(Debug, Clone, Copy)]
pub struct SetStartReturned {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
}

impl WriteOp for SetStartReturned {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = StartReturnedRow { no: self.no, epoch: self.epoch };
        if row.execute(tx.conn)? == 1 { Ok(()) } else { tx.refuse_epoch(self.no) }
    }
}

/// Stores the download settings of a run.
#[derive(Debug, Clone)]
pub struct SetDownload {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The settings.
    pub download: DownloadSettings,
}

impl WriteOp for SetDownload {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = run::table.filter(run::no.eq(self.no)).filter(run::epoch.eq(self.epoch));
        let changed = diesel::update(row).set(run::download.eq(&*settings(&self.download)?)).execute(tx.conn)?;
        if changed == 1 { Ok(()) } else { tx.refuse_epoch(self.no) }
    }
}

/// Ends a run. Unacknowledged results are given up.
#[derive(Debug, Clone)]
pub struct FinishRun {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// Its final state.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// The counters of its requests.
    pub counters: Counters,
    /// Dispatched blocks.
    pub block_times: i64,
    /// When its first attempt began: for a short run it is stored with its end.
    pub start_time: Option<Timestamp>,
    /// Its worker has reported that its start returned.
    pub start_returned: bool,
    /// Its result as JSON.
    pub result: Option<String>,
    /// Its job must be notified: the end is stored as *not yet applied*.
    pub follow: bool,
    /// Who ended it, if it was stopped.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for FinishRun {
    /// Whether its job must be notified: requested here, when the run was created, or later by a run that waits for its end.
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let row = FinishRow {
            no: self.no,
            epoch: self.epoch,
            state: self.state.name(),
            reason: self.reason.as_deref(),
            success: self.counters.success as i64,
            error: self.counters.error as i64,
            total: self.counters.total as i64,
            block_times: self.block_times,
            start_time: self.start_time.map(|time| time.0),
            start_returned: self.start_returned,
            result: self.result.as_deref(),
            follow: self.follow,
            update_by: self.by.as_deref(),
            finish_time: self.now.0,
        };
        if row.execute(tx.conn)? == 0 {
            return tx.refuse_epoch(self.no);
        }
        // A successful run has no unacknowledged results; for the others check the blocks.
        if self.state != RunState::Success {
            for (segment, packs) in results::unacknowledged(tx.conn, block_keys(self.no))? {
                tx.settlement.release(segment, packs);
            }
        }
        Ok(self.follow || FollowRow::of(tx.conn, self.no)?)
    }
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct GetRun(pub Identity);

impl ReadOp for GetRun {
    type Output = Option<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Run>, StoreError> {
        by_identity(from.conn, Hex::of(self.0.0).text())?.map(TryInto::try_into).transpose()
    }
}

pub(super) fn read_rows(rows: Vec<RunRow>) -> Result<Vec<Run>, StoreError> {
    rows.into_iter().map(TryInto::try_into).collect()
}

fn by_identity(conn: &mut Conn, identity: &str) -> Result<Option<RunRow>, StoreError> {
    Ok(run::table.filter(run::identity.eq(identity)).select(RunRow::as_select()).get_result(conn).optional()?)
}

/// The job of these runs must be notified of their ends.
pub(super) fn follow_open(conn: &mut Conn, job_id: &str) -> Result<(), StoreError> {
    let open = run::table.filter(run::job_id.eq(job_id)).filter(sql::<Bool>(super::run_lists::IS_OPEN));
    diesel::update(open).set(run::follow.eq(true)).execute(conn)?;
    Ok(())
}

/// Stores a run under epoch 1: its creator owns it.
pub(super) fn insert_run(
    tx: &mut Tx<'_>,
    new: &NewRun,
    planned_at: Option<Timestamp>,
    idempotency_key: Option<&str>,
) -> Result<Run, StoreError> {
    new.marks.iter().try_for_each(|marks| marks.apply(tx.conn))?;
    let row = InsertRow {
        identity: Hex::of(new.identity.0),
        job_id: job_key(new.job_id),
        job_name: &new.job_name,
        class_name: &new.class_name,
        arguments: new.arguments.as_deref(),
        state: new.state.name(),
        reason: new.reason.as_deref(),
        priority: new.priority,
        download: &settings(&new.download)?,
        queue: &queue_settings(&new.queue)?,
        epoch: Run::FIRST_EPOCH,
        trace_id: &new.trace_id,
        planned_at: planned_at.map(|time| time.0),
        creation_time: new.creation_time.0,
        finish_time: new.finish_time.map(|time| time.0),
        kind: new.kind.name(),
        rules: &settings(&new.rules)?,
        not_before: new.not_before.map(|time| time.0),
        queued: new.queued,
        follow: new.follow,
        retry_of: new.retry_of.map(|run| Hex::of(run.0)),
        idempotency_key,
    };
    row.execute(tx.conn)?;
    let no = dialect::last_inserted(tx.conn)?;
    Ok(new.clone().into_run(no, planned_at))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = run)]
pub(super) struct RunRow {
    pub(super) no: i64,
    identity: String,
    job_id: String,
    job_name: String,
    class_name: String,
    arguments: Option<String>,
    state: String,
    reason: Option<String>,
    priority: i32,
    download: String,
    queue: String,
    start_returned: bool,
    pub(super) epoch: i64,
    block_times: i64,
    success: i64,
    error: i64,
    total: i64,
    trace_id: Option<String>,
    planned_at: Option<i64>,
    creation_time: i64,
    finish_time: Option<i64>,
    kind: String,
    rules: String,
    attempt: i32,
    not_before: Option<i64>,
    start_time: Option<i64>,
    result: Option<String>,
    follow: bool,
    retry_of: Option<String>,
    update_by: Option<String>,
    worker_id: Option<String>,
    queued: bool,
}

impl TryFrom<RunRow> for Run {
    type Error = StoreError;

    fn try_from(row: RunRow) -> Result<Self, StoreError> {
        let (success, error, total) = (row.success as u64, row.error as u64, row.total as u64);
        Ok(Self {
            identity: id(&row.identity)?,
            no: row.no,
            job_id: id(&row.job_id)?,
            job_name: row.job_name,
            class_name: row.class_name,
            arguments: row.arguments,
            state: RunState::named(&row.state).ok_or_else(|| damaged("state of a run", &row.state))?,
            reason: row.reason,
            priority: row.priority,
            download: from_json(&row.download)?,
            queue: from_json(&row.queue)?,
            start_returned: row.start_returned,
            block_times: row.block_times,
            counters: Counters { left: total.saturating_sub(success + error), success, error, total },
            kind: row.kind.parse().map_err(|_| damaged("kind of run", &row.kind))?,
            rules: from_json(&row.rules)?,
            attempt: row.attempt as u32,
            not_before: row.not_before.map(Timestamp),
            queued: row.queued,
            result: row.result,
            follow: row.follow,
            retry_of: row.retry_of.as_deref().map(id).transpose()?,
            trace_id: row.trace_id,
            planned_at: row.planned_at.map(Timestamp),
            start_time: row.start_time.map(Timestamp),
            creation_time: Timestamp(row.creation_time),
            finish_time: row.finish_time.map(Timestamp),
            update_by: row.update_by,
            worker_id: row.worker_id.as_deref().map(id).transpose()?,
        })
    }
}
