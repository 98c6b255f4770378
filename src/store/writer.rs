//! The single writer: a thread that receives whole batches and commits each of them once.
//!
//! No failure of an operation may end this thread, because actix would not start another: panics are caught, the connection is
//! reopened, and the operations of a failed batch are repeated one by one, so that only the faulty one fails.

use super::candidate::Leadership;
use super::dialect::{self, Conn};
use super::error::StoreError;
use super::gauge::Gauge;
use super::op::Tx;
use super::ownership::Ownership;
use super::persistence::{Batch, Slot};
use super::segments::{Segments, Settlement};
use crate::domain::database::DatabaseAddress;
use crate::domain::ids::BrokerId;
use crate::domain::leader::{End, Turn};
use crate::fault;
use actix::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Between two attempts to reach the server of the database.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a write waits for the server, unless it follows from accepted work.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a store that is being closed tries to find out what became of a commit.
const LAST_TRIES: Duration = Duration::from_secs(10);
/// How often a transaction is repeated at once.
const REPETITIONS: usize = 5;
/// Number of transactions between two checks of the log length.
const BATCHES_BETWEEN_LOOKS: u32 = 64;

/// From [`super::persistence`], at shutdown: close the database.
pub(super) struct Close;

impl Message for Close {
    type Result = ();
}

/// Progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Beginning,
    Applying,
    Committing,
    Committed,
}

/// Why this broker may write.
pub(super) enum Right {
    Leader(Leadership),
    Owner(Ownership),
}

impl Right {
    /// Whose row each transaction begins with, if not the leader's.
    fn owner(&self) -> Option<BrokerId> {
        match self {
            Self::Leader(_) => None,
            Self::Owner(ownership) => Some(ownership.broker),
        }
    }

    /// The last turn that is stored.
    fn turn(&self) -> Turn {
        match self {
            Self::Leader(leadership) => leadership.turn,
            Self::Owner(ownership) => ownership.turn(),
        }
    }
}

/// Prevents a broker from writing that was deposed, or whose runs were taken away.
pub(super) struct Fence {
    pub(super) right: Right,
    /// Set when this broker must not write any more, with the reason.
    pub(super) ended: watch::Sender<Option<End>>,
}

/// What a lookup has found about a commit without an answer.
enum Found {
    Stored,
    NotStored,
}

pub(super) struct Writer {
    address: DatabaseAddress,
    conn: Option<Conn>,
    segments: Segments,
    /// The highest segment number in the database, if this writer counts it.
    noted_segment: Option<i32>,
    settlement: Settlement,
    epochs: HashMap<i64, i64>,
    gauge: Arc<Gauge>,
    fence: Fence,
    since_log_was_bounded: u32,
    /// The last turn that is stored.
    stored: Turn,
    /// That of the transaction in progress.
    turn: Turn,
    /// The last commit had no answer, and certainly did not take place.
    must_repeat: bool,
}

impl Writer {
    pub(super) fn new(address: DatabaseAddress, segments: Segments, gauge: Arc<Gauge>, fence: Fence) -> Self {
        let noted_segment = segments.last();
        let (settlement, epochs, turn) = (Settlement::default(), HashMap::new(), fence.right.turn());
        Self {
            address,
            conn: None,
            segments,
            noted_segment,
            settlement,
            epochs,
            gauge,
            fence,
            since_log_was_bounded: 0,
            stored: turn,
            turn,
            must_repeat: false,
        }
    }

    fn write(&mut self, slots: &mut Vec<Slot>) {
        match self.persist(slots, "store.batch", "store.commit") {
            // Results were not appended: the disk may be full.
            Ok(()) if slots.iter().any(|slot| slot.settled) => self.give_room_back(),
            Ok(()) => {}
            Err((e, is_of_one)) if is_of_one && self.fence.ended.borrow().is_none() && e.disk_trouble().is_none() => {
                log::warn!("batch of writes failed, repeating them one by one operations={} error={e}", slots.len());
                for slot in std::mem::take(slots) {
                    let mut one = vec![slot];
                    if one.iter().any(|slot| !slot.settled)
                        && let Err((e, _)) = self.persist(&mut one, "store.one", "store.one.commit")
                    {
                        log::error!("write failed error={e}");
                        one.iter_mut().for_each(|slot| slot.queued.fail(e.clone()));
                    }
                    slots.append(&mut one);
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

    /// A transaction, as soon as the server of the database can be reached. Meanwhile what does not follow from accepted work is answered.
    fn persist(&mut self, slots: &mut Vec<Slot>, begin_fault: &str, commit_fault: &str) -> Result<(), (StoreError, bool)> {
        let mut outcome = self.attempt(slots, begin_fault, commit_fault);
        // The server of the database restarts, or another takes its place. What follows from accepted work waits for it.
        let begin = Instant::now();
        while let Err((StoreError::Unreachable(why), _)) = &outcome
            && !self.gauge.is_closing()
        {
            if !self.gauge.is_away() {
                log::error!("database cannot be reached, waiting for it operations={} error={why}", slots.len());
            }
            self.gauge.set_away(true);
            if begin.elapsed() > PATIENCE {
                for mut slot in slots.extract_if(.., |slot| !slot.queued.is_patient()) {
                    slot.queued.fail(StoreError::Unreachable(why.clone()));
                    slot.queued.answer();
                }
            }
            std::thread::sleep(PAUSE);
            outcome = self.attempt(slots, begin_fault, commit_fault);
        }
        if self.gauge.is_away() && !matches!(outcome, Err((StoreError::Unreachable(_), _))) {
            self.gauge.set_away(false);
            log::info!("database can be reached again");
        }
        outcome
    }

    /// A transaction, repeated if it certainly did not take place for a reason that is over.
    fn attempt(&mut self, slots: &mut [Slot], begin_fault: &str, commit_fault: &str) -> Result<(), (StoreError, bool)> {
        let mut outcome = self.transaction(slots, begin_fault, commit_fault);
        for _ in 0..REPETITIONS {
            match &outcome {
                Err((error, _)) if error.is_clash() => log::info!("repeating a transaction operations={} reason={error}", slots.len()),
                Err(_) if std::mem::take(&mut self.must_repeat) => {}
                _ => break,
            }
            outcome = self.transaction(slots, begin_fault, commit_fault);
        }
        outcome
    }

    fn connect(&self) -> Result<Conn, StoreError> {
        if self.fence.right.owner().is_some() { dialect::owner_writer(&self.address) } else { dialect::writer(&self.address) }
    }

    /// The disk is full: the log may be the cause.
    fn give_room_back(&mut self) {
        let conn = match self.conn.take() {
            Some(conn) => Ok(conn),
            None => self.connect(),
        };
        match conn.and_then(|mut conn| dialect::empty_log(&mut conn).map(|()| conn)) {
            Ok(conn) => self.conn = Some(conn),
            Err(e) => log::debug!("could not checkpoint the database log error={e}"),
        }
    }

    /// All or nothing, in all cases. After an error nothing is written, except for [`StoreError::Unknown`]; the flag is set if one of
    /// the operations may be the cause.
    fn transaction(&mut self, slots: &mut [Slot], begin_fault: &str, commit_fault: &str) -> Result<(), (StoreError, bool)> {
        if self.fence.ended.borrow().is_some() {
            return Err((StoreError::NotLeading, false));
        }
        self.must_repeat = false;
        let begin = Instant::now();
        let stage = Cell::new(Stage::Beginning);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.apply(slots, (begin_fault, commit_fault), &stage)));
        let mut found = None;
        if stage.get() == Stage::Committing && self.address.file().is_none() {
            // Closing the connection ends the transaction, if it is not over.
            self.conn = None;
            found = self.find_out(&match &outcome {
                Ok(Err(error)) => error.to_string(),
                _ => "a panic".to_owned(),
            });
        }
        if stage.get() == Stage::Committed || matches!(found, Some(Found::Stored)) {
            // Even if a panic happened after the commit.
            self.stored = self.turn;
            self.noted_segment = self.segments.last();
            self.segments.committed(self.conn.as_mut(), &self.settlement);
            self.gauge.committed(slots.len(), begin.elapsed());
            self.mind_log();
            if outcome.is_err() {
                self.gauge.panicked();
                self.conn = None;
            }
            // The connection may have been lost after the commit; the next transaction opens another.
            self.conn.take_if(|conn| dialect::is_lost(conn));
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
        let is_clash = error.is_clash();
        if !is_clash {
            self.gauge.failed(&error.to_string());
        }
        let (is_remote, is_beginning) = (self.address.file().is_none(), stage.get() == Stage::Beginning);
        let is_clean = matches!(stage.get(), Stage::Beginning | Stage::Applying) && !matches!(error, StoreError::Unknown(_));
        let rolled_back = is_clean && self.conn.as_mut().is_some_and(|conn| dialect::rollback(conn).is_ok());
        self.segments.rolled_back(slots);
        let error = match error {
            StoreError::Unknown(why) if matches!(found, Some(Found::NotStored)) => {
                self.must_repeat = true;
                StoreError::Unreachable(why)
            }
            // The connection is broken, or the server accepts no writes: nothing was committed.
            StoreError::Failed(why) if is_remote && is_clean && !is_clash && (!rolled_back || is_beginning) => StoreError::Unreachable(why),
            error => error,
        };
        if !rolled_back || (is_remote && is_beginning) {
            // Closing the connection rolls back; a new one reads the stored state.
            self.conn = None;
        }
        if error == StoreError::NotLeading && self.fence.ended.borrow().is_none() {
            self.end(End::TakenOver);
        }
        Err((error, stage.get() != Stage::Beginning))
    }

    /// This broker must not write any more.
    fn end(&self, why: End) {
        match &self.fence.right {
            Right::Leader(Leadership { term, .. }) => log::error!("writing ended term={term} reason={}", why.text(*term)),
            Right::Owner(Ownership { term, .. }) => log::warn!("writing of own runs ended term={term} reason={}", why.text_for_owner()),
        }
        self.fence.ended.send_replace(Some(why));
    }

    /// Looks up what became of a transaction whose commit had no answer, until that is known. Nothing is repeated and no caller is answered
    /// before. `None`: it cannot be known any more, and this broker must end.
    fn find_out(&self, error: &str) -> Option<Found> {
        let (term, batch) = (self.turn.term, self.turn.batch.map_or(0, |(_, number)| number));
        log::warn!("commit without an answer, looking up its outcome term={term} batch={batch} error={error}");
        let begin = Instant::now();
        loop {
            let owner = self.fence.right.owner();
            let outcome = dialect::last_turn(&self.address, owner).map(|last| match last {
                // The leader has deleted the row.
                None if owner.is_some() => Err(End::TakenOver),
                last => self.turn.is_stored(last.as_ref()),
            });
            match outcome {
                Ok(Ok(is_stored)) => {
                    log::info!("outcome of the commit found term={term} batch={batch} stored={is_stored}");
                    return Some(if is_stored { Found::Stored } else { Found::NotStored });
                }
                Ok(Err(end)) => {
                    self.end(end);
                    return None;
                }
                Err(_) if self.gauge.is_closing() && begin.elapsed() > LAST_TRIES => {
                    self.end(End::Unknown);
                    return None;
                }
                Err(error) if !self.gauge.is_away() => {
                    log::error!("outcome of the commit cannot be looked up yet, waiting for the database error={error}");
                    self.gauge.set_away(true);
                }
                Err(_) => {}
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Bounds the log from time to time.
    fn mind_log(&mut self) {
        self.since_log_was_bounded += 1;
        if self.since_log_was_bounded >= BATCHES_BETWEEN_LOOKS
            && let Some(conn) = &mut self.conn
        {
            self.since_log_was_bounded = 0;
            if let Err(e) = dialect::bound_log(conn, &self.address) {
                log::warn!("could not bound the database log error={e}");
            }
        }
    }

    fn apply(&mut self, slots: &mut [Slot], (begin_fault, commit_fault): (&str, &str), stage: &Cell<Stage>) -> Result<(), StoreError> {
        self.settlement.clear();
        self.epochs.clear();
        let owner = self.fence.right.owner();
        if self.conn.is_none() {
            self.conn = Some(self.connect()?);
        }
        let conn = self.conn.as_mut().expect("it is there");
        dialect::begin(conn)?;
        // With the write lock held, and before anything is written, also to files: a new leader is not disturbed.
        let Some(turn) = dialect::turn(conn, owner)? else { return Err(StoreError::NotLeading) };
        if let Err(why) = turn.follows(&self.stored) {
            self.end(why);
            return Err(StoreError::NotLeading);
        }
        self.turn = turn;
        stage.set(Stage::Applying);
        fault::point(begin_fault);
        if fault::fails("store.full") {
            return Err(StoreError::Failed("database or disk is full".into()));
        }
        place_packs(&mut self.segments, conn, &self.gauge, slots)?;
        if let Some(last) = self.segments.last().filter(|last| Some(*last) != self.noted_segment) {
            // A number is never reused, even if its file is deleted and the broker restarts.
            super::results::note_last_segment(conn, last)?;
        }
        for slot in slots.iter_mut().filter(|slot| !slot.settled) {
            let mut tx = Tx { conn, owner, place: slot.place, settlement: &mut self.settlement, epochs: &mut self.epochs };
            slot.queued.run(&mut tx)?;
        }
        self.segments.count(conn, &self.settlement)?;
        stage.set(Stage::Committing);
        if fault::fails(commit_fault) {
            return Err(StoreError::Unknown("a planned fault".into()));
        }
        dialect::commit(conn)?;
        stage.set(Stage::Committed);
        fault::point("store.committed");
        Ok(())
    }
}

/// Writes packs to disk that are not there yet. They stay there even if the transaction fails.
fn place_packs(segments: &mut Segments, conn: &mut Conn, gauge: &Gauge, slots: &mut [Slot]) -> Result<(), StoreError> {
    let is_to_be_placed = |slot: &Slot| slot.place.is_none() && !slot.settled && slot.queued.pack().is_some();
    let packs: Vec<_> = slots.iter().filter(|slot| is_to_be_placed(slot)).filter_map(|slot| slot.queued.pack()).collect();
    if packs.is_empty() {
        return Ok(());
    }
    let outcome = match segments {
        Segments::Files(files) => files.append(&packs),
        // In this transaction: what fails fails all of it.
        Segments::Tables(tables) => Ok(tables.append(conn, &packs)?),
    };
    let with_pack = slots.iter_mut().filter(|slot| is_to_be_placed(slot));
    match outcome {
        Ok(places) => with_pack.zip(places).for_each(|(slot, place)| slot.place = Some(place)),
        Err(e) => {
            log::error!("could not append results to a segment error={e}");
            let error = StoreError::Failed(format!("appending to a segment: {e}"));
            gauge.failed(&error.to_string());
            if error.disk_trouble().is_some() {
                gauge.disk_refused(&error);
            }
            for slot in with_pack {
                slot.queued.fail(error.clone());
                slot.settled = true;
            }
        }
    }
    Ok(())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no panic message")
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
            log::warn!("could not checkpoint the database log at shutdown error={e}");
        }
        if let Right::Leader(leadership) = &self.fence.right {
            leadership.lock.release();
        }
    }
}
