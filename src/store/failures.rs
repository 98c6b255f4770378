//! The failed requests of a run: listed by block, and queued again.

use super::blocks::{ListBlocks, NewBlock, StoredBlockRow, insert_blocks, weight};
use super::columns::{block_key, block_keys, prints_in, seq_of, shared_prints};
use super::dialect::{self, Conn, OnConflict};
use super::error::StoreError;
use super::hot::StartReturnedRow;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::runs::SetStartReturned;
use super::schema::{block, block_failure, block_payload};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::time::Timestamp;
use bytes::Bytes;
use diesel::connection::DefaultLoadingMode;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Binary;
use std::sync::Arc;

/// Blocks of a run with requests that failed, in the order of their numbers.
#[derive(Debug, Clone)]
pub struct ListFailures {
    /// The run.
    pub no: i64,
    /// From this number on.
    pub from: Seq,
    /// At most this many.
    pub limit: usize,
    /// Only blocks of these sites; empty: all blocks.
    pub sites: Vec<String>,
}

/// The failures of a block.
#[derive(Debug, Clone)]
pub struct BlockFailures {
    /// The block.
    pub seq: Seq,
    /// The failed requests: see [`crate::protocol::failed`].
    pub entries: Bytes,
    /// The node that downloaded it.
    pub node: Option<NodeId>,
    /// When its results arrived.
    pub finish_time: Option<Timestamp>,
    /// The site of its requests, if the site has a pace.
    pub site: Option<Box<str>>,
}

impl ReadOp for ListFailures {
    type Output = Vec<BlockFailures>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (i64, Vec<u8>, Option<NodeId>, Option<Timestamp>, Option<String>);
        let (_, last) = block_keys(self.no);
        let mut blocks = block_failure::table
            .inner_join(block::table.on(block::key.eq(block_failure::key)))
            .filter(block_failure::key.between(block_key(self.no, self.from), last))
            .order(block_failure::key)
            .limit(self.limit as i64)
            .select((block_failure::key, block_failure::entries, block::node_id, block::finish_time, block::site))
            .into_boxed();
        if !self.sites.is_empty() {
            blocks = blocks.filter(block::site.eq_any(&self.sites));
        }
        let rows: Vec<Row> = blocks.load(from.conn)?;
        let rows = rows.into_iter().map(|(key, entries, node, finish_time, site)| BlockFailures {
            seq: seq_of(key),
            entries: entries.into(),
            node,
            finish_time,
            site: site.map(Into::into),
        });
        Ok(rows.collect())
    }
}

/// The failures of some blocks with their requests. A block without failures is left out.
#[derive(Debug, Clone)]
pub struct ReadFailures {
    /// The run.
    pub no: i64,
    /// The blocks.
    pub seqs: Vec<Seq>,
}

/// The failures of a block, and its requests.
#[derive(Debug, Clone)]
pub struct FailedBlock {
    /// The block.
    pub seq: Seq,
    /// The failed requests: see [`crate::protocol::failed`].
    pub entries: Bytes,
    /// Bytes of the requests before they were compressed.
    pub raw_length: u32,
    /// The requests, compressed.
    pub payload: Bytes,
    /// Their ids.
    pub prints: Arc<[Fingerprint]>,
}

impl ReadOp for ReadFailures {
    type Output = Vec<FailedBlock>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (Vec<u8>, u32, Vec<u8>, Vec<u8>);
        let mut blocks = Vec::with_capacity(self.seqs.len());
        for &seq in &self.seqs {
            let row: Option<Row> = block_failure::table
                .inner_join(block_payload::table.on(block_payload::key.eq(block_failure::key)))
                .filter(block_failure::key.eq(block_key(self.no, seq)))
                .select((block_failure::entries, block_payload::raw_length, block_payload::prints, block_payload::payload))
                .get_result(from.conn)
                .optional()?;
            blocks.extend(row.map(|(entries, raw_length, prints, payload)| FailedBlock {
                seq,
                entries: entries.into(),
                raw_length,
                payload: payload.into(),
                prints: shared_prints(&prints),
            }));
        }
        Ok(blocks)
    }
}

/// Queues failed requests again and marks their failures, both in one transaction.
#[derive(Debug, Clone)]
pub struct RequeueFailed {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The new blocks that contain them.
    pub blocks: Vec<NewBlock>,
    /// The failures of the original blocks, with the marks.
    pub marked: Vec<(Seq, Bytes)>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for RequeueFailed {
    const BY_OWNER: bool = true;

    type Output = ();

    fn weight(&self) -> usize {
        weight(&self.blocks) + self.marked.iter().map(|(_, entries)| entries.len()).sum::<usize>()
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        for (seq, entries) in &self.marked {
            // If the results were lost since then, the block has no failures: it waits for a node with all its requests.
            diesel::update(block_failure::table.find(block_key(self.no, *seq)))
                .set(block_failure::entries.eq(&entries[..]))
                .execute(tx.conn)?;
        }
        insert_blocks(tx.conn, self.no, &self.blocks, self.now)
    }
}

/// Marks failures of a run that is over as queued again in a new run. Stored with the row of the new run, see [`super::InsertRun`].
#[derive(Debug, Clone)]
pub struct Marks {
    /// The run that is over.
    pub no: i64,
    /// The failures of its blocks, as they were read and with the marks.
    pub blocks: Vec<(Seq, Bytes, Bytes)>,
}

impl Marks {
    /// The conflict if the failures changed since they were read.
    pub const CHANGED: &str = "requeued";

    /// Compares all before it changes the first one, because what a refused operation wrote would be committed.
    pub(super) fn apply(&self, conn: &mut Conn) -> Result<(), StoreError> {
        for (seq, before, _) in &self.blocks {
            let unchanged = block_failure::table.find(block_key(self.no, *seq)).filter(block_failure::entries.eq(&before[..]));
            if !diesel::select(diesel::dsl::exists(unchanged)).get_result::<bool>(conn)? {
                return Err(StoreError::Conflict(Self::CHANGED.to_owned()));
            }
        }
        for (seq, _, after) in &self.blocks {
            let block = block_failure::table.find(block_key(self.no, *seq));
            diesel::update(block).set(block_failure::entries.eq(&after[..])).execute(conn)?;
        }
        Ok(())
    }
}

/// Stores the first requests of a run that begins with failed requests of another one: its start has returned.
#[derive(Debug, Clone)]
pub struct PushFirst {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The blocks.
    pub blocks: Vec<NewBlock>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for PushFirst {
    const BY_OWNER: bool = true;

    type Output = ();

    fn weight(&self) -> usize {
        weight(&self.blocks)
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        insert_blocks(tx.conn, self.no, &self.blocks, self.now)?;
        StartReturnedRow(&SetStartReturned { no: self.no, epoch: self.epoch }).execute(tx.conn)?;
        Ok(())
    }
}

/// The block that contains a request of a run. Scans the ids of all requests of the run.
#[derive(Debug, Clone, Copy)]
pub struct FindRequest {
    /// The run.
    pub no: i64,
    /// The id of the request.
    pub print: Fingerprint,
}

impl ReadOp for FindRequest {
    type Output = Option<Seq>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Seq>, StoreError> {
        let (first, last) = block_keys(self.no);
        let holds_it = sql::<diesel::sql_types::Bool>(dialect::by_database(from.conn, "instr(prints, ", "position("))
            .bind::<Binary, _>(self.print.0.to_vec())
            .sql(dialect::by_database(from.conn, ") > 0", " IN prints) > 0"));
        let rows = block_payload::table
            .filter(block_payload::key.between(first, last))
            .filter(holds_it)
            .order(block_payload::key)
            .select((block_payload::key, block_payload::prints))
            .load_iter::<(i64, Vec<u8>), DefaultLoadingMode>(from.conn)?;
        for row in rows {
            let (key, prints) = row?;
            // The end of one id and the beginning of the next may look like a match.
            if prints_in(&prints).any(|print| print == self.print) {
                return Ok(Some(seq_of(key)));
            }
        }
        Ok(None)
    }
}

/// A stored block of a run.
#[derive(Debug, Clone, Copy)]
pub struct GetBlock {
    /// The run.
    pub no: i64,
    /// The block.
    pub seq: Seq,
}

impl ReadOp for GetBlock {
    type Output = Option<StoredBlockRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows = ListBlocks { no: self.no, from: Some(self.seq), state: None, limit: 1 }.read(from)?;
        Ok(rows.into_iter().find(|row| row.seq == self.seq))
    }
}

/// Stores the failed requests of a block, and replaces earlier ones.
pub(super) fn keep(conn: &mut Conn, key: i64, entries: &[u8]) -> Result<(), StoreError> {
    diesel::insert_into(block_failure::table)
        .values((block_failure::key.eq(key), block_failure::entries.eq(entries)))
        .with_conflict_rule("(key) DO UPDATE SET entries = excluded.entries")
        .execute(conn)?;
    Ok(())
}

/// Deletes the failures of the blocks with these keys.
pub(super) fn forget(conn: &mut Conn, (first, last): (i64, i64)) -> Result<usize, StoreError> {
    Ok(diesel::delete(block_failure::table.filter(block_failure::key.between(first, last))).execute(conn)?)
}
