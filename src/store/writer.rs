//! The one writer: a thread of its own that gets whole batches and commits each once.
//!
//! Nothing that happens to an operation may end this thread, for actix would not start another: panics are caught, the
//! connection is opened anew, and the operations of a spoilt batch are done one by one, so that the guilty one is found
//! and the others are written.

use super::candidate::Leadership;
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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Transactions between two looks at how long the log is.
const BATCHES_BETWEEN_LOOKS: u32 = 64;

/// From [`super::persistence`], at the end: let go of the database.
pub(super) struct Close;

impl Message for Close {
    type Result = ();
}

/// How far a transaction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Beginning,
    Applying,
    Committing,
    Committed,
}

/// What keeps a broker that was deposed from writing.
pub(super) struct Fence {
    pub(super) leadership: Leadership,
    /// Told when it has refused for the first time.
    pub(super) deposed: watch::Sender<bool>,
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
    fence: Fence,
    since_log_was_bounded: u32,
}

impl Writer {
    pub(super) fn new(path: PathBuf, segments: Segments, gauge: Arc<Gauge>, fence: Fence) -> Self {
        let noted_segment = segments.last();
        let (settlement, epochs) = (Settlement::default(), HashMap::new());
        Self { path, conn: None, segments, noted_segment, settlement, epochs, gauge, fence, since_log_was_bounded: 0 }
    }

    fn write(&mut self, slots: &mut [Slot]) {
        match self.transaction(slots, "store.batch", "store.commit") {
            Ok(()) => {}
            Err((e, is_of_one)) if is_of_one && !*self.fence.deposed.borrow() && e.disk_trouble().is_none() => {
                log::warn!("a batch of writes failed, doing them one by one operations={} error={e}", slots.len());
                for slot in slots.iter_mut().filter(|slot| !slot.settled) {
                    if let Err((e, _)) = self.transaction(std::slice::from_mut(slot), "store.one", "store.one.commit") {
                        log::error!("a write failed error={e}");
                        slot.queued.fail(e);
                    }
                }
            }
            Err((e, _)) => {
                if e.disk_trouble().is_some() {
                    self.gauge.disk_refused(&e);
                    self.give_room_back();
                }
                if e != StoreError::NotLeading {
                    log::error!("writes failed operations={} error={e}", slots.len());
                }
                slots.iter_mut().filter(|slot| !slot.settled).for_each(|slot| slot.queued.fail(e.clone()));
            }
        }
    }

    /// The disk is full: the log may be what fills it.
    fn give_room_back(&mut self) {
        let conn = match self.conn.take() {
            Some(conn) => Ok(conn),
            None => dialect::writer(&self.path),
        };
        match conn.and_then(|mut conn| dialect::empty_log(&mut conn).map(|()| conn)) {
            Ok(conn) => self.conn = Some(conn),
            Err(e) => log::debug!("the log of the database could not be moved into it error={e}"),
        }
    }

    /// All or nothing, whatever happens. After an error nothing is written, unless it is [`StoreError::Unknown`]; with it comes
    /// whether one of the operations may be to blame.
    fn transaction(&mut self, slots: &mut [Slot], begin_fault: &str, commit_fault: &str) -> Result<(), (StoreError, bool)> {
        if *self.fence.deposed.borrow() {
            return Err((StoreError::NotLeading, false));
        }
        let stage = Cell::new(Stage::Beginning);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.apply(slots, (begin_fault, commit_fault), &stage)));
        if stage.get() == Stage::Committed {
            // Even if something panicked after it.
            self.segments.settle(&mut self.settlement);
            self.gauge.committed(slots.len());
            self.mind_log();
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
        let is_clean = matches!(stage.get(), Stage::Beginning | Stage::Applying) && !matches!(error, StoreError::Unknown(_));
        let rolled_back = is_clean && self.conn.as_mut().is_some_and(|conn| dialect::rollback(conn).is_ok());
        if !rolled_back {
            // Closing the connection rolls back; a new one sees what is really stored.
            self.conn = None;
        }
        if error == StoreError::NotLeading {
            log::error!("another broker leads: nothing is written here any more term={}", self.fence.leadership.term);
            self.fence.deposed.send_replace(true);
        }
        Err((error, stage.get() != Stage::Beginning))
    }

    /// Bounds the log now and then.
    fn mind_log(&mut self) {
        self.since_log_was_bounded += 1;
        if self.since_log_was_bounded >= BATCHES_BETWEEN_LOOKS
            && let Some(conn) = &mut self.conn
        {
            self.since_log_was_bounded = 0;
            if let Err(e) = dialect::bound_log(conn, &self.path) {
                log::warn!("the log of the database could not be bounded error={e}");
            }
        }
    }

    fn apply(&mut self, slots: &mut [Slot], (begin_fault, commit_fault): (&str, &str), stage: &Cell<Stage>) -> Result<(), StoreError> {
        self.settlement.clear();
        self.epochs.clear();
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(dialect::writer(&self.path)?),
        };
        dialect::begin(conn)?;
        // Under the lock for writing, and before anything is written, into files too: who took over is not disturbed.
        super::leader::check_term(conn, self.fence.leadership.term)?;
        stage.set(Stage::Applying);
        fault::point(begin_fault);
        if fault::fails("store.full") {
            return Err(StoreError::Failed("database or disk is full".into()));
        }
        place_packs(&mut self.segments, &self.gauge, slots);
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

/// Puts packs on disk that are not there yet. They stay there whatever becomes of the transaction.
fn place_packs(segments: &mut Segments, gauge: &Gauge, slots: &mut [Slot]) {
    let is_to_be_placed = |slot: &Slot| slot.place.is_none() && !slot.settled && slot.queued.pack().is_some();
    let packs: Vec<_> = slots.iter().filter(|slot| is_to_be_placed(slot)).filter_map(|slot| slot.queued.pack()).collect();
    if packs.is_empty() {
        return;
    }
    let outcome = segments.append(&packs);
    let with_pack = slots.iter_mut().filter(|slot| is_to_be_placed(slot));
    match outcome {
        Ok(places) => with_pack.zip(places).for_each(|(slot, place)| slot.place = Some(place)),
        Err(e) => {
            gauge.failed(&format!("appending to a segment: {e}"));
            log::error!("results could not be appended to a segment error={e}");
            for slot in with_pack {
                slot.queued.fail(StoreError::Failed(format!("appending to a segment: {e}")));
                slot.settled = true;
            }
        }
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
        self.fence.leadership.lock.release();
    }
}
