//! Copying, checking and syncing files, with texts for the user.

use crate::domain::backup::{hex, size};
use crate::private;
use crate::store::error::StoreError;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Which side of a copy failed.
#[derive(Debug)]
pub(super) enum Failed {
    Reading(io::Error),
    Writing(io::Error),
}

/// The problem in words.
pub(super) fn why(error: &io::Error) -> String {
    let text = error.to_string();
    StoreError::Failed(text.clone()).disk_trouble().map_or(text, ToOwned::to_owned)
}

/// The error for a file that cannot be written.
pub(super) fn not_written(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unusable(format!("Cannot write {}: {}.", path.display(), why(error)))
}

/// Creates an empty file for its owner alone.
pub(super) fn create(path: &Path) -> io::Result<File> {
    private::options().write(true).create_new(true).open(path)
}

/// Copies to a file and syncs it; the size and the SHA-256 of what was copied.
pub(super) fn copy(from: &mut impl Read, to: &mut File) -> Result<(u64, String), Failed> {
    let summed = sum(from, |bytes| to.write_all(bytes))?;
    to.sync_all().map_err(Failed::Writing)?;
    Ok(summed)
}

/// Syncs a file; its size and SHA-256.
pub(super) fn sync(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    file.sync_all()?;
    read(&mut file)
}

/// The size and the SHA-256 of a file.
pub(super) fn read(file: &mut File) -> io::Result<(u64, String)> {
    sum(file, |_| Ok(())).map_err(|(Failed::Reading(e) | Failed::Writing(e))| e)
}

fn sum(from: &mut impl Read, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> Result<(u64, String), Failed> {
    let (mut hash, mut length, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok((length, hex(&hash.finalize()))),
            Ok(read) => {
                hash.update(&chunk[..read]);
                length += read as u64;
                write(&chunk[..read]).map_err(Failed::Writing)?;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Failed::Reading(e)),
        }
    }
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    is_gone(fs::remove_file(path))
}

/// Removes a folder and all that it holds, if it is there.
pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    is_gone(fs::remove_dir_all(path))
}

fn is_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Syncs the names in a folder, if it is there.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        folder => folder?.sync_all(),
    }
}

/// Checks that a disk has room for this many bytes. A clause for the user if it has not.
pub(super) fn check_room(folder: &Path, needed: u64) -> Result<(), String> {
    // Without an answer, the disk reports it when it is full.
    let Ok(found) = nix::sys::statvfs::statvfs(folder) else { return Ok(()) };
    let free = found.blocks_available().saturating_mul(found.fragment_size());
    if free >= needed {
        return Ok(());
    }
    Err(format!("it needs {}, and the disk has {} free. Make room, or name a folder on another disk.", size(needed), size(free)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_refused_in_words() {
        assert_eq!(check_room(Path::new("/"), 0), Ok(()));
        assert!(check_room(Path::new("/"), u64::MAX).is_err_and(|why| why.starts_with("it needs 18446744.1 TB, and the disk has ")));
        let full = not_written(Path::new("/b/f"), &io::Error::from_raw_os_error(28));
        assert_eq!(full.to_string(), "Cannot write /b/f: the disk is full.");
    }
}
