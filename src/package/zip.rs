//! Packages in the format zip.

use super::directory;
use super::entries::{Entries, bad};
use crate::protocol::application::ProgramError;
use std::fs::File;
use std::io::{BufReader, Read};
use zip::ZipArchive;

/// Bytes of the target of a link.
const MOST_TARGET: u64 = 4_096;

pub fn unpack(file: File, entries: &mut Entries<'_>) -> Result<(), ProgramError> {
    let mut file = BufReader::new(file);
    let directory = directory::check(&mut file)?;
    let mut archive = ZipArchive::new(file).map_err(bad)?;
    // Another reader may find another directory in the same bytes.
    if (archive.central_directory_start(), archive.len()) != (directory.start, directory.entries) {
        return Err(bad("its directory can be read in two ways"));
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(bad)?;
        let name = entry.name().map_err(bad)?.into_owned();
        if entry.is_symlink() {
            let mut target = String::new();
            entry.by_ref().take(MOST_TARGET).read_to_string(&mut target).map_err(bad)?;
            entries.symlink(&name, &target)?;
        } else if entry.is_dir() || name.ends_with('\\') {
            entries.folder(&name)?;
        } else {
            let mode = entry.unix_mode();
            entries.file(&name, mode, &mut entry)?;
        }
    }
    Ok(())
}
