//! The store, the only access to the database.
//!
//! Writes are collected for a single writer that commits them together; a call completes when its write is on disk. Reads have
//! their own connections. Each statement is a named operation: a struct here, in one file for each group of tables. Result packs,
//! which are large and short-lived, are in segment files beside the database.
//!
//! Nothing here makes decisions; see `domain` for that.

pub mod backup;
mod candidate;
mod columns;
pub mod copy;
mod custody;
mod dialect;
mod error;
mod failures;
mod files;
mod gauge;
mod hot;
mod lock;
pub mod migrations;
mod op;
mod persistence;
mod reader;
mod schema;
mod segment_tables;
mod segments;
mod writer;

mod access_tokens;
mod adoption;
mod alerts;
mod attempts;
mod attention;
mod audit;
mod blocks;
mod channels;
mod connections;
mod deliveries;
mod figures;
mod fires;
mod groups;
mod history;
mod hooks;
mod instances;
mod job_activity;
mod job_data;
mod jobs;
mod leader;
mod link_secret;
mod logs;
mod nodes;
mod numbers;
mod owners;
mod ownership;
mod packages;
mod pending;
mod plans;
mod results;
mod retention;
mod run_lists;
mod run_settling;
mod run_sites;
mod runs;
mod series;
mod sites;
mod splits;
mod steering;
mod tasks;
pub mod verify;
mod worker_records;
mod workers;
mod workflow;

// The operations are re-exported flat, so that callers need not know the module of an operation.
pub use access_tokens::*;
pub use adoption::*;
pub use alerts::*;
pub use attempts::*;
pub use attention::*;
pub use audit::*;
pub use blocks::*;
pub use channels::*;
pub use connections::*;
pub use deliveries::*;
pub use failures::*;
pub use figures::*;
pub use fires::*;
pub use groups::*;
pub use history::*;
pub use hooks::*;
pub use instances::*;
pub use job_activity::*;
pub use job_data::*;
pub use jobs::*;
pub use leader::*;
pub use link_secret::*;
pub use logs::*;
pub use nodes::*;
pub use numbers::*;
pub use owners::{ClaimId, OwnedIds, OwnerOf};
pub use ownership::{CountRunsByOwner, FreeRun, GrantOwnership, ListOwnerships, OwnedBlockRuns, OwnedRuns, Ownership, RevokeOwnership};
pub use packages::*;
pub use pending::*;
pub use plans::*;
pub use results::*;
pub use retention::*;
pub use run_lists::*;
pub use run_settling::*;
pub use run_sites::*;
pub use runs::*;
pub use series::*;
pub use sites::*;
pub use splits::*;
pub use steering::*;
pub use tasks::*;
pub use worker_records::*;
pub use workers::*;
pub use workflow::*;

pub use candidate::{Leadership, Look, Seat, Tables};
pub use error::StoreError;
pub use gauge::{BOUNDS_US, StoreStats, TransactionTimes};
use op::Probe;
pub use op::{Barrier, ReadOp, WriteOp};

use crate::domain::database::DatabaseAddress;
use crate::domain::ids::BrokerId;
use crate::domain::leader::{End, Watch};
use crate::domain::time::Timestamp;
use actix::prelude::*;
use gauge::Gauge;
use segment_tables::SegmentTables;
use segments::Segments;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

/// The lease duration of a store that is opened outside a broker.
const ALONE_MS: u64 = 5_000;

/// Appended to the name of a database that is being restored.
const RESTORING: &str = ".restoring";

/// Location and limits of the store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// An SQLite file, with results in the folder `<file>-results` beside it; or a PostgreSQL database.
    pub database: DatabaseAddress,
    /// Maximum number of waiting writes; further ones fail with `StoreError::Busy`.
    pub write_queue: usize,
    /// Number of reader threads.
    pub readers: usize,
    /// Continue even if files show that data was lost.
    pub accept_lost_data: bool,
}

impl StoreConfig {
    /// The default settings for this file.
    #[must_use]
    pub fn new(database: impl Into<DatabaseAddress>) -> Self {
        Self { database: database.into(), write_queue: 10_000, readers: 2, accept_lost_data: false }
    }
}

/// A handle of the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// The writer, if this broker leads or owns runs.
    front: Option<Addr<persistence::Persistence>>,
    /// It writes only the runs that it owns.
    is_owner: bool,
    readers: Addr<reader::Reader>,
    gauge: Arc<Gauge>,
    /// Why this store does not write any more, if so.
    end: watch::Receiver<Option<End>>,
    is_remote: bool,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("store")
    }
}

impl Store {
    /// Opens the store as its only broker, creating it if necessary, and starts its actors. Must be called inside an actix system.
    ///
    /// # Errors
    /// Another broker has it open, it cannot be opened, or its tables cannot be migrated.
    pub fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        Self::open_with(config, |_| ())
    }

    fn open_with(config: &StoreConfig, adjust: impl FnOnce(&mut Segments)) -> Result<Self, StoreError> {
        let me = Member { id: BrokerId::random(), url: String::new(), version: String::new(), started_at: Timestamp::now() };
        let mut seat = Seat::at(config, me, ALONE_MS)?;
        match seat.look(&mut Watch::default(), 0)? {
            Look::Leads(leadership, _) => Self::lead_with(config, leadership, adjust),
            Look::StandsBy(_) => Err(StoreError::Failed(format!("another broker has {} open", config.database))),
        }
    }

    /// Opens the store of the leader. Must be called inside an actix system.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn lead(config: &StoreConfig, leadership: Leadership) -> Result<Self, StoreError> {
        Self::lead_with(config, leadership, |_| ())
    }

    fn lead_with(config: &StoreConfig, mut leadership: Leadership, adjust: impl FnOnce(&mut Segments)) -> Result<Self, StoreError> {
        let address = config.database.absolute()?;
        let mut conn = dialect::writer(&address)?;
        numbers::resume(&mut conn, Timestamp::now())?;
        let mut segments = match &address {
            DatabaseAddress::File(path) => results::open_files(&mut conn, path)?,
            DatabaseAddress::Server(_) => {
                segment_tables::recount(&mut conn, &mut leadership)?;
                Segments::Tables(SegmentTables::of(None))
            }
        };
        drop(conn);
        adjust(&mut segments);
        Ok(Self::with_writer(config, address, segments, writer::Right::Leader(leadership)))
    }

    /// Opens the store of a broker that does not lead and owns runs. It writes what [`WriteOp::BY_OWNER`] allows, beside the leader. A right is
    /// good for one such store. Must be called inside an actix system.
    ///
    /// # Errors
    /// The database is a file, or its path cannot be resolved.
    pub fn own(config: &StoreConfig, ownership: Ownership) -> Result<Self, StoreError> {
        Self::own_with(config, ownership, |_| ())
    }

    fn own_with(config: &StoreConfig, ownership: Ownership, adjust: impl FnOnce(&mut Segments)) -> Result<Self, StoreError> {
        let address = config.database.absolute()?;
        if address.file().is_some() {
            return Err(StoreError::Failed("only at a server may several brokers write".into()));
        }
        let mut segments = Segments::Tables(SegmentTables::of(Some(ownership.broker)));
        adjust(&mut segments);
        Ok(Self::with_writer(config, address, segments, writer::Right::Owner(ownership)))
    }

    fn with_writer(config: &StoreConfig, address: DatabaseAddress, segments: Segments, right: writer::Right) -> Self {
        let is_owner = matches!(right, writer::Right::Owner(_));
        let gauge = Arc::new(Gauge::new(config.write_queue.max(1)));
        let (ended, end) = watch::channel(None);

        let writer = writer::Writer::new(address.clone(), segments, Arc::clone(&gauge), writer::Fence { right, ended });
        // There is one thread, and so one call; but the arbiter requires a factory that could be called again.
        let writer = std::sync::Mutex::new(Some(writer));
        let writer = SyncArbiter::start(1, move || {
            let taken = writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            taken.expect("a writer is never restarted")
        });
        let is_remote = address.file().is_none();
        let front = Some(persistence::Persistence::new(writer, Arc::clone(&gauge), is_remote).start());
        Self { front, is_owner, readers: readers(config, address, &gauge), gauge, end, is_remote }
    }

    /// Opens the store of a standby, read-only. Must be called inside an actix system.
    ///
    /// # Errors
    /// Its path cannot be resolved.
    pub fn stand_by(config: &StoreConfig) -> Result<Self, StoreError> {
        let address = config.database.absolute()?;
        let gauge = Arc::new(Gauge::read_only());
        let is_remote = address.file().is_none();
        Ok(Self { front: None, is_owner: false, readers: readers(config, address, &gauge), gauge, end: watch::channel(None).1, is_remote })
    }

    /// Whether the database is at a server, which can go away and come back.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Completes once this broker must not lead any more, or must not write the runs that it owned, with the reason: this store will not write.
    pub async fn deposed(&self) -> End {
        if let Ok(end) = self.end.clone().wait_for(Option::is_some).await
            && let Some(end) = *end
        {
            return end;
        }
        // The writer ended for another reason.
        std::future::pending().await
    }

    /// Writes something. The operation is in the queue when this returns; the future only waits, and completes with the outcome once it
    /// is on disk. Dropping the future does not cancel the write.
    pub fn write<O: WriteOp>(&self, op: O) -> impl Future<Output = Result<O::Output, StoreError>> + use<O> + 'static {
        let answer = self.enqueue(op);
        async move { answer?.await.unwrap_or_else(|_| Err(StoreError::Unknown("the writer is gone".into()))) }
    }

    /// As [`Store::write`], but never rejected as busy: for consequences of accepted work, of which each run and each job has one at
    /// a time.
    pub fn write_unbounded<O: WriteOp>(&self, op: O) -> impl Future<Output = Result<O::Output, StoreError>> + use<O> + 'static {
        let waiting = self.gauge.write_unbounded(op.weight());
        let answer = self.enter(op, waiting);
        async move { answer?.await.unwrap_or_else(|_| Err(StoreError::Unknown("the writer is gone".into()))) }
    }

    /// Tells whether the server of the database can be reached, as far as is known.
    ///
    /// # Errors
    /// It cannot: calls are rejected until it can.
    pub fn check_reachable(&self) -> Result<(), StoreError> {
        if self.gauge.is_away() { Err(StoreError::Unreachable("waiting for it".into())) } else { Ok(()) }
    }

    fn enqueue<O: WriteOp>(&self, op: O) -> Result<oneshot::Receiver<Result<O::Output, StoreError>>, StoreError> {
        self.check_reachable()?;
        let waiting = self.gauge.enter(op.weight()).ok_or(StoreError::Busy)?;
        self.enter(op, waiting)
    }

    fn enter<O: WriteOp>(&self, op: O, waiting: gauge::Waiting) -> Result<oneshot::Receiver<Result<O::Output, StoreError>>, StoreError> {
        let front = self.front.as_ref().ok_or(StoreError::NotLeading)?;
        if self.is_owner && !O::BY_OWNER {
            return Err(StoreError::Failed(format!("only the leader may write {}", std::any::type_name::<O>())));
        }
        if !front.connected() {
            return Err(StoreError::Closed);
        }
        let (entry, answer) = op::Entry::boxed(op, waiting);
        // The mailbox is unbounded for this message; the gauge limits the queue.
        front.do_send(persistence::Enqueue(entry));
        Ok(answer)
    }

    /// Reads something.
    pub fn read<O: ReadOp>(&self, op: O) -> impl Future<Output = Result<O::Output, StoreError>> + use<O> + 'static {
        let answer = self.readers.send(reader::Read(op));
        async move { answer.await.unwrap_or_else(|_| Err(StoreError::Failed("the readers are gone".into()))) }
    }

    /// Whether the queue is nearly full: reject callers now, before any decision is made for them.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.gauge.is_busy()
    }

    /// Whether a write of this many bytes would be accepted now: check this before a decision that depends on it.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.gauge.has_room(bytes)
    }

    /// Writes a few pages to check whether the disk accepts writes. Reuses a recent result.
    ///
    /// # Errors
    /// Writes fail.
    pub async fn check_disk(&self) -> Result<(), StoreError> {
        self.check_reachable()?;
        if let Some(error) = self.gauge.recent_disk_trouble() {
            return Err(error);
        }
        if self.gauge.was_checked(Timestamp::now()) {
            return Ok(());
        }
        self.write(Probe).await?;
        self.gauge.checked(Timestamp::now());
        Ok(())
    }

    /// Load and health.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.gauge.stats()
    }

    /// Writes everything that waits, then closes the database; later writes fail. Afterwards another store can open it.
    pub async fn close(self) {
        self.gauge.close();
        if let Some(front) = &self.front {
            let (done, closed) = oneshot::channel();
            front.do_send(persistence::Finish(done));
            // An error means that it was closed before.
            let _ = closed.await;
        }
    }
}

/// `<file><suffix>` beside a file.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn readers(config: &StoreConfig, address: DatabaseAddress, gauge: &Arc<Gauge>) -> Addr<reader::Reader> {
    let (folder, gauge) = (beside(address.file().unwrap_or(Path::new("")), "-results"), Arc::clone(gauge));
    SyncArbiter::start(config.readers.max(1), move || reader::Reader::new(address.clone(), folder.clone(), Arc::clone(&gauge)))
}

/// The version of SQLite that is compiled in.
#[must_use]
pub fn sqlite_version() -> std::borrow::Cow<'static, str> {
    String::from_utf8_lossy(libsqlite3_sys::SQLITE_VERSION.to_bytes())
}

#[cfg(test)]
mod tests;
