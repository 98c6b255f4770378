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
use std::time::{Duration, Instant};

/// How long a read waits for the server of the database.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(5) };
const PAUSE: Duration = Duration::from_millis(100);

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
            none => none.insert(connect(&self.address, &self.gauge)?),
        };
        let outcome = op.read(&mut Source { conn, segments: &self.segments });
        match outcome {
            Err(StoreError::Failed(why)) if !dialect::is_alive(conn) => {
                self.conn = None;
                Err(StoreError::Unreachable(why))
            }
            outcome => outcome,
        }
    }
}

/// Waits a little for a server that restarts: an actor that cannot read ends and is started again, and the number of restarts is limited.
/// The next reads of a store without a writer, a standby's, do not wait: there may be many.
fn connect(address: &DatabaseAddress, gauge: &Gauge) -> Result<Conn, StoreError> {
    let begin = Instant::now();
    loop {
        let outcome = dialect::reader(address);
        let is_unreachable = matches!(outcome, Err(StoreError::Unreachable(_)));
        if !is_unreachable || begin.elapsed() >= PATIENCE || gauge.is_away() || gauge.waited_in_vain() {
            gauge.set_waited_in_vain(is_unreachable);
            return outcome;
        }
        std::thread::sleep(PAUSE);
    }
}

impl Actor for Reader {
    type Context = SyncContext<Self>;
}

impl<O: ReadOp> Handler<Read<O>> for Reader {
    type Result = Result<O::Output, StoreError>;
    fn handle(&mut self, Read(op): Read<O>, _: &mut SyncContext<Self>) -> Self::Result {
        // Without this a panic would end the thread permanently.
        let mut outcome = catch_unwind(AssertUnwindSafe(|| self.read(&op)));
        if let Ok(Err(StoreError::Unreachable(_))) = outcome {
            // The connection was lost: once more with another.
            outcome = catch_unwind(AssertUnwindSafe(|| self.read(&op)));
        }
        let outcome = outcome.unwrap_or_else(|_| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_read_of_a_standby_waits_for_a_server_that_is_away() {
        // Nothing listens there.
        let address = DatabaseAddress::parse("postgres://webloom@127.0.0.1:1/webloom".as_ref()).expect("an address");
        let took = |gauge: &Gauge| {
            let begin = Instant::now();
            assert!(matches!(connect(&address, gauge).err(), Some(StoreError::Unreachable(_))));
            begin.elapsed()
        };
        let [standby, leader] = [Gauge::read_only(), Gauge::new(1)];
        assert!(took(&standby) >= PATIENCE && took(&standby) < PATIENCE);
        standby.set_waited_in_vain(false);
        assert!(took(&standby) >= PATIENCE, "the server was back meanwhile");
        // Its actors read, too: each has its patience, until the writer notices that the server is away.
        assert!(took(&leader) >= PATIENCE && took(&leader) >= PATIENCE);
    }
}
