//! A broker's seat at a database, before it leads: it looks at the lease, says that it is there, and takes over.
//!
//! What it does blocks, so it is for a thread of its own. It writes nothing but its own row in `broker`, and the lease when
//! it takes over; the tables are brought up to date only after that, so that a standby of a newer version leaves an older
//! leader its tables.

use super::StoreConfig;
use super::dialect::{Conn, current as dialect};
use super::error::StoreError;
use super::leader::{Member, StoredLease, delete_member, stored_lease, write_lease, write_member};
use super::lock::DatabaseLock;
use crate::domain::leader::{Decision, Lease, Lock, Reason, Watch};
use crate::domain::time::Timestamp;
use crate::private;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The lease of a leader that brings the tables up to date, until it renews it for the first time: that may take long.
const MIGRATING_MS: u64 = 600_000;

/// The right to write.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// Every write is checked against it.
    pub term: i64,
    pub(super) lock: Arc<DatabaseLock>,
}

impl Leadership {
    /// Whether the system's lock is held; takes it if it has become free.
    #[must_use]
    pub fn holds_lock(&self) -> bool {
        self.lock.try_hold().unwrap_or_else(|e| {
            log::warn!("{e}");
            false
        })
    }
}

/// How the tables go with this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// They are as this program has them.
    Fit,
    /// They lack something; whoever leads brings them up to date.
    Older,
    /// They have something that this program does not know.
    Newer,
}

/// See the module's text.
pub struct Seat {
    path: PathBuf,
    me: Member,
    ttl_ms: u64,
    conn: Option<Conn>,
    lock: Arc<DatabaseLock>,
    has_lease: bool,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("path", &self.path).field("me", &self.me).finish_non_exhaustive()
    }
}

impl Seat {
    /// A seat at the database of this file, which need not be there yet.
    ///
    /// # Errors
    /// It cannot be used, or its files show that something was lost.
    pub fn at(config: &StoreConfig, me: Member, ttl_ms: u64) -> Result<Self, StoreError> {
        super::files::check_for_writing(config)?;
        let path = std::path::absolute(&config.database)?;
        // SQLite gives its other files the rights of this one. Why it cannot be made, SQLite says itself.
        let _ = private::options().append(true).create(true).open(&path);
        for name in ["", "-wal", "-shm", ".lock", "-results", "-packages"] {
            private::keep(&super::beside(&path, name));
        }
        let lock = Arc::new(DatabaseLock::of(&path));
        Ok(Self { path, me, ttl_ms, conn: None, lock, has_lease: false })
    }

    /// Looks once, and takes over if that may be. The lock is held afterwards only by who leads.
    ///
    /// # Errors
    /// [`StoreError::Busy`]: it may take over, but another process holds the database for writing. Anything else: the
    /// database cannot be used.
    pub fn look(&mut self, watch: &mut Watch, now_ms: u64) -> Result<Look, StoreError> {
        let seen = self.lease()?;
        let lease = seen.as_ref().map(|seen| &seen.lease);
        let lock = if Watch::minds_the_lock(lease) && self.lock.try_hold()? { Lock::Ours } else { Lock::Theirs };
        let taken = match watch.look(lease, lock, now_ms) {
            Decision::Wait => Ok(None),
            Decision::TakeOver(reason) => self.take_over(lease, lock).map(|taken| taken.map(|leadership| (leadership, reason))),
        };
        match taken {
            Ok(Some((leadership, reason))) => Ok(Look::Leads(leadership, reason)),
            Ok(None) => {
                self.lock.release();
                Ok(Look::StandsBy(seen))
            }
            Err(error) => {
                self.lock.release();
                // A connection in the middle of something is of no more use.
                self.conn = None;
                Err(error)
            }
        }
    }

    fn conn(&mut self) -> Result<&mut Conn, StoreError> {
        match &mut self.conn {
            Some(conn) => Ok(conn),
            none => Ok(none.insert(dialect::seat(&self.path)?)),
        }
    }

    fn lease(&mut self) -> Result<Option<StoredLease>, StoreError> {
        if !self.has_lease {
            self.has_lease = dialect::has_table(self.conn()?, "leader")?;
        }
        if self.has_lease { stored_lease(self.conn()?) } else { Ok(None) }
    }

    /// Takes over what was seen; nothing if it has changed meanwhile.
    fn take_over(&mut self, seen: Option<&Lease>, lock: Lock) -> Result<Option<Leadership>, StoreError> {
        let path = self.path.clone();
        if !self.has_lease {
            // Nobody without the lock comes here, and nobody who holds it can be at work without a lease.
            dialect::migrate(&path)?;
            self.has_lease = true;
        }
        let tables = dialect::tables(self.conn()?)?;
        if tables == Tables::Newer {
            return Err(newer(&path));
        }
        let ttl_ms = if tables == Tables::Fit { self.ttl_ms } else { self.ttl_ms.max(MIGRATING_MS) };
        let term = seen.map_or(0, |lease| lease.term) + 1;
        let lease = Lease { term, renewals: 0, ttl_ms, is_locked: lock == Lock::Ours, is_released: false };
        let (seen, me) = (seen.copied(), self.me.clone());
        let conn = self.conn()?;
        dialect::begin(conn).map_err(|_| StoreError::Busy)?;
        if stored_lease(conn)?.map(|stored| stored.lease) != seen {
            dialect::rollback(conn)?;
            return Ok(None);
        }
        write_lease(conn, &me, &lease, Timestamp::now())?;
        dialect::commit(conn)?;
        // From here on whoever led before is refused, and the tables are ours.
        if tables == Tables::Older {
            dialect::migrate(&path)?;
        }
        Ok(Some(Leadership { term, lock: Arc::clone(&self.lock) }))
    }

    /// How the tables go with this program.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn tables(&mut self) -> Result<Tables, StoreError> {
        dialect::tables(self.conn()?)
    }

    /// Says that this broker is there, and stands by. If another writes just now, it is said another time.
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

    /// Says that this broker is gone.
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

    /// The process that holds the database for writing, if the system says so.
    #[must_use]
    pub fn who_writes(&self) -> Option<u32> {
        dialect::who_writes(&self.path)
    }
}

fn newer(path: &Path) -> StoreError {
    StoreError::Failed(format!("{} was brought up to date by a later version of this program", path.display()))
}

/// What came of a look.
#[derive(Debug)]
pub enum Look {
    /// This broker leads from now on.
    Leads(Leadership, Reason),
    /// Another does, or is about to.
    StandsBy(Option<StoredLease>),
}
