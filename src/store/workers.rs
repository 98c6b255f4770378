//! Workers: which class each one watched, and when. Rows stay; an ended watch has its end time.

use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{worker, worker_record};
use crate::domain::ids::WorkerId;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A worker watches exactly these classes from now on.
#[derive(Debug, Clone)]
pub struct WatchClasses {
    /// The worker.
    pub worker: WorkerId,
    /// All the classes.
    pub class_names: Vec<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for WatchClasses {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let open = worker::table.filter(worker::connection_id.eq(self.worker)).filter(worker::disconnect_time.is_null());
        let mut watched: Vec<String> = open.select(worker::full_class_name).load(tx.conn)?;
        for gone in watched.iter().filter(|name| !self.class_names.contains(name)) {
            diesel::update(open.filter(worker::full_class_name.eq(gone))).set(worker::disconnect_time.eq(self.now)).execute(tx.conn)?;
        }
        for name in &self.class_names {
            if watched.contains(name) {
                continue;
            }
            diesel::insert_into(worker::table)
                .values((worker::full_class_name.eq(name), worker::connection_id.eq(self.worker), worker::connect_time.eq(self.now)))
                .execute(tx.conn)?;
            watched.push(name.clone());
        }
        Ok(())
    }
}

/// A worker is gone, so all its watches end.
#[derive(Debug, Clone, Copy)]
pub struct WorkerGone {
    /// The worker.
    pub worker: WorkerId,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for WorkerGone {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let open = worker::table.filter(worker::connection_id.eq(self.worker)).filter(worker::disconnect_time.is_null());
        diesel::update(open).set(worker::disconnect_time.eq(self.now)).execute(tx.conn)?;
        let record = worker_record::table.find(self.worker);
        diesel::update(record).set(worker_record::last_seen.eq(self.now)).execute(tx.conn)?;
        Ok(())
    }
}

/// When a broker starts, no worker is connected, and no node: all open watches and connections end now.
#[derive(Debug, Clone, Copy)]
pub struct CloseWorkers {
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for CloseWorkers {
    /// The names that were watched.
    type Output = Vec<String>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<String>, StoreError> {
        let open = worker::table.filter(worker::disconnect_time.is_null());
        let names = open.select(worker::full_class_name).distinct().load(tx.conn)?;
        diesel::update(open).set(worker::disconnect_time.eq(self.now)).execute(tx.conn)?;
        super::connections::close_all(tx.conn, self.now)?;
        Ok(names)
    }
}

/// Watches, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct ListWorkers {
    /// Only those of this worker.
    pub worker: Option<WorkerId>,
    /// At most this many.
    pub limit: usize,
}

/// A worker's watch of one class.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct WorkerRow {
    /// Sequence number of the watch.
    pub id: i64,
    /// The class.
    pub full_class_name: String,
    /// The worker.
    pub connection_id: WorkerId,
    /// Start of the watch.
    pub connect_time: Timestamp,
    /// End of the watch; `None` if it is open.
    pub disconnect_time: Option<Timestamp>,
}

/// The classes that are watched now, by name.
#[derive(Debug, Clone, Copy)]
pub struct WatchedClasses;

impl ReadOp for WatchedClasses {
    type Output = Vec<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<String>, StoreError> {
        let open = worker::table.filter(worker::disconnect_time.is_null());
        Ok(open.select(worker::full_class_name).distinct().order(worker::full_class_name).load(from.conn)?)
    }
}

impl ReadOp for ListWorkers {
    type Output = Vec<WorkerRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<WorkerRow>, StoreError> {
        let mut watches = worker::table.into_boxed();
        if let Some(worker) = self.worker {
            watches = watches.filter(worker::connection_id.eq(worker));
        }
        Ok(watches.order(worker::id.desc()).limit(self.limit as i64).load(from.conn)?)
    }
}
