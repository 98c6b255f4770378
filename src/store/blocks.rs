//! Blocks on their way to nodes: pushed, lost and retried, and loaded when a run restarts. Results are in [`super::results`].

use super::columns::{block_key, block_keys, print_bytes, prints_in, seq_of, shared_prints, stored};
use super::dialect::Conn;
use super::error::StoreError;
use super::hot::many;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{block, block_payload};
use crate::domain::block::{Phase, StoredBlock};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::seen::SeenSet;
use crate::domain::time::Timestamp;
use bytes::Bytes;
use diesel::connection::DefaultLoadingMode;
use diesel::dsl::{count_star, max, sql, sum};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};
use std::sync::Arc;

/// Stored state of a block: a dispatch to a node is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// Waits for a node.
    Ready,
    /// Its results are stored.
    Success,
    /// It failed as a whole; the failure is its result.
    Failed,
    /// Waits for another dispatch to a node.
    Retry,
}

impl BlockState {
    /// The name, as it is sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Retry => "retry",
        }
    }

    /// The stored number, from the seeds. A reference, because statements bind references.
    pub(super) const fn number(self) -> &'static i16 {
        match self {
            Self::Ready => &1,
            Self::Success => &4,
            Self::Failed => &8,
            Self::Retry => &16,
        }
    }

    pub(super) fn of(number: i16) -> Option<Self> {
        [Self::Ready, Self::Success, Self::Failed, Self::Retry].into_iter().find(|state| *state.number() == number)
    }
}

/// A block to store.
#[derive(Debug, Clone)]
pub struct NewBlock {
    /// Its number.
    pub seq: Seq,
    /// The site of its requests, if the site has a pace.
    pub site: Option<Arc<str>>,
    /// The priority of its requests.
    pub priority: i8,
    /// Attempts in which its requests were lost, in another block.
    pub attempts: u32,
    /// Requests in it.
    pub requests: u32,
    /// Bytes of the requests before they were compressed.
    pub raw_length: u32,
    /// The requests, compressed.
    pub payload: Bytes,
    /// Their ids.
    pub prints: Arc<[Fingerprint]>,
}

/// Stores blocks.
#[derive(Debug, Clone)]
pub struct PushBlocks {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The blocks.
    pub blocks: Vec<NewBlock>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for PushBlocks {
    const BY_OWNER: bool = true;

    type Output = ();

    fn weight(&self) -> usize {
        weight(&self.blocks)
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        insert_blocks(tx.conn, self.no, &self.blocks, self.now)
    }
}

/// An attempt of a block was lost: it is ready again. Rejected as `state` if it has results.
#[derive(Debug, Clone)]
pub struct MarkRetry {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The block.
    pub seq: Seq,
    /// Number of attempts so far.
    pub attempt: u32,
    /// The node that lost it.
    pub node: Option<NodeId>,
    /// The reason.
    pub exception: Option<String>,
}

impl WriteOp for MarkRetry {
    const BY_OWNER: bool = true;

    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let changed = diesel::update(block::table.find(block_key(self.no, self.seq)))
            .filter(block::state.eq(BlockState::Ready).or(block::state.eq(BlockState::Retry)))
            .set((
                block::state.eq(BlockState::Retry),
                block::attempt.eq(self.attempt as i32),
                block::node_id.eq(self.node),
                block::exception.eq(&self.exception),
            ))
            .execute(tx.conn)?;
        if changed == 1 { Ok(()) } else { Err(why_unchanged(tx.conn, self.no, self.seq)) }
    }
}

/// Why no block without results was found.
pub(super) fn why_unchanged(conn: &mut Conn, no: i64, seq: Seq) -> StoreError {
    match block::table.find(block_key(no, seq)).select(block::state).get_result::<BlockState>(conn) {
        Ok(_) => StoreError::Conflict("state".into()),
        Err(e) => e.into(),
    }
}

/// Everything that a run needs to restart: its blocks in the order of their numbers, and the ids of all its requests.
#[derive(Debug, Clone, Copy)]
pub struct LoadFrontier {
    /// The run.
    pub no: i64,
}

impl ReadOp for LoadFrontier {
    type Output = (Vec<StoredBlock>, SeenSet);

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        from.conn.transaction(|conn| {
            let blocks = load_blocks(conn, self.no)?;
            let seen = if blocks.is_empty() { SeenSet::new() } else { load_seen(conn, self.no)? };
            Ok((blocks, seen))
        })
    }
}

/// The requests of some blocks, as sent to a node. Missing blocks are left out.
#[derive(Debug, Clone)]
pub struct ReadPayloads {
    /// The run.
    pub no: i64,
    /// The blocks.
    pub seqs: Vec<Seq>,
}

/// The requests of a block.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The block.
    pub seq: Seq,
    /// Bytes of the requests before they were compressed.
    pub raw_length: u32,
    /// The requests, compressed.
    pub payload: Bytes,
    /// Their ids.
    pub prints: Arc<[Fingerprint]>,
}

impl ReadOp for ReadPayloads {
    type Output = Vec<Payload>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Payload>, StoreError> {
        let mut payloads = Vec::with_capacity(self.seqs.len());
        for &seq in &self.seqs {
            let row = block_payload::table
                .find(block_key(self.no, seq))
                .select((block_payload::raw_length, block_payload::prints, block_payload::payload))
                .get_result::<(u32, Vec<u8>, Vec<u8>)>(from.conn)
                .optional()?;
            payloads.extend(row.map(|(raw_length, prints, payload)| Payload {
                seq,
                raw_length,
                payload: payload.into(),
                prints: shared_prints(&prints),
            }));
        }
        Ok(payloads)
    }
}

/// Counts the blocks and requests of a run by stored state: a dispatched block counts as ready.
#[derive(Debug, Clone, Copy)]
pub struct CountBlocks {
    /// The run.
    pub no: i64,
}

/// Number of blocks and requests of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredCounts {
    /// All blocks.
    pub blocks: u64,
    /// Blocks without results.
    pub ready: u64,
    /// Blocks with results that no worker has acknowledged.
    pub answered: u64,
    /// Requests of all blocks.
    pub requests: u64,
    /// Requests that succeeded.
    pub success: u64,
    /// Requests that failed.
    pub error: u64,
    /// Known attempts.
    pub attempts: u64,
    /// Bytes of the bodies, decompressed.
    pub bytes: u64,
}

impl ReadOp for CountBlocks {
    type Output = StoredCounts;

    fn read(&self, from: &mut Source<'_>) -> Result<StoredCounts, StoreError> {
        type Row = (BlockState, bool, u64, Option<u64>, Option<u64>, Option<u64>, Option<u64>, Option<u64>);
        let (first, last) = block_keys(self.no);
        let rows: Vec<Row> = block::table
            .filter(block::key.between(first, last))
            .group_by((block::state, block::acked))
            .select((
                block::state,
                block::acked,
                count_star(),
                sum(block::requests),
                sum(block::success),
                sum(block::error),
                sum(block::attempt),
                sql::<Nullable<BigInt>>("CAST(SUM(bytes) AS BIGINT)"),
            ))
            .load(from.conn)?;
        let mut counts = StoredCounts::default();
        for (state, acked, blocks, requests, success, error, attempts, bytes) in rows {
            let of_state = match state {
                BlockState::Ready | BlockState::Retry => Some(&mut counts.ready),
                BlockState::Success | BlockState::Failed if acked => None,
                BlockState::Success | BlockState::Failed => Some(&mut counts.answered),
            };
            if let Some(of_state) = of_state {
                *of_state += blocks;
            }
            counts.blocks += blocks;
            counts.requests += requests.unwrap_or(0);
            counts.success += success.unwrap_or(0);
            counts.error += error.unwrap_or(0);
            counts.attempts += attempts.unwrap_or(0);
            counts.bytes += bytes.unwrap_or(0);
        }
        Ok(counts)
    }
}

/// The number of the last block of a run.
#[derive(Debug, Clone, Copy)]
pub struct LastBlock {
    /// The run.
    pub no: i64,
}

impl ReadOp for LastBlock {
    type Output = Option<Seq>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Seq>, StoreError> {
        let (first, last) = block_keys(self.no);
        let last: Option<i64> = block::table.filter(block::key.between(first, last)).select(max(block::key)).get_result(from.conn)?;
        Ok(last.map(seq_of))
    }
}

/// Blocks of a run, in the order of their numbers.
#[derive(Debug, Clone, Copy)]
pub struct ListBlocks {
    /// The run.
    pub no: i64,
    /// From this number on.
    pub from: Option<Seq>,
    /// Only those in this state.
    pub state: Option<BlockState>,
    /// At most this many.
    pub limit: usize,
}

/// A block as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlockRow {
    /// Its number.
    pub seq: Seq,
    /// Its state.
    pub state: BlockState,
    /// Known attempts.
    pub attempt: u32,
    /// Requests in it.
    pub requests: u32,
    /// Requests that succeeded.
    pub success: u32,
    /// Requests that failed.
    pub error: u32,
    /// A worker has acknowledged its results.
    pub acked: bool,
    /// The node that had it last.
    pub node: Option<NodeId>,
    /// Why it could not be downloaded.
    pub exception: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When its results arrived.
    pub finish_time: Option<Timestamp>,
}

impl ReadOp for ListBlocks {
    type Output = Vec<StoredBlockRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<StoredBlockRow>, StoreError> {
        let (_, last) = block_keys(self.no);
        let first = block_key(self.no, self.from.unwrap_or(0));
        let mut query = block::table.select(StoredBlockRow::as_select()).filter(block::key.between(first, last)).into_boxed();
        if let Some(state) = self.state {
            query = query.filter(block::state.eq(state));
        }
        Ok(query.order(block::key).limit(self.limit as i64).load(from.conn)?)
    }
}

pub(super) fn weight(blocks: &[NewBlock]) -> usize {
    blocks.iter().map(|block| block.payload.len() + block.prints.len() * Fingerprint::LEN).sum()
}

pub(super) fn insert_blocks(conn: &mut Conn, no: i64, blocks: &[NewBlock], now: Timestamp) -> Result<(), StoreError> {
    if let Conn::Postgres(conn) = conn {
        return many::insert_blocks(conn, no, blocks, now);
    }
    for new in blocks {
        let key = block_key(no, new.seq);
        diesel::insert_into(block::table)
            .values((
                block::key.eq(key),
                block::state.eq(BlockState::Ready),
                block::attempt.eq(new.attempts as i32),
                block::requests.eq(new.requests as i32),
                block::success.eq(0),
                block::error.eq(0),
                block::acked.eq(false),
                block::creation_time.eq(now),
                block::site.eq(new.site.as_deref()),
                block::priority.eq(i16::from(new.priority)),
            ))
            .execute(conn)?;
        diesel::insert_into(block_payload::table)
            .values((
                block_payload::key.eq(key),
                block_payload::raw_length.eq(i64::from(new.raw_length)),
                block_payload::prints.eq(print_bytes(&new.prints)),
                block_payload::payload.eq(&new.payload[..]),
            ))
            .execute(conn)?;
    }
    Ok(())
}

fn load_blocks(conn: &mut Conn, no: i64) -> Result<Vec<StoredBlock>, StoreError> {
    type Row = (i64, BlockState, bool, u32, u32, u32, u32, Option<String>, i16, u64);
    let (first, last) = block_keys(no);
    let rows = block::table
        .filter(block::key.between(first, last))
        .order(block::key)
        .select((
            block::key,
            block::state,
            block::acked,
            block::attempt,
            block::requests,
            block::success,
            block::error,
            block::site,
            block::priority,
            block::bytes,
        ))
        .load_iter::<Row, DefaultLoadingMode>(conn)?;
    rows.map(|row| {
        let (key, state, acked, attempts, requests, success, error, site, priority, bytes) = row?;
        let phase = match state {
            BlockState::Ready => Phase::Ready,
            BlockState::Retry => Phase::Retry,
            BlockState::Success | BlockState::Failed if acked => Phase::Done,
            BlockState::Success | BlockState::Failed => Phase::Answered,
        };
        Ok(StoredBlock {
            seq: seq_of(key),
            site: site.map(Into::into),
            priority: priority as i8,
            phase,
            attempts,
            requests,
            success,
            error,
            bytes,
        })
    })
    .collect()
}

/// Fills the set row by row: a separate list of ten million fingerprints would nearly double the memory that a restart needs.
fn load_seen(conn: &mut Conn, no: i64) -> Result<SeenSet, StoreError> {
    let (first, last) = block_keys(no);
    let rows = block_payload::table
        .filter(block_payload::key.between(first, last))
        .select(block_payload::prints)
        .load_iter::<Vec<u8>, DefaultLoadingMode>(conn)?;
    let mut seen = SeenSet::new();
    for row in rows {
        let row = row?;
        seen.read_ahead(prints_in(&row));
        for print in prints_in(&row) {
            seen.insert(print);
        }
    }
    Ok(seen)
}

stored! {
    StoredBlockRow from block {
        state: BlockState,
        attempt: u32,
        requests: u32,
        success: u32,
        error: u32,
        acked: bool,
        exception: Option<String>,
        creation_time: Timestamp,
        finish_time: Option<Timestamp>,
    } {
        key: i64,
        node_id: Option<NodeId>,
    }
    seq: seq_of(key),
    node: node_id,
}
