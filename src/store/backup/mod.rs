//! Backups: one consistent copy of database, results and packages, made while a broker works.
//!
//! The database is copied in one transaction of SQLite. A segment of results and a package never change in the part that the copy of
//! the database points to, but may be deleted. So all of them are opened before the database is copied, and again after that: an open
//! file can be read although it was deleted. If the copy points to a file that was made and deleted in between, the copy is repeated.
//!
//! The manifest is written last, when everything else is on disk. A folder without it is not a backup.

mod contents;
mod disk;
mod restore;
mod target;

pub use restore::{check, restore};

use super::beside;
use super::candidate::Tables;
use super::dialect::{Conn, sqlite};
use super::error::StoreError;
use super::segments::number_of;
use crate::domain::backup::{DATABASE, Entry, FileName, Manifest, PACKAGES, RESULTS};
use crate::domain::time::Timestamp;
use crate::fault;
use crate::open_files;
use contents::Contents;
use diesel::sqlite::SqliteConnection;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use target::Target;

/// Copies of the database until a busy broker deletes no file that the copy needs.
const ATTEMPTS: usize = 5;

/// Where a test interferes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The files are open, and the database is not copied yet.
    Opened,
    /// The database is copied.
    Copied,
}

/// Makes a backup of a store in a new folder. A broker may work meanwhile.
///
/// # Errors
/// The text is for the user: the store cannot be read, the folder cannot be used, or the disk is full.
pub fn make(database: &Path, to: &Path) -> Result<Manifest, StoreError> {
    make_with(database, to, |_| ())
}

pub(super) fn make_with(database: &Path, to: &Path, mut passes: impl FnMut(Moment)) -> Result<Manifest, StoreError> {
    // Each segment is open during a backup, and they may be more than the usual limit.
    open_files::raise();
    let path = std::path::absolute(database)?;
    let mut conn = open(&path)?;
    let target = Target::begin(to)?;
    fault::point("backup.step");
    let copy = target.path(&FileName::Database);
    let mut missing = Vec::new();
    for attempt in 1.. {
        let mut files = Sources::open(&path)?;
        if attempt == 1 {
            let needed = sqlite::used_bytes(&mut conn)? + files.bytes();
            disk::check_room(target.folder(), needed).map_err(|why| target.refused(&why))?;
        }
        passes(Moment::Opened);
        let created_at = Timestamp::now();
        disk::create(&copy).map_err(|e| disk::not_written(&copy, &e))?;
        fault::point("backup.step");
        sqlite::copy_into(&mut conn, &copy).map_err(|e| {
            let why = e.disk_trouble().map_or_else(|| e.to_string(), ToOwned::to_owned);
            target.refused(&format!("copying the database: {why}."))
        })?;
        passes(Moment::Copied);
        fault::point("backup.step");
        files.open_more()?;
        let contents = Contents::read(&mut Conn::Sqlite(sqlite::observer(&copy)?))?;
        // What is missing twice was not deleted meanwhile: the store has lost it.
        let lacks: Vec<FileName> = contents.files().filter(|name| !files.files.contains_key(name)).collect();
        if lacks.iter().all(|name| missing.contains(name)) {
            return finish(&path, target, &contents, &files, created_at);
        }
        if attempt == ATTEMPTS {
            let why = format!("files of results were deleted during each of {ATTEMPTS} attempts. Try again when the broker is less busy.");
            return Err(target.refused(&why));
        }
        missing = lacks;
        disk::remove(&copy).map_err(|e| disk::not_written(&copy, &e))?;
    }
    unreachable!("the last attempt returns")
}

/// Copies the files that the copy of the database needs, and writes the manifest.
fn finish(path: &Path, target: Target, contents: &Contents, files: &Sources, created_at: Timestamp) -> Result<Manifest, StoreError> {
    let mut manifest = Manifest::new(contents.schema.clone(), path.display().to_string(), created_at, contents.counts);
    for (name, bytes) in &contents.needed {
        match copy(name, *bytes, files, &target)? {
            Ok(entry) => manifest.files.push(entry),
            Err(why) => manifest.warnings.push(format!("{} {why}", name.beside(&file_name(path)))),
        }
        fault::point("backup.step");
    }
    let copied = target.path(&FileName::Database);
    let (bytes, sha256) = disk::sync(&copied).map_err(|e| disk::not_written(&copied, &e))?;
    manifest.files.insert(0, Entry { name: FileName::Database, bytes, sha256 });
    fault::point("backup.step");
    target.finish(manifest)
}

/// Copies a file. `Ok(Err(…))`: the store itself has lost or damaged it; what a broker does about that, it also does after a restore.
fn copy(name: &FileName, bytes: Option<u64>, files: &Sources, target: &Target) -> Result<Result<Entry, String>, StoreError> {
    let Some(file) = files.files.get(name) else { return Ok(Err("is missing".to_owned())) };
    let to = target.make_path(name)?;
    let mut copy = disk::create(&to).map_err(|e| disk::not_written(&to, &e))?;
    let (bytes, sha256) = match disk::copy(&mut file.take(bytes.unwrap_or(u64::MAX)), &mut copy) {
        Ok((copied, _)) if bytes.is_some_and(|bytes| copied < bytes) => {
            disk::remove(&to).map_err(|e| disk::not_written(&to, &e))?;
            return Ok(Err(format!("is cut off after {copied} bytes")));
        }
        Ok(copied) => copied,
        Err(disk::Failed::Reading(e)) => {
            disk::remove(&to).map_err(|e| disk::not_written(&to, &e))?;
            return Ok(Err(format!("cannot be read: {e}")));
        }
        Err(disk::Failed::Writing(e)) => return Err(disk::not_written(&to, &e)),
    };
    if matches!(name, FileName::Package(expected) if *expected != sha256) {
        disk::remove(&to).map_err(|e| disk::not_written(&to, &e))?;
        return Ok(Err("is damaged: its checksum is not its name".to_owned()));
    }
    Ok(Ok(Entry { name: name.clone(), bytes, sha256 }))
}

/// Opens a store read-only.
fn open(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = sqlite::observer(path)?;
    let shown = path.display();
    if !sqlite::has_table(&mut conn, "job")? {
        return Err(StoreError::Unusable(format!("Cannot open {shown}: it is not a database of a broker.")));
    }
    if sqlite::tables(&mut conn)? == Tables::Newer {
        let why = "a later version of webloom has changed its tables. Use that version, or a later one";
        return Err(StoreError::Unusable(format!("Cannot use {shown}: {why}.")));
    }
    Ok(conn)
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| DATABASE.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The open files of a store besides the database.
struct Sources {
    folders: [PathBuf; 2],
    files: HashMap<FileName, File>,
}

impl Sources {
    fn open(database: &Path) -> Result<Self, StoreError> {
        let mut this = Self { folders: [RESULTS, PACKAGES].map(|suffix| beside(database, suffix)), files: HashMap::new() };
        this.open_more()?;
        Ok(this)
    }

    fn open_more(&mut self) -> Result<(), StoreError> {
        let named: [fn(&Path) -> Option<FileName>; 2] = [|path| number_of(path).map(FileName::Segment), package];
        for (folder, name) in self.folders.iter().zip(named) {
            let refused = |path: &Path, e: &io::Error| StoreError::Unusable(format!("Cannot read {}: {}.", path.display(), disk::why(e)));
            let entries = match fs::read_dir(folder) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|e| refused(folder, &e))?,
            };
            for entry in entries {
                let path = entry.map_err(|e| refused(folder, &e))?.path();
                let Some(name) = name(&path).filter(|name| !self.files.contains_key(name)) else { continue };
                match File::open(&path) {
                    Ok(file) => drop(self.files.insert(name, file)),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(refused(&path, &e)),
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.files.values().filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum()
    }
}

fn package(path: &Path) -> Option<FileName> {
    let name = path.file_name()?.to_str()?;
    FileName::try_from(FileName::Package(name.to_owned()).beside(DATABASE)).ok()
}
