//! Files that are for the user of this process alone: what is stored may hold secrets.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;
const OTHERS: u32 = 0o077;
const OTHERS_READ: u32 = 0o044;

/// Makes a folder, and those that lead to it, unless they are there.
///
/// # Errors
/// The system refuses.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// Options with which files are made for their owner alone. What is to be done with the file is added.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE);
    options
}

/// Takes the rights of all others from a file or a folder, if it is there. If that is refused, it is logged.
pub fn keep(path: &Path) {
    let Ok(meta) = path.metadata() else { return };
    let mode = meta.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return;
    }
    let shown = path.display();
    match std::fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        Ok(()) => log::info!("rights of other users were taken away path={shown} mode={mode:o}"),
        Err(error) => log::warn!("other users may read what may hold secrets: use chmod path={shown} mode={mode:o} reason={error}"),
    }
}

/// Warns of a file with a secret that others may read. It is left as it is: it was made by somebody else.
pub fn warn_if_open(what: &str, path: &Path) {
    let mode = path.metadata().map_or(0, |meta| meta.permissions().mode() & 0o777);
    if mode & OTHERS_READ != 0 {
        log::warn!("other users may read the {what}: use chmod 600 path={} mode={mode:o}", path.display());
    }
}

/// Keeps other processes of the same user from reading memory and environment of this one: both hold tokens. The price: no
/// core dumps, and no debugger that is not root's.
pub fn hide_process() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        log::warn!("other processes of this user may read tokens in the memory of this one reason={error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_its_owners_and_what_was_there_becomes_so() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("a").join("b");
        make_folder(&folder).expect("made");
        make_folder(&folder).expect("there already");
        assert_eq!((mode(&folder), mode(&home.path().join("a"))), (0o700, 0o700));
        let file = folder.join("f");
        options().write(true).create_new(true).open(&file).expect("made");
        assert_eq!(mode(&file), 0o600);
        std::fs::set_permissions(&file, Permissions::from_mode(0o664)).expect("ours");
        keep(&file);
        assert_eq!(mode(&file), 0o600);
        keep(&folder.join("none"));
    }
}
