//! The directory at the end of a zip, looked at before anything is made of it: how many entries it states, what they are
//! called, and whether a name comes twice. A reader that keeps entries by their names does not see that.

use super::entries::{MOST_ENTRIES, Names, bad, too_large, too_many};
use crate::protocol::application::ProgramError;
use std::io::{Read, Seek, SeekFrom};

/// The record at the end, without the remark that may follow it, and the longest remark.
const END: usize = 22;
const MOST_REMARK: usize = 65_535;
const END_MARK: [u8; 4] = *b"PK\x05\x06";
/// Says where the larger record is, right before the small one.
const LOCATOR: usize = 20;
const LOCATOR_MARK: [u8; 4] = *b"PK\x06\x07";
/// The larger record, as far as it is read.
const LARGE_END: usize = 56;
const LARGE_END_MARK: [u8; 4] = *b"PK\x06\x06";
/// An entry of the directory, without its name and what follows that.
const ENTRY: usize = 46;
const ENTRY_MARK: [u8; 4] = *b"PK\x01\x02";
/// Bytes of the directory: names, and what tools add to them. Readers keep all of it in memory, some parts twice.
const MOST_BYTES: u64 = 8 << 20;

/// A directory that may be read.
pub(super) struct Directory {
    /// Where it begins.
    pub start: u64,
    /// How many entries it has.
    pub entries: usize,
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// The content of the record at the end.
struct End {
    entries: u64,
    bytes: u64,
    /// Where the directory should begin, and where it ends.
    start: u64,
    end: u64,
}

/// Looks at the directory of a zip. The place in the file is its beginning afterwards.
///
/// # Errors
/// There is none, it has too many entries, or a name in it is bad or comes twice.
pub(super) fn check(file: &mut (impl Read + Seek)) -> Result<Directory, ProgramError> {
    let end = end(file)?;
    if end.entries > MOST_ENTRIES as u64 {
        return Err(too_many());
    }
    if end.bytes > MOST_BYTES {
        return Err(too_large(format!("the directory of the package has over {MOST_BYTES} bytes")));
    }
    // Where something stands before the zip, as in one that unpacks itself, all places are off by its length.
    let start = end.end.checked_sub(end.bytes).filter(|start| *start >= end.start).ok_or_else(|| bad("its directory is cut"))?;
    file.seek(SeekFrom::Start(start)).map_err(bad)?;
    let mut directory = vec![0; usize::try_from(end.bytes).map_err(bad)?];
    file.read_exact(&mut directory).map_err(bad)?;
    file.rewind().map_err(bad)?;
    let mut names = Names::default();
    let (mut rest, mut entries) = (&directory[..], 0);
    while rest.starts_with(&ENTRY_MARK) && rest.len() >= ENTRY {
        let (name, more) = (number(rest, 28, 2) as usize, number(rest, 30, 2) as usize + number(rest, 32, 2) as usize);
        let bytes = rest.get(ENTRY..ENTRY + name).ok_or_else(|| bad("its directory is cut"))?;
        // What is no UTF-8 is in an old encoding of one byte a letter: any other letters tell such names apart as well.
        let letter = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { char::from_u32(0x100 + u32::from(*byte)).unwrap_or('_') };
        match std::str::from_utf8(bytes) {
            Ok(name) => names.add(name)?,
            Err(_) => names.add(&bytes.iter().map(letter).collect::<String>())?,
        };
        entries += 1;
        rest = rest.get(ENTRY + name + more..).ok_or_else(|| bad("its directory is cut"))?;
    }
    if entries as u64 != end.entries {
        return Err(bad("its directory does not have the number of entries that it states"));
    }
    Ok(Directory { start, entries })
}

/// Reads the record at the end, and the larger one that it may stand for.
fn end(file: &mut (impl Read + Seek)) -> Result<End, ProgramError> {
    let length = file.seek(SeekFrom::End(0)).map_err(bad)?;
    let tail = length.min((END + MOST_REMARK + LOCATOR) as u64);
    file.seek(SeekFrom::Start(length - tail)).map_err(bad)?;
    let mut bytes = vec![0; tail as usize];
    file.read_exact(&mut bytes).map_err(bad)?;
    let is_end = |at: &usize| bytes[*at..].starts_with(&END_MARK) && *at + END + number(&bytes, at + 20, 2) as usize == bytes.len();
    let at = (0..bytes.len().saturating_sub(END - 1)).rev().find(is_end).ok_or_else(|| bad("there is no end of a zip in it"))?;
    let place = length - tail + at as u64;
    let small =
        End { entries: number(&bytes, at + 10, 2), bytes: number(&bytes, at + 12, 4), start: number(&bytes, at + 16, 4), end: place };
    let Some(locator) = at.checked_sub(LOCATOR).map(|from| &bytes[from..at]).filter(|bytes| bytes.starts_with(&LOCATOR_MARK)) else {
        return Ok(small);
    };
    // It is looked for where it should be and right before the locator, as readers do.
    for place in [number(locator, 8, 8), place.saturating_sub((LOCATOR + LARGE_END) as u64)] {
        let mut large = [0; LARGE_END];
        let read = file.seek(SeekFrom::Start(place)).and_then(|_| file.read_exact(&mut large));
        if read.is_ok() && large.starts_with(&LARGE_END_MARK) {
            return Ok(End { entries: number(&large, 32, 8), bytes: number(&large, 40, 8), start: number(&large, 48, 8), end: place });
        }
    }
    Err(bad("its end is cut"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::application::ProgramErrorKind::{self, PackageFormat, PackageTooLarge, PackageUnsafe};
    use std::io::Cursor;

    /// A directory with these names, and an end that says that it has so many entries.
    fn zip<'a>(names: impl Iterator<Item = &'a str>, says: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for name in names {
            let mut entry = [0; ENTRY];
            entry[..4].copy_from_slice(&ENTRY_MARK);
            entry[28..30].copy_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&entry);
            bytes.extend_from_slice(name.as_bytes());
        }
        let length = bytes.len() as u64;
        let is_large = says > 65_535;
        if is_large {
            let mut large = [0; LARGE_END];
            large[..4].copy_from_slice(&LARGE_END_MARK);
            large[32..40].copy_from_slice(&says.to_le_bytes());
            large[40..48].copy_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&large);
            let mut locator = [0; LOCATOR];
            locator[..4].copy_from_slice(&LOCATOR_MARK);
            locator[8..16].copy_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&locator);
        }
        let mut end = [0; END];
        end[..4].copy_from_slice(&END_MARK);
        end[10..12].copy_from_slice(&(says.min(65_535) as u16).to_le_bytes());
        end[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&end);
        bytes
    }

    fn refused(bytes: Vec<u8>) -> Option<ProgramErrorKind> {
        check(&mut Cursor::new(bytes)).map_err(|error| error.kind).err()
    }

    #[test]
    fn too_many_entries_are_seen_before_they_are_read() {
        // What the end says is enough: there is none of them.
        assert_eq!(refused(zip(std::iter::empty(), 1_000_000)), Some(PackageTooLarge));
        assert_eq!(refused(zip(std::iter::empty(), 20_001)), Some(PackageTooLarge));
        let folders: Vec<String> = (0..3_000).map(|i| format!("{i}/{}", "d/".repeat(30))).collect();
        assert_eq!(refused(zip(folders.iter().map(String::as_str), 3_000)), Some(PackageTooLarge), "folders on the way count");
        let names: Vec<String> = (0..19_000).map(|i| format!("a/b/{i}")).collect();
        assert_eq!(refused(zip(names.iter().map(String::as_str), 19_000)), None, "each of them once");
    }

    #[test]
    fn a_name_comes_once_and_the_end_does_not_lie() {
        assert_eq!(refused(zip(["a", "b"].into_iter(), 2)), None);
        for names in [["a", "a"], ["a", "./a"], ["a/b", "a\\b"], ["a/", "a"]] {
            assert_eq!(refused(zip(names.into_iter(), 2)), Some(PackageFormat), "{names:?}");
        }
        assert_eq!(refused(zip(["../a"].into_iter(), 1)), Some(PackageUnsafe));
        assert_eq!(refused(zip(["a", "b"].into_iter(), 1)), Some(PackageFormat), "more than it says");
        assert_eq!(refused(zip(["a"].into_iter(), 2)), Some(PackageFormat), "fewer");
        assert_eq!(refused(zip(["a"].into_iter(), 70_000)), Some(PackageTooLarge));
        assert_eq!(refused(b"PK".to_vec()), Some(PackageFormat));
        let mut before = vec![b'x'; 1_000];
        before.extend(zip(["a", "b"].into_iter(), 2));
        let found = check(&mut Cursor::new(before)).expect("what unpacks itself");
        assert_eq!((found.start, found.entries), (1_000, 2));
    }
}
