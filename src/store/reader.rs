//! The readers: threads with connections that cannot write.

use super::dialect::{self, Conn};
use super::error::StoreError;
use super::gauge::Gauge;
use super::op::{ReadOp, Source};
use crate::domain::database::DatabaseAddress;
use actix::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// From the handle: something to read.
pub(super) struct Read<O>(pub(super) O);

impl<O: ReadOp> Message for Read<O> {
    type Result = Result<O::Output, StoreError>;
}

pub(super) struct Reader {
    address: DatabaseAddress,
    segments: PathBuf,
    conn: Option<Conn>,
    gauge: Arc<Gauge>,
}

impl Reader {
    pub(super) fn new(address: DatabaseAddress, segments: PathBuf, gauge: Arc<Gauge>) -> Self {
        Self { address, segments, conn: None, gauge }
    }

    fn read<O: ReadOp>(&mut self, op: &O) -> Result<O::Output, StoreError> {
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(dialect::reader(&self.address)?),
        };
        op.read(&mut Source { conn, segments: &self.segments })
    }
}

impl Actor for Reader {
    type Context = SyncContext<Self>;
}

impl<O: ReadOp> Handler<Read<O>> for Reader {
    type Result = Result<O::Output, StoreError>;
    fn handle(&mut self, Read(op): Read<O>, _: &mut SyncContext<Self>) -> Self::Result {
        // Without this a panic would end the thread permanently.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.read(&op))).unwrap_or_else(|_| {
            self.conn = None;
            self.gauge.panicked();
            Err(StoreError::Failed("reading panicked".into()))
        });
        if let Err(e) = &outcome {
            self.gauge.failed(&e.to_string());
        }
        outcome
    }
}
