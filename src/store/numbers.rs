//! Numbers: what is found by one in the index of its ids, and where an earlier broker stopped counting.

use super::columns::{Hex, id};
use super::dialect::Conn;
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{alert_channel, job, job_group, node, run, worker_record};
use crate::domain::ids::{Identity, MADE, Number};
use diesel::prelude::*;
use uuid::Uuid;

/// What has a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// A job, also one that is deleted.
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

/// The ids of those that have a number: one if it was made here, several if clients chose ids that share it.
#[derive(Debug, Clone, Copy)]
pub struct OfNumber {
    /// Of which kind.
    pub kind: Numbered,
    /// The number.
    pub number: Number,
}

impl ReadOp for OfNumber {
    type Output = Vec<Uuid>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Uuid>, StoreError> {
        let Some((first, last)) = self.number.range() else { return Ok(Vec::new()) };
        let (first, last) = (Hex::of(first), Hex::of(last));
        let (first, last) = (first.text(), last.text());
        macro_rules! between {
            ($table:ident, $column:ident) => {
                $table::table.filter($table::$column.between(first, last)).select($table::$column).load(from.conn)?
            };
        }
        let near: Vec<String> = match self.kind {
            Numbered::Job => between!(job, id),
            Numbered::Run => between!(run, identity),
            Numbered::Group => between!(job_group, id),
            Numbered::Node => between!(node, node_id),
            Numbered::Worker => between!(worker_record, id),
            Numbered::Channel => between!(alert_channel, id),
        };
        // Those of the same millisecond: few.
        let near = near.iter().map(|text| id::<Identity>(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(near.into_iter().filter(|id| id.number() == self.number).map(|id| id.0).collect())
    }
}

/// Goes on counting where the last broker of this database stopped, whatever became of the clock meanwhile.
pub(super) fn resume(conn: &mut Conn) -> Result<(), StoreError> {
    let last: Option<String> = run::table.order(run::no.desc()).select(run::identity).first(conn).optional()?;
    if let Some(last) = last {
        MADE.resume(id::<Identity>(&last)?.0);
    }
    Ok(())
}
