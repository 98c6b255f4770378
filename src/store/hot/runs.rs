//! Statements for the row of a run, from creation to end.

use super::super::dialect::{Conn, Database, last_inserted};
use super::super::run_settling::BeginRun;
use super::super::runs::{FinishRun, SetRunState, SetStartReturned};
use super::super::schema::run;
use super::super::tasks::FinishTask;
use super::{kept, statement};
use crate::domain::ids::BrokerId;
use crate::domain::run::Run;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

/// A statement that also returns columns of its row. PostgreSQL answers with them, so they cost no second message. With SQLite they are
/// read afterwards, which is cheaper there: it creates a table in memory for `RETURNING`, and keeps a journal for an `INSERT` with it that may
/// find a duplicate.
macro_rules! returning {
    ($name:ident, $statement:ident, $columns:literal, $types:ty) => {
        #[derive(Debug)]
        struct $name<'a>($statement<'a>);

        impl QueryFragment<Database> for $name<'_> {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
                self.0.walk_ast(out.reborrow())?;
                out.push_sql(concat!(" RETURNING ", $columns));
                Ok(())
            }
        }

        impl Query for $name<'_> {
            type SqlType = $types;
        }

        kept!($name<'_>);
    };
}

/// A new run, in its first attempt and under the first epoch.
#[derive(Debug)]
pub(in crate::store) struct InsertRow<'a> {
    pub(in crate::store) run: &'a Run,
    pub(in crate::store) idempotency_key: Option<&'a str>,
}

impl InsertRow<'_> {
    /// Inserts it. Returns its number and its owner.
    pub(in crate::store) fn apply(self, conn: &mut Conn) -> QueryResult<(i64, Option<BrokerId>)> {
        if let Conn::Postgres(_) = conn {
            return InsertReturning(self).get_result(conn);
        }
        let wants_owner = self.run.owner.is_some();
        self.execute(conn)?;
        let no = last_inserted(conn)?;
        let owner = if wants_owner { run::table.find(no).select(run::owner).get_result(conn)? } else { None };
        Ok((no, owner))
    }

    pub(super) const INTO: &'static str = "INSERT INTO run (start_returned, block_times, success, error, total, attempt, identity, job_id, job_name, class_name, \
         arguments, state, reason, priority, download, queue, epoch, trace_id, planned_at, creation_time, finish_time, kind, rules, \
         not_before, follow, retry_of, idempotency_key, queued, owner) ";

    pub(super) fn values<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "FALSE, 0, 0, 0, 0, 1, ", Text = &self.run.identity;
            ", ", Text = &self.run.job_id;
            ", ", Text = &self.run.job_name;
            ", ", Text = &self.run.class_name;
            ", ", Nullable<Text> = &self.run.arguments;
            ", ", Text = &self.run.state;
            ", ", Nullable<Text> = &self.run.reason;
            ", ", Integer = &self.run.priority;
            ", ", Text = &self.run.download;
            ", ", Text = &self.run.queue;
            ", ", BigInt = &Run::FIRST_EPOCH;
            ", ", Nullable<Text> = &self.run.trace_id;
            ", ", Nullable<BigInt> = &self.run.planned_at;
            ", ", BigInt = &self.run.creation_time;
            ", ", Nullable<BigInt> = &self.run.finish_time;
            ", ", Text = &self.run.kind;
            ", ", Text = &self.run.rules;
            ", ", Nullable<BigInt> = &self.run.not_before;
            ", ", Bool = &self.run.follow;
            ", ", Nullable<Text> = &self.run.retry_of;
            ", ", Nullable<Text> = &self.idempotency_key;
            ", ", Bool = &self.run.queued;
            ", (SELECT broker FROM run_owner WHERE broker = ", Nullable<Text> = &self.run.owner;
            ")";
        )
    }
}

impl QueryFragment<Database> for InsertRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        out.push_sql(Self::INTO);
        out.push_sql("VALUES (");
        self.values(out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }
}

kept!(InsertRow<'_>);
returning!(InsertReturning, InsertRow, "no, owner", (BigInt, Nullable<Text>));

macro_rules! ends_run {
    ($name:ident, $returning:ident) => {
        impl $name<'_> {
            /// Stores the end. Returns whether the job must be notified of it; `None` if the run is not owned under this epoch.
            pub(in crate::store) fn apply(self, conn: &mut Conn) -> QueryResult<Option<bool>> {
                if let Conn::Postgres(_) = conn {
                    return $returning(self).get_result(conn).optional();
                }
                let end = self.end;
                let is_ended = self.execute(conn)? == 1;
                Ok(if is_ended { Some(end.follow || FollowRow(end.no).get_result(conn)?) } else { None })
            }
        }

        kept!($name<'_>);
        returning!($returning, $name, "follow", Bool);
    };
}

/// The end of a run.
#[derive(Debug)]
pub(in crate::store) struct FinishRow<'a> {
    end: &'a FinishRun,
    /// Success, error and total.
    counts: [i64; 3],
}

impl<'a> FinishRow<'a> {
    pub(in crate::store) fn new(end: &'a FinishRun) -> Self {
        Self { end, counts: [end.counters.success, end.counters.error, end.counters.total].map(|count| count as i64) }
    }
}

impl QueryFragment<Database> for FinishRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET not_before = NULL, queued = FALSE, state = ", Text = &self.end.state;
            ", reason = ", Nullable<Text> = &self.end.reason;
            ", success = ", BigInt = &self.counts[0];
            ", error = ", BigInt = &self.counts[1];
            ", total = ", BigInt = &self.counts[2];
            ", block_times = ", BigInt = &self.end.block_times;
            ", start_time = ", Nullable<BigInt> = &self.end.start_time;
            ", start_returned = ", Bool = &self.end.start_returned;
            ", result = ", Nullable<Text> = &self.end.result;
            ", follow = (follow OR ", Bool = &self.end.follow;
            "), update_by = ", Nullable<Text> = &self.end.by;
            ", finish_time = ", BigInt = &self.end.now;
            " WHERE no = ", BigInt = &self.end.no;
            " AND epoch = ", BigInt = &self.end.epoch;
        )
    }
}

ends_run!(FinishRow, FinishReturning);

/// The end of a task.
#[derive(Debug)]
pub(in crate::store) struct FinishTaskRow<'a> {
    pub(in crate::store) end: &'a FinishTask,
    pub(in crate::store) failures: i64,
}

impl QueryFragment<Database> for FinishTaskRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET not_before = NULL, queued = FALSE, state = ", Text = &self.end.state;
            ", reason = ", Nullable<Text> = &self.end.reason;
            ", result = ", Nullable<Text> = &self.end.result;
            ", error = ", BigInt = &self.failures;
            ", start_time = COALESCE(start_time, ", Nullable<BigInt> = &self.end.start_time;
            "), worker_id = ", Nullable<Text> = &self.end.worker;
            ", follow = follow OR ", Bool = &self.end.follow;
            ", update_by = ", Nullable<Text> = &self.end.by;
            ", finish_time = ", BigInt = &self.end.now;
            " WHERE no = ", BigInt = &self.end.no;
            " AND epoch = ", BigInt = &self.end.epoch;
        )
    }
}

ends_run!(FinishTaskRow, FinishTaskReturning);

/// Whether the job of the run with this number must be notified of its end.
#[derive(Debug)]
struct FollowRow(i64);

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
pub(in crate::store) struct StateRow<'a>(pub(in crate::store) &'a SetRunState);

impl QueryFragment<Database> for StateRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET state = ", Text = &self.0.state;
            ", reason = ", Nullable<Text> = &self.0.reason;
            ", worker_id = ", Nullable<Text> = &self.0.worker;
            " WHERE no = ", BigInt = &self.0.no;
            " AND epoch = ", BigInt = &self.0.epoch;
        )
    }
}

kept!(StateRow<'_>);

/// The start of an attempt; the time of the first one is kept.
#[derive(Debug)]
pub(in crate::store) struct BeginRow<'a>(pub(in crate::store) &'a BeginRun);

impl QueryFragment<Database> for BeginRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET not_before = NULL, reason = NULL, state = ", Text = &self.0.state;
            ", worker_id = ", Nullable<Text> = &self.0.worker;
            ", start_time = coalesce(start_time, ", BigInt = &self.0.now;
            ") WHERE no = ", BigInt = &self.0.no;
            " AND epoch = ", BigInt = &self.0.epoch;
        )
    }
}

kept!(BeginRow<'_>);

/// The worker has pushed its first requests.
#[derive(Debug)]
pub(in crate::store) struct StartReturnedRow<'a>(pub(in crate::store) &'a SetStartReturned);

impl QueryFragment<Database> for StartReturnedRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE run SET start_returned = TRUE WHERE no = ", BigInt = &self.0.no;
            " AND epoch = ", BigInt = &self.0.epoch;
        )
    }
}

kept!(StartReturnedRow<'_>);
