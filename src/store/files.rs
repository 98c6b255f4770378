//! Checks the files of a store before the database is opened: whether they are usable, and whether data was lost. The texts
//! are for the user who starts the program.

use super::dialect::sqlite;
use super::error::StoreError;
use super::{RESTORING, StoreConfig, beside};
use crate::private;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// How the files of SQLite begin.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Checks that a database can be opened for writing or created, and creates its folder.
pub(super) fn check_for_writing(config: &StoreConfig) -> Result<(), StoreError> {
    let Some(path) = config.database.file() else { return Ok(()) };
    let shown = path.display();
    let path = std::path::absolute(path)?;
    let refused = |verb: &str, why: String| StoreError::Unusable(format!("Cannot {verb} {shown}: {why}"));
    if path.is_dir() {
        return Err(refused("open", "it is a folder, and a file is expected.".to_owned()));
    }
    let is_there = path.exists();
    let verb = if is_there { "open" } else { "create" };
    let folder = path.parent().unwrap_or(Path::new("/"));
    private::make_folder(folder).map_err(|e| {
        let why = match e.kind() {
            ErrorKind::PermissionDenied => format!("no permission to create the folder {} ({}).", folder.display(), running_as()),
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => format!("{} is not a folder.", folder.display()),
            _ => format!("the folder {} cannot be created: {e}.", folder.display()),
        };
        refused(verb, why)
    })?;
    if is_there && !may(&path, true) {
        return Err(refused(verb, format!("no permission to read and write it ({}).", running_as())));
    }
    // Before anything is changed: the path may be that of another program's file.
    if is_there && !may_be_database(&path)? {
        return Err(refused(verb, "it is not an SQLite database.".to_owned()));
    }
    // The log and the lock are files beside the database.
    if !may(folder, true) {
        return Err(refused(verb, format!("no permission to write in {} ({}).", folder.display(), running_as())));
    }
    let marker = beside(&path, RESTORING);
    if !is_there && marker.exists() {
        let why = "a restore was interrupted, or is in progress. Repeat it: webloom restore. Or delete";
        return Err(refused(verb, format!("{why} {} and what was restored beside it.", marker.display())));
    }
    if config.accept_lost_data { Ok(()) } else { check_nothing_is_lost(&path) }
}

/// Whether the file is empty, or begins as a database does (<https://www.sqlite.org/fileformat.html#magic_header_string>).
fn may_be_database(path: &Path) -> Result<bool, StoreError> {
    let mut start = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MAGIC)
}

/// Checks that a database can be read.
pub(super) fn check_for_reading(path: &Path) -> Result<(), StoreError> {
    let refused = |why: String| Err(StoreError::Unusable(format!("Cannot open {}: {why}", path.display())));
    match path.metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => refused("no such file.".to_owned()),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => refused(format!("no permission to look into its folder ({}).", running_as())),
        Err(e) => refused(format!("{e}.")),
        Ok(found) if found.is_dir() => refused("it is a folder, and a file is expected.".to_owned()),
        Ok(_) if !may(path, false) => refused(format!("no permission to read it ({}).", running_as())),
        Ok(_) => check_log(path),
    }
}

/// Rejects signs of lost data: continuing would silently make the loss permanent.
fn check_nothing_is_lost(path: &Path) -> Result<(), StoreError> {
    const GO_ON: &str = "or start with --accept-lost-data to go on without it";
    check_log(path).map_err(|e| StoreError::Unusable(format!("{e}, {GO_ON}.")))?;
    let left = [("-results", "results of blocks"), ("-packages", "packages")].into_iter().find_map(|(suffix, what)| {
        let folder = beside(path, suffix);
        let count = std::fs::read_dir(&folder).ok()?.filter_map(Result::ok).filter(|entry| is_of_a_store(&entry.path())).count();
        (count > 0).then_some((folder, count, what))
    });
    let Some((folder, count, what)) = left else { return Ok(()) };
    if !is_empty(path)? {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "Cannot start with the empty database {}: the folder {} beside it holds {count} file(s) with {what} of an earlier database, and \
        they would be deleted or never be used. The database file was moved, deleted, or lost together with its -wal file. Put it back, \
        move the folder away, {GO_ON}.",
        path.display(),
        folder.display()
    )))
}

/// SQLite deletes the index of its log before the log: an index alone means that another program removed the log.
fn check_log(path: &Path) -> Result<(), StoreError> {
    let (log, index) = (beside(path, "-wal"), beside(path, "-shm"));
    if path.exists() && index.exists() && !log.exists() {
        return Err(StoreError::Unusable(format!(
            "Cannot open {}: {} is there, and {} is missing. That file contains the last transactions. Put it back",
            path.display(),
            index.display(),
            log.display()
        )));
    }
    Ok(())
}

fn is_of_a_store(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // An interrupted upload is not a package.
    path.is_file() && (name.ends_with(".seg") || (name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit())))
}

/// Whether no job and no run was ever stored.
fn is_empty(path: &Path) -> Result<bool, StoreError> {
    let length = |path: &Path| path.metadata().map_or(0, |found| found.len());
    if length(path) == 0 && length(&beside(path, "-wal")) == 0 {
        return Ok(true);
    }
    let mut conn = sqlite::reader(path)?;
    Ok(!sqlite::has_table(&mut conn, "run")? || !sqlite::has_rows(&mut conn, &["job", "run", "package"])?)
}

#[cfg(unix)]
fn may(path: &Path, write: bool) -> bool {
    use nix::unistd::{AccessFlags, access};
    access(path, if write { AccessFlags::R_OK | AccessFlags::W_OK } else { AccessFlags::R_OK }).is_ok()
}

#[cfg(not(unix))]
fn may(_: &Path, _: bool) -> bool {
    true
}

#[cfg(unix)]
fn running_as() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => format!("running as user {}", user.name),
        _ => format!("running as user {uid}"),
    }
}

#[cfg(not(unix))]
fn running_as() -> String {
    "running as this user".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: Result<(), StoreError>) -> String {
        error.map_or_else(|e| e.to_string(), |()| String::new())
    }

    #[test]
    fn what_cannot_be_a_database_is_refused_in_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let config = |name: &str| StoreConfig::new(at(name));
        std::fs::write(at("file"), "hello").expect("a file");
        assert!(text(check_for_writing(&StoreConfig::new(folder.path()))).ends_with("it is a folder, and a file is expected."));
        assert!(text(check_for_writing(&config("file/w.db"))).contains("is not a folder."));
        assert!(text(check_for_reading(&at("nosuch.db"))).ends_with("nosuch.db: no such file."));
        assert!(text(check_for_reading(folder.path())).ends_with("it is a folder, and a file is expected."));
        assert_eq!(text(check_for_writing(&config("new/w.db"))), "");
        let other = text(check_for_writing(&config("file")));
        assert!(other.starts_with("Cannot open") && other.ends_with("file: it is not an SQLite database."), "{other}");
        assert!(text(sqlite::observer(&at("file")).map(drop)).ends_with("file: it is not an SQLite database."));
    }

    #[test]
    fn an_empty_database_beside_results_or_packages_is_refused() {
        for (suffix, name) in [("-results", "3.seg".to_owned()), ("-packages", "ab".repeat(32))] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("w.db");
            let mut config = StoreConfig::new(&path);
            let files = beside(&path, suffix);
            std::fs::create_dir(&files).expect("a folder");
            std::fs::write(files.join("notes.txt"), "not ours").expect("a file");
            assert_eq!(text(check_for_writing(&config)), "", "a folder without files of a store");
            std::fs::write(files.join(name), "x").expect("a file");
            for make in [None, Some("")] {
                if let Some(bytes) = make {
                    std::fs::write(&path, bytes).expect("an empty file");
                }
                let found = text(check_for_writing(&config));
                assert!(found.contains("holds 1 file(s)") && found.contains("--accept-lost-data"), "{found}");
            }
            std::fs::remove_file(&path).expect("removed");
            sqlite::migrate(&path).expect("tables");
            assert!(text(check_for_writing(&config)).contains("--accept-lost-data"), "tables, and nothing in them");
            config.accept_lost_data = true;
            assert_eq!(text(check_for_writing(&config)), "");
        }
    }

    #[test]
    fn no_broker_starts_beside_an_unfinished_restore() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = StoreConfig::new(folder.path().join("w.db"));
        config.accept_lost_data = true;
        std::fs::write(folder.path().join("w.db.restoring"), "").expect("a file");
        let found = text(check_for_writing(&config));
        assert!(found.contains("a restore was interrupted") && found.contains("w.db.restoring"), "{found}");
        std::fs::write(config.database.file().expect("a file"), "").expect("a file");
        assert_eq!(text(check_for_writing(&config)), "");
    }

    #[test]
    fn a_log_that_was_taken_away_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.db");
        sqlite::migrate(&path).expect("tables");
        assert_eq!(text(check_for_writing(&StoreConfig::new(&path))), "");
        std::fs::write(beside(&path, "-shm"), "x").expect("a file");
        for found in [text(check_for_writing(&StoreConfig::new(&path))), text(check_for_reading(&path))] {
            assert!(found.contains("w.db-wal is missing"), "{found}");
        }
    }
}
