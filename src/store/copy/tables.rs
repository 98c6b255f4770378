//! The tables that are copied, and how: from the migrations themselves, so that no list must be kept.

use crate::store::dialect::sqlite;
use crate::store::error::StoreError;
use diesel::RunQueryDsl;
use diesel::sql_types::{BigInt, Text};
use std::path::Path;

/// Tables whose rows are not copied, with the reasons.
pub(in crate::store) const LEFT_OUT: [(&str, &str); 6] = [
    ("__diesel_schema_migrations", "the migrations of the target are its own"),
    ("leader", "the lease belongs to the brokers of a database; the term is raised"),
    ("broker", "the brokers of the source do not use the target"),
    ("run_owner", "the brokers of the source own no runs of the target"),
    ("segment", "only in PostgreSQL: the next leader counts the tables of results"),
    ("package_piece", "only in PostgreSQL: it has the bytes of packages, which are files beside SQLite"),
];

/// How the values of a column are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) enum Kind {
    Number,
    Flag,
    Text,
    Bytes,
}

impl Kind {
    /// Of a type in a migration, or in PostgreSQL's catalogue.
    pub(in crate::store) fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "bigint" | "integer" | "smallint" => Self::Number,
            "boolean" => Self::Flag,
            "text" => Self::Text,
            "blob" | "bytea" => Self::Bytes,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Table {
    pub(in crate::store) name: String,
    /// In the order of the migrations for SQLite.
    pub(in crate::store) columns: Vec<(String, Kind)>,
    /// The columns of the primary key.
    pub(in crate::store) key: Vec<String>,
    /// The database numbers the rows, and gives no number twice.
    pub(in crate::store) is_numbered: bool,
}

#[derive(diesel::QueryableByName)]
struct Described {
    #[diesel(sql_type = Text)]
    of: String,
    #[diesel(sql_type = Text)]
    column: String,
    #[diesel(sql_type = Text)]
    kind: String,
    /// From 1 in the primary key.
    #[diesel(sql_type = BigInt)]
    place: i64,
    #[diesel(sql_type = BigInt)]
    is_numbered: i64,
}

/// The tables of this version that are copied, by name. The same for both databases: their migrations agree, which a test verifies.
pub(in crate::store) fn tables() -> Result<Vec<Table>, StoreError> {
    let mut conn = sqlite::migrated(Path::new(":memory:"))?;
    let describe = "SELECT m.name AS \"of\", p.name AS \"column\", p.type AS kind, p.pk AS place, m.sql LIKE '%AUTOINCREMENT%' AS is_numbered \
        FROM sqlite_schema m JOIN pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid";
    let described: Vec<Described> = diesel::sql_query(describe).load(&mut conn)?;
    let mut tables: Vec<(Table, Vec<(i64, String)>)> = Vec::new();
    for Described { of, column, kind, place, is_numbered } in described {
        if LEFT_OUT.iter().any(|(name, _)| *name == of) {
            continue;
        }
        let kind = Kind::of(&kind).ok_or_else(|| StoreError::Failed(format!("the column {column} of {of} has an unknown type: {kind}")))?;
        if tables.last().is_none_or(|(table, _)| table.name != of) {
            tables.push((Table { name: of, columns: Vec::new(), key: Vec::new(), is_numbered: is_numbered != 0 }, Vec::new()));
        }
        let Some((table, key)) = tables.last_mut() else { continue };
        if place > 0 {
            key.push((place, column.clone()));
        }
        table.columns.push((column, kind));
    }
    let with_key = |(mut table, mut key): (Table, Vec<(i64, String)>)| {
        key.sort();
        table.key = key.into_iter().map(|(_, column)| column).collect();
        if table.key.is_empty() { Err(StoreError::Failed(format!("the table {} has no primary key", table.name))) } else { Ok(table) }
    };
    tables.into_iter().map(with_key).collect()
}
