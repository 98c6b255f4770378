//! An operating system lock on `<database>.lock`. The system releases it when the process ends, even after a crash.

use super::error::StoreError;
use crate::private;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A broker's handle of the lock.
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
