//! Differences between databases. PostgreSQL will be added beside SQLite here.

pub(super) mod sqlite;

pub(super) use sqlite as current;
/// The connection that all statements are written for.
pub(super) type Conn = sqlite::Conn;
/// Its database.
pub(super) type Database = <Conn as diesel::connection::Connection>::Backend;
