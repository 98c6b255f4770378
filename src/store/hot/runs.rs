//! Statements for the row of a run, from creation to end.

use super::super::columns::Hex;
use super::super::dialect::Database;
use super::{kept, statement};
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

/// A new run, in its first attempt and under the first epoch. Its number is queried afterwards: SQLite keeps a journal for every
/// `INSERT` with `RETURNING` that may find a duplicate.
#[derive(Debug)]
pub(in crate::store) struct InsertRow<'a> {
    pub(in crate::store) identity: Hex,
    pub(in crate::store) job_id: Hex,
    pub(in crate::store) job_name: &'a str,
    pub(in crate::store) class_name: &'a str,
    pub(in crate::store) arguments: Option<&'a str>,
    pub(in crate::store) state: &'a str,
    pub(in crate::store) reason: Option<&'a str>,
    pub(in crate::store) priority: i32,
    pub(in crate::store) download: &'a str,
    pub(in crate::store) queue: &'a str,
    pub(in crate::store) epoch: i64,
    pub(in crate::store) trace_id: &'a str,
    pub(in crate::store) planned_at: Option<i64>,
    pub(in crate::store) creation_time: i64,
    pub(in crate::store) finish_time: Option<i64>,
    pub(in crate::store) kind: &'a str,
    pub(in crate::store) rules: &'a str,
    pub(in crate::store) not_before: Option<i64>,
    pub(in crate::store) follow: bool,
    pub(in crate::store) retry_of: Option<Hex>,
    pub(in crate::store) idempotency_key: Option<&'a str>,
    pub(in crate::store) queued: bool,
}

impl QueryFragment<Database> for InsertRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "INSERT INTO run (start_returned, block_times, success, error, total, attempt, identity, job_id, job_name, class_name, \
             arguments, state, reason, priority, download, queue, epoch, trace_id, planned_at, creation_time, finish_time, kind, rules, \
             not_before, follow, retry_of, idempotency_key, queued) VALUES (FALSE, 0, 0, 0, 0, 1, ", Text = &self.identity;
            ", ", Text = &self.job_id;
            ", ", Text = self.job_name;
            ", ", Text = self.class_name;
            ", ", Nullable<Text> = &self.arguments;
            ", ", Text = self.state;
            ", ", Nullable<Text> = &self.reason;
            ", ", Integer = &self.priority;
            ", ", Text = self.download;
            ", ", Text = self.queue;
            ", ", BigInt = &self.epoch;
            ", ", Text = self.trace_id;
            ", ", Nullable<BigInt> = &self.planned_at;
            ", ", BigInt = &self.creation_time;
            ", ", Nullable<BigInt> = &self.finish_time;
            ", ", Text = self.kind;
            ", ", Text = self.rules;
            ", ", Nullable<BigInt> = &self.not_before;
            ", ", Bool = &self.follow;
            ", ", Nullable<Text> = &self.retry_of;
            ", ", Nullable<Text> = &self.idempotency_key;
            ", ", Bool = &self.queued;
            ")";
        )
    }
}

kept!(InsertRow<'_>);

/// The end of a run.
#[derive(Debug)]
pub(in crate::store) struct FinishRow<'a> {
    pub(in crate::store) no: i64,
    pub(in crate::store) epoch: i64,
    pub(in crate::store) state: &'a str,
    pub(in crate::store) reason: Option<&'a str>,
    pub(in crate::store) success: i64,
    pub(in crate::store) error: i64,
    pub(in crate::store) total: i64,
    pub(in crate::store) block_times: i64,
    pub(in crate::store) start_time: Option<i64>,
    pub(in crate::store) start_returned: bool,
    pub(in crate::store) result: Option<&'a str>,
    pub(in crate::store) follow: bool,
    pub(in crate::store) update_by: Option<&'a str>,
    pub(in crate::store) finish_time: i64,
}

impl QueryFragment<Database> for FinishRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET not_before = NULL, queued = FALSE, state = ", Text = self.state;
            ", reason = ", Nullable<Text> = &self.reason;
            ", success = ", BigInt = &self.success;
            ", error = ", BigInt = &self.error;
            ", total = ", BigInt = &self.total;
            ", block_times = ", BigInt = &self.block_times;
            ", start_time = ", Nullable<BigInt> = &self.start_time;
            ", start_returned = ", Bool = &self.start_returned;
            ", result = ", Nullable<Text> = &self.result;
            ", follow = (follow OR ", Bool = &self.follow;
            "), update_by = ", Nullable<Text> = &self.update_by;
            ", finish_time = ", BigInt = &self.finish_time;
            " WHERE no = ", BigInt = &self.no;
            " AND epoch = ", BigInt = &self.epoch;
        )
    }
}

kept!(FinishRow<'_>);

/// Whether the job of a run must be notified of its end.
#[derive(Debug)]
pub(in crate::store) struct FollowRow(i64);

impl FollowRow {
    /// For the run with this number.
    pub(in crate::store) fn of(conn: &mut super::super::dialect::Conn, no: i64) -> QueryResult<bool> {
        Self(no).get_result(conn)
    }
}

impl QueryFragment<Database> for FollowRow {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out, "SELECT follow FROM run WHERE no = ", BigInt = &self.0;)
    }
}

impl QueryId for FollowRow {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for FollowRow {
    type SqlType = Bool;
}

impl<C: Connection> RunQueryDsl<C> for FollowRow {}

/// State, reason and worker of a run.
#[derive(Debug)]
pub(in crate::store) struct StateRow<'a> {
    pub(in crate::store) no: i64,
    pub(in crate::store) epoch: i64,
    pub(in crate::store) state: &'a str,
    pub(in crate::store) reason: Option<&'a str>,
    pub(in crate::store) worker: Option<Hex>,
}

impl QueryFragment<Database> for StateRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET state = ", Text = self.state;
            ", reason = ", Nullable<Text> = &self.reason;
            ", worker_id = ", Nullable<Text> = &self.worker;
            " WHERE no = ", BigInt = &self.no;
            " AND epoch = ", BigInt = &self.epoch;
        )
    }
}

kept!(StateRow<'_>);

/// The start of an attempt; the time of the first one is kept.
#[derive(Debug)]
pub(in crate::store) struct BeginRow<'a> {
    pub(in crate::store) no: i64,
    pub(in crate::store) epoch: i64,
    pub(in crate::store) state: &'a str,
    pub(in crate::store) worker: Option<Hex>,
    pub(in crate::store) now: i64,
}

impl QueryFragment<Database> for BeginRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET not_before = NULL, reason = NULL, state = ", Text = self.state;
            ", worker_id = ", Nullable<Text> = &self.worker;
            ", start_time = coalesce(start_time, ", BigInt = &self.now;
            ") WHERE no = ", BigInt = &self.no;
            " AND epoch = ", BigInt = &self.epoch;
        )
    }
}

kept!(BeginRow<'_>);

/// The worker has pushed its first requests.
#[derive(Debug)]
pub(in crate::store) struct StartReturnedRow {
    pub(in crate::store) no: i64,
    pub(in crate::store) epoch: i64,
}

impl QueryFragment<Database> for StartReturnedRow {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET start_returned = TRUE WHERE no = ", BigInt = &self.no;
            " AND epoch = ", BigInt = &self.epoch;
        )
    }
}

impl QueryId for StartReturnedRow {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<C: Connection> RunQueryDsl<C> for StartReturnedRow {}
