//! Results of blocks, their acknowledgement, and the work of each node.

use super::beside;
use super::blocks::{BlockState, NewBlock, insert_blocks, weight, why_unchanged};
use super::columns::{block_key, block_keys, seq_of};
use super::dialect::{self, Conn, OnConflict};
use super::error::StoreError;
use super::failures;
use super::hot::{Acknowledge, Answer, many};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::run_lists::open_run_numbers;
use super::schema::{block, block_payload, meta};
use super::segments::{Found, PackReader, Place, SegmentFiles, Segments};
use crate::domain::ids::{NodeId, Seq};
use crate::domain::time::Timestamp;
use bytes::Bytes;
use diesel::dsl::{count_star, max, sum};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer};
use std::path::Path;

/// Stores the results of a block without results. Rejected as `state` if it has results.
#[derive(Debug, Clone)]
pub struct StoreResult {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The block.
    pub seq: Seq,
    /// Who downloaded it; `None` if the broker gave it up itself.
    pub node: Option<NodeId>,
    /// The attempt that returned them.
    pub attempt: u32,
    /// Requests that succeeded.
    pub success: u32,
    /// Requests that failed.
    pub error: u32,
    /// Bytes of the bodies, decompressed.
    pub bytes: u64,
    /// Why the whole block could not be downloaded.
    pub exception: Option<String>,
    /// It failed as a whole.
    pub failed: bool,
    /// Details of the failed requests, kept after the results are deleted.
    pub failures: Option<Bytes>,
    /// New blocks with the targets of redirects in the results.
    pub targets: Vec<NewBlock>,
    /// The results.
    pub pack: Bytes,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for StoreResult {
    const BY_OWNER: bool = true;

    type Output = ();

    fn pack(&self) -> Option<&Bytes> {
        Some(&self.pack)
    }

    fn weight(&self) -> usize {
        self.pack.len() + weight(&self.targets)
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let place = tx.place.ok_or_else(|| StoreError::Failed("a pack without a place".into()))?;
        if update_answered(tx.conn, self, place)? == 0 {
            return Err(why_unchanged(tx.conn, self.no, self.seq));
        }
        if let Some(entries) = &self.failures {
            failures::keep(tx.conn, block_key(self.no, self.seq), entries)?;
        }
        insert_blocks(tx.conn, self.no, &self.targets, self.now)?;
        tx.settlement.keep(place.segment);
        Ok(())
    }
}

/// Acknowledges blocks and stores the blocks that follow from them. Blocks with an acknowledgement or without results do not change.
#[derive(Debug, Clone)]
pub struct Ack {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The acknowledged blocks.
    pub seqs: Vec<Seq>,
    /// The new blocks.
    pub push: Vec<NewBlock>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for Ack {
    const BY_OWNER: bool = true;

    type Output = ();

    fn weight(&self) -> usize {
        weight(&self.push)
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let segments = match &mut *tx.conn {
            Conn::Postgres(conn) => many::acknowledge(conn, self.no, &self.seqs)?,
            conn => self
                .seqs
                .iter()
                .map(|seq| Ok(update_acked(conn, block_key(self.no, *seq))?.flatten()))
                .collect::<Result<_, StoreError>>()?,
        };
        segments.into_iter().flatten().for_each(|segment| tx.settlement.release(segment, 1));
        insert_blocks(tx.conn, self.no, &self.push, self.now)
    }
}

/// Blocks with their results, as sent to a worker. Leaves out blocks without results, and blocks whose results were acknowledged or
/// given up. Blocks with lost or damaged results are reported separately.
#[derive(Debug, Clone)]
pub struct ReadResults {
    /// The run.
    pub no: i64,
    /// The blocks.
    pub seqs: Vec<Seq>,
}

/// A block with its results.
#[derive(Debug, Clone)]
pub struct StoredResult {
    /// The block.
    pub seq: Seq,
    /// Bytes of the requests before they were compressed.
    pub raw_length: u32,
    /// The requests, compressed.
    pub payload: Bytes,
    /// The results.
    pub pack: Bytes,
    /// They match their checksum; results from before checksums were introduced have none.
    pub is_checked: bool,
}

/// The results of a block are lost: it waits for a node again.
#[derive(Debug, Clone)]
pub struct DiscardResults {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The block.
    pub seq: Seq,
    /// The reason.
    pub exception: String,
}

/// The counters of the discarded results of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discarded {
    /// Requests that succeeded.
    pub success: u32,
    /// Requests that failed.
    pub error: u32,
    /// The attempt that returned them.
    pub attempt: u32,
    /// The node that downloaded them.
    pub node: Option<NodeId>,
}

impl WriteOp for DiscardResults {
    const BY_OWNER: bool = true;

    type Output = Discarded;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Discarded, StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let with_results = [BlockState::Success, BlockState::Failed];
        let is_it = block::key.eq(block_key(self.no, self.seq)).and(block::acked.eq(false)).and(block::state.eq_any(with_results));
        type Row = (u32, u32, u32, Option<i32>, Option<NodeId>);
        let row: Option<Row> = block::table
            .filter(is_it)
            .select((block::success, block::error, block::attempt, block::segment, block::node_id))
            .get_result(tx.conn)
            .optional()?;
        let Some((success, error, attempt, segment, node)) = row else { return Err(why_unchanged(tx.conn, self.no, self.seq)) };
        diesel::update(block::table.find(block_key(self.no, self.seq)))
            .set((
                block::state.eq(BlockState::Retry),
                block::success.eq(0),
                block::error.eq(0),
                block::segment.eq(None::<i32>),
                block::seg_offset.eq(None::<i64>),
                block::seg_length.eq(None::<i64>),
                block::seg_check.eq(None::<i64>),
                block::finish_time.eq(None::<i64>),
                block::exception.eq(&self.exception),
            ))
            .execute(tx.conn)?;
        let key = block_key(self.no, self.seq);
        failures::forget(tx.conn, (key, key))?;
        if let Some(segment) = segment {
            tx.settlement.release(segment, 1);
        }
        Ok(Discarded { success, error, attempt, node })
    }
}

/// The results found for some blocks.
#[derive(Debug, Clone, Default)]
pub struct ReadBlocks {
    /// Intact results.
    pub results: Vec<StoredResult>,
    /// Blocks with lost or damaged results, and the reason.
    pub damaged: Vec<(Seq, String)>,
}

/// Reads blocks up to a number of bytes; also returns the numbers of the remaining blocks.
fn read_results(from: &mut Source<'_>, no: i64, seqs: &[Seq], most_bytes: usize) -> Result<(ReadBlocks, Vec<Seq>), StoreError> {
    let mut packs = PackReader::new(from.segments);
    let (mut found, mut bytes) = (ReadBlocks::default(), 0);
    for (i, &seq) in seqs.iter().enumerate() {
        if bytes >= most_bytes && i > 0 {
            return Ok((found, seqs[i..].to_vec()));
        }
        match read_result(from.conn, &mut packs, no, seq)? {
            None => {}
            Some(Ok(result)) => {
                bytes += result.payload.len() + result.pack.len();
                found.results.push(result);
            }
            // Its segment may be gone because the block was acknowledged after its row was read.
            Some(Err(_)) if is_acked(from.conn, block_key(no, seq))? => {}
            Some(Err(why)) => found.damaged.push((seq, why)),
        }
    }
    Ok((found, Vec::new()))
}

impl ReadOp for ReadResults {
    type Output = ReadBlocks;

    fn read(&self, from: &mut Source<'_>) -> Result<ReadBlocks, StoreError> {
        read_results(from, self.no, &self.seqs, usize::MAX).map(|(found, _)| found)
    }
}

/// As [`ReadResults`], but stops after the block that reaches the byte limit; also returns the remaining numbers.
#[derive(Debug)]
pub struct ReadResultsWithin {
    /// The run.
    pub no: i64,
    /// The blocks.
    pub seqs: Vec<Seq>,
    /// Maximum bytes of requests and results.
    pub most_bytes: usize,
}

impl ReadOp for ReadResultsWithin {
    type Output = (ReadBlocks, Vec<Seq>);

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        read_results(from, self.no, &self.seqs, self.most_bytes)
    }
}

/// The results of a run that no worker has acknowledged, from a block on: as [`ReadResultsWithin`], with the number of the next block.
#[derive(Debug, Clone, Copy)]
pub struct ListResults {
    /// The run.
    pub no: i64,
    /// From this block on.
    pub from: Seq,
    /// At most this many blocks.
    pub limit: usize,
    /// Maximum bytes of requests and results; one block may be larger.
    pub most_bytes: usize,
}

impl ReadOp for ListResults {
    type Output = (ReadBlocks, Option<Seq>);

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let (_, last) = block_keys(self.no);
        let keys: Vec<i64> = block::table
            .filter(block::key.between(block_key(self.no, self.from), last))
            .filter(block::acked.eq(false))
            .filter(block::segment.is_not_null())
            .order(block::key)
            .limit(self.limit as i64 + 1)
            .select(block::key)
            .load(from.conn)?;
        let mut seqs: Vec<Seq> = keys.into_iter().map(seq_of).collect();
        let next = (seqs.len() > self.limit).then(|| seqs.pop()).flatten();
        let (found, left) = read_results(from, self.no, &seqs, self.most_bytes)?;
        Ok((found, left.first().copied().or(next)))
    }
}

fn is_acked(conn: &mut Conn, key: i64) -> Result<bool, StoreError> {
    Ok(block::table.find(key).select(block::acked).get_result::<bool>(conn).optional()?.unwrap_or(true))
}

fn read_result(conn: &mut Conn, packs: &mut PackReader<'_>, no: i64, seq: Seq) -> Result<Option<Result<StoredResult, String>>, StoreError> {
    type Row = (Option<i32>, Option<i64>, Option<i64>, Option<i64>);
    let key = block_key(no, seq);
    let row = block::table
        .find(key)
        .filter(block::acked.eq(false))
        .select((block::segment, block::seg_offset, block::seg_length, block::seg_check))
        .get_result::<Row>(conn)
        .optional()?;
    let Some((Some(segment), Some(offset), Some(length), check)) = row else { return Ok(None) };
    let pack = match packs.read(conn, Place { segment, offset, length, check: check.map(|check| check as u32) })? {
        Found::Whole(pack) => pack,
        Found::Damaged(why) => return Ok(Some(Err(why))),
    };
    let (raw_length, payload) =
        block_payload::table.find(key).select((block_payload::raw_length, block_payload::payload)).get_result::<(i64, Vec<u8>)>(conn)?;
    let is_checked = check.is_some();
    Ok(Some(Ok(StoredResult { seq, raw_length: raw_length as u32, payload: payload.into(), pack, is_checked })))
}

/// The work of each node for a run: succeeded and failed requests, and its last report.
#[derive(Debug, Clone, Copy)]
pub struct NodeCounts {
    /// The run.
    pub no: i64,
}

impl ReadOp for NodeCounts {
    type Output = Vec<(Option<NodeId>, u64, u64, Timestamp)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        type Row = (Option<NodeId>, Option<u64>, Option<u64>, Option<Timestamp>);
        let (first, last) = block_keys(self.no);
        let rows: Vec<Row> = block::table
            .filter(block::key.between(first, last))
            .filter(block::finish_time.is_not_null())
            .group_by(block::node_id)
            .select((block::node_id, sum(block::success), sum(block::error), max(block::finish_time)))
            .load(from.conn)?;
        let counts = |(node, success, error, time): Row| (node, success.unwrap_or(0), error.unwrap_or(0), time.unwrap_or_default());
        Ok(rows.into_iter().map(counts).collect())
    }
}

fn update_answered(conn: &mut Conn, result: &StoreResult, place: Place) -> Result<usize, StoreError> {
    let state = if result.failed { BlockState::Failed } else { BlockState::Success };
    let answer = Answer {
        key: block_key(result.no, result.seq),
        state,
        attempt: result.attempt as i32,
        success: result.success as i32,
        error: result.error as i32,
        bytes: i64::try_from(result.bytes).unwrap_or(i64::MAX),
        segment: place.segment,
        seg_offset: place.offset,
        seg_length: place.length,
        seg_check: place.check.map(i64::from),
        finish_time: result.now,
        node_id: result.node,
        exception: result.exception.as_deref(),
    };
    Ok(answer.execute(conn)?)
}

/// The segment of its results, if it had results and was not acknowledged before.
fn update_acked(conn: &mut Conn, key: i64) -> Result<Option<Option<i32>>, StoreError> {
    Ok(Acknowledge { key }.get_result::<Option<i32>>(conn).optional()?)
}

/// Number of results that wait for a worker, by segment, among blocks with these keys.
pub(super) fn unacknowledged(conn: &mut Conn, (first, last): (i64, i64)) -> Result<Vec<(i32, i64)>, StoreError> {
    let rows: Vec<(Option<i32>, i64)> = block::table
        .filter(block::key.between(first, last))
        .filter(block::acked.eq(false))
        .filter(block::segment.is_not_null())
        .group_by(block::segment)
        .select((block::segment, count_star()))
        .load(conn)?;
    Ok(rows.into_iter().filter_map(|(segment, packs)| Some((segment?, packs))).collect())
}

/// What the open runs need of each segment: the number of results that wait for a worker, and the position where the last one ends.
///
/// One statement, however many runs are open: a new leader waits for it. `LATERAL` makes PostgreSQL look up the keys of each run.
pub(super) fn needed_segments(conn: &mut Conn) -> Result<Vec<(i32, u64, u64)>, StoreError> {
    #[derive(QueryableByName)]
    struct Needed {
        #[diesel(sql_type = Integer)]
        segment: i32,
        #[diesel(sql_type = BigInt)]
        packs: i64,
        #[diesel(sql_type = BigInt)]
        until: i64,
    }
    let text = dialect::by_database(
        conn,
        "SELECT block.segment AS segment, COUNT(*) AS packs, COALESCE(MAX(block.seg_offset + block.seg_length), 0) AS until \
            FROM run INDEXED BY run_open CROSS JOIN block ON block.key BETWEEN run.no << 32 AND (run.no << 32) + 4294967295 \
            WHERE run.state IN ('pending', 'scheduled', 'running') AND NOT block.acked AND block.segment IS NOT NULL GROUP BY block.segment ORDER BY 1",
        "SELECT waiting.segment, CAST(SUM(waiting.packs) AS BIGINT) AS packs, COALESCE(MAX(waiting.until), 0) AS until \
            FROM run CROSS JOIN LATERAL (\
                SELECT segment, COUNT(*) AS packs, MAX(seg_offset + seg_length) AS until FROM block \
                WHERE key BETWEEN run.no << 32 AND (run.no << 32) + 4294967295 AND NOT acked AND segment IS NOT NULL GROUP BY segment\
            ) waiting \
            WHERE run.state IN ('pending', 'scheduled', 'running') GROUP BY waiting.segment ORDER BY 1",
    );
    let rows: Vec<Needed> = diesel::sql_query(text).load(conn)?;
    Ok(rows.into_iter().map(|row| (row.segment, row.packs as u64, row.until.max(0) as u64)).collect())
}

/// The packs that wait for a worker, in the order in which they are stored.
pub(super) fn needed_packs(conn: &mut Conn) -> Result<Vec<Place>, StoreError> {
    type Columns = (Option<i32>, Option<i64>, Option<i64>, Option<i64>);
    let mut places = Vec::new();
    for no in open_run_numbers(conn)? {
        let (first, last) = block_keys(no);
        let rows: Vec<Columns> = block::table
            .filter(block::key.between(first, last))
            .filter(block::acked.eq(false))
            .filter(block::segment.is_not_null())
            .select((block::segment, block::seg_offset, block::seg_length, block::seg_check))
            .load(conn)?;
        places.extend(rows.into_iter().filter_map(|(segment, offset, length, check)| {
            Some(Place { segment: segment?, offset: offset?, length: length?, check: check.map(|check| check as u32) })
        }));
    }
    places.sort_by_key(|place| (place.segment, place.offset, place.length));
    Ok(places)
}

/// The key in `meta` of the highest number of a segment that was used.
pub(super) const LAST_SEGMENT: &str = "last_segment";

/// Stores the highest used segment number.
pub(super) fn note_last_segment(conn: &mut Conn, number: i32) -> Result<(), StoreError> {
    note(conn, LAST_SEGMENT, number.into())
}

/// Stores a number in `meta`.
pub(super) fn note(conn: &mut Conn, key: &str, number: i64) -> Result<(), StoreError> {
    diesel::insert_into(meta::table)
        .values((meta::key.eq(key), meta::value.eq(number.to_string())))
        .with_conflict_rule("(key) DO UPDATE SET value = excluded.value")
        .execute(conn)?;
    Ok(())
}

/// Opens the files of results and deletes those that no open run needs.
pub(super) fn open_files(conn: &mut Conn, database: &Path) -> Result<Segments, StoreError> {
    let live = needed_segments(conn)?.into_iter().map(|(segment, packs, _)| (segment, packs as i64)).collect();
    let last = meta::table.find(LAST_SEGMENT).select(meta::value).get_result::<String>(conn).optional()?;
    let last = last.and_then(|number| number.parse().ok()).unwrap_or(0);
    Ok(Segments::Files(SegmentFiles::open(&beside(database, "-results"), live, last)?))
}
