//! The logs of runs.

use super::columns::storable;
use super::dialect::Conn;
use super::error::StoreError;
use super::hot::many;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::run_log;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A line to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLine {
    /// The time of the line.
    pub at: Timestamp,
    /// 0 trace, 1 debug, 2 info, 3 warning, 4 error, 5 critical.
    pub level: i16,
    /// broker, worker, stdout, stderr …
    pub source: String,
    /// The text.
    pub text: String,
}

/// Appends lines to the log of a run.
#[derive(Debug, Clone)]
pub struct AppendLogs {
    /// The number of the run.
    pub run_no: i64,
    /// The lines, in their order.
    pub lines: Vec<NewLine>,
}

impl WriteOp for AppendLogs {
    const BY_OWNER: bool = true;

    type Output = ();

    fn weight(&self) -> usize {
        self.lines.iter().map(|line| line.text.len()).sum()
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        insert_lines(tx.conn, self.run_no, &self.lines)
    }
}

/// Lines of a run's log, in the order in which they came.
#[derive(Debug, Clone)]
pub struct ListLogs {
    /// The number of the run.
    pub run_no: i64,
    /// Only lines after this one.
    pub after: i64,
    /// Only lines of this level or higher.
    pub level: i16,
    /// Only those that contain this, without case.
    pub text: Option<String>,
    /// Only those at this time or later.
    pub since: Option<Timestamp>,
    /// Only those at this time or earlier.
    pub until: Option<Timestamp>,
    /// At most this many.
    pub limit: usize,
}

/// A stored line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLine {
    /// Sequence number across all runs.
    pub id: i64,
    /// The line.
    pub line: NewLine,
}

impl ReadOp for ListLogs {
    type Output = Vec<StoredLine>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<StoredLine>, StoreError> {
        let own = run_log::table.filter(run_log::run_no.eq(self.run_no)).filter(run_log::id.gt(self.after));
        let mut query = own.order(run_log::id).limit(self.limit as i64).into_boxed();
        if self.level > 0 {
            query = query.filter(run_log::level.ge(self.level));
        }
        if let Some(text) = &self.text {
            query = query.filter(super::jobs::lower(run_log::text).like(super::jobs::like_pattern(text)).escape('\\'));
        }
        if let Some(since) = self.since {
            query = query.filter(run_log::at.ge(since));
        }
        if let Some(until) = self.until {
            query = query.filter(run_log::at.le(until));
        }
        let rows: Vec<(i64, i64, Timestamp, i16, String, String)> = query.load(from.conn)?;
        let line = |(id, _, at, level, source, text)| StoredLine { id, line: NewLine { at, level, source, text } };
        Ok(rows.into_iter().map(line).collect())
    }
}

/// The size of a run's log: lines, and bytes of text.
#[derive(Debug, Clone, Copy)]
pub struct LogSize {
    /// The number of the run.
    pub run_no: i64,
}

impl ReadOp for LogSize {
    type Output = (u64, u64);

    fn read(&self, from: &mut Source<'_>) -> Result<(u64, u64), StoreError> {
        let bytes = diesel::dsl::sql::<diesel::sql_types::BigInt>("COALESCE(SUM(octet_length(text)), 0)");
        let own = run_log::table.filter(run_log::run_no.eq(self.run_no));
        let (lines, bytes): (i64, i64) = own.select((diesel::dsl::count_star(), bytes)).get_result(from.conn)?;
        Ok((lines as u64, bytes as u64))
    }
}

pub(super) fn insert_lines(conn: &mut Conn, run_no: i64, lines: &[NewLine]) -> Result<(), StoreError> {
    match conn {
        _ if lines.is_empty() => Ok(()),
        Conn::Postgres(conn) if lines.len() > 1 => many::insert_lines(conn, run_no, lines),
        conn => lines.iter().try_for_each(|line| insert_line(conn, run_no, line)),
    }
}

pub(super) fn insert_line(conn: &mut Conn, run_no: i64, line: &NewLine) -> Result<(), StoreError> {
    diesel::insert_into(run_log::table)
        .values((
            run_log::run_no.eq(run_no),
            run_log::at.eq(line.at),
            run_log::level.eq(line.level),
            run_log::source.eq(&line.source),
            run_log::text.eq(storable(&line.text)),
        ))
        .execute(conn)?;
    Ok(())
}
