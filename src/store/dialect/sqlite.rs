//! SQLite: opening files, and transactions.
//!
//! Two things make SQLite parse a statement each time, and are avoided in all statements per block: an `UPDATE` by diesel,
//! which does not cache it (hence [`super::super::hot`]), and a `LIMIT` with a parameter, whose value the planner
//! reads (hence `get_result` and not `first` where at most one row can match).

use super::super::candidate::Tables;
use super::super::error::StoreError;
use super::super::schema::meta;
use diesel::connection::{AnsiTransactionManager, Connection, SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::{Sqlite, SqliteConnection};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use std::path::Path;

pub(in crate::store) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// A page of this size holds a typical block, which halves the system calls. It is fixed once the first table exists.
const PAGE: &str = "PRAGMA page_size = 8192;";
/// FULL: committed data survives a crash of the machine, and with grouped commits this costs almost nothing. The cache holds the
/// changes of one batch: changes that do not fit are written to the log early, and again at the commit. It grows with the amount
/// written; an idle broker stays small. Data for a rollback of a statement is kept in memory.
const WRITER: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
    PRAGMA cache_size = -16000; \
    PRAGMA temp_store = MEMORY;";
const READER: &str = "PRAGMA busy_timeout = 5000; PRAGMA cache_size = -1000; PRAGMA query_only = ON;";

/// For a standby: it writes only a few unimportant bytes. So it does not wait for the disk and does not checkpoint the log: it holds
/// the write lock only for some microseconds, even on a slow disk.
const SEAT: &str = "PRAGMA page_size = 8192; PRAGMA busy_timeout = 200; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; \
    PRAGMA cache_size = -200;";

/// Opens the file, creating it if necessary, and migrates its tables.
pub(in crate::store) fn migrate(path: &Path) -> Result<(), StoreError> {
    migrated(path).map(drop)
}

/// As [`migrate`]; the connection.
pub(in crate::store) fn migrated(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = open(path, PAGE)?;
    conn.batch_execute(WRITER)?;
    let has_meta = has_table(&mut conn, "meta")?;
    let applied = super::apply_pending::<Sqlite, _>(&mut conn, || MIGRATIONS, has_meta);
    applied.map_err(|e| StoreError::Failed(format!("migrating {}: {e}", path.display())))?;
    Ok(conn)
}

/// The one connection that writes.
pub(in crate::store) fn writer(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = open(path, WRITER)?;
    bound_log(&mut conn, path)?;
    Ok(conn)
}

/// Minimum and maximum number of log pages after which the log is checkpointed. A busy queue writes five or six pages per commit: with
/// 512 pages, more than one commit in a hundred waited for a checkpoint.
const LOG_PAGES: std::ops::RangeInclusive<i64> = 2048..=4096;
/// Readers can prevent the log from restarting; if it is longer than the limit by this factor, the writer waits for them.
const LOG_TOO_LONG: i64 = 4;

/// Bounds the log by the size of the database: the log of a small database is checkpointed often, which is cheap, that of a large one
/// rarely. So the log never takes much more space than the database, and a page is written at most twice.
pub(in crate::store) fn bound_log(conn: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let pages = number(conn, "SELECT page_count AS number FROM pragma_page_count()")?;
    let page_bytes = number(conn, "SELECT page_size AS number FROM pragma_page_size()")?;
    let pages = (pages.max(1) as u64).next_power_of_two() as i64;
    let pages = pages.clamp(*LOG_PAGES.start(), *LOG_PAGES.end());
    let bytes = pages * page_bytes;
    conn.batch_execute(&format!("PRAGMA wal_autocheckpoint = {pages}; PRAGMA journal_size_limit = {bytes};"))?;
    let log = path.with_file_name(format!("{}-wal", path.file_name().unwrap_or_default().to_string_lossy()));
    if log.metadata().is_ok_and(|found| found.len() as i64 > bytes * LOG_TOO_LONG) {
        empty_log(conn)?;
    }
    Ok(())
}

/// Checkpoints the log and frees its disk space, unless readers hold it for longer than a moment.
pub(in crate::store) fn empty_log(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let done = conn.batch_execute("PRAGMA busy_timeout = 50; PRAGMA wal_checkpoint(TRUNCATE);");
    conn.batch_execute("PRAGMA busy_timeout = 5000;")?;
    Ok(done?)
}

fn number(conn: &mut SqliteConnection, query: &str) -> Result<i64, StoreError> {
    Ok(diesel::sql_query(query).get_result::<Number>(conn)?.number)
}

#[derive(diesel::QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// Whether any of these tables exists and has a row.
pub(in crate::store) fn has_rows(conn: &mut SqliteConnection, tables: &[&str]) -> Result<bool, StoreError> {
    for table in tables {
        if has_table(conn, table)? && number(conn, &format!("SELECT EXISTS (SELECT 1 FROM {table}) AS number"))? == 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn not_opened(path: &Path, e: &dyn std::fmt::Display) -> StoreError {
    let text = e.to_string();
    if text.contains("file is not a database") {
        return StoreError::Unusable(format!("Cannot open {}: it is not an SQLite database.", path.display()));
    }
    StoreError::Failed(format!("opening {}: {text}", path.display()))
}

/// The connection of a standby.
pub(in crate::store) fn seat(path: &Path) -> Result<SqliteConnection, StoreError> {
    open(path, SEAT)
}

/// A connection that cannot write.
pub(in crate::store) fn reader(path: &Path) -> Result<SqliteConnection, StoreError> {
    open(path, READER)
}

/// A read-only connection that never changes the file, even while a broker writes to it.
pub(in crate::store) fn observer(path: &Path) -> Result<SqliteConnection, StoreError> {
    let failed = |e: &dyn std::fmt::Display| not_opened(path, e);
    super::super::files::check_for_reading(path)?;
    let name = path.to_str().ok_or_else(|| failed(&"its name is not UTF-8"))?;
    let name = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let establish = |options: &str| {
        let mut conn = SqliteConnection::establish(&format!("file:{name}?{options}")).map_err(|e| failed(&e))?;
        // The first read shows whether the file is readable.
        conn.batch_execute(&format!("{READER} SELECT COUNT(*) FROM sqlite_schema;")).map_err(|e| failed(&e))?;
        Ok(conn)
    };
    // A cleanly closed file in a read-only folder can be opened only as immutable.
    let log = path.with_file_name(format!("{}-wal", path.file_name().unwrap_or_default().to_string_lossy()));
    establish("mode=ro").or_else(|error| if log.exists() { Err(error) } else { establish("immutable=1") })
}

fn open(path: &Path, pragmas: &str) -> Result<SqliteConnection, StoreError> {
    let failed = |e: &dyn std::fmt::Display| not_opened(path, e);
    let name = path.to_str().ok_or_else(|| failed(&"its name is not UTF-8"))?;
    let mut conn = SqliteConnection::establish(name).map_err(|e| failed(&e))?;
    conn.batch_execute(pragmas).map_err(|e| failed(&e))?;
    Ok(conn)
}

/// Begins a transaction that will write.
pub(in crate::store) fn begin(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    Ok(AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN IMMEDIATE")?)
}

/// Commits. After an error the connection must not be used again, and it is unknown whether the data is on disk.
pub(in crate::store) fn commit(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    AnsiTransactionManager::commit_transaction(conn).map_err(|e| StoreError::Unknown(e.to_string()))
}

/// Rolls back everything since [`begin`].
pub(in crate::store) fn rollback(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    Ok(AnsiTransactionManager::rollback_transaction(conn)?)
}

/// Whether a table with this name exists.
pub(in crate::store) fn has_table(conn: &mut SqliteConnection, name: &str) -> Result<bool, StoreError> {
    let count = diesel::sql_query("SELECT COUNT(*) AS count FROM sqlite_schema WHERE type = 'table' AND name = ?");
    let count: Count = count.bind::<diesel::sql_types::Text, _>(name).get_result(conn)?;
    Ok(count.count > 0)
}

#[derive(diesel::QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Compares the tables with this version.
pub(in crate::store) fn tables(conn: &mut SqliteConnection) -> Result<Tables, StoreError> {
    if !has_table(conn, "__diesel_schema_migrations")? {
        return Ok(Tables::Older);
    }
    super::compare::<Sqlite, _>(conn, &MIGRATIONS, |conn| {
        meta::table.find(super::COMPATIBLE_KEY).select(meta::value).get_result(conn).optional()
    })
}

/// Copies the committed content into an empty file, without free pages. It reads in one transaction: writers go on, and the log grows
/// meanwhile. The copy is not synced.
pub(in crate::store) fn copy_into(conn: &mut SqliteConnection, file: &Path) -> Result<(), StoreError> {
    let name = file.to_str().ok_or_else(|| not_opened(file, &"its name is not UTF-8"))?;
    // The flag also holds for the new file. What this connection reads cannot change, because it is opened read-only.
    conn.batch_execute("PRAGMA query_only = OFF; PRAGMA cache_size = -16000;")?;
    diesel::sql_query("VACUUM INTO ?").bind::<diesel::sql_types::Text, _>(name).execute(conn)?;
    Ok(())
}

/// Bytes of a copy.
pub(in crate::store) fn used_bytes(conn: &mut SqliteConnection) -> Result<u64, StoreError> {
    let used = "SELECT (page_count - freelist_count) * page_size AS number \
        FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()";
    Ok(number(conn, used)?.max(0) as u64)
}

/// Opens the copy of a database for changes. It has no log.
pub(in crate::store) fn copy(path: &Path) -> Result<SqliteConnection, StoreError> {
    open(path, "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;")
}

/// The process that holds the write lock, if the operating system reports it.
#[cfg(target_os = "linux")]
pub(in crate::store) fn who_writes(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    // Uses the system's list of locks, not `F_GETLK`: closing the file for the query would release SQLite's own locks on it.
    let index = path.with_file_name(format!("{}-shm", path.file_name()?.to_string_lossy()));
    let inode = std::fs::metadata(index).ok()?.ino();
    std::fs::read_to_string("/proc/locks").ok()?.lines().find_map(|line| holder(line, inode))
}

/// Unknown on other systems.
#[cfg(not(target_os = "linux"))]
pub(in crate::store) fn who_writes(_: &Path) -> Option<u32> {
    None
}

/// The process in a line of `/proc/locks`, if it is the write lock on the index with this inode (SQLite, wal-index: the
/// first of the bytes from 120 on).
#[cfg(target_os = "linux")]
fn holder(line: &str, inode: u64) -> Option<u32> {
    const WRITE_LOCK: u64 = 120;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "WRITE", pid, file, from, to] = words[..] else { return None };
    let is_it = file.rsplit(':').next()?.parse() == Ok(inode) && from.parse::<u64>().ok()? <= WRITE_LOCK;
    (is_it && to.parse::<u64>().is_ok_and(|to| WRITE_LOCK <= to)).then(|| pid.parse().ok())?
}

/// Moves the content of the log into the file, at shutdown. Another broker may lead by now: most of the work is done without the lock for
/// writing, and this process does not wait for readers while it has that lock.
pub(in crate::store) fn settle(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    conn.batch_execute("PRAGMA wal_checkpoint(PASSIVE);")?;
    empty_log(conn)
}

/// Number of rows changed since the connection was opened.
#[cfg(debug_assertions)]
pub(in crate::store) fn changes(conn: &mut SqliteConnection) -> Option<i64> {
    diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>("total_changes()")).get_result(conn).ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::holder;

    #[test]
    fn the_list_of_locks_is_read() {
        for (line, found) in [
            ("12: POSIX  ADVISORY  WRITE 4711 08:01:131 120 120", Some(4711)),
            ("12: POSIX  ADVISORY  WRITE 4711 00:2f:131 120 127", Some(4711)),
            ("12: POSIX  ADVISORY  WRITE 4711 08:01:131 121 127", None),
            ("12: POSIX  ADVISORY  WRITE 4711 08:01:132 120 120", None),
            ("12: POSIX  ADVISORY  READ 4711 08:01:131 120 120", None),
            ("12: -> POSIX  ADVISORY  WRITE 4711 08:01:131 120 120", None),
            ("12: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF", None),
            ("", None),
        ] {
            assert_eq!(holder(line, 131), found, "{line}");
        }
    }
}
