//! Rows of any table: read in the order of their key, summed, and written.

use super::UNFINISHED;
use super::tables::{Kind, Table};
use crate::store::dialect::{COMPATIBLE_KEY, Conn, Database};
use crate::store::error::StoreError;
use crate::store::segment_tables::TERM;
use diesel::connection::DefaultLoadingMode;
use diesel::deserialize::{self, QueryableByName};
use diesel::row::{Field as _, NamedRow};
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};
use diesel::{OptionalExtension as _, RunQueryDsl};
use sha2::{Digest as _, Sha256};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(Option<i64>),
    Flag(Option<bool>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// A row of any table.
pub(super) struct Row(Vec<Value>);

impl QueryableByName<Database> for Row {
    fn build<'a>(row: &impl NamedRow<'a, Database>) -> deserialize::Result<Self> {
        let mut values = Vec::with_capacity(row.field_count());
        for place in 0..row.field_count() {
            // The name that [`all`] gave the column contains its kind.
            let name = diesel::row::Row::get(row, place).and_then(|field| field.field_name().map(ToOwned::to_owned)).unwrap_or_default();
            values.push(match name.as_bytes().first() {
                Some(b'n') => Value::Number(NamedRow::get::<Nullable<BigInt>, _>(row, &name)?),
                Some(b'f') => Value::Flag(NamedRow::get::<Nullable<Bool>, _>(row, &name)?),
                Some(b't') => Value::Text(NamedRow::get::<Nullable<Text>, _>(row, &name)?),
                _ => Value::Bytes(NamedRow::get::<Nullable<Binary>, _>(row, &name)?),
            });
        }
        Ok(Self(values))
    }
}

impl Row {
    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let of = |value: &Value| match value {
            Value::Number(_) | Value::Flag(_) => 8,
            Value::Text(text) => text.as_ref().map_or(0, String::len),
            Value::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
        };
        self.0.iter().map(of).sum()
    }

    /// Replaces the character that PostgreSQL has no texts with, as a broker does in lines of logs; whether there was any.
    pub(super) fn replace_nul(&mut self) -> bool {
        let mut found = false;
        for value in &mut self.0 {
            if let Value::Text(Some(text)) = value
                && text.contains('\0')
            {
                *text = text.replace('\0', "\u{fffd}");
                found = true;
            }
        }
        found
    }
}

/// Number and checksum of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Sum {
    pub(super) rows: u64,
    hash: Sha256,
}

impl Sum {
    pub(super) fn add(&mut self, row: &Row) {
        for value in &row.0 {
            match value {
                Value::Number(Some(number)) => self.part(b'n', &number.to_be_bytes()),
                Value::Flag(Some(flag)) => self.part(b'f', &[u8::from(*flag)]),
                Value::Text(Some(text)) => self.part(b't', text.as_bytes()),
                Value::Bytes(Some(bytes)) => self.part(b'b', bytes),
                Value::Number(None) | Value::Flag(None) | Value::Text(None) | Value::Bytes(None) => self.part(b'-', &[]),
            }
        }
        self.rows += 1;
    }

    /// Something else that counts as a row.
    pub(super) fn add_parts(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.part(b'b', part));
        self.rows += 1;
    }

    fn part(&mut self, kind: u8, bytes: &[u8]) {
        self.hash.update([kind]);
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }

    pub(super) fn checksum(&self) -> String {
        crate::domain::backup::hex(&self.hash.clone().finalize())
    }
}

/// Reads all rows of a table in the order of its key.
pub(super) fn all(conn: &mut Conn, table: &Table, mut each: impl FnMut(Row) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let is_server = matches!(conn, Conn::Postgres(_));
    let column = |(place, (name, kind)): (usize, &(String, Kind))| {
        let (letter, cast) = match kind {
            Kind::Number if is_server => ('n', "::bigint"),
            Kind::Number => ('n', ""),
            Kind::Flag => ('f', ""),
            Kind::Text => ('t', ""),
            Kind::Bytes => ('b', ""),
        };
        format!("\"{name}\"{cast} AS {letter}{place}")
    };
    let columns: Vec<String> = table.columns.iter().enumerate().map(column).collect();
    let key: Vec<String> = table.key.iter().map(|name| format!("\"{name}\"")).collect();
    let condition = condition(table);
    let query = format!("SELECT {} FROM \"{}\"{condition} ORDER BY {}", columns.join(", "), table.name, key.join(", "));
    for row in diesel::sql_query(query).load_iter::<Row, DefaultLoadingMode>(conn)? {
        each(row?)?;
    }
    Ok(())
}

/// The mark of an unfinished copy is not part of its store, and what the migrations and the leader of the target noted stays.
fn condition(table: &Table) -> String {
    if table.name == "meta" { format!(" WHERE \"key\" NOT IN ('{UNFINISHED}', '{COMPATIBLE_KEY}', '{TERM}')") } else { String::new() }
}

/// Writes rows.
pub(super) fn insert(conn: &mut Conn, table: &Table, rows: Vec<Row>) -> Result<(), StoreError> {
    let width = table.columns.len();
    let names: Vec<String> = table.columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let row = |at: usize| {
        let places: Vec<String> = (1..=width).map(|place| format!("${}", at * width + place)).collect();
        format!("({})", places.join(", "))
    };
    let values: Vec<String> = (0..rows.len()).map(row).collect();
    let text = format!("INSERT INTO \"{}\" ({}) VALUES {}", table.name, names.join(", "), values.join(", "));
    let mut query = diesel::sql_query(text).into_boxed::<Database>();
    for value in rows.into_iter().flat_map(|row| row.0) {
        query = match value {
            Value::Number(number) => query.bind::<Nullable<BigInt>, _>(number),
            Value::Flag(flag) => query.bind::<Nullable<Bool>, _>(flag),
            Value::Text(text) => query.bind::<Nullable<Text>, _>(text),
            Value::Bytes(bytes) => query.bind::<Nullable<Binary>, _>(bytes),
        };
    }
    query.execute(conn)?;
    Ok(())
}

/// Deletes all rows.
pub(super) fn clear(conn: &mut Conn, table: &Table) -> Result<(), StoreError> {
    diesel::sql_query(format!("DELETE FROM \"{}\"{}", table.name, condition(table))).execute(conn)?;
    Ok(())
}

#[derive(diesel::QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// Whether the table has any row.
pub(super) fn has_any(conn: &mut Conn, table: &Table) -> Result<bool, StoreError> {
    let query = format!("SELECT CAST(1 AS BIGINT) AS number FROM \"{}\"{} LIMIT 1", table.name, condition(table));
    Ok(diesel::sql_query(query).get_result::<Number>(conn).optional()?.is_some())
}

/// The last number that the database gave to a row of this table, which may be deleted; 0 if none.
pub(super) fn last_number(conn: &mut Conn, table: &Table) -> Result<i64, StoreError> {
    let query = match conn {
        Conn::Sqlite(_) => format!("SELECT seq AS number FROM sqlite_sequence WHERE name = '{}'", table.name),
        Conn::Postgres(_) => {
            let sequence = sequence(table);
            // The last value of a sequence that was never asked is the first that it will give.
            format!("SELECT COALESCE(pg_sequence_last_value({sequence}::regclass), 0) AS number")
        }
    };
    Ok(diesel::sql_query(query).get_result::<Number>(conn).optional()?.map_or(0, |row| row.number))
}

/// Lets the database go on after this number.
pub(super) fn set_last_number(conn: &mut Conn, table: &Table, last: i64) -> Result<(), StoreError> {
    let statements = match conn {
        Conn::Sqlite(_) => vec![
            format!("DELETE FROM sqlite_sequence WHERE name = '{}'", table.name),
            format!("INSERT INTO sqlite_sequence (name, seq) SELECT '{}', {last} WHERE {last} > 0", table.name),
        ],
        Conn::Postgres(_) => {
            let sequence = sequence(table);
            vec![format!("SELECT setval({sequence}, {}, {})", last.max(1), last > 0)]
        }
    };
    for statement in statements {
        diesel::sql_query(statement).execute(conn)?;
    }
    Ok(())
}

/// The name of a table's sequence, as an expression.
fn sequence(table: &Table) -> String {
    format!("pg_get_serial_sequence('\"{}\"', '{}')", table.name, table.key.first().map_or("", String::as_str))
}
