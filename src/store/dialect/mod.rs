//! The two databases, and what differs between them. All other statements have a text that both understand.
//!
//! Both number parameters (`$1`), know `ON CONFLICT`, `RETURNING`, `IS NOT DISTINCT FROM` and partial indexes. What differs: the id of the
//! row that was inserted last, how a transaction begins, and texts that compare a flag ([`by_database`]).

pub(super) mod postgres;
pub(super) mod sqlite;

use super::candidate::Tables;
use super::error::StoreError;
use crate::domain::database::DatabaseAddress;
use crate::domain::ids::BrokerId;
use crate::domain::leader::Turn;
use diesel::backend::Backend;
use diesel::connection::{Connection, SimpleConnection};
use diesel::migration::MigrationSource;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;
use diesel::{QueryResult, RunQueryDsl};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness};
use postgres::PgConn;
use std::path::Path;

/// The connection that all statements are written for.
#[derive(diesel::MultiConnection)]
#[expect(clippy::large_enum_variant, reason = "a broker has four of them")]
pub(in crate::store) enum Conn {
    /// A file.
    Sqlite(SqliteConnection),
    /// A server.
    Postgres(PgConn),
}

/// Its database.
pub(in crate::store) type Database = MultiBackend;

/// The text of a statement for the database of this connection.
pub(in crate::store) fn by_database(conn: &Conn, sqlite: &'static str, postgres: &'static str) -> &'static str {
    match conn {
        Conn::Sqlite(_) => sqlite,
        Conn::Postgres(_) => postgres,
    }
}

/// The hint of an index for SQLite's planner, which knows too little of the rows to choose it; PostgreSQL has no such hints.
pub(in crate::store) fn index(conn: &Conn, hint: &'static str) -> &'static str {
    by_database(conn, hint, "")
}

/// The condition of the index of jobs that may be silent, exactly as in the index.
pub(in crate::store) fn may_be_silent(conn: &Conn) -> &'static str {
    by_database(conn, "instr(policies, '\"silentAfter\"') > 0", "strpos(policies, '\"silentAfter\"') > 0")
}

/// A number in a column with JSON.
pub(in crate::store) fn json_number(conn: &Conn, column: &str, name: &str) -> String {
    match conn {
        Conn::Sqlite(_) => format!("json_extract({column}, '$.{name}')"),
        // As a text: PostgreSQL refuses JSON in which any text has the character U+0000.
        Conn::Postgres(_) => format!("substring({column} from '\"{name}\":([0-9]+)')::bigint"),
    }
}

/// Opens the database, creating its tables or migrating them.
pub(in crate::store) fn migrate(address: &DatabaseAddress) -> Result<(), StoreError> {
    match address {
        DatabaseAddress::File(path) => sqlite::migrate(path),
        DatabaseAddress::Server(url) => postgres::migrate(url),
    }
}

/// The one connection that writes.
pub(in crate::store) fn writer(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::writer, postgres::writer)
}

/// As [`writer`], for an owner of runs.
pub(in crate::store) fn owner_writer(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::writer, postgres::owner_writer)
}

/// As [`writer`], for a command that copies a whole store: its statements may take any time.
pub(in crate::store) fn bulk_writer(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::writer, postgres::bulk_writer)
}

/// As [`reader`], for a command that copies a whole store: its statements may take any time.
pub(in crate::store) fn bulk_reader(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::reader, postgres::bulk_reader)
}

/// A connection that cannot write.
pub(in crate::store) fn reader(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::reader, postgres::reader)
}

/// The connection of a standby.
pub(in crate::store) fn seat(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::seat, postgres::seat)
}

/// Tells the standbys that the lease is released, when the transaction is committed. With a file they see it soon enough.
pub(in crate::store) fn wake_standbys(conn: &mut Conn) -> Result<(), StoreError> {
    match conn {
        Conn::Sqlite(_) => Ok(()),
        Conn::Postgres(conn) => postgres::wake_standbys(conn),
    }
}

/// A read-only connection for other processes than a broker; it never changes the files.
pub(in crate::store) fn observer(address: &DatabaseAddress) -> Result<Conn, StoreError> {
    open(address, sqlite::observer, postgres::bulk_reader)
}

fn open(
    address: &DatabaseAddress,
    sqlite: impl FnOnce(&Path) -> Result<SqliteConnection, StoreError>,
    postgres: impl FnOnce(&crate::domain::database::ServerUrl) -> Result<PgConn, StoreError>,
) -> Result<Conn, StoreError> {
    match address {
        DatabaseAddress::File(path) => sqlite(path).map(Conn::Sqlite),
        DatabaseAddress::Server(url) => postgres(url).map(Conn::Postgres),
    }
}

/// Whether the connection still works. A file cannot go away.
pub(in crate::store) fn is_alive(conn: &mut Conn) -> bool {
    match conn {
        Conn::Sqlite(_) => true,
        Conn::Postgres(conn) => postgres::is_alive(conn),
    }
}

/// Whether the last commit found the connection broken.
pub(in crate::store) fn is_lost(conn: &Conn) -> bool {
    matches!(conn, Conn::Postgres(conn) if conn.is_lost())
}

/// Begins a transaction that will write.
pub(in crate::store) fn begin(conn: &mut Conn) -> Result<(), StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::begin(conn),
        Conn::Postgres(conn) => postgres::begin(conn),
    }
}

/// What became of the last batch of a leader, or of this owner of runs, at a server, after a commit without an answer; `None` if its row is not
/// there. Waits until the lost transaction is over, and fails if it is not over soon.
pub(in crate::store) fn last_turn(address: &DatabaseAddress, owner: Option<BrokerId>) -> Result<Option<Turn>, StoreError> {
    match address {
        DatabaseAddress::Server(url) => postgres::last_turn(url, owner),
        DatabaseAddress::File(_) => Err(StoreError::Failed("a file does not count its batches".into())),
    }
}

/// Commits. After an error the connection must not be used again, and it is unknown whether the data is stored.
pub(in crate::store) fn commit(conn: &mut Conn) -> Result<(), StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::commit(conn),
        Conn::Postgres(conn) => postgres::commit(conn),
    }
}

/// Rolls back everything since [`begin`].
pub(in crate::store) fn rollback(conn: &mut Conn) -> Result<(), StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::rollback(conn),
        Conn::Postgres(conn) => postgres::rollback(conn),
    }
}

/// Keeps the space that the database needs besides its tables within bounds.
pub(in crate::store) fn bound_log(conn: &mut Conn, address: &DatabaseAddress) -> Result<(), StoreError> {
    match (conn, address) {
        (Conn::Sqlite(conn), DatabaseAddress::File(path)) => sqlite::bound_log(conn, path),
        _ => Ok(()),
    }
}

/// Gives back the disk space of the log, if that is ours to do.
pub(in crate::store) fn empty_log(conn: &mut Conn) -> Result<(), StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::empty_log(conn),
        Conn::Postgres(_) => Ok(()),
    }
}

/// At shutdown.
pub(in crate::store) fn settle(conn: &mut Conn) -> Result<(), StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::settle(conn),
        Conn::Postgres(_) => Ok(()),
    }
}

/// Whether a table with this name exists.
pub(in crate::store) fn has_table(conn: &mut Conn, name: &str) -> Result<bool, StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::has_table(conn, name),
        Conn::Postgres(conn) => postgres::has_table(conn, name),
    }
}

/// Compares the tables with this version.
pub(in crate::store) fn tables(conn: &mut Conn) -> Result<Tables, StoreError> {
    match conn {
        Conn::Sqlite(conn) => sqlite::tables(conn),
        Conn::Postgres(conn) => postgres::tables(conn),
    }
}

fn not_read(e: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    StoreError::Failed(format!("reading the migrations: {e}"))
}

/// Key in `meta`: see [`COMPATIBLE_SINCE`].
pub(in crate::store) const COMPATIBLE_KEY: &str = "compatible_since";

/// A program that knows this migration can use the tables after all migrations of this version, also if it does not know the later ones.
const COMPATIBLE_SINCE: &str = include_str!("../compatible_since");

/// Applies what is pending, and notes in the database which earlier versions can use it then. `has_meta`: the table for that is there.
fn apply_pending<DB: Backend, C: MigrationHarness<DB> + SimpleConnection>(
    conn: &mut C,
    migrations: impl Fn() -> EmbeddedMigrations,
    has_meta: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (key, since) = (COMPATIBLE_KEY, COMPATIBLE_SINCE.trim());
    let rule = "ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    let note = format!("INSERT INTO meta (key, value) VALUES ('{key}', '{since}') {rule}");
    // Noted before the tables change: if this process dies in between, no earlier version uses tables that it cannot use.
    if has_meta && conn.has_pending_migration(migrations())? {
        conn.batch_execute(&note)?;
    }
    if !conn.run_pending_migrations(migrations())?.is_empty() && !has_meta {
        conn.batch_execute(&note)?;
    }
    Ok(())
}

/// `since` reads the value of [`COMPATIBLE_KEY`].
fn compare<DB: Backend, C: MigrationHarness<DB>>(
    conn: &mut C,
    migrations: &EmbeddedMigrations,
    since: impl FnOnce(&mut C) -> QueryResult<Option<String>>,
) -> Result<Tables, StoreError> {
    let done = conn.applied_migrations().map_err(not_read)?;
    let known = MigrationSource::<DB>::migrations(migrations).map_err(not_read)?;
    let known: Vec<_> = known.iter().map(|migration| migration.name().version().as_owned()).collect();
    let lacks_some = known.iter().any(|version| !done.contains(version));
    let has_others = done.iter().any(|version| !known.contains(version));
    Ok(match (lacks_some, has_others) {
        (false, false) => Tables::Fit,
        (true, false) => Tables::Older,
        (false, true) if since(conn)?.is_some_and(|since| known.iter().any(|version| version.to_string() >= since)) => Tables::Extended,
        (_, true) => Tables::Newer,
    })
}

/// The names of the migrations that the tables lack, the first to be applied first. With PostgreSQL the connection must be allowed to write,
/// although nothing is written.
pub(in crate::store) fn pending(conn: &mut Conn) -> Result<Vec<String>, StoreError> {
    let known = known(conn)?;
    if !has_table(conn, "__diesel_schema_migrations")? {
        return Ok(known);
    }
    let done = match conn {
        Conn::Sqlite(conn) => conn.applied_migrations(),
        Conn::Postgres(conn) => conn.applied_migrations(),
    };
    let done: Vec<String> = done.map_err(not_read)?.iter().map(ToString::to_string).collect();
    // A version is the digits of the stamp.
    let version = |name: &str| name.split('_').next().unwrap_or_default().replace('-', "");
    Ok(known.into_iter().filter(|name| !done.contains(&version(name))).collect())
}

/// The names of all migrations for this database, in their order.
pub(in crate::store) fn known(conn: &Conn) -> Result<Vec<String>, StoreError> {
    fn names<DB: Backend>(all: &EmbeddedMigrations) -> Result<Vec<String>, StoreError> {
        let all = MigrationSource::<DB>::migrations(all).map_err(not_read)?;
        Ok(all.iter().map(|migration| migration.name().to_string()).collect())
    }
    let mut names = match conn {
        Conn::Sqlite(_) => names::<diesel::sqlite::Sqlite>(&sqlite::MIGRATIONS)?,
        Conn::Postgres(_) => names::<diesel::pg::Pg>(&postgres::MIGRATIONS)?,
    };
    names.sort();
    Ok(names)
}

/// The last migration of the tables; an empty text without migrations.
pub(in crate::store) fn last_migration(conn: &mut Conn) -> Result<String, StoreError> {
    let done = match conn {
        Conn::Sqlite(conn) => conn.applied_migrations(),
        Conn::Postgres(conn) => conn.applied_migrations(),
    };
    Ok(done.map_err(not_read)?.iter().max().map(ToString::to_string).unwrap_or_default())
}

/// The turn of this transaction, of the leader or of this owner of runs. With PostgreSQL the transaction keeps others from changing it: there is
/// more than one writer.
pub(in crate::store) fn turn(conn: &mut Conn, owner: Option<BrokerId>) -> Result<Option<Turn>, StoreError> {
    use super::schema::leader;
    use diesel::prelude::*;
    match conn {
        Conn::Postgres(conn) => postgres::next_turn(conn, owner),
        conn => {
            let term = leader::table.find(super::leader::ROW).select(leader::term).get_result(conn).optional()?;
            Ok(term.map(|term| Turn { term, batch: None }))
        }
    }
}

/// The id of the row that this connection to a file inserted last. PostgreSQL has `RETURNING` for that.
pub(in crate::store) fn last_inserted(conn: &mut Conn) -> QueryResult<i64> {
    LastInserted.get_result(conn)
}

#[derive(Debug, Clone, Copy)]
struct LastInserted;

impl QueryFragment<Database> for LastInserted {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        out.push_sql("SELECT last_insert_rowid()");
        Ok(())
    }
}

impl QueryId for LastInserted {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for LastInserted {
    type SqlType = BigInt;
}

impl RunQueryDsl<Conn> for LastInserted {}

/// Number of rows changed since the connection was opened, if the database counts them.
#[cfg(debug_assertions)]
pub(in crate::store) fn changes(conn: &mut Conn) -> Option<i64> {
    match conn {
        Conn::Sqlite(conn) => sqlite::changes(conn),
        Conn::Postgres(_) => None,
    }
}

/// An `INSERT` with a rule for a row that exists. diesel has no such expression for both databases.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct InsertOr<I> {
    insert: I,
    rule: &'static str,
}

/// For the statements that `diesel::insert_into` makes.
pub(in crate::store) trait OnConflict: Sized {
    /// Adds `ON CONFLICT` and this rule, such as `(id) DO UPDATE SET name = excluded.name`.
    fn with_conflict_rule(self, rule: &'static str) -> InsertOr<Self> {
        InsertOr { insert: self, rule }
    }
}

impl<T: diesel::QuerySource, U, Op> OnConflict for diesel::query_builder::InsertStatement<T, U, Op> {}

impl<I: QueryFragment<Database>> QueryFragment<Database> for InsertOr<I> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        self.insert.walk_ast(out.reborrow())?;
        out.push_sql(" ON CONFLICT ");
        out.push_sql(self.rule);
        Ok(())
    }
}

/// Cached by its text.
impl<I> QueryId for InsertOr<I> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<I> RunQueryDsl<Conn> for InsertOr<I> {}
