//! Orders of an operator for a run in progress.

use super::error::StoreError;
use super::op::{Tx, WriteOp};
use super::schema::run;
use crate::domain::run::RunRules;
use diesel::prelude::*;

/// Stores the rules of a run, including an operator's decisions.
#[derive(Debug, Clone)]
pub struct SetRunRules {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The rules.
    pub rules: RunRules,
}

impl WriteOp for SetRunRules {
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let row = run::table.filter(run::no.eq(self.no)).filter(run::epoch.eq(self.epoch));
        let changed = diesel::update(row).set(run::rules.eq(&self.rules)).execute(tx.conn)?;
        if changed == 1 { Ok(()) } else { tx.refuse_epoch(self.no) }
    }
}
