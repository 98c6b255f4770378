//! Statements for the ledger and the plan of a fire.

use super::super::columns::Hex;
use super::super::dialect::Database;
use super::{kept, statement};
use crate::domain::schedule::PlanState;
use diesel::connection::Connection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable, Text};

/// Inserts a row of the ledger. Changes no row if one exists for this time.
#[derive(Debug)]
pub(in crate::store) struct InsertFire<'a> {
    pub(in crate::store) job_id: Hex,
    pub(in crate::store) planned_at: i64,
    pub(in crate::store) kind: &'a str,
    pub(in crate::store) verdict: &'a str,
    pub(in crate::store) rule: &'a str,
    pub(in crate::store) reason: Option<&'a str>,
    pub(in crate::store) run_identity: Option<Hex>,
    pub(in crate::store) version: i64,
    pub(in crate::store) planned_until: i64,
    pub(in crate::store) instants: i64,
    pub(in crate::store) creation_time: i64,
}

impl QueryFragment<Database> for InsertFire<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "INSERT INTO fire (job_id, planned_at, kind, verdict, rule, reason, run_identity, version, planned_until, instants, \
             creation_time) VALUES (", Text = &self.job_id;
            ", ", BigInt = &self.planned_at;
            ", ", Text = self.kind;
            ", ", Text = self.verdict;
            ", ", Text = self.rule;
            ", ", Nullable<Text> = &self.reason;
            ", ", Nullable<Text> = &self.run_identity;
            ", ", BigInt = &self.version;
            ", ", BigInt = &self.planned_until;
            ", ", BigInt = &self.instants;
            ", ", BigInt = &self.creation_time;
            ") ON CONFLICT DO NOTHING";
        )
    }
}

kept!(InsertFire<'_>);

/// Advances the plan of a job. Changes no row if the plan is not in the expected state.
#[derive(Debug)]
pub(in crate::store) struct MovePlanRow {
    job_id: Hex,
    was: PlanRow,
    state: PlanRow,
    next_at: Option<i64>,
}

#[derive(Debug)]
struct PlanRow {
    decided_until: i64,
    asked_at: Option<i64>,
    rest_from: i64,
    last_fire: Option<i64>,
    fires: i64,
    failures: i64,
    asked_from: Option<i64>,
    fired_until: Option<i64>,
}

impl From<&PlanState> for PlanRow {
    fn from(state: &PlanState) -> Self {
        Self {
            decided_until: state.decided_until.0,
            asked_at: state.asked_at.map(|at| at.0),
            rest_from: state.rest_from.0,
            last_fire: state.last_fire.map(|at| at.0),
            fires: state.fires as i64,
            failures: i64::from(state.failures),
            asked_from: state.asked_from.map(|at| at.0),
            fired_until: state.fired_until.map(|at| at.0),
        }
    }
}

impl MovePlanRow {
    pub(in crate::store) fn new(job_id: Hex, was: &PlanState, state: &PlanState, next_at: Option<i64>) -> Self {
        Self { job_id, was: was.into(), state: state.into(), next_at }
    }
}

impl QueryFragment<Database> for MovePlanRow {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Database>) -> QueryResult<()> {
        statement!(out,
            "UPDATE plan SET decided_until = ", BigInt = &self.state.decided_until;
            ", next_at = ", Nullable<BigInt> = &self.next_at;
            ", asked_at = ", Nullable<BigInt> = &self.state.asked_at;
            ", rest_from = ", BigInt = &self.state.rest_from;
            ", last_fire = ", Nullable<BigInt> = &self.state.last_fire;
            ", fires = ", BigInt = &self.state.fires;
            ", failures = ", BigInt = &self.state.failures;
            ", asked_from = ", Nullable<BigInt> = &self.state.asked_from;
            ", fired_until = ", Nullable<BigInt> = &self.state.fired_until;
            " WHERE job_id = ", Text = &self.job_id;
            " AND decided_until = ", BigInt = &self.was.decided_until;
            " AND asked_at IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.asked_at;
            " AND rest_from = ", BigInt = &self.was.rest_from;
            " AND last_fire IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.last_fire;
            " AND fires = ", BigInt = &self.was.fires;
            " AND failures = ", BigInt = &self.was.failures;
            " AND asked_from IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.asked_from;
            " AND fired_until IS NOT DISTINCT FROM ", Nullable<BigInt> = &self.was.fired_until;
        )
    }
}

impl QueryId for MovePlanRow {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<C: Connection> RunQueryDsl<C> for MovePlanRow {}
