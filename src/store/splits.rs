//! Blocks that are split: some requests have results, others wait again.

use super::blocks::BlockState;
use super::blocks::{NewBlock, insert_blocks, weight, why_unchanged};
use super::columns::{block_key, print_bytes};
use super::error::StoreError;
use super::op::{Tx, WriteOp};
use super::results::StoreResult;
use super::schema::{block, block_payload};
use crate::domain::time::Timestamp;
use bytes::Bytes;
use diesel::prelude::*;

/// A block without results keeps some of its requests, the others become new blocks. One of the blocks may get its results in the
/// same write. Rejected as `state` if the block has results.
#[derive(Debug, Clone)]
pub struct SplitBlock {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The block with its remaining requests.
    pub stays: NewBlock,
    /// The new blocks with the other requests.
    pub made: Vec<NewBlock>,
    /// The results of one of these blocks.
    pub result: Option<StoreResult>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for SplitBlock {
    const BY_OWNER: bool = true;

    type Output = ();

    fn pack(&self) -> Option<&Bytes> {
        self.result.as_ref().and_then(WriteOp::pack)
    }

    fn weight(&self) -> usize {
        self.result.as_ref().map_or(0, WriteOp::weight) + weight(&self.made) + weight(std::slice::from_ref(&self.stays))
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let (stays, key) = (&self.stays, block_key(self.no, self.stays.seq));
        let changed = diesel::update(block::table.find(key))
            .filter(block::state.eq_any([BlockState::Ready, BlockState::Retry]))
            .set(block::requests.eq(stays.requests as i32))
            .execute(tx.conn)?;
        if changed == 0 {
            return Err(why_unchanged(tx.conn, self.no, stays.seq));
        }
        diesel::update(block_payload::table.find(key))
            .set((
                block_payload::raw_length.eq(i64::from(stays.raw_length)),
                block_payload::prints.eq(print_bytes(&stays.prints)),
                block_payload::payload.eq(&stays.payload[..]),
            ))
            .execute(tx.conn)?;
        insert_blocks(tx.conn, self.no, &self.made, self.now)?;
        self.result.as_ref().map_or(Ok(()), |result| result.apply(tx))
    }
}
