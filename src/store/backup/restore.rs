//! Restores a backup beside nothing: it never replaces a store.
//!
//! The database is the last file that gets its name, and gets it at once, so a store is restored completely or not at all. Until then
//! it is called `<database>.restoring`, and what an interrupted restore left is removed by the next one. No broker starts beside it.

use super::{disk, open};
use crate::domain::backup::{DATABASE, Entry, FileName, MANIFEST, Manifest, PACKAGES, RESULTS, UNFINISHED};
use crate::fault;
use crate::private;
use crate::store::dialect::{Conn, has_table, sqlite};
use crate::store::error::StoreError;
use crate::store::lock::DatabaseLock;
use crate::store::{RESTORING, beside, leader};
use diesel::prelude::*;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Verifies a backup: all its files are there and unchanged, and this version can use them. Changes nothing.
///
/// # Errors
/// The text is for the user.
pub fn check(from: &Path) -> Result<Manifest, StoreError> {
    let refused = |why: String| StoreError::Unusable(format!("Cannot restore {}: {why}", from.display()));
    let text = match fs::read_to_string(from.join(MANIFEST)) {
        Ok(text) => text,
        Err(_) if from.join(UNFINISHED).exists() => {
            return Err(refused(format!(
                "it is incomplete. The backup was interrupted, or is still being made. Repeat it: webloom backup --to {}",
                from.display()
            )));
        }
        Err(e) if e.kind() == ErrorKind::NotFound && !from.exists() => return Err(refused("no such folder.".to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(refused(format!("it is not a backup: {MANIFEST} is missing."))),
        Err(e) => return Err(refused(format!("{MANIFEST}: {}.", disk::why(&e)))),
    };
    let manifest = Manifest::parse(&text).map_err(|why| refused(format!("{why}.")))?;
    for entry in &manifest.files {
        verify(from, entry).map_err(|why| refused(format!("{} {why}.", String::from(entry.name.clone()))))?;
    }
    open(&from.join(DATABASE))?;
    Ok(manifest)
}

fn verify(from: &Path, entry: &Entry) -> Result<(), String> {
    let read = File::open(from.join(entry.name.beside(DATABASE))).and_then(|mut file| {
        let length = file.metadata()?.len();
        if length == entry.bytes { disk::read(&mut file) } else { Ok((length, String::new())) }
    });
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => Err("is missing".to_owned()),
        Err(e) => Err(format!("cannot be read: {}", disk::why(&e))),
        Ok((length, _)) if length != entry.bytes => Err(format!("is damaged: it has {length} bytes, and {} are expected", entry.bytes)),
        Ok((_, sha256)) if sha256 != entry.sha256 => Err("was changed: its checksum does not match".to_owned()),
        Ok(_) => Ok(()),
    }
}

/// Verifies a backup and restores it to this database file, which does not exist yet.
///
/// # Errors
/// The text is for the user.
pub fn restore(from: &Path, database: &Path) -> Result<Manifest, StoreError> {
    let path = std::path::absolute(database)?;
    check_free(&path)?;
    let manifest = check(from)?;
    let place = Place { path };
    place.hold_and(|| place.fill(from, &manifest))?;
    Ok(manifest)
}

fn refusal(path: &Path, why: &str) -> StoreError {
    StoreError::Unusable(format!("Cannot restore to {}: {why}", path.display()))
}

/// Checks that a restore would replace nothing.
fn check_free(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Err(refusal(path, "it is a folder, and the name of a file is expected."));
    }
    if beside(path, ".lock").exists() && !DatabaseLock::of(path).try_hold()? {
        return Err(refusal(path, "a broker or another restore uses it. To restore here, stop all brokers of this database."));
    }
    check_names(path)
}

fn check_names(path: &Path) -> Result<(), StoreError> {
    // Folders beside a marker are what an interrupted restore left.
    let suffixes: &[&str] = if beside(path, RESTORING).exists() { &["", "-wal", "-shm"] } else { &["", "-wal", "-shm", RESULTS, PACKAGES] };
    let paths = suffixes.iter().map(|suffix| beside(path, suffix));
    let there: Vec<String> = paths.filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let why = format!("a restore replaces nothing, and these exist: {}. Move them away, or name another file.", there.join(", "));
    Err(refusal(path, &why))
}

/// Where a store is restored.
struct Place {
    path: PathBuf,
}

impl Place {
    /// Runs this while no broker can lead here.
    fn hold_and(&self, run: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let folder = self.folder();
        private::make_folder(folder).map_err(|e| disk::not_written(folder, &e))?;
        let lock = DatabaseLock::of(&self.path);
        if !lock.try_hold()? {
            return Err(refusal(&self.path, "a broker or another restore uses it."));
        }
        let done = run();
        lock.release();
        done
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn fill(&self, from: &Path, manifest: &Manifest) -> Result<(), StoreError> {
        fault::point("restore.step");
        let marker = beside(&self.path, RESTORING);
        let failed = |e: io::Error| disk::not_written(&marker, &e);
        // Again, now that no broker and no other restore can begin.
        check_names(&self.path)?;
        if marker.exists() {
            for suffix in [RESULTS, PACKAGES] {
                let folder = beside(&self.path, suffix);
                disk::remove_folder(&folder).map_err(|e| disk::not_written(&folder, &e))?;
                fault::point("restore.step");
            }
            disk::remove(&beside(&marker, "-journal")).map_err(failed)?;
        }
        disk::check_room(self.folder(), manifest.bytes()).map_err(|why| refusal(&self.path, &why))?;
        // It stays until it is the database: while it exists, the rest is not a store.
        let mut file = private::options().write(true).create(true).truncate(true).open(&marker).map_err(failed)?;
        fault::point("restore.step");
        disk::sync_folder(self.folder()).map_err(failed)?;
        for entry in manifest.files.iter().filter(|entry| entry.name != FileName::Database) {
            let to = self.path.with_file_name(entry.name.beside(&super::file_name(&self.path)));
            let folder = to.parent().unwrap_or(&to);
            private::make_folder(folder).map_err(|e| disk::not_written(folder, &e))?;
            copy(from, entry, &mut disk::create(&to).map_err(|e| disk::not_written(&to, &e))?, &to)?;
            fault::point("restore.step");
        }
        for suffix in [RESULTS, PACKAGES] {
            let folder = beside(&self.path, suffix);
            disk::sync_folder(&folder).map_err(|e| disk::not_written(&folder, &e))?;
        }
        fault::point("restore.step");
        for entry in manifest.files.iter().filter(|entry| entry.name == FileName::Database) {
            copy(from, entry, &mut file, &marker)?;
        }
        drop(file);
        fault::point("restore.step");
        detach(&marker)?;
        fault::point("restore.step");
        disk::sync(&marker).map_err(failed)?;
        disk::sync_folder(self.folder()).map_err(failed)?;
        fault::point("restore.step");
        rename_new(&marker, &self.path).map_err(|e| disk::not_written(&self.path, &e))?;
        fault::point("restore.step");
        for folder in self.folder().ancestors().take(2) {
            // The folder itself may be new.
            disk::sync_folder(folder).map_err(failed)?;
        }
        Ok(())
    }
}

/// Copies a file of a backup that was verified before.
fn copy(from: &Path, entry: &Entry, file: &mut File, to: &Path) -> Result<(), StoreError> {
    let source = from.join(entry.name.beside(DATABASE));
    let unread = |e: &io::Error| StoreError::Unusable(format!("Cannot read {}: {}.", source.display(), disk::why(e)));
    let copied = disk::copy(&mut File::open(&source).map_err(|e| unread(&e))?, file).map_err(|failed| match failed {
        disk::Failed::Reading(e) => unread(&e),
        disk::Failed::Writing(e) => disk::not_written(to, &e),
    })?;
    if copied == (entry.bytes, entry.sha256.clone()) {
        return Ok(());
    }
    Err(StoreError::Unusable(format!("Cannot restore {}: {} was changed meanwhile.", from.display(), source.display())))
}

/// No broker of the original database leads the copy.
fn detach(copy: &Path) -> Result<(), StoreError> {
    let mut conn = Conn::Sqlite(sqlite::copy(copy)?);
    if !has_table(&mut conn, "leader")? {
        return Ok(());
    }
    conn.transaction(leader::forget_brokers)
}

/// Renames a file; fails if the new name exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            // Not every file system can do that.
            Err(Errno::EINVAL | Errno::ENOSYS) => {}
            done => return Ok(done?),
        }
    }
    if to.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}
