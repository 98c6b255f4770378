//! What an operation is: one thing to write or to read, wholly or not at all.

use super::dialect::Conn;
use super::error::StoreError;
use super::gauge::Waiting;
use super::schema::{meta, run};
use super::segments::{Place, Settlement};
use bytes::Bytes;
use diesel::prelude::*;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// Something to write. It shares its transaction with others.
///
/// It may be applied more than once: when another operation spoils the transaction, all of it is rolled back and done
/// again one by one. So it changes nothing but the database, and refuses ([`StoreError::Stale`],
/// [`StoreError::Conflict`], [`StoreError::NotFound`]) only before it has written anything.
pub trait WriteOp: Send + 'static {
    /// What whoever asked gets to know.
    type Output: Send + 'static;

    /// A pack of results that is to stand in a segment file before the operation is applied.
    fn pack(&self) -> Option<&Bytes> {
        None
    }

    /// Bytes of memory that it takes while it waits; what is small need not say.
    fn weight(&self) -> usize {
        self.pack().map_or(0, Bytes::len)
    }

    /// Writes it.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError>;
}

/// Something to read.
pub trait ReadOp: Send + 'static {
    /// What is read.
    type Output: Send + 'static;

    /// Reads it.
    ///
    /// # Errors
    /// The database would not, or what it holds makes no sense.
    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError>;
}

/// What a read can read from.
pub struct Source<'a> {
    pub(super) conn: &'a mut Conn,
    pub(super) segments: &'a std::path::Path,
}

/// A transaction that is open.
pub struct Tx<'a> {
    pub(super) conn: &'a mut Conn,
    /// Where the pack of this operation stands.
    pub(super) place: Option<Place>,
    /// What the segment files gain and lose if it is committed.
    pub(super) settlement: &'a mut Settlement,
    /// Epochs of the runs that this transaction has looked at.
    pub(super) epochs: &'a mut HashMap<i64, i64>,
}

impl Tx<'_> {
    /// Refuses if the run is owned under another epoch.
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

    /// Why a statement found no run of this number and epoch.
    pub(super) fn refuse_epoch<T>(&mut self, no: i64) -> Result<T, StoreError> {
        let found = run::table.find(no).select(run::epoch).get_result::<i64>(self.conn).optional()?;
        Err(found.map_or(StoreError::NotFound, |_| StoreError::Stale))
    }
}

/// An operation in the queue, whatever its type.
pub(super) trait Queued: Send {
    fn pack(&self) -> Option<&Bytes>;
    fn weight(&self) -> usize;
    /// Applies it and keeps what came of it, a refusal too. An error spoils the transaction.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreError>;
    /// Keeps an error instead.
    fn fail(&mut self, error: StoreError);
    /// Tells whoever asked what came of it.
    fn answer(self: Box<Self>);
}

type Outcome<O> = Result<<O as WriteOp>::Output, StoreError>;

pub(super) struct Entry<O: WriteOp> {
    op: O,
    reply: oneshot::Sender<Outcome<O>>,
    result: Option<Outcome<O>>,
    /// Counted for as long as it is there.
    _waiting: Waiting,
}

impl<O: WriteOp> Entry<O> {
    /// And where its outcome will come.
    pub(super) fn boxed(op: O, waiting: Waiting) -> (Box<dyn Queued>, oneshot::Receiver<Outcome<O>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { op, reply, result: None, _waiting: waiting }), answer)
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
        let before = super::dialect::current::changes(tx.conn);
        match self.op.apply(tx) {
            Err(e) if !e.is_refusal() => Err(e),
            result => {
                #[cfg(debug_assertions)]
                if result.is_err() {
                    let after = super::dialect::current::changes(tx.conn);
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

    fn answer(self: Box<Self>) {
        let result = self.result.unwrap_or_else(|| Err(StoreError::Unknown("it was left out".into())));
        // Whoever asked may have gone away; what is written is written.
        let _ = self.reply.send(result);
    }
}

/// Writes some pages that nobody reads: shows whether anything can be stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe;

impl Probe {
    const KEY: &str = "probe";
    /// More than an ordinary write takes, and little beside what a disk has.
    const BYTES: usize = 32 << 10;
}

impl WriteOp for Probe {
    type Output = ();
    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let value = "0".repeat(Self::BYTES);
        diesel::replace_into(meta::table).values((meta::key.eq(Self::KEY), meta::value.eq(value))).execute(tx.conn)?;
        Ok(())
    }
}

/// Writes nothing: answered when everything before it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Barrier;

impl WriteOp for Barrier {
    type Output = ();
    fn apply(&self, _tx: &mut Tx<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
