//! Taking over runs: a new epoch ends the writes of the previous owner.

use super::columns::Hex;
use super::error::StoreError;
use super::op::{Tx, WriteOp};
use super::runs::RunRow;
use super::schema::run;
use crate::domain::ids::Identity;
use crate::domain::run::Run;
use diesel::prelude::*;

/// Takes over runs: increments their epochs; from then on the store rejects writes under the old ones. Returns each with its new epoch,
/// in no particular order, and leaves out those that are not there.
#[derive(Debug, Clone)]
pub struct AdoptRuns(pub Vec<Identity>);

impl WriteOp for AdoptRuns {
    type Output = Vec<(Run, i64)>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Vec<(Run, i64)>, StoreError> {
        adopt(tx, &self.0)
    }
}

/// As [`AdoptRuns`], for one run.
#[derive(Debug, Clone, Copy)]
pub struct AdoptRun {
    /// The run.
    pub identity: Identity,
}

impl WriteOp for AdoptRun {
    type Output = (Run, i64);

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(Run, i64), StoreError> {
        adopt(tx, &[self.identity])?.pop().ok_or(StoreError::NotFound)
    }
}

fn adopt(tx: &mut Tx<'_>, identities: &[Identity]) -> Result<Vec<(Run, i64)>, StoreError> {
    let identities: Vec<String> = identities.iter().map(|identity| Hex::of(identity.0).text().to_owned()).collect();
    let numbers: Vec<i64> = diesel::update(run::table.filter(run::identity.eq_any(identities)))
        .set(run::epoch.eq(run::epoch + 1))
        .returning(run::no)
        .get_results(tx.conn)?;
    let rows: Vec<RunRow> = run::table.filter(run::no.eq_any(numbers)).select(RunRow::as_select()).load(tx.conn)?;
    rows.into_iter()
        .map(|row| {
            let epoch = row.epoch;
            tx.epochs.insert(row.no, epoch);
            Ok((row.try_into()?, epoch))
        })
        .collect()
}
