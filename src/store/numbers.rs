//! Numbers: lookup by number in the index of ids, and where an earlier broker stopped counting.

use super::columns::Hex;
use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{alert_channel, job, job_group, node, run, worker_record};
use crate::domain::ids::{MADE, Number};
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use uuid::Uuid;

/// Maximum number of ids of one version to return: more than one is ambiguous, and clients could have chosen many.
const ENOUGH: i64 = 2;
/// Milliseconds that a broker's clock may have been ahead.
const AHEAD_MS: u64 = 24 * 60 * 60 * 1_000;
/// The text pattern of ids of this version.
const VERSION_7: &str = "____________7%";

/// The kinds of objects with numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// A job, including deleted ones.
    Job,
    /// A run.
    Run,
    /// A group.
    Group,
    /// A node.
    Node,
    /// A worker.
    Worker,
    /// A channel of alerts.
    Channel,
}

/// The ids with a number: one if it was made here, several if clients chose ids that share it; of very many only some.
#[derive(Debug, Clone, Copy)]
pub struct OfNumber {
    /// The kind.
    pub kind: Numbered,
    /// The number.
    pub number: Number,
}

impl ReadOp for OfNumber {
    type Output = Vec<Uuid>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Uuid>, StoreError> {
        let mut found = Vec::new();
        for (first, last) in self.number.ranges() {
            let (first, last) = (Hex::of(first), Hex::of(last));
            macro_rules! between {
                ($table:ident, $column:ident) => {
                    $table::table.filter($table::$column.between(first, last)).select($table::$column).limit(ENOUGH).load(from.conn)?
                };
            }
            let those: Vec<Uuid> = match self.kind {
                Numbered::Job => between!(job, id),
                Numbered::Run => between!(run, identity),
                Numbered::Group => between!(job_group, id),
                Numbered::Node => between!(node, node_id),
                Numbered::Worker => between!(worker_record, id),
                Numbered::Channel => between!(alert_channel, id),
            };
            found.extend(those);
        }
        Ok(found)
    }
}

/// Continues counting where the last broker of this database stopped, even if the clock changed: after the last stored id that a
/// broker made. Clients may have chosen ids of any time; an id more than a day ahead of the clock and of the last run (whose id
/// clients cannot choose) was not made by a broker.
pub(super) fn resume(conn: &mut Conn, now: Timestamp) -> Result<(), StoreError> {
    let last: Option<Uuid> = run::table.order(run::no.desc()).select(run::identity).first(conn).optional()?;
    if let Some(last) = last {
        MADE.resume(last);
    }
    let end = Hex::of(MADE.not_made_before(now, AHEAD_MS));
    macro_rules! newest {
        ($($table:ident $column:ident),*) => {$(
            // Reads from the end of the index of ids: the newest id, and later ones of other versions.
            let made = $table::table.filter($table::$column.lt(end)).filter($table::$column.like(VERSION_7));
            let last: Option<Uuid> = made.order($table::$column.desc()).select($table::$column).first(conn).optional()?;
            if let Some(last) = last {
                MADE.resume(last);
            }
        )*};
    }
    newest!(run identity, job id, job_group id, alert_channel id, worker_record id);
    Ok(())
}
