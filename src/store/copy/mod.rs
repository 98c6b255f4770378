//! Copies a store to another database: a file to a server, a server to a file, or between two of one kind.
//!
//! No broker works on either meanwhile: the copy leads both (`store/custody.rs`). The target is marked before the first row is written, and the mark
//! goes in the transaction that gives it back, after everything was read again and compared: no broker starts on a marked store, and
//! the next copy to it starts again. Rows keep their keys and packs their places, so the two stores are equal, row by row.

mod bytes;
mod rows;
mod tables;

#[cfg(test)]
pub(super) use tables::{Kind, LEFT_OUT, tables as copied_tables};

use super::custody::Custody;
use super::dialect::{self, Conn};
use super::error::StoreError;
use super::migrations;
use super::schema::meta;
use crate::domain::database::DatabaseAddress;
use crate::fault;
use bytes::Bytes;
use diesel::prelude::*;
use rows::{Row, Sum};
use tables::{Table, tables};

/// The key in `meta` of the mark of a store to which a copy was not finished.
const UNFINISHED: &str = "unfinished_copy";
/// Rows that are written by one statement, at most: together they have fewer values than a statement of SQLite may have.
const ROWS: usize = 500;
/// Their bytes, unless one row has more.
const BYTES: usize = 4 << 20;

/// A part of the store that was copied, and read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The table, `results` or `packages`.
    pub what: String,
    /// Its rows, packs or packages.
    pub rows: u64,
    /// The SHA-256 of them all, the same in both stores.
    pub checksum: String,
}

/// What a copy did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// All parts.
    pub parts: Vec<Copied>,
    /// What the source has lost, and what the target cannot hold.
    pub warnings: Vec<String>,
}

/// Fails if a copy to this store was not finished.
pub(super) fn check_finished(conn: &mut Conn, address: &DatabaseAddress) -> Result<(), StoreError> {
    let Some(from) = mark(conn)? else { return Ok(()) };
    Err(StoreError::Unusable(format!(
        "Cannot use {address}: a copy from {from} to it was interrupted, or is in progress. Repeat it: webloom store copy. Or delete the store."
    )))
}

fn mark(conn: &mut Conn) -> Result<Option<String>, StoreError> {
    Ok(meta::table.find(UNFINISHED).select(meta::value).get_result(conn).optional()?)
}

/// Copies a store that no broker leads to one that is empty, which is created if it does not exist.
///
/// # Errors
/// The text is for the user. The target can be used only after success; the same call starts again.
pub fn copy(from: &DatabaseAddress, to: &DatabaseAddress) -> Result<Report, StoreError> {
    let (from, to) = (from.absolute()?, to.absolute()?);
    if from == to {
        return Err(StoreError::Unusable(format!("Cannot copy {from}: the target is the same store.")));
    }
    let tables = tables()?;
    check_source(&from)?;
    check_empty(&to, &tables)?;
    let (source, target) = (Custody::take(&from)?, Custody::take_for_copy(&to)?);
    fault::point("copy.step");
    let (input, output) = (&mut dialect::bulk_reader(&from)?, &mut dialect::bulk_writer(&to)?);
    target.write(output, |conn| {
        let values = (meta::key.eq(UNFINISHED), meta::value.eq(from.to_string()));
        let insert = dialect::OnConflict::with_conflict_rule(diesel::insert_into(meta::table).values(values), "(key) DO NOTHING");
        Ok(insert.execute(conn).map(drop)?)
    })?;
    fault::point("copy.step");
    // What an interrupted copy left.
    let bytes = Bytes { from: &from, to: &to };
    bytes.clear(output)?;
    for table in &tables {
        target.write(output, |conn| rows::clear(conn, table))?;
    }

    let mut report = Report::default();
    let mut sums = Vec::new();
    for table in &tables {
        let mut nul = 0;
        sums.push(copy_rows(input, output, &target, table, to.file().is_none(), &mut nul)?);
        if nul > 0 {
            let warning =
                format!("{}: {nul} rows have the character U+0000, which PostgreSQL cannot store; U+FFFD replaces it", table.name);
            report.warnings.push(warning);
        }
        if table.is_numbered {
            let last = rows::last_number(input, table)?;
            target.write(output, |conn| rows::set_last_number(conn, table, last))?;
        }
        fault::point("copy.step");
    }
    let results = bytes.copy_results(input, output, &target, &mut report.warnings)?;
    let packages = bytes.copy_packages(input, output, &target, &mut report.warnings)?;
    let copied = &mut dialect::bulk_reader(&to)?;
    compare(input, copied, &tables, &sums, &mut report)?;
    report.parts.push(same("results", &results, &bytes.sum_results(copied)?)?);
    report.parts.push(same("packages", &packages, &bytes.sum_packages(copied)?)?);
    fault::point("copy.step");
    // Nothing was written to the source meanwhile.
    if dialect_term(input)? != Some(source.term()) {
        return Err(StoreError::Unusable(format!("Cannot copy {from}: a broker took it over meanwhile. Stop it, and repeat the copy.")));
    }
    target.release_with(output, source.term() + 1, |conn| Ok(diesel::delete(meta::table.find(UNFINISHED)).execute(conn).map(drop)?))?;
    fault::point("copy.step");
    dialect::settle(output)?;
    let conn = &mut dialect::writer(&from)?;
    source.release(conn, 0)?;
    dialect::settle(conn)?;
    Ok(report)
}

fn dialect_term(conn: &mut Conn) -> Result<Option<i64>, StoreError> {
    Ok(super::leader::stored_lease(conn)?.map(|stored| stored.lease.term))
}

fn check_source(from: &DatabaseAddress) -> Result<(), StoreError> {
    let pending = migrations::pending(from)?;
    migrations::check_all_known(from)?;
    let mut conn = dialect::observer(from)?;
    if !dialect::has_table(&mut conn, "job")? {
        return Err(StoreError::Unusable(format!("Cannot copy {from}: it is not a database of a broker.")));
    }
    check_finished(&mut conn, from)?;
    if pending.is_empty() {
        return Ok(());
    }
    let why = format!("its tables are older than this version ({} migrations are pending)", pending.len());
    Err(StoreError::Unusable(format!("Cannot copy {from}: {why}. Run: webloom migrate")))
}

/// Checks that a copy would replace nothing. What an interrupted copy left is nothing.
fn check_empty(to: &DatabaseAddress, tables: &[Table]) -> Result<(), StoreError> {
    if to.file().is_some_and(|path| !path.exists()) {
        return Ok(());
    }
    migrations::pending(to)?;
    let mut conn = dialect::observer(to)?;
    if dialect::has_table(&mut conn, "meta")? && mark(&mut conn)?.is_some() {
        return Ok(());
    }
    for table in tables {
        if dialect::has_table(&mut conn, &table.name)? && rows::has_any(&mut conn, table)? {
            let why = format!(
                "it is not empty: the table {} has rows. A copy replaces nothing: name a new file or an empty database",
                table.name
            );
            return Err(StoreError::Unusable(format!("Cannot copy to {to}: {why}.")));
        }
    }
    Ok(())
}

fn copy_rows(
    input: &mut Conn,
    output: &mut Conn,
    target: &Custody,
    table: &Table,
    replaces_nul: bool,
    nul: &mut u64,
) -> Result<Sum, StoreError> {
    let (mut sum, mut waiting, mut bytes) = (Sum::default(), Vec::<Row>::new(), 0);
    let write = |output: &mut Conn, rows: Vec<Row>| {
        target.write(output, |conn| rows::insert(conn, table, rows))?;
        fault::point("copy.step");
        Ok::<_, StoreError>(())
    };
    rows::all(input, table, |mut row| {
        *nul += u64::from(replaces_nul && row.replace_nul());
        sum.add(&row);
        bytes += row.bytes();
        waiting.push(row);
        if waiting.len() >= ROWS || bytes >= BYTES {
            bytes = 0;
            write(output, std::mem::take(&mut waiting))?;
        }
        Ok(())
    })?;
    if !waiting.is_empty() {
        write(output, waiting)?;
    }
    Ok(sum)
}

/// Reads all tables of the target, and compares them with what was read from the source.
fn compare(input: &mut Conn, copied: &mut Conn, tables: &[Table], sums: &[Sum], report: &mut Report) -> Result<(), StoreError> {
    for (table, sum) in tables.iter().zip(sums) {
        let mut found = Sum::default();
        rows::all(copied, table, |row| {
            found.add(&row);
            Ok(())
        })?;
        report.parts.push(same(&table.name, sum, &found)?);
        if table.is_numbered && rows::last_number(input, table)? != rows::last_number(copied, table)? {
            return Err(differs(&format!("the next number of {} is another one", table.name)));
        }
    }
    Ok(())
}

fn same(what: &str, source: &Sum, target: &Sum) -> Result<Copied, StoreError> {
    if source.rows != target.rows || source.checksum() != target.checksum() {
        let why = format!(
            "{what} has {} rows with the checksum {}, and {} with {}",
            source.rows,
            source.checksum(),
            target.rows,
            target.checksum()
        );
        return Err(differs(&why));
    }
    Ok(Copied { what: what.to_owned(), rows: target.rows, checksum: target.checksum() })
}

fn differs(why: &str) -> StoreError {
    StoreError::Unusable(format!("The copy differs from its source: {why}. No broker starts on it; repeat the copy."))
}
