//! The secret by which the leader recognizes the other brokers of its database.

use super::dialect::OnConflict;
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::meta;
use diesel::prelude::*;

const KEY: &str = "link_secret";

/// The secret; this one is stored if there is none yet.
#[derive(Debug, Clone)]
pub struct EnsureLinkSecret(pub String);

impl WriteOp for EnsureLinkSecret {
    type Output = String;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<String, StoreError> {
        diesel::insert_into(meta::table)
            .values((meta::key.eq(KEY), meta::value.eq(&self.0)))
            .with_conflict_rule("(key) DO NOTHING")
            .execute(tx.conn)?;
        Ok(meta::table.find(KEY).select(meta::value).get_result(tx.conn)?)
    }
}

/// The secret; `None`: no leader has made one yet.
#[derive(Debug, Clone, Copy)]
pub struct LinkSecret;

impl ReadOp for LinkSecret {
    type Output = Option<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<String>, StoreError> {
        Ok(meta::table.find(KEY).select(meta::value).get_result(from.conn).optional()?)
    }
}
