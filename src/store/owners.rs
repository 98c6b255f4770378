//! Ownership of node and worker ids by tokens. An HMAC under the token identifies it.

use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{id_owner, worker_record};
use crate::domain::ids::PeerId;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// Maximum rows per cleanup step.
const ROWS: i64 = 200;

/// The stored value that identifies the token of an id.
#[derive(Debug, Clone, Copy)]
pub struct OwnerOf(pub PeerId);

impl ReadOp for OwnerOf {
    type Output = Option<String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        owner_of(from.conn, self.0)
    }
}

/// All ids that have an owner, each with what identifies its token.
#[derive(Debug, Clone, Copy)]
pub struct OwnedIds;

impl ReadOp for OwnedIds {
    type Output = Vec<(String, String)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(id_owner::table.select((id_owner::id, id_owner::owner)).load(from.conn)?)
    }
}

fn owner_of(conn: &mut Conn, peer: PeerId) -> Result<Option<String>, StoreError> {
    let row = id_owner::table.find((peer.kind(), peer.to_string()));
    Ok(row.select(id_owner::owner).get_result(conn).optional()?)
}

/// Claims an id for a token. Returns whether it belongs to the token now: not if it belongs to one of the others.
#[derive(Debug, Clone)]
pub struct ClaimId {
    /// The id.
    pub peer: PeerId,
    /// Identifies the token.
    pub owner: String,
    /// Identify the other tokens of the broker. An id that belongs to none of them is free.
    pub others: Vec<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for ClaimId {
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        match owner_of(tx.conn, self.peer)? {
            Some(owner) if owner == self.owner => return Ok(true),
            Some(owner) if self.others.contains(&owner) => return Ok(false),
            _ => {}
        }
        let row = (
            id_owner::kind.eq(self.peer.kind()),
            id_owner::id.eq(self.peer.to_string()),
            id_owner::owner.eq(&self.owner),
            id_owner::claim_time.eq(self.now),
        );
        let rule = "(kind, id) DO UPDATE SET owner = excluded.owner, claim_time = excluded.claim_time";
        diesel::insert_into(id_owner::table).values(row).with_conflict_rule(rule).execute(tx.conn)?;
        Ok(true)
    }
}

/// Removes the owner of an id; returns whether it had one.
pub(super) fn release_id(conn: &mut Conn, peer: PeerId) -> Result<bool, StoreError> {
    Ok(diesel::delete(id_owner::table.find((peer.kind(), peer.to_string()))).execute(conn)? > 0)
}

/// Releases ids of workers that were claimed before a time and have no stored data.
pub(super) fn release_unknown_workers(conn: &mut Conn, before: Timestamp) -> Result<usize, StoreError> {
    let kept = worker_record::table.select(worker_record::id);
    let unknown =
        id_owner::table.filter(id_owner::kind.eq(PeerId::WORKER)).filter(id_owner::claim_time.lt(before)).filter(id_owner::id.ne_all(kept));
    let ids: Vec<String> = unknown.limit(ROWS).select(id_owner::id).load(conn)?;
    let rows = id_owner::table.filter(id_owner::kind.eq(PeerId::WORKER)).filter(id_owner::id.eq_any(ids));
    Ok(diesel::delete(rows).execute(conn)?)
}
