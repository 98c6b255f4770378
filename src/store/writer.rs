//! The one writer: a thread of its own that gets whole batches and commits each once.
//!
//! Nothing that happens to an operation may end this thread, for actix would not start another: panics are caught, the
//! connection is opened anew, and the operations of a spoilt batch are done one by one, so that the guilty one is found
//! and the others are written.

use super::dialect::{Conn, current as dialect};
use super::error::StoreError;
use super::gauge::Gauge;
use super::op::Tx;
use super::persistence::{Batch, Slot};
use super::segments::{Segments, Settlement};
use crate::fault;
use actix::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// From [`super::persistence`], at the end: let go of the database.
pub(super) struct Close;

impl Message for Close {
    type Result = ();
}

/// How far a transaction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Applying,
    Committing,
    Committed,
}

pub(super) struct Writer {
    path: PathBuf,
    conn: Option<Conn>,
    segments: Segments,
    /// The highest segment that the database knows of.
    noted_segment: i32,
    settlement: Settlement,
    epochs: HashMap<i64, i64>,
    gauge: Arc<Gauge>,
    /// Locked for as long as this may write.
    lock: File,
}

impl Writer {
    pub(super) fn new(path: PathBuf, segments: Segments, gauge: Arc<Gauge>, lock: File) -> Self {
        let noted_segment = segments.last();
        Self { path, conn: None, segments, noted_segment, settlement: Settlement::default(), epochs: HashMap::new(), gauge, lock }
    }

    fn write(&mut self, slots: &mut [Slot]) {
        self.place_packs(slots);
        let Err(e) = self.transaction(slots, "store.batch", "store.commit") else { return };
        log::warn!("a batch of writes failed, doing them one by one operations={} error={e}", slots.len());
        for slot in slots.iter_mut().filter(|slot| !slot.settled) {
            if let Err(e) = self.transaction(std::slice::from_mut(slot), "store.one", "store.one.commit") {
                log::error!("a write failed error={e}");
                slot.queued.fail(e);
            }
        }
    }

    /// Puts the packs of a batch on disk. They stay there whatever becomes of the transaction.
    fn place_packs(&mut self, slots: &mut [Slot]) {
        let packs: Vec<_> = slots.iter().filter_map(|slot| slot.queued.pack()).collect();
        if packs.is_empty() {
            return;
        }
        let outcome = self.segments.append(&packs);
        let with_pack = slots.iter_mut().filter(|slot| slot.queued.pack().is_some());
        match outcome {
            Ok(places) => with_pack.zip(places).for_each(|(slot, place)| slot.place = Some(place)),
            Err(e) => {
                self.gauge.failed(&format!("appending to a segment: {e}"));
                log::error!("results could not be appended to a segment error={e}");
                for slot in with_pack {
                    slot.queued.fail(StoreError::Failed(format!("appending to a segment: {e}")));
                    slot.settled = true;
                }
            }
        }
    }

    /// All or nothing, whatever happens. After an error nothing is written, unless it is [`StoreError::Unknown`].
    fn transaction(&mut self, slots: &mut [Slot], begin_fault: &str, commit_fault: &str) -> Result<(), StoreError> {
        let stage = Cell::new(Stage::Applying);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            fault::point(begin_fault);
            self.apply(slots, commit_fault, &stage)
        }));
        if stage.get() == Stage::Committed {
            // Even if something panicked after it.
            self.segments.settle(&mut self.settlement);
            self.gauge.committed(slots.len());
            if outcome.is_err() {
                self.gauge.panicked();
                self.conn = None;
            }
            return Ok(());
        }
        let error = match outcome {
            Ok(Ok(())) => StoreError::Unknown("no commit and no error".into()),
            Ok(Err(e)) => e,
            Err(panic) => {
                self.gauge.panicked();
                StoreError::Unknown(format!("a panic: {}", panic_text(&*panic)))
            }
        };
        self.gauge.failed(&error.to_string());
        let is_clean = stage.get() == Stage::Applying && !matches!(error, StoreError::Unknown(_));
        let rolled_back = is_clean && self.conn.as_mut().is_some_and(|conn| dialect::rollback(conn).is_ok());
        if !rolled_back {
            // Closing the connection rolls back; a new one sees what is really stored.
            self.conn = None;
        }
        Err(error)
    }

    fn apply(&mut self, slots: &mut [Slot], commit_fault: &str, stage: &Cell<Stage>) -> Result<(), StoreError> {
        self.settlement.clear();
        self.epochs.clear();
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(dialect::writer(&self.path)?),
        };
        dialect::begin(conn)?;
        if self.noted_segment != self.segments.last() {
            // A number is never used twice, even if its file is deleted and the broker started anew.
            super::results::note_last_segment(conn, self.segments.last())?;
        }
        for slot in slots.iter_mut().filter(|slot| !slot.settled) {
            let mut tx = Tx { conn, place: slot.place, settlement: &mut self.settlement, epochs: &mut self.epochs };
            slot.queued.run(&mut tx)?;
        }
        stage.set(Stage::Committing);
        if fault::fails(commit_fault) {
            return Err(StoreError::Unknown("a planned fault".into()));
        }
        dialect::commit(conn)?;
        stage.set(Stage::Committed);
        self.noted_segment = self.segments.last();
        fault::point("store.committed");
        Ok(())
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}

impl Actor for Writer {
    type Context = SyncContext<Self>;
}

impl Handler<Batch> for Writer {
    type Result = MessageResult<Batch>;
    fn handle(&mut self, Batch(mut slots): Batch, _: &mut SyncContext<Self>) -> Self::Result {
        self.write(&mut slots);
        MessageResult(Batch(slots))
    }
}

impl Handler<Close> for Writer {
    type Result = ();
    fn handle(&mut self, _: Close, _: &mut SyncContext<Self>) {
        if let Some(mut conn) = self.conn.take()
            && let Err(e) = dialect::settle(&mut conn)
        {
            log::warn!("the log of the database was not moved into it at the end error={e}");
        }
        if let Err(e) = self.lock.unlock() {
            log::warn!("the database was not unlocked error={e}");
        }
    }
}
