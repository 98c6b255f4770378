//! A store that a command changes while no broker works on it. The command leads it meanwhile, as a broker would: brokers that start stand by,
//! and one that hung and wakes up can write nothing any more. If the command dies, its lock is free, and a broker takes over at once.

use super::candidate::{Leadership, Look, Seat};
use super::dialect::{self, Conn};
use super::error::StoreError;
use super::leader::{Member, check_term, delete_member};
use super::ownership;
use super::schema::leader;
use super::{StoreConfig, StoredLease};
use crate::domain::database::DatabaseAddress;
use crate::domain::ids::BrokerId;
use crate::domain::leader::Watch;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::time::{Duration, Instant};

/// The time to live of the lease, which a command does not renew: brokers see by the lock whether it is alive.
const TTL_MS: u64 = 7 * 24 * 3_600_000;
/// How long a server may need to notice that a broker's connection is gone.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);

/// See the module documentation.
pub(super) struct Custody {
    me: Member,
    leadership: Leadership,
}

impl Custody {
    /// Takes over a store that no broker leads, creating its tables or migrating them.
    ///
    /// # Errors
    /// A broker leads it, or it cannot be used.
    pub(super) fn take(address: &DatabaseAddress) -> Result<Self, StoreError> {
        Self::take_with(address, false)
    }

    /// As [`Self::take`], also a store to which a copy was not finished.
    ///
    /// # Errors
    /// As above.
    pub(super) fn take_for_copy(address: &DatabaseAddress) -> Result<Self, StoreError> {
        Self::take_with(address, true)
    }

    fn take_with(address: &DatabaseAddress, for_copy: bool) -> Result<Self, StoreError> {
        let config = StoreConfig { database: address.clone(), write_queue: 1, readers: 1, accept_lost_data: false };
        // Without an address: clients cannot be sent here.
        let me = Member {
            id: BrokerId::random(),
            url: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Timestamp::now(),
        };
        let mut seat = Seat::at(&config, me.clone(), TTL_MS)?;
        if for_copy {
            seat.accept_unfinished();
        }
        let begin = Instant::now();
        let leadership = loop {
            match seat.look(&mut Watch::default(), 0) {
                Ok(Look::Leads(leadership, _)) => break leadership,
                Ok(Look::StandsBy(_)) | Err(StoreError::Busy) if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                Ok(Look::StandsBy(lease)) => return Err(led(address, lease.as_ref())),
                Err(StoreError::Busy) => return Err(led(address, None)),
                Err(error) => return Err(error),
            }
        };
        // A broker that is ending releases its lease before its lock.
        while !leadership.holds_lock() {
            if begin.elapsed() > 2 * PATIENCE {
                return Err(led(address, None));
            }
            std::thread::sleep(LOOK);
        }
        let this = Self { me, leadership };
        let conn = &mut dialect::writer(address)?;
        let with_lock = (leader::is_locked.eq(true), leader::ttl_ms.eq(TTL_MS as i64));
        this.write(conn, |conn| {
            diesel::update(leader::table).set(with_lock).execute(conn)?;
            // Owners of runs write too.
            ownership::revoke_all(conn)
        })?;
        Ok(this)
    }

    /// The term of this command.
    pub(super) fn term(&self) -> i64 {
        self.leadership.term
    }

    /// Writes in a transaction, unless a broker has taken over.
    ///
    /// # Errors
    /// One has, or the database failed.
    pub(super) fn write<T>(&self, conn: &mut Conn, write: impl FnOnce(&mut Conn) -> Result<T, StoreError>) -> Result<T, StoreError> {
        dialect::begin(conn)?;
        match check_term(conn, self.term()).and_then(|()| write(conn)) {
            Ok(written) => dialect::commit(conn).map(|()| written),
            Err(error) => {
                // The error matters more than the result of the rollback of a broken connection.
                let _ = dialect::rollback(conn);
                Err(error)
            }
        }
    }

    /// Gives the store back, and raises its term to this one at least. A broker may lead from now on.
    ///
    /// # Errors
    /// The database failed.
    pub(super) fn release(self, conn: &mut Conn, least_term: i64) -> Result<(), StoreError> {
        self.release_with(conn, least_term, |_| Ok(()))
    }

    /// As [`Self::release`], with a last write in the same transaction.
    ///
    /// # Errors
    /// As above.
    pub(super) fn release_with(
        self,
        conn: &mut Conn,
        least_term: i64,
        last: impl FnOnce(&mut Conn) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.write(conn, |conn| {
            last(conn)?;
            let released = (leader::is_released.eq(true), leader::term.eq(least_term.max(self.term())));
            diesel::update(leader::table).set(released).execute(conn)?;
            dialect::wake_standbys(conn)?;
            delete_member(conn, &self.me)
        })?;
        self.leadership.lock.release();
        Ok(())
    }
}

/// The refusal for a store that something else works on.
fn led(address: &DatabaseAddress, lease: Option<&StoredLease>) -> StoreError {
    let by = match lease {
        Some(lease) if !lease.url.is_empty() => format!("the broker at {} (process {}) leads it", lease.url, lease.pid),
        _ => "a broker or another command uses it".to_owned(),
    };
    StoreError::Unusable(format!("Cannot use {address}: {by}. Stop all brokers of this store, and try again."))
}
