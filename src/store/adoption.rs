//! Taking over runs: a new epoch ends the writes of the previous owner.

use super::error::StoreError;
use super::op::{Tx, WriteOp};
use super::schema::run;
use crate::domain::ids::Identity;
use crate::domain::run::Run;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};

/// Takes over runs: increments their epochs; from then on the store rejects writes under the old ones. Returns each with its new epoch,
/// in no particular order, and leaves out those that are not there or that another broker executes ([`Run::owner`]).
#[derive(Debug, Clone)]
pub struct AdoptRuns(pub Vec<Identity>);

impl WriteOp for AdoptRuns {
    const BY_OWNER: bool = true;

    type Output = Vec<(Run, i64)>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<(Run, i64)>, StoreError> {
        adopt(tx, &self.0)
    }
}

/// As [`AdoptRuns`], for one run: [`StoreError::NotFound`] if it is not there or another broker executes it.
#[derive(Debug, Clone, Copy)]
pub struct AdoptRun {
    /// The run.
    pub identity: Identity,
}

impl WriteOp for AdoptRun {
    const BY_OWNER: bool = true;

    type Output = (Run, i64);

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(Run, i64), StoreError> {
        adopt(tx, &[self.identity])?.pop().ok_or(StoreError::NotFound)
    }
}

fn adopt(tx: &mut Tx<'_>, identities: &[Identity]) -> Result<Vec<(Run, i64)>, StoreError> {
    let own = sql::<Bool>("owner IS NOT DISTINCT FROM ").bind::<Nullable<Text>, _>(tx.owner);
    let numbers: Vec<i64> = diesel::update(run::table.filter(run::identity.eq_any(identities)).filter(own))
        .set(run::epoch.eq(run::epoch + 1))
        .returning(run::no)
        .get_results(tx.conn)?;
    let adopted: Vec<(Run, i64)> = run::table.filter(run::no.eq_any(numbers)).select((Run::as_select(), run::epoch)).load(tx.conn)?;
    tx.epochs.extend(adopted.iter().map(|(run, epoch)| (run.no, *epoch)));
    Ok(adopted)
}
