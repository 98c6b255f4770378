//! From a package to a folder: all of it, or nothing.

use super::entries::{Bounds, Entries, bad};
use super::{refusal, tar, zip};
use crate::protocol::application::{ProgramError, ProgramErrorKind};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// Reads a package to its end, and writes nothing. What is refused here is refused by [`unpack`]. Blocks.
///
/// # Errors
/// The package is bad, or there is no file in it.
pub fn check(mut package: File, bounds: Bounds) -> Result<(), ProgramError> {
    let mut entries = Entries::looked_at(bounds);
    read(&mut package, &mut entries).and_then(|()| entries.finish_look())
}

fn read(package: &mut File, entries: &mut Entries<'_>) -> Result<(), ProgramError> {
    let failed = |e: std::io::Error| refusal(ProgramErrorKind::Spawn, format!("the package cannot be read: {e}"));
    package.rewind().map_err(failed)?;
    let mut magic = Vec::with_capacity(4);
    package.by_ref().take(4).read_to_end(&mut magic).map_err(failed)?;
    package.rewind().map_err(failed)?;
    let package = package.try_clone().map_err(failed)?;
    match magic[..] {
        [b'P', b'K', 3 | 5, 4 | 6] => zip::unpack(package, entries),
        [0x1f, 0x8b, ..] => tar::unpack(package, entries),
        _ => Err(bad("it is neither a zip nor a tar.gz")),
    }
}

/// Unpacks into `folder`, which is not there before; if this fails, it is not there after. Blocks.
///
/// # Errors
/// The package is bad; the kind is the reason.
pub fn unpack(mut package: File, folder: &Path, bounds: Bounds) -> Result<(), ProgramError> {
    let failed = |e: std::io::Error| refusal(ProgramErrorKind::Spawn, format!("the package cannot be unpacked: {e}"));
    let draft = folder.with_extension("draft");
    match std::fs::remove_dir_all(&draft) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => std::fs::create_dir(&draft).map_err(failed)?,
    }
    let mut entries = Entries::new(&draft, bounds);
    let done =
        read(&mut package, &mut entries).and_then(|()| entries.finish()).and_then(|()| std::fs::rename(&draft, folder).map_err(failed));
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&draft);
    }
    done
}
