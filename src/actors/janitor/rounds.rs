//! One round of cleanup.

use crate::actors::packages::Packages;
use crate::config::keep::KeepConfig;
use crate::domain::time::Timestamp;
use crate::store::{
    DeleteAudit, DeleteChanges, DeleteEvents, DeleteFires, DeleteOldestLines, DeleteRuns, LogBytes, OldAudit, OldChanges, OldEvents,
    OldFires, OldRuns, PruneNodeStatus, PruneSites, PruneWorkers, Store, StoreError, WriteOp,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After a step that wrote, the janitor pauses for this multiple of the step's duration, within the two limits below. So other
/// writers have the writer for nine tenths of its time.
const PAUSE_PART: u32 = 10;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a step that only read.
const AFTER_READ: Duration = Duration::from_millis(5);
/// If more operations than this wait in the write queue, the janitor waits. Up to 256 loads of nodes may wait there for others to join.
const QUIET: usize = 256 + 32;
/// How long the janitor waits before it checks the write queue again.
const WHILE_BUSY: Duration = Duration::from_millis(100);

/// How long audited calls are kept, and at most how many.
const AUDIT_MS: i64 = 365 * KeepConfig::DAY_MS as i64;
const MOST_CALLS: i64 = 200_000;

/// What one round deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Gone {
    runs: usize,
    fires: usize,
    changes: usize,
    statuses: usize,
    events: usize,
    workers: usize,
    sites: usize,
    calls: usize,
    log_bytes: u64,
    stray_files: usize,
}

impl Gone {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, fires, changes, statuses, events, workers, sites, calls, log_bytes, stray_files } = self;
        write!(f, "runs={runs} fires={fires} changes={changes} node_statuses={statuses} events={events} workers={workers}")?;
        write!(f, " sites={sites} calls={calls} log_bytes={log_bytes} stray_files={stray_files}")
    }
}

/// The size of all logs, measured up to line `last`. Only the janitor deletes lines.
#[derive(Debug, Default)]
struct Logs {
    bytes: u64,
    last: i64,
}

/// Does the cleanup and keeps its state from round to round.
#[derive(Debug)]
pub(super) struct Broom {
    store: Store,
    keep: KeepConfig,
    logs: Logs,
    packages: Arc<Packages>,
}

impl Broom {
    pub(super) fn new(store: Store, keep: KeepConfig, packages: Arc<Packages>) -> Self {
        Self { store, keep, logs: Logs::default(), packages }
    }

    /// One round over all tables.
    pub(super) async fn sweep(&mut self) -> Result<Gone, StoreError> {
        let now = Timestamp::now();
        let before = now.plus_ms(-i64::try_from(self.keep.age_ms).unwrap_or(i64::MAX));
        let mut gone = Gone::default();
        // Measure first, so that the logs of deleted runs are included.
        self.measure_logs().await?;
        self.sweep_runs(now, &mut gone).await?;
        self.sweep_logs(&mut gone).await?;
        self.sweep_fires(before, &mut gone).await?;
        self.sweep_changes(before, &mut gone).await?;
        self.sweep_events(before, &mut gone).await?;
        self.sweep_statuses(now, &mut gone).await?;
        self.sweep_workers(before, &mut gone).await?;
        self.sweep_sites(now, &mut gone).await?;
        self.sweep_audit(now, &mut gone).await?;
        gone.stray_files = self.packages.remove_strays(&self.store).await?;
        Ok(gone)
    }

    /// Waits until the write queue is short.
    async fn quiet(&self) {
        while self.store.stats().depth > QUIET {
            tokio::time::sleep(WHILE_BUSY).await;
        }
    }

    /// Writes when the write queue is short, then pauses for other writers.
    async fn step<O: WriteOp>(&self, op: O) -> Result<O::Output, StoreError> {
        self.quiet().await;
        let begin = Instant::now();
        let done = self.store.write(op).await;
        tokio::time::sleep((begin.elapsed() * PAUSE_PART).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)).await;
        done
    }

    async fn sweep_runs(&mut self, now: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        let (mut after_no, mut limits) = (0, HashMap::new());
        loop {
            self.quiet().await;
            let look = OldRuns { after_no, keep: self.keep.runs, age_ms: self.keep.age_ms, limits, now };
            let mut found = self.store.read(look).await?;
            while !found.nos.is_empty() {
                let done = self.step(DeleteRuns(found.nos.clone())).await?;
                found.nos.drain(..done.runs);
                gone.runs += done.runs;
                gone.log_bytes += done.log_bytes;
                self.logs.bytes = self.logs.bytes.saturating_sub(done.log_bytes);
            }
            let Some(next) = found.next else { return Ok(()) };
            (after_no, limits) = (next, found.limits);
            tokio::time::sleep(AFTER_READ).await;
        }
    }

    async fn measure_logs(&mut self) -> Result<(), StoreError> {
        loop {
            let (bytes, last, more) = self.store.read(LogBytes { after: self.logs.last }).await?;
            self.logs.bytes += bytes;
            self.logs.last = last;
            if !more {
                return Ok(());
            }
            tokio::time::sleep(AFTER_READ).await;
        }
    }

    async fn sweep_logs(&mut self, gone: &mut Gone) -> Result<(), StoreError> {
        while self.logs.bytes > self.keep.log_bytes {
            let bytes = self.step(DeleteOldestLines).await?;
            if bytes == 0 {
                // The measured lines no longer exist.
                self.logs = Logs::default();
                return Ok(());
            }
            gone.log_bytes += bytes;
            self.logs.bytes = self.logs.bytes.saturating_sub(bytes);
        }
        Ok(())
    }

    async fn sweep_fires(&mut self, before: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        let mut after_job = String::new();
        loop {
            let found = self.store.read(OldFires { after_job, before }).await?;
            if !found.rows.is_empty() {
                gone.fires += found.rows.len();
                self.step(DeleteFires { rows: found.rows, before }).await?;
            }
            let Some(next) = found.next else { return Ok(()) };
            after_job = next;
            tokio::time::sleep(AFTER_READ).await;
        }
    }

    async fn sweep_changes(&mut self, before: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let (old, next) = self.store.read(OldChanges { after, before }).await?;
            if !old.is_empty() {
                gone.changes += old.len();
                self.step(DeleteChanges(old)).await?;
            }
            let Some(next) = next else { return Ok(()) };
            after = next;
            tokio::time::sleep(AFTER_READ).await;
        }
    }

    async fn sweep_events(&mut self, before: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        loop {
            let old = self.store.read(OldEvents { before }).await?;
            if old.is_empty() {
                return Ok(());
            }
            gone.events += old.len();
            self.step(DeleteEvents(old)).await?;
        }
    }

    async fn sweep_statuses(&mut self, now: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        let before = now.plus_ms(-i64::try_from(self.keep.node_status_ms).unwrap_or(i64::MAX));
        loop {
            let statuses = self.step(PruneNodeStatus { before }).await?;
            gone.statuses += statuses;
            if statuses == 0 {
                return Ok(());
            }
        }
    }

    async fn sweep_sites(&mut self, now: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        loop {
            let sites = self.step(PruneSites { now }).await?;
            gone.sites += sites;
            if sites == 0 {
                return Ok(());
            }
        }
    }

    async fn sweep_audit(&mut self, now: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        loop {
            let old = self.store.read(OldAudit { before: now.plus_ms(-AUDIT_MS).0, most: MOST_CALLS }).await?;
            if old.is_empty() {
                return Ok(());
            }
            gone.calls += old.len();
            self.step(DeleteAudit(old)).await?;
        }
    }

    async fn sweep_workers(&mut self, before: Timestamp, gone: &mut Gone) -> Result<(), StoreError> {
        loop {
            let workers = self.step(PruneWorkers { before }).await?;
            gone.workers += workers;
            if workers == 0 {
                return Ok(());
            }
        }
    }
}
