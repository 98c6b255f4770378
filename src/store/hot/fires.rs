//! Statements for the ledger and the plan of a fire.

use super::super::dialect::Database;
use super::super::fires::NewFire;
use super::{InsertRow, kept, statement};
use crate::domain::ids::{BrokerId, Identity, JobId};
use crate::domain::schedule::PlanState;
use crate::domain::time::Timestamp;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// Inserts a row of the ledger. Changes no row if one exists for this time.
#[derive(Debug)]
pub(in crate::store) struct InsertFire<'a> {
    pub(in crate::store) job_id: JobId,
    pub(in crate::store) row: &'a NewFire,
    pub(in crate::store) run: Option<Identity>,
    pub(in crate::store) instants: i64,
    pub(in crate::store) version: i64,
    pub(in crate::store) now: Timestamp,
}

impl InsertFire<'_> {
    const INTO: &'static str = "INSERT INTO fire (job_id, planned_at, kind, verdict, rule, reason, run_identity, version, planned_until, \
                                instants, creation_time) ";

    fn values<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "", Text = &self.job_id;
            ", ", BigInt = &self.row.planned_at;
            ", ", Text = &self.row.kind;
            ", ", Text = self.row.outcome.verdict();
            ", ", Text = self.row.rule;
            ", ", Nullable<Text> = &self.row.reason;
            ", ", Nullable<Text> = &self.run;
            ", ", BigInt = &self.version;
            ", ", BigInt = &self.row.planned_until;
            ", ", BigInt = &self.instants;
            ", ", BigInt = &self.now;
        )
    }
}

impl QueryFragment<Database> for InsertFire<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        out.push_sql(Self::INTO);
        out.push_sql("VALUES (");
        self.values(out.reborrow())?;
        out.push_sql(") ON CONFLICT DO NOTHING");
        Ok(())
    }
}

kept!(InsertFire<'_>);

/// Advances the plan of a job. Changes no row if the plan is not in the expected state.
#[derive(Debug)]
pub(in crate::store) struct MovePlanRow<'a> {
    job_id: JobId,
    was: &'a PlanState,
    state: &'a PlanState,
    next_at: Option<Timestamp>,
    /// Fires and failures before and after.
    counts: [(i64, i64); 2],
}

impl<'a> MovePlanRow<'a> {
    pub(in crate::store) fn new(job_id: JobId, was: &'a PlanState, state: &'a PlanState, next_at: Option<Timestamp>) -> Self {
        Self { job_id, was, state, next_at, counts: [was, state].map(|state| (state.fires as i64, i64::from(state.failures))) }
    }
}

impl QueryFragment<Database> for MovePlanRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE plan SET decided_until = ", BigInt = &self.state.decided_until;
            ", next_at = ", Nullable<BigInt> = &self.next_at;
            ", asked_at = ", Nullable<BigInt> = &self.state.asked_at;
            ", rest_from = ", BigInt = &self.state.rest_from;
            ", last_fire = ", Nullable<BigInt> = &self.state.last_fire;
            ", fires = ", BigInt = &self.counts[1].0;
            ", failures = ", BigInt = &self.counts[1].1;
            ", asked_from = ", Nullable<BigInt> = &self.state.asked_from;
            ", fired_until = ", Nullable<BigInt> = &self.state.fired_until;
            " WHERE job_id = ", Text = &self.job_id;
            " AND decided_until = ", BigInt = &self.was.decided_until;
            " AND asked_at IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.asked_at;
            " AND rest_from = ", BigInt = &self.was.rest_from;
            " AND last_fire IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.last_fire;
            " AND fires = ", BigInt = &self.counts[0].0;
            " AND failures = ", BigInt = &self.counts[0].1;
            " AND asked_from IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.asked_from;
            " AND fired_until IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.fired_until;
        )
    }
}

kept!(MovePlanRow<'_>);

/// A fire that makes a run, in one message to PostgreSQL: advances the plan of the job, inserts the row of the ledger if the plan was in
/// the expected state, and the run if the row is new.
#[derive(Debug)]
pub(in crate::store) struct FireRun<'a> {
    pub(in crate::store) plan: MovePlanRow<'a>,
    pub(in crate::store) fire: InsertFire<'a>,
    pub(in crate::store) run: InsertRow<'a>,
}

/// What a [`FireRun`] has changed.
#[derive(Debug, Queryable)]
pub(in crate::store) struct Fired {
    pub(in crate::store) is_moved: bool,
    /// The number of the new run.
    pub(in crate::store) no: Option<i64>,
    /// Its owner.
    pub(in crate::store) owner: Option<BrokerId>,
}

impl QueryFragment<Database> for FireRun<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        out.push_sql("WITH moved AS (");
        self.plan.walk_ast(out.reborrow())?;
        out.push_sql(" RETURNING job_id), fired AS (");
        out.push_sql(InsertFire::INTO);
        out.push_sql("SELECT ");
        self.fire.values(out.reborrow())?;
        out.push_sql(" FROM moved ON CONFLICT DO NOTHING RETURNING job_id), made AS (");
        out.push_sql(InsertRow::INTO);
        out.push_sql("SELECT ");
        self.run.values(out.reborrow())?;
        out.push_sql(
            " FROM fired RETURNING no, owner) SELECT EXISTS (SELECT 1 FROM moved), (SELECT no FROM made), (SELECT owner FROM made)",
        );
        Ok(())
    }
}

impl Query for FireRun<'_> {
    type SqlType = (Bool, Nullable<BigInt>, Nullable<Text>);
}

kept!(FireRun<'_>);
