//! The lock of the leader. With SQLite it is an operating system lock on `<database>.lock`; with PostgreSQL an advisory lock of the database.
//! It is released when the process ends, even after a crash: by the system, or by the server once the connection is gone.

use super::dialect::postgres::{self, PgConn};
use super::error::StoreError;
use crate::domain::database::{DatabaseAddress, ServerUrl};
use crate::private;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a leader may need to get its lock again after the server has restarted, at least: a few of its renewals.
const SETTLE: Duration = Duration::from_secs(8);

/// A broker's handle of the lock.
#[derive(Debug)]
pub enum LeaderLock {
    /// Of an SQLite file.
    File(DatabaseLock),
    /// Of a PostgreSQL database.
    Session(Box<SessionLock>),
}

impl LeaderLock {
    pub(super) fn of(address: &DatabaseAddress) -> Self {
        match address {
            DatabaseAddress::File(path) => Self::File(DatabaseLock::of(path)),
            DatabaseAddress::Server(url) => {
                Self::Session(Box::new(SessionLock { url: url.clone(), session: Mutex::default(), was_lost: AtomicBool::new(false) }))
            }
        }
    }

    /// Acquires the lock if it is free; returns whether it is held now.
    ///
    /// # Errors
    /// The file or the server fails.
    pub(super) fn try_hold(&self) -> Result<bool, StoreError> {
        match self {
            Self::File(lock) => lock.try_hold(),
            Self::Session(lock) => lock.try_hold(),
        }
    }

    /// As [`LeaderLock::try_hold`], for a broker that does not lead.
    ///
    /// # Errors
    /// As above.
    pub(super) fn try_take(&self, ttl: Duration) -> Result<bool, StoreError> {
        match self {
            Self::File(lock) => lock.try_hold(),
            Self::Session(lock) => lock.try_take(ttl.max(SETTLE)),
        }
    }

    /// Releases the lock.
    pub(super) fn release(&self) {
        match self {
            Self::File(lock) => lock.release(),
            Self::Session(lock) => lock.release(),
        }
    }
}

/// An advisory lock, held by a connection of its own.
pub struct SessionLock {
    url: ServerUrl,
    session: Mutex<Option<Session>>,
    /// The last session was lost, and there is no other yet.
    was_lost: AtomicBool,
}

struct Session {
    conn: PgConn,
    is_held: bool,
    /// When it replaced a session that was lost.
    reconnected: Option<Instant>,
}

impl std::fmt::Debug for SessionLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the lock of {}", self.url)
    }
}

impl SessionLock {
    /// Whether the lock is held; tries to get it if not.
    fn try_hold(&self) -> Result<bool, StoreError> {
        self.with_session(|session| {
            if session.is_held { postgres::is_alive(&mut session.conn).then_some(true) } else { postgres::try_lock(&mut session.conn).ok() }
        })
    }

    /// As [`Self::try_hold`]. After the connection was lost, a free lock is no evidence for a while: the server may have restarted, and the
    /// leader has lost its connection too.
    fn try_take(&self, settle: Duration) -> Result<bool, StoreError> {
        self.with_session(|session| {
            let is_settled = session.reconnected.is_none_or(|at| at.elapsed() > settle);
            if is_settled { postgres::try_lock(&mut session.conn).ok() } else { postgres::is_alive(&mut session.conn).then_some(false) }
        })
    }

    /// Asks within the session, and within a new one if it is lost (`None`).
    fn with_session(&self, ask: impl Fn(&mut Session) -> Option<bool>) -> Result<bool, StoreError> {
        // A thread that asks a server which does not answer must not make others wait.
        let Ok(mut session) = self.session.try_lock() else { return Ok(false) };
        let mut reconnected = None;
        if let Some(mut known) = session.take() {
            if let Some(is_held) = ask(&mut known) {
                known.is_held = is_held;
                return Ok(session.insert(known).is_held);
            }
            self.was_lost.store(true, Relaxed);
        }
        if self.was_lost.load(Relaxed) {
            reconnected = Some(Instant::now());
        }
        let mut new = Session { conn: postgres::lock_holder(&self.url)?, is_held: false, reconnected };
        self.was_lost.store(false, Relaxed);
        new.is_held = ask(&mut new).unwrap_or(false);
        Ok(session.insert(new).is_held)
    }

    fn release(&self) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.take_if(|session| session.is_held);
    }
}

/// A lock on a file.
#[derive(Debug)]
pub struct DatabaseLock {
    path: PathBuf,
    held: Mutex<Option<File>>,
}

impl DatabaseLock {
    pub(super) fn of(database: &Path) -> Self {
        Self { path: super::beside(database, ".lock"), held: Mutex::default() }
    }

    /// Acquires the lock if it is free; returns whether it is held now.
    ///
    /// # Errors
    /// The file cannot be created or locked.
    pub(super) fn try_hold(&self) -> Result<bool, StoreError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(true);
        }
        let failed = |e: std::io::Error| StoreError::Failed(format!("locking {}: {e}", self.path.display()));
        let file = private::options().create(true).truncate(false).write(true).open(&self.path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => *held = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        Ok(held.is_some())
    }

    /// Releases the lock.
    pub(super) fn release(&self) {
        // Closing the file releases it.
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
