//! Runs of brokers that do not lead: which broker may write the runs that it owns, with PostgreSQL.
//!
//! Each such broker has a row in `run_owner`, as the leader has one in `leader`. Its transactions begin with that row, hold it, and count in it.
//! So the leader ends the right of a broker by deleting the row: a transaction in progress ends before, and each later one is refused. A run can be
//! made only for a broker with such a row ([`super::InsertRun`]), so each open run with an owner belongs to one of them.
//!
//! The leader and the owners change rows of each other's runs rarely: the leader follows and settles runs. If two of them wait for each
//! other, the database ends the transaction of one, and its writer repeats it.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::run_lists::IS_OPEN;
use super::schema::{run, run_owner};
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::job::JobKind;
use crate::domain::leader::Turn;
use diesel::backend::Backend;
use diesel::dsl::sql;
use diesel::expression::{AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// The right of a broker that does not lead to write the runs that it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The broker.
    pub broker: BrokerId,
    /// Counts the grants to all brokers. A later grant to the same broker ends this one.
    pub term: i64,
}

impl Ownership {
    /// The turn before its first write.
    pub(super) fn turn(self) -> Turn {
        Turn { term: self.term, batch: Some((self.broker, 0)) }
    }
}

/// The leader lets a broker write the runs that it owns, from now on with this right only. It is good for one [`super::Store::own`].
#[derive(Debug, Clone, Copy)]
pub struct GrantOwnership {
    /// The broker.
    pub broker: BrokerId,
}

impl WriteOp for GrantOwnership {
    type Output = Ownership;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Ownership, StoreError> {
        #[derive(QueryableByName)]
        struct Granted {
            #[diesel(sql_type = BigInt)]
            term: i64,
        }
        // Counted beside the rows, which are deleted: a term is never given again.
        let next = "INSERT INTO meta (key, value) VALUES ('last_ownership', '1') \
            ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT) RETURNING CAST(value AS BIGINT) AS term";
        let Granted { term } = diesel::sql_query(next).get_result(tx.conn)?;
        let row = (run_owner::broker.eq(self.broker), run_owner::term.eq(term), run_owner::batch.eq(0));
        let insert = diesel::insert_into(run_owner::table).values(row);
        insert.with_conflict_rule("(broker) DO UPDATE SET term = excluded.term, batch = excluded.batch").execute(tx.conn)?;
        // It appended under an earlier right.
        tx.settlement.end(self.broker);
        Ok(Ownership { broker: self.broker, term })
    }
}

/// The leader takes all open runs away from a broker: they have no owner, and the next epoch. The broker writes nothing more under any right that
/// it was granted. Returns the runs, the oldest first. A transaction of the broker that is in progress ends before.
#[derive(Debug, Clone, Copy)]
pub struct RevokeOwnership {
    /// The broker.
    pub broker: BrokerId,
}

impl WriteOp for RevokeOwnership {
    type Output = Vec<Identity>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<Identity>, StoreError> {
        // First, because the broker holds this row: the next statement sees all that it has written.
        diesel::delete(run_owner::table.find(self.broker)).execute(tx.conn)?;
        let open = run::table.filter(run::owner.eq(self.broker)).filter(sql::<Bool>(IS_OPEN));
        let freed = diesel::update(open).set((run::owner.eq(None::<BrokerId>), run::epoch.eq(run::epoch + 1)));
        let mut freed: Vec<(i64, i64, Identity)> = freed.returning((run::no, run::epoch, run::identity)).get_results(tx.conn)?;
        freed.sort_unstable();
        tx.epochs.extend(freed.iter().map(|(no, epoch, _)| (*no, *epoch)));
        tx.settlement.end(self.broker);
        Ok(freed.into_iter().map(|(_, _, identity)| identity).collect())
    }
}

/// Number of open runs by who executes them; `None`: the leader.
#[derive(Debug, Clone, Copy)]
pub struct CountRunsByOwner;

impl ReadOp for CountRunsByOwner {
    type Output = Vec<(Option<BrokerId>, u64)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = Nullable<Text>)]
            executor: Option<BrokerId>,
            #[diesel(sql_type = BigInt)]
            runs: i64,
        }
        let query = format!("SELECT owner AS executor, COUNT(*) AS runs FROM run WHERE {IS_OPEN} GROUP BY owner");
        let rows: Vec<Row> = diesel::sql_query(query).load(from.conn)?;
        Ok(rows.into_iter().map(|row| (row.executor, row.runs as u64)).collect())
    }
}

/// Ends the rights of all brokers: those of a copied or restored store are not here, and a command works alone.
pub(super) fn revoke_all(conn: &mut Conn) -> Result<(), StoreError> {
    diesel::delete(run_owner::table).execute(conn)?;
    let owned = run::table.filter(run::owner.is_not_null()).filter(sql::<Bool>(IS_OPEN));
    diesel::update(owned).set((run::owner.eq(None::<BrokerId>), run::epoch.eq(run::epoch + 1))).execute(conn)?;
    Ok(())
}

/// The leader takes one open run back that a broker does not execute any more: it has no owner, and the next epoch. Returns whether the broker owned it.
#[derive(Debug, Clone, Copy)]
pub struct FreeRun {
    /// The run.
    pub identity: Identity,
    /// The broker.
    pub owner: BrokerId,
}

impl WriteOp for FreeRun {
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        // As in [`RevokeOwnership`]: a transaction of the broker that is in progress ends before, and the next one sees the new epoch.
        diesel::update(run_owner::table.find(self.owner)).set(run_owner::batch.eq(run_owner::batch)).execute(tx.conn)?;
        let owned = run::table.filter(run::identity.eq(self.identity)).filter(run::owner.eq(self.owner)).filter(sql::<Bool>(IS_OPEN));
        let freed = diesel::update(owned).set((run::owner.eq(None::<BrokerId>), run::epoch.eq(run::epoch + 1)));
        let freed: Option<(i64, i64)> = freed.returning((run::no, run::epoch)).get_result(tx.conn).optional()?;
        tx.epochs.extend(freed);
        Ok(freed.is_some())
    }
}

/// The rights that are valid.
#[derive(Debug, Clone, Copy)]
pub struct ListOwnerships;

impl ReadOp for ListOwnerships {
    type Output = Vec<Ownership>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows: Vec<(BrokerId, i64)> =
            run_owner::table.order(run_owner::broker).select((run_owner::broker, run_owner::term)).load(from.conn)?;
        Ok(rows.into_iter().map(|(broker, term)| Ownership { broker, term }).collect())
    }
}

/// The open runs that a broker owns, the oldest first.
#[derive(Debug, Clone, Copy)]
pub struct OwnedRuns(pub BrokerId);

impl ReadOp for OwnedRuns {
    type Output = Vec<Identity>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Identity>, StoreError> {
        // The index `run_owned` has them in this order.
        let owned = run::table.filter(run::owner.eq(self.0)).filter(sql::<Bool>(IS_OPEN)).order(run::no);
        Ok(owned.select(run::identity).load(from.conn)?)
    }
}

/// The open runs of block jobs that brokers own, each with its owner.
#[derive(Debug, Clone, Copy)]
pub struct OwnedBlockRuns;

impl ReadOp for OwnedBlockRuns {
    type Output = Vec<(Identity, BrokerId)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let owned = run::table.filter(run::owner.is_not_null()).filter(sql::<Bool>(IS_OPEN)).filter(run::kind.eq(JobKind::Block));
        let rows: Vec<(Identity, Option<BrokerId>)> = owned.select((run::identity, run::owner)).load(from.conn)?;
        Ok(rows.into_iter().filter_map(|(identity, broker)| Some((identity, broker?))).collect())
    }
}

/// The column of `run` for which diesel's table has no room.
#[derive(Debug, Clone, Copy, Default, QueryId)]
#[expect(non_camel_case_types, reason = "as the other columns")]
pub struct owner;

impl Expression for owner {
    type SqlType = Nullable<Text>;
}

impl Column for owner {
    type Table = run::table;
    const NAME: &'static str = "owner";
}

impl AppearsOnTable<run::table> for owner {}
impl SelectableExpression<run::table> for owner {}

impl ValidGrouping<()> for owner {
    type IsAggregate = is_aggregate::No;
}

impl<DB: Backend> QueryFragment<DB> for owner {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier("run")?;
        out.push_sql(".");
        out.push_identifier(Self::NAME)
    }
}
