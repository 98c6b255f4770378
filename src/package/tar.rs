//! Packages in the format tar.gz.

use super::entries::{Entries, bad};
use crate::protocol::application::ProgramError;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::BufReader;
use tar::{Archive, EntryType};

pub fn unpack(file: File, entries: &mut Entries<'_>) -> Result<(), ProgramError> {
    let mut archive = Archive::new(MultiGzDecoder::new(BufReader::new(file)));
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(bad)?;
        let target = entry.link_name_bytes().map(|bytes| String::from_utf8(bytes.into_owned())).transpose().map_err(bad)?;
        let target = target.unwrap_or_default();
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let mode = entry.header().mode().ok();
                entries.file(&name, mode, &mut entry)?;
            }
            EntryType::Directory => entries.folder(&name)?,
            EntryType::Link => entries.hard_link(&name, &target)?,
            EntryType::Symlink => entries.symlink(&name, &target)?,
            // Remarks on the whole archive, as `git archive` makes them.
            EntryType::XGlobalHeader => {}
            _ => entries.other(&name)?,
        }
    }
    Ok(())
}
