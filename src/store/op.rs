//! Operations: one thing to write or read, atomically.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::gauge::Waiting;
use super::schema::{meta, run};
use super::segments::{Place, Settlement};
use crate::domain::ids::BrokerId;
use bytes::Bytes;
use diesel::prelude::*;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// A write operation. It shares its transaction with others.
///
/// It may be applied more than once: if another operation breaks the transaction, everything is rolled back and the operations are
/// repeated one by one. So it must change nothing but the database, and return errors ([`StoreError::Stale`],
/// [`StoreError::Conflict`], [`StoreError::NotFound`]) only before it has written anything.
pub trait WriteOp: Send + 'static {
    /// The result for the caller.
    type Output: Send + 'static;

    /// A broker that does not lead may send it for a run that it owns.
    const BY_OWNER: bool = false;

    /// A pack of results that must be in a segment file before the operation is applied.
    fn pack(&self) -> Option<&Bytes> {
        None
    }

    /// Bytes of memory that it uses while it waits; small operations need not define it.
    fn weight(&self) -> usize {
        self.pack().map_or(0, Bytes::len)
    }

    /// Nobody waits for it: it is written with the next operation of another kind, or after a second at the latest.
    fn can_wait(&self) -> bool {
        false
    }

    /// Writes it.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError>;
}

/// A read operation.
pub trait ReadOp: Send + 'static {
    /// The result.
    type Output: Send + 'static;

    /// Reads it.
    ///
    /// # Errors
    /// The database reported an error, or contains invalid data.
    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError>;
}

/// The sources of a read.
pub struct Source<'a> {
    pub(super) conn: &'a mut Conn,
    pub(super) segments: &'a std::path::Path,
}

/// An open transaction.
pub struct Tx<'a> {
    pub(super) conn: &'a mut Conn,
    /// Who writes, if not the leader.
    pub(super) owner: Option<BrokerId>,
    /// The location of this operation's pack.
    pub(super) place: Option<Place>,
    /// Changes to the segments if the transaction is committed.
    pub(super) settlement: &'a mut Settlement,
    /// Cached epochs of runs in this transaction.
    pub(super) epochs: &'a mut HashMap<i64, i64>,
}

impl Tx<'_> {
    /// Fails if the run is owned under another epoch.
    ///
    /// The row need not be locked, although several brokers write: an epoch changes only when the broker that executes the run adopts it, when
    /// [`super::RevokeOwnership`] or [`super::FreeRun`] takes the run away. The first is done by the same writer. The others change the row of
    /// `run_owner` before, and each transaction of an owner holds that row. A leader of an earlier version adopts the run without that: then a
    /// transaction in progress may still be stored, and the actor that does not know of it fails at the first conflict and loads the run again.
    pub(super) fn check_epoch(&mut self, no: i64, epoch: i64) -> Result<(), StoreError> {
        let current = match self.epochs.get(&no) {
            Some(current) => *current,
            None => {
                let found = run::table.find(no).select(run::epoch).get_result::<i64>(self.conn).optional()?;
                let current = found.ok_or(StoreError::NotFound)?;
                self.epochs.insert(no, current);
                current
            }
        };
        if current == epoch { Ok(()) } else { Err(StoreError::Stale) }
    }

    /// The error if a statement found no run with this number and epoch.
    pub(super) fn refuse_epoch<T>(&mut self, no: i64) -> Result<T, StoreError> {
        let found = run::table.find(no).select(run::epoch).get_result::<i64>(self.conn).optional()?;
        Err(found.map_or(StoreError::NotFound, |_| StoreError::Stale))
    }
}

/// A queued operation of any type.
pub(super) trait Queued: Send {
    fn pack(&self) -> Option<&Bytes>;
    fn weight(&self) -> usize;
    /// Applies it and keeps its result, including a rejection. An error breaks the transaction.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError>;
    /// Keeps an error instead.
    fn fail(&mut self, error: StoreError);
    /// It follows from accepted work, so it waits until the database can be reached.
    fn is_patient(&self) -> bool;
    /// See [`WriteOp::can_wait`].
    fn can_wait(&self) -> bool;
    /// Sends the result to the caller.
    fn answer(self: Box<Self>);
}

type Outcome<O> = Result<<O as WriteOp>::Output, StoreError>;

pub(super) struct Entry<O: WriteOp> {
    op: O,
    reply: oneshot::Sender<Outcome<O>>,
    result: Option<Outcome<O>>,
    /// Counts the operation in the queue until dropped.
    waiting: Waiting,
}

impl<O: WriteOp> Entry<O> {
    /// Also returns the receiver of its result.
    pub(super) fn boxed(op: O, waiting: Waiting) -> (Box<dyn Queued>, oneshot::Receiver<Outcome<O>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { op, reply, result: None, waiting }), answer)
    }
}

impl<O: WriteOp> Queued for Entry<O> {
    fn pack(&self) -> Option<&Bytes> {
        self.op.pack()
    }

    fn weight(&self) -> usize {
        self.op.weight()
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        #[cfg(debug_assertions)]
        let before = super::dialect::changes(tx.conn);
        match self.op.apply(tx) {
            Err(e) if !e.is_refusal() => Err(e),
            result => {
                #[cfg(debug_assertions)]
                if result.is_err() {
                    let after = super::dialect::changes(tx.conn);
                    assert_eq!(before, after, "{} refused after it had written", std::any::type_name::<O>());
                }
                self.result = Some(result);
                Ok(())
            }
        }
    }

    fn fail(&mut self, error: StoreError) {
        self.result = Some(Err(error));
    }

    fn can_wait(&self) -> bool {
        self.op.can_wait()
    }

    fn is_patient(&self) -> bool {
        self.waiting.is_patient()
    }

    fn answer(self: Box<Self>) {
        let result = self.result.unwrap_or_else(|| Err(StoreError::Unknown("the operation was not executed".into())));
        // The caller may be gone; the write is done anyway.
        let _ = self.reply.send(result);
    }
}

/// Writes some unused pages, to check whether the disk accepts writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe;

impl Probe {
    const KEY: &str = "probe";
    /// More than an ordinary write, but small compared with the disk.
    const BYTES: usize = 32 << 10;
}

impl WriteOp for Probe {
    type Output = ();
    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let value = "0".repeat(Self::BYTES);
        let insert = diesel::insert_into(meta::table).values((meta::key.eq(Self::KEY), meta::value.eq(value)));
        insert.with_conflict_rule("(key) DO UPDATE SET value = excluded.value").execute(tx.conn)?;
        Ok(())
    }
}

/// Writes nothing: completes after everything before it.
#[derive(Debug, Clone, Copy)]
pub struct Barrier;

impl WriteOp for Barrier {
    const BY_OWNER: bool = true;

    type Output = ();
    fn apply(&self, _tx: &mut Tx<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
