//! The requests of a run that have no results yet.

use super::blocks::{BlockState, Payload};
use super::columns::{block_key, block_keys, seq_of, shared_prints};
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{block, block_payload};
use crate::domain::ids::Seq;
use diesel::prelude::*;

/// Blocks of a run without results, in the order of their numbers. Which of them are at nodes is not stored.
#[derive(Debug, Clone, Copy)]
pub struct ListPending {
    /// The run.
    pub no: i64,
    /// From this number on.
    pub from: Seq,
    /// At most this many.
    pub limit: usize,
}

/// A block without results.
#[derive(Debug, Clone)]
pub struct PendingBlock {
    /// The site that its requests go to, if its pace is kept.
    pub site: Option<String>,
    /// The priority of its requests.
    pub priority: i8,
    /// Its requests.
    pub payload: Payload,
}

impl ReadOp for ListPending {
    type Output = Vec<PendingBlock>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (i64, Option<String>, i16, u32, Vec<u8>, Vec<u8>);
        let (_, last) = block_keys(self.no);
        let rows: Vec<Row> = block::table
            .inner_join(block_payload::table.on(block_payload::key.eq(block::key)))
            .filter(block::key.between(block_key(self.no, self.from), last))
            .filter(block::state.eq_any([BlockState::Ready, BlockState::Retry]))
            .order(block::key)
            .limit(self.limit as i64)
            .select((block::key, block::site, block::priority, block_payload::raw_length, block_payload::prints, block_payload::payload))
            .load(from.conn)?;
        let rows = rows.into_iter().map(|(key, site, priority, raw_length, prints, payload)| PendingBlock {
            site,
            priority: priority as i8,
            payload: Payload { seq: seq_of(key), raw_length, payload: payload.into(), prints: shared_prints(&prints) },
        });
        Ok(rows.collect())
    }
}
