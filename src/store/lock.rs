//! The lock of the leader. With SQLite it is an operating system lock on `<database>.lock`; with PostgreSQL an advisory lock of the database.
//! It is released when the process ends, even after a crash: by the system, or by the server once the connection is gone.

use super::dialect::postgres::{self, PgConn};
use super::error::StoreError;
use crate::domain::database::{DatabaseAddress, ServerUrl};
use crate::private;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
            DatabaseAddress::Server(url) => Self::Session(Box::new(SessionLock { url: url.clone(), session: Mutex::default() })),
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
}

struct Session {
    conn: PgConn,
    is_held: bool,
}

impl std::fmt::Debug for SessionLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the lock of {}", self.url)
    }
}

impl SessionLock {
    fn try_hold(&self) -> Result<bool, StoreError> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock is gone with its connection.
        if let Some(mut known) = session.take() {
            let holds =
                if known.is_held { postgres::is_alive(&mut known.conn) } else { postgres::try_lock(&mut known.conn).unwrap_or(false) };
            let is_lost = known.is_held && !holds;
            if !is_lost {
                known.is_held = holds;
                return Ok(session.insert(known).is_held);
            }
        }
        let mut conn = postgres::lock_holder(&self.url)?;
        let is_held = postgres::try_lock(&mut conn)?;
        Ok(session.insert(Session { conn, is_held }).is_held)
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
