//! Stored records of workers, including the operator's admin state, which a reconnecting worker does not change.

use super::columns::{json, stored};
use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::owners::{release_id, release_unknown_workers};
use super::schema::{worker, worker_record};
use crate::domain::ids::{PeerId, WorkerId};
use crate::domain::time::Timestamp;
use crate::domain::worker::{Known, WorkerOrder, WorkerRecord, WorkerState};
use diesel::prelude::*;

/// Maximum rows per cleanup step.
const ROWS: i64 = 200;

/// A worker begins to watch: stores the data that it sent. Returns the stored record.
#[derive(Debug, Clone)]
pub struct MeetWorker {
    /// The worker.
    pub worker: WorkerId,
    /// Its name, for people.
    pub name: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// The version of its program.
    pub version: Option<String>,
    /// Its capabilities or resources.
    pub tags: Vec<String>,
    /// The handler names that it watches.
    pub class_names: Vec<String>,
    /// Maximum number of concurrent tasks.
    pub slots: Option<u32>,
    /// The role of its token: stored only the first time.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for MeetWorker {
    type Output = WorkerRecord;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<WorkerRecord, StoreError> {
        let said = Known { name: self.name.clone(), group: self.group.clone(), tags: self.tags.clone() };
        let known = known(tx.conn, self.worker)?.after_watch(said);
        let said = (
            worker_record::name.eq(known.name),
            worker_record::group_name.eq(known.group),
            worker_record::version.eq(&self.version),
            worker_record::tags.eq(json(&known.tags)?),
            worker_record::class_names.eq(json(&self.class_names)?),
            worker_record::slots.eq(self.slots.map(|slots| slots as i32)),
            worker_record::last_seen.eq(self.now),
        );
        diesel::insert_into(worker_record::table)
            .values((
                worker_record::id.eq(self.worker),
                said,
                worker_record::state.eq(WorkerState::Enabled),
                worker_record::update_time.eq(self.now),
                worker_record::creation_time.eq(self.now),
                worker_record::create_by.eq(&self.by),
            ))
            .with_conflict_rule(
                "(id) DO UPDATE SET name = excluded.name, group_name = excluded.group_name, version = excluded.version, \
                tags = excluded.tags, class_names = excluded.class_names, slots = excluded.slots, last_seen = excluded.last_seen",
            )
            .execute(tx.conn)?;
        Ok(worker_record::table.find(self.worker).select(WorkerRecord::as_select()).get_result(tx.conn)?)
    }
}

/// Registers a worker before it connects. A known worker gets this name; what it watches does not change.
#[derive(Debug, Clone)]
pub struct EnterWorker {
    /// The worker.
    pub worker: WorkerId,
    /// Its name, for people.
    pub name: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// Its capabilities or resources.
    pub tags: Vec<String>,
    /// Who registers it: stored only the first time.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for EnterWorker {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let said = Known { name: self.name.clone(), group: self.group.clone(), tags: self.tags.clone() };
        let known = known(tx.conn, self.worker)?.after_entry(said);
        let said = (
            worker_record::name.eq(known.name),
            worker_record::group_name.eq(known.group),
            worker_record::tags.eq(json(&known.tags)?),
            worker_record::last_seen.eq(self.now),
        );
        diesel::insert_into(worker_record::table)
            .values((
                worker_record::id.eq(self.worker),
                said,
                worker_record::class_names.eq("[]"),
                worker_record::state.eq(WorkerState::Enabled),
                worker_record::update_time.eq(self.now),
                worker_record::creation_time.eq(self.now),
                worker_record::create_by.eq(&self.by),
            ))
            .with_conflict_rule(
                "(id) DO UPDATE SET name = excluded.name, group_name = excluded.group_name, tags = excluded.tags, \
                last_seen = excluded.last_seen",
            )
            .execute(tx.conn)?;
        Ok(())
    }
}

/// The stored identifying data of a worker.
fn known(conn: &mut Conn, worker: WorkerId) -> Result<Known, StoreError> {
    let row = worker_record::table.find(worker).select((worker_record::name, worker_record::group_name, worker_record::tags));
    let row = row.get_result(conn).optional()?;
    Ok(row.map_or_else(Known::default, |(name, group, tags)| Known { name, group, tags }))
}

/// The workers of a group get another group name. Returns the workers.
pub(super) fn regroup(conn: &mut Conn, old: &str, new: &str) -> Result<Vec<WorkerId>, StoreError> {
    let rows = worker_record::table.filter(worker_record::group_name.is_not_null());
    let rows: Vec<(WorkerId, Option<String>)> = rows.select((worker_record::id, worker_record::group_name)).load(conn)?;
    // Compares like the worker pool.
    let theirs = rows.into_iter().filter(|(_, group)| group.as_ref().is_some_and(|group| group.eq_ignore_ascii_case(old)));
    let mut workers = Vec::new();
    for (worker, _) in theirs {
        diesel::update(worker_record::table.find(worker)).set(worker_record::group_name.eq(new)).execute(conn)?;
        workers.push(worker);
    }
    Ok(workers)
}

/// An operator's order for a worker. [`StoreError::Conflict`] contains `kicked` if it must be allowed first.
#[derive(Debug, Clone)]
pub struct OrderWorker {
    /// The worker.
    pub worker: WorkerId,
    /// The order.
    pub order: WorkerOrder,
    /// The reason.
    pub reason: Option<String>,
    /// Who gave it.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for OrderWorker {
    type Output = WorkerRecord;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<WorkerRecord, StoreError> {
        let row = worker_record::table.find(self.worker);
        let was: WorkerRecord = row.select(WorkerRecord::as_select()).get_result(tx.conn)?;
        let state = was.state.after(self.order).ok_or_else(|| StoreError::Conflict("kicked".into()))?;
        if state == was.state && state.is_open() {
            return Ok(was);
        }
        diesel::update(row)
            .set((
                worker_record::state.eq(state),
                worker_record::reason.eq(self.reason.as_deref().filter(|_| !state.is_open())),
                worker_record::by.eq(&self.by),
                // If two orders come in one millisecond, the later one counts.
                worker_record::update_time.eq(self.now.max(was.update_time.plus_ms(1))),
            ))
            .execute(tx.conn)?;
        Ok(row.select(WorkerRecord::as_select()).get_result(tx.conn)?)
    }
}

/// Deletes a worker and the orders for it, and releases its id. The history of its watches stays.
#[derive(Debug, Clone, Copy)]
pub struct ForgetWorker(pub WorkerId);

impl WriteOp for ForgetWorker {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let gone = diesel::delete(worker_record::table.find(self.0)).execute(tx.conn)?;
        // A worker that never began to watch has no record, but may have its id.
        let is_released = release_id(tx.conn, PeerId::Worker(self.0))?;
        if gone == 0 && !is_released { Err(StoreError::NotFound) } else { Ok(()) }
    }
}

/// The stored record of a worker.
#[derive(Debug, Clone, Copy)]
pub struct GetWorker(pub WorkerId);

impl ReadOp for GetWorker {
    type Output = Option<WorkerRecord>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(worker_record::table.find(self.0).select(WorkerRecord::as_select()).get_result(from.conn).optional()?)
    }
}

/// Workers, ordered by id.
#[derive(Debug, Clone, Default)]
pub struct ListWorkerRecords {
    /// Only those in this state.
    pub state: Option<WorkerState>,
    /// Only those of this group.
    pub group: Option<String>,
    /// Only those that follow this one.
    pub after: Option<WorkerId>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListWorkerRecords {
    type Output = Vec<WorkerRecord>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut query = worker_record::table.select(WorkerRecord::as_select()).order(worker_record::id).into_boxed();
        if let Some(state) = self.state {
            query = query.filter(worker_record::state.eq(state));
        }
        if let Some(group) = &self.group {
            query = query.filter(worker_record::group_name.eq(group));
        }
        if let Some(after) = self.after {
            query = query.filter(worker_record::id.gt(after));
        }
        Ok(query.limit(self.limit as i64).load(from.conn)?)
    }
}

/// Deletes watches that ended before a time, and workers that were not seen since then, unless an operator has given an order for
/// them. Returns the number of rows.
#[derive(Debug, Clone, Copy)]
pub struct PruneWorkers {
    /// The time.
    pub before: Timestamp,
}

impl WriteOp for PruneWorkers {
    type Output = usize;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<usize, StoreError> {
        let ended = worker::table.filter(worker::disconnect_time.is_not_null()).filter(worker::disconnect_time.lt(self.before));
        let ids: Vec<i64> = ended.order(worker::disconnect_time).limit(ROWS).select(worker::id).load(tx.conn)?;
        let mut gone = diesel::delete(worker::table.filter(worker::id.eq_any(ids))).execute(tx.conn)?;
        let here = worker::table.filter(worker::disconnect_time.is_null()).select(worker::connection_id);
        let silent = worker_record::table
            .filter(worker_record::state.eq(WorkerState::Enabled))
            .filter(worker_record::last_seen.lt(self.before))
            .filter(worker_record::id.ne_all(here));
        let ids: Vec<String> = silent.limit(ROWS).select(worker_record::id).load(tx.conn)?;
        gone += diesel::delete(worker_record::table.filter(worker_record::id.eq_any(ids))).execute(tx.conn)?;
        gone += release_unknown_workers(tx.conn, self.before)?;
        Ok(gone)
    }
}

stored! {
    WorkerRecord from worker_record {
        id: WorkerId,
        name: Option<String>,
        version: Option<String>,
        tags: Vec<String>,
        class_names: Vec<String>,
        slots: Option<u32>,
        state: WorkerState,
        reason: Option<String>,
        by: Option<String>,
        update_time: Timestamp,
        creation_time: Timestamp,
        last_seen: Timestamp,
        create_by: Option<String>,
    } {
        group_name: Option<String>,
    }
    group: group_name,
}
