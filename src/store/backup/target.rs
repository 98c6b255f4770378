//! The folder of a backup that is being made.

use super::disk;
use crate::domain::backup::{DATABASE, FileName, MANIFEST, Manifest, PACKAGES, RESULTS, UNFINISHED};
use crate::fault;
use crate::private;
use crate::store::error::StoreError;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Target {
    folder: PathBuf,
    /// The manifest to be. Locked, so that two backups are never made in one folder.
    manifest: File,
}

fn refusal(folder: &Path, why: &str) -> StoreError {
    StoreError::Unusable(format!("Cannot back up to {}: {why}", folder.display()))
}

impl Target {
    /// Prepares a folder: a new or an empty one, or one with a backup that was interrupted, which is removed.
    pub(super) fn begin(folder: &Path) -> Result<Self, StoreError> {
        let folder = std::path::absolute(folder)?;
        let refused = |why: &str| refusal(&folder, why);
        let failed = |e: std::io::Error| refused(&format!("{}.", disk::why(&e)));
        private::make_folder(&folder).map_err(failed)?;
        let (unfinished, holds_one) = (folder.join(UNFINISHED), "it holds a backup already. Name another folder.");
        if folder.join(MANIFEST).exists() {
            return Err(refused(holds_one));
        }
        if !unfinished.exists() && fs::read_dir(&folder).map_err(failed)?.next().is_some() {
            return Err(refused("the folder is not empty. Name a new one."));
        }
        let manifest = private::options().write(true).create(true).truncate(false).open(&unfinished).map_err(failed)?;
        match manifest.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused("another backup is being made there.")),
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        // The other backup may have been finished a moment ago.
        if folder.join(MANIFEST).exists() {
            return Err(refused(holds_one));
        }
        let database = folder.join(DATABASE);
        for suffix in ["", "-journal", "-wal", "-shm"] {
            disk::remove(&crate::store::beside(&database, suffix)).map_err(failed)?;
        }
        for suffix in [RESULTS, PACKAGES] {
            disk::remove_folder(&crate::store::beside(&database, suffix)).map_err(failed)?;
        }
        manifest.set_len(0).map_err(failed)?;
        Ok(Self { folder, manifest })
    }

    pub(super) fn refused(&self, why: &str) -> StoreError {
        refusal(&self.folder, why)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path(&self, name: &FileName) -> PathBuf {
        self.folder.join(name.beside(DATABASE))
    }

    /// The path of a file, in a folder that exists.
    pub(super) fn make_path(&self, name: &FileName) -> Result<PathBuf, StoreError> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.folder);
        private::make_folder(folder).map_err(|e| disk::not_written(folder, &e))?;
        Ok(path)
    }

    /// Writes the manifest, once everything else is on disk.
    pub(super) fn finish(mut self, mut manifest: Manifest) -> Result<Manifest, StoreError> {
        let (unfinished, finished) = (self.folder.join(UNFINISHED), self.folder.join(MANIFEST));
        let failed = |e: std::io::Error| disk::not_written(&finished, &e);
        let database = self.path(&FileName::Database);
        for suffix in [RESULTS, PACKAGES] {
            disk::sync_folder(&crate::store::beside(&database, suffix)).map_err(failed)?;
        }
        disk::sync_folder(&self.folder).map_err(failed)?;
        self.manifest.write_all(manifest.seal().as_bytes()).map_err(failed)?;
        self.manifest.sync_all().map_err(failed)?;
        fault::point("backup.step");
        fs::rename(&unfinished, &finished).map_err(failed)?;
        fault::point("backup.step");
        disk::sync_folder(&self.folder).map_err(failed)?;
        disk::sync_folder(self.folder.parent().unwrap_or(&self.folder)).map_err(failed)?;
        Ok(manifest)
    }
}
