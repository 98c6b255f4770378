//! A broker that is a candidate for leader of a database: it checks the lease, registers itself, and takes over.
//!
//! Its calls block, so it needs its own thread. It writes only its own row in `broker`, and the lease when it takes over. It
//! migrates the tables only after that, so that a standby of a newer version does not change the tables of an older leader.

use super::StoreConfig;
use super::copy;
use super::dialect::{self, Conn, sqlite};
use super::error::StoreError;
use super::leader::{Member, StoredLease, delete_member, stored_lease, write_lease, write_member};
use super::lock::LeaderLock;
use super::segment_tables;
use crate::domain::database::DatabaseAddress;
use crate::domain::leader::{Decision, Lease, Lock, Reason, Turn, Watch};
use crate::domain::time::Timestamp;
use crate::private;
use std::sync::Arc;
use std::time::Duration;

/// The lease duration of a leader that migrates the tables, until its first renewal: a migration may take long.
const MIGRATING_MS: u64 = 600_000;
/// Maximum duration of a lease without the lock: if its holder dies, others wait for its end. A command has a lease of days.
const MOST_WITHOUT_LOCK_MS: u64 = MIGRATING_MS;

/// A leader that migrates has a long lease, but no agents and workers yet.
const MOST_ANSWERED_MS: u64 = 60_000;

/// The right to write.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// Checked by every write.
    pub term: i64,
    /// The turn of the takeover; the first write is the next one.
    pub(super) turn: Turn,
    /// For how many milliseconds the previous leader may still answer its agents and workers. A server releases the lock of a leader that it
    /// does not reach any more, and such a leader continues to answer until its lease is over.
    pub predecessor_answers_ms: u64,
    pub(super) lock: Arc<LeaderLock>,
}

impl Leadership {
    /// Whether the operating system's lock is held; acquires it if it is free.
    #[must_use]
    pub fn holds_lock(&self) -> bool {
        self.lock.try_hold().unwrap_or_else(|e| {
            log::debug!("failed to ask for the leader's lock error={e}");
            false
        })
    }
}

/// How the tables compare with this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// They match.
    Fit,
    /// They are older; the leader migrates them.
    Older,
    /// A later version has added to them, and this version can use them.
    Extended,
    /// A later version has changed them, and this version cannot use them.
    Newer,
}

/// See the module documentation.
pub struct Seat {
    address: DatabaseAddress,
    me: Member,
    ttl_ms: u64,
    conn: Option<Conn>,
    lock: Arc<LeaderLock>,
    has_lease: bool,
    accepts_unfinished: bool,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("address", &self.address).field("me", &self.me).finish_non_exhaustive()
    }
}

impl Seat {
    /// A candidate for this database, whose file or tables need not exist yet.
    ///
    /// # Errors
    /// The file cannot be used, or other files show that data was lost.
    pub fn at(config: &StoreConfig, me: Member, ttl_ms: u64) -> Result<Self, StoreError> {
        super::files::check_for_writing(config)?;
        let address = config.database.absolute()?;
        if let Some(path) = address.file() {
            // SQLite creates its other files with the permissions of this one. If it cannot be created, SQLite reports the reason.
            let _ = private::options().append(true).create(true).open(path);
            for name in ["", "-wal", "-shm", ".lock", "-results", "-packages"] {
                private::keep(&super::beside(path, name));
            }
        }
        let lock = Arc::new(LeaderLock::of(&address));
        Ok(Self { address, me, ttl_ms, conn: None, lock, has_lease: false, accepts_unfinished: false })
    }

    /// It may take over a store to which a copy was not finished.
    pub(super) fn accept_unfinished(&mut self) {
        self.accepts_unfinished = true;
    }

    /// Checks the lease once, and takes over if allowed. Only a leader keeps the lock afterwards.
    ///
    /// # Errors
    /// [`StoreError::Busy`]: a takeover is allowed, but another process holds the write lock. Otherwise: the database cannot be used.
    pub fn look(&mut self, watch: &mut Watch, now_ms: u64) -> Result<Look, StoreError> {
        let looked = self.try_look(watch, now_ms);
        if looked.is_err() {
            self.lock.release();
            // A connection in an unknown state must not be reused; that to a server may be broken.
            self.conn = None;
        }
        looked
    }

    fn try_look(&mut self, watch: &mut Watch, now_ms: u64) -> Result<Look, StoreError> {
        let seen = self.lease()?;
        let lease = seen.as_ref().map(|seen| &seen.lease);
        let lock =
            if Watch::minds_the_lock(lease) && self.lock.try_take(Duration::from_millis(self.ttl_ms))? { Lock::Ours } else { Lock::Theirs };
        let taken = match watch.look(lease, lock, now_ms) {
            Decision::Wait => Ok(None),
            Decision::TakeOver(reason) => {
                let predecessor_answers_ms = self.predecessor_answers_ms(seen.as_ref(), reason);
                let taken = self.take_over(lease, lock);
                taken.map(|taken| taken.map(|leadership| (Leadership { predecessor_answers_ms, ..leadership }, reason)))
            }
        };
        match taken? {
            Some((leadership, reason)) => Ok(Look::Leads(leadership, reason)),
            None => {
                self.lock.release();
                Ok(Look::StandsBy(seen))
            }
        }
    }

    /// See [`Leadership::predecessor_answers_ms`]. A command has no address, and no peers.
    fn predecessor_answers_ms(&self, seen: Option<&StoredLease>, reason: Reason) -> u64 {
        let is_remote = self.address.file().is_none();
        let Some(seen) = seen.filter(|seen| is_remote && reason == Reason::Dead && !seen.url.is_empty()) else { return 0 };
        self.ttl_ms.max(seen.lease.ttl_ms.min(MOST_ANSWERED_MS))
    }

    fn conn(&mut self) -> Result<&mut Conn, StoreError> {
        match &mut self.conn {
            Some(conn) => Ok(conn),
            none => Ok(none.insert(dialect::seat(&self.address)?)),
        }
    }

    fn lease(&mut self) -> Result<Option<StoredLease>, StoreError> {
        if !self.has_lease {
            self.has_lease = dialect::has_table(self.conn()?, "leader")?;
        }
        if self.has_lease { stored_lease(self.conn()?) } else { Ok(None) }
    }

    /// Takes over the observed lease; `None` if it has changed meanwhile.
    fn take_over(&mut self, seen: Option<&Lease>, lock: Lock) -> Result<Option<Leadership>, StoreError> {
        let address = self.address.clone();
        if !self.has_lease {
            // Only a holder of the lock gets here, and without a lease no other broker can be running.
            dialect::migrate(&address)?;
            self.has_lease = true;
        }
        let tables = dialect::tables(self.conn()?)?;
        if tables == Tables::Newer {
            return Err(newer(&address));
        }
        if !self.accepts_unfinished {
            copy::check_finished(self.conn()?, &address)?;
        }
        let ttl_ms = if tables == Tables::Older { self.ttl_ms.max(MIGRATING_MS) } else { self.ttl_ms };
        let ttl_ms = if lock == Lock::Ours { ttl_ms } else { ttl_ms.min(MOST_WITHOUT_LOCK_MS) };
        let term = seen.map_or(0, |lease| lease.term) + 1;
        let lease = Lease { term, renewals: 0, ttl_ms, is_locked: lock == Lock::Ours, is_released: false };
        let (seen, me) = (seen.copied(), self.me.clone());
        let conn = self.conn()?;
        dialect::begin(conn).map_err(|_| StoreError::Busy)?;
        // With PostgreSQL another candidate, or a transaction of the leader, may hold the row: what is read next is what it left.
        let Ok(before) = dialect::turn(conn, None) else {
            dialect::rollback(conn)?;
            return Err(StoreError::Busy);
        };
        if stored_lease(conn)?.map(|stored| stored.lease) != seen {
            dialect::rollback(conn)?;
            return Ok(None);
        }
        write_lease(conn, &me, &lease, Timestamp::now())?;
        if address.file().is_none() {
            // Together with the term: owners of runs go on.
            segment_tables::note_term(conn, term)?;
        }
        dialect::commit(conn)?;
        // From here on the store rejects the previous leader, and this broker owns the tables.
        match tables {
            Tables::Older => dialect::migrate(&address)?,
            Tables::Extended => log::info!("tables extended by a later version, using them database={address}"),
            Tables::Fit | Tables::Newer => {}
        }
        // A first row begins to count.
        let number = before.map_or(Some(0), |turn| turn.batch.map(|(_, number)| number)).filter(|_| address.file().is_none());
        let turn = Turn { term, batch: number.map(|number| (me.id, number)) };
        Ok(Some(Leadership { term, turn, predecessor_answers_ms: 0, lock: Arc::clone(&self.lock) }))
    }

    /// Waits until the next look. A leader at a server that releases its lease ends this at once; so does unparking the thread, with a file.
    pub fn wait(&mut self, limit: Duration) {
        match &mut self.conn {
            Some(Conn::Postgres(conn)) => dialect::postgres::wait_for_release(conn, limit),
            _ => std::thread::park_timeout(limit),
        }
    }

    /// Compares the tables with this version.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn tables(&mut self) -> Result<Tables, StoreError> {
        let tables = dialect::tables(self.conn()?);
        if tables.is_err() {
            self.conn = None;
        }
        tables
    }

    /// Registers this broker as a standby. If another process is writing, the next call repeats this.
    ///
    /// # Errors
    /// The database cannot be used.
    pub fn beat(&mut self) -> Result<(), StoreError> {
        if !self.has_lease {
            return Ok(());
        }
        let me = self.me.clone();
        self.brief_write(|conn| write_member(conn, &me, false, Timestamp::now()))
    }

    /// Removes the registration of this broker.
    ///
    /// # Errors
    /// The database cannot be used.
    pub fn leave(mut self) -> Result<(), StoreError> {
        if !self.has_lease {
            return Ok(());
        }
        let me = self.me.clone();
        self.brief_write(|conn| delete_member(conn, &me))
    }

    fn brief_write(&mut self, write: impl FnOnce(&mut Conn) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let conn = self.conn()?;
        if dialect::begin(conn).is_err() {
            return Ok(());
        }
        let done = write(conn).and_then(|()| dialect::commit(conn));
        if done.is_err() {
            self.conn = None;
        }
        done
    }

    /// The process that holds the write lock, if the operating system reports it.
    #[must_use]
    pub fn who_writes(&self) -> Option<u32> {
        self.address.file().and_then(sqlite::who_writes)
    }
}

fn newer(address: &DatabaseAddress) -> StoreError {
    StoreError::Failed(format!("{address} was migrated by a later version of this program"))
}

/// The result of a check.
#[derive(Debug)]
pub enum Look {
    /// This broker leads from now on.
    Leads(Leadership, Reason),
    /// Another broker leads, or is about to.
    StandsBy(Option<StoredLease>),
}
