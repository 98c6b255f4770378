//! Packages in the format tar.gz.

use super::entries::{Entries, bad, too_large};
use crate::protocol::application::ProgramError;
use flate2::read::MultiGzDecoder;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use tar::{Archive, EntryType};

/// Bytes of headers, long names and attributes before one entry. The reader of the archive keeps them in memory.
const MOST_HEADERS: u64 = 1 << 20;

/// A reader that fails after a number of bytes, which its user sets again for each part.
struct Limited<'a, R> {
    reader: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(into.len());
        if most == 0 && !into.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.reader.read(&mut into[..most])?;
        self.left.set(self.left.get() - read as u64);
        Ok(read)
    }
}

pub fn unpack(file: File, entries: &mut Entries<'_>) -> Result<(), ProgramError> {
    let left = Cell::new(MOST_HEADERS);
    let mut archive = Archive::new(Limited { reader: MultiGzDecoder::new(BufReader::new(file)), left: &left });
    let failed = |error: io::Error| match left.get() {
        0 => too_large(format!("the headers, long names and attributes of an entry have over {MOST_HEADERS} bytes")),
        _ => bad(error),
    };
    let mut archived = archive.entries().map_err(failed)?;
    loop {
        // What is left of the entry before is skipped here, and counts as well: only files may be large, and these are read to their end.
        left.set(MOST_HEADERS);
        let Some(entry) = archived.next() else { return Ok(()) };
        let mut entry = entry.map_err(failed)?;
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(bad)?;
        let target = entry.link_name_bytes().map(|bytes| String::from_utf8(bytes.into_owned())).transpose().map_err(bad)?;
        let target = target.unwrap_or_default();
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let mode = entry.header().mode().ok();
                left.set(u64::MAX);
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
}
