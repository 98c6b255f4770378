//! Runs.

use super::columns::{block_keys, damaged, stored};
use super::dialect::Conn;
use super::error::StoreError;
use super::failures::Marks;
use super::fires::{self, NewFire, Outcome};
use super::hot::{FinishRow, InsertRow, StartReturnedRow, StateRow};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::results;
use super::schema::{KEY_IS, run};
use crate::domain::ids::{BrokerId, Identity, JobId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::run::{Counters, Run, RunRules, RunState};
use crate::domain::schedule::Kind;
use crate::domain::settings::{DownloadSettings, QueueSettings};
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

/// Stores a new run that was triggered by hand or externally, and the ledger row of its scheduled time. If the time or the key has a run
/// already, nothing is written and that run is returned; if the time was skipped, [`StoreError::Conflict`] contains `fire`.
#[derive(Debug, Clone)]
pub struct InsertRun {
    /// The run, from [`Run::new`]: what a run gets later (times, counters, a result, a worker) is not inserted. The store gives it its number and
    /// its scheduled time.
    pub run: Run,
    /// The failures of another run that it begins with. [`StoreError::Conflict`] contains [`Marks::CHANGED`] if they changed meanwhile.
    pub marks: Option<Marks>,
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
        let found = run::table.filter(run::job_id.eq(self.job_id)).filter(sql::<Bool>(KEY_IS).bind::<Text, _>(&self.key));
        Ok(found.select(Run::as_select()).get_result(from.conn).optional()?)
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
            let found = run::table.filter(run::job_id.eq(new.job_id)).filter(sql::<Bool>(KEY_IS).bind::<Text, _>(key));
            if let Some(run) = found.select(Run::as_select()).get_result(tx.conn).optional()? {
                return Ok(Inserted { run, already: true });
            }
        }
        let planned_at = self.fire.map(|(at, _)| at);
        if let Some((planned_at, kind)) = self.fire {
            match fires::find(tx.conn, new.job_id, planned_at)? {
                Some(Some(identity)) => {
                    let run = by_identity(tx.conn, identity)?.ok_or_else(|| damaged("run of this fire", identity))?;
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
        self.marks.iter().try_for_each(|marks| marks.apply(tx.conn))?;
        let run = insert_run(tx, new, planned_at, self.key.as_deref())?;
        if run.queued {
            // The ends of earlier runs must notify the job, to release this one.
            follow_open(tx.conn, new.job_id)?;
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
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if StateRow(self).execute(tx.conn)? == 1 { Ok(()) } else { tx.refuse_epoch(self.no) }
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
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if StartReturnedRow(self).execute(tx.conn)? == 1 { Ok(()) } else { tx.refuse_epoch(self.no) }
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
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = run::table.filter(run::no.eq(self.no)).filter(run::epoch.eq(self.epoch));
        let changed = diesel::update(row).set(run::download.eq(&self.download)).execute(tx.conn)?;
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
    const BY_OWNER: bool = true;

    /// Whether its job must be notified: requested here, when the run was created, or later by a run that waits for its end.
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let Some(follows) = FinishRow::new(self).apply(tx.conn)? else { return tx.refuse_epoch(self.no) };
        // A successful run has no unacknowledged results; for the others check the blocks.
        if self.state != RunState::Success {
            for (segment, packs) in results::unacknowledged(tx.conn, block_keys(self.no))? {
                tx.settlement.release(segment, packs);
            }
        }
        Ok(follows)
    }
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct GetRun(pub Identity);

impl ReadOp for GetRun {
    type Output = Option<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Run>, StoreError> {
        by_identity(from.conn, self.0)
    }
}

fn by_identity(conn: &mut Conn, identity: Identity) -> Result<Option<Run>, StoreError> {
    Ok(run::table.filter(run::identity.eq(identity)).select(Run::as_select()).get_result(conn).optional()?)
}

/// The job of these runs must be notified of their ends.
pub(super) fn follow_open(conn: &mut Conn, job_id: JobId) -> Result<(), StoreError> {
    let open = run::table.filter(run::job_id.eq(job_id)).filter(sql::<Bool>(super::run_lists::IS_OPEN));
    diesel::update(open).set(run::follow.eq(true)).execute(conn)?;
    Ok(())
}

/// Stores a run under epoch 1: its creator owns it. If its owner has no right to write, it has none: the leader executes it.
pub(super) fn insert_run(
    tx: &mut Tx<'_>,
    new: &Run,
    planned_at: Option<Timestamp>,
    idempotency_key: Option<&str>,
) -> Result<Run, StoreError> {
    let run = Run { planned_at, ..new.clone() };
    let (no, owner) = InsertRow { run: &run, idempotency_key }.apply(tx.conn)?;
    Ok(Run { no, owner, ..run })
}

stored! {
    Run from run {
        identity: Identity,
        no: i64,
        job_id: JobId,
        job_name: String,
        class_name: String,
        arguments: Option<String>,
        state: RunState,
        reason: Option<String>,
        priority: i32,
        download: DownloadSettings,
        queue: QueueSettings,
        start_returned: bool,
        block_times: i64,
        kind: JobKind,
        rules: RunRules,
        attempt: u32,
        not_before: Option<Timestamp>,
        queued: bool,
        result: Option<String>,
        follow: bool,
        retry_of: Option<Identity>,
        trace_id: Option<String>,
        planned_at: Option<Timestamp>,
        start_time: Option<Timestamp>,
        creation_time: Timestamp,
        finish_time: Option<Timestamp>,
        update_by: Option<String>,
        worker_id: Option<WorkerId>,
        owner: Option<BrokerId>,
    } {
        success: u64,
        error: u64,
        total: u64,
    }
    counters: Counters { left: total.saturating_sub(success + error), success, error, total },
}
