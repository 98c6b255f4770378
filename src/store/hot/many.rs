//! Statements on many rows at once, for PostgreSQL: each statement is a message to the server and an answer, so one for each row would take
//! most of the time of a batch. The rows go as arrays, one for each column, so that the text is always the same and is parsed once.

use super::{kept, statement};
use crate::domain::ids::Seq;
use crate::domain::time::Timestamp;
use crate::store::blocks::{BlockState, NewBlock};
use crate::store::columns::{block_key, print_bytes, storable};
use crate::store::dialect::postgres::PgConn;
use crate::store::error::StoreError;
use crate::store::logs::NewLine;
use bytes::Bytes;
use diesel::connection::Connection;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Nullable, SmallInt, Text};
use diesel::{OptionalExtension, QueryResult, RunQueryDsl};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A statement whose text has the name of a table that will be dropped: it is not kept, because nothing would ever end that.
macro_rules! by_text {
    ($name:ident <'_>) => {
        impl QueryId for $name<'_> {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }

        impl RunQueryDsl<PgConn> for $name<'_> {}
    };
}

/// Blocks that one statement stores at most: the server holds its rows in memory.
const MOST_BLOCKS: usize = 100;

/// Stores new blocks and their requests.
pub(in crate::store) fn insert_blocks(conn: &mut PgConn, no: i64, blocks: &[NewBlock], now: Timestamp) -> Result<(), StoreError> {
    for blocks in blocks.chunks(MOST_BLOCKS) {
        InsertBlocks {
            state: *BlockState::Ready.number(),
            now: now.0,
            keys: blocks.iter().map(|new| block_key(no, new.seq)).collect(),
            requests: blocks.iter().map(|new| new.requests as i32).collect(),
            sites: blocks.iter().map(|new| new.site.as_deref()).collect(),
            priorities: blocks.iter().map(|new| i16::from(new.priority)).collect(),
            attempts: blocks.iter().map(|new| new.attempts as i32).collect(),
            raw_lengths: blocks.iter().map(|new| i64::from(new.raw_length)).collect(),
            prints: blocks.iter().map(|new| print_bytes(&new.prints)).collect(),
            payloads: blocks.iter().map(|new| &new.payload[..]).collect(),
        }
        .execute(conn)?;
    }
    Ok(())
}

#[derive(Debug)]
struct InsertBlocks<'a> {
    state: i16,
    now: i64,
    keys: Vec<i64>,
    requests: Vec<i32>,
    sites: Vec<Option<&'a str>>,
    priorities: Vec<i16>,
    attempts: Vec<i32>,
    raw_lengths: Vec<i64>,
    prints: Vec<Vec<u8>>,
    payloads: Vec<&'a [u8]>,
}

impl QueryFragment<Pg> for InsertBlocks<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        statement! { out,
            "WITH new AS (SELECT * FROM unnest(", Array<BigInt> = &self.keys;
            ", ", Array<Integer> = &self.requests;
            ", ", Array<Nullable<Text>> = &self.sites;
            ", ", Array<SmallInt> = &self.priorities;
            ", ", Array<Integer> = &self.attempts;
            ", ", Array<BigInt> = &self.raw_lengths;
            ", ", Array<Binary> = &self.prints;
            ", ", Array<Binary> = &self.payloads;
            ") AS new (key, requests, site, priority, attempt, raw_length, prints, payload)), \
            blocks AS (INSERT INTO block (key, requests, site, priority, attempt, success, error, acked, state, creation_time) \
            SELECT key, requests, site, priority, attempt, 0, 0, FALSE, ", SmallInt = &self.state;
            ", ", BigInt = &self.now;
            " FROM new) \
            INSERT INTO block_payload (key, raw_length, prints, payload) SELECT key, raw_length, prints, payload FROM new";
        }
    }
}

kept!(InsertBlocks<'_>);

/// Marks blocks with results as acknowledged. Returns the segments of the results of those that were not before.
pub(in crate::store) fn acknowledge(conn: &mut PgConn, no: i64, seqs: &[Seq]) -> Result<Vec<Option<i32>>, StoreError> {
    Ok(AcknowledgeAll { keys: seqs.iter().map(|seq| block_key(no, *seq)).collect() }.load(conn)?)
}

#[derive(Debug)]
struct AcknowledgeAll {
    keys: Vec<i64>,
}

impl QueryFragment<Pg> for AcknowledgeAll {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        statement! { out,
            "UPDATE block SET acked = TRUE WHERE key = ANY(", Array<BigInt> = &self.keys;
            ") AND acked = FALSE AND finish_time IS NOT NULL RETURNING segment";
        }
    }
}

impl QueryId for AcknowledgeAll {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for AcknowledgeAll {
    type SqlType = Nullable<Integer>;
}

impl<C: Connection> RunQueryDsl<C> for AcknowledgeAll {}

/// Appends lines to the log of a run, in their order.
pub(in crate::store) fn insert_lines(conn: &mut PgConn, run_no: i64, lines: &[NewLine]) -> Result<(), StoreError> {
    InsertLines {
        run_no,
        at: lines.iter().map(|line| line.at.0).collect(),
        levels: lines.iter().map(|line| line.level).collect(),
        sources: lines.iter().map(|line| line.source.as_str()).collect(),
        texts: lines.iter().map(|line| storable(&line.text)).collect(),
    }
    .execute(conn)?;
    Ok(())
}

#[derive(Debug)]
struct InsertLines<'a> {
    run_no: i64,
    at: Vec<i64>,
    levels: Vec<i16>,
    sources: Vec<&'a str>,
    texts: Vec<Cow<'a, str>>,
}

impl QueryFragment<Pg> for InsertLines<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        statement! { out,
            "INSERT INTO run_log (run_no, at, level, source, text) SELECT ", BigInt = &self.run_no;
            ", at, level, source, text FROM unnest(", Array<BigInt> = &self.at;
            ", ", Array<SmallInt> = &self.levels;
            ", ", Array<Text> = &self.sources;
            ", ", Array<Text> = &self.texts;
            ") WITH ORDINALITY AS new (at, level, source, text, place) ORDER BY place";
        }
    }
}

kept!(InsertLines<'_>);

/// Inserts packs of results into the table of a segment.
pub(in crate::store) fn insert_packs(conn: &mut PgConn, table: String, starts: Vec<i64>, packs: &[&Bytes]) -> Result<(), StoreError> {
    InsertPacks { table, starts, packs: packs.iter().map(|pack| &pack[..]).collect() }.execute(conn)?;
    Ok(())
}

#[derive(Debug)]
struct InsertPacks<'a> {
    table: String,
    starts: Vec<i64>,
    packs: Vec<&'a [u8]>,
}

impl QueryFragment<Pg> for InsertPacks<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql("INSERT INTO ");
        out.push_identifier(&self.table)?;
        statement! { out,
            " (start, pack) SELECT * FROM unnest(", Array<BigInt> = &self.starts;
            ", ", Array<Binary> = &self.packs;
            ")";
        }
    }
}

by_text!(InsertPacks<'_>);

/// Adds packs to the counts of segments, and notes which of them are complete. Returns whether the leader counts too, and whether one of
/// the segments has no packs and no writer then.
pub(in crate::store) fn count_packs(conn: &mut PgConn, changes: &BTreeMap<i32, (i64, bool)>) -> Result<(bool, bool), StoreError> {
    let count = CountPacks {
        numbers: changes.keys().copied().collect(),
        packs: changes.values().map(|(packs, _)| *packs).collect(),
        left: changes.values().map(|(_, is_left)| *is_left).collect(),
    };
    Ok(count.get_result(conn)?)
}

#[derive(Debug)]
struct CountPacks {
    numbers: Vec<i32>,
    packs: Vec<i64>,
    left: Vec<bool>,
}

impl QueryFragment<Pg> for CountPacks {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        statement! { out,
            // Locked by their numbers, so that two writers do not wait for each other.
            "WITH change AS (SELECT number, packs, is_left FROM segment JOIN unnest(", Array<Integer> = &self.numbers;
            ", ", Array<BigInt> = &self.packs;
            ", ", Array<Bool> = &self.left;
            ") AS new (number, packs, is_left) USING (number) ORDER BY number FOR UPDATE OF segment), \
            counted AS (UPDATE segment SET live = live + packs, writer = CASE WHEN is_left THEN NULL ELSE writer END \
            FROM change WHERE segment.number = change.number RETURNING live <= 0 AND writer IS NULL AS is_unneeded) \
            SELECT EXISTS (SELECT 1 FROM leader JOIN meta ON key = 'segment_term' AND value = CAST(term AS TEXT)), \
            EXISTS (SELECT 1 FROM counted WHERE is_unneeded)";
        }
    }
}

impl QueryId for CountPacks {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for CountPacks {
    type SqlType = (Bool, Bool);
}

impl<C: Connection> RunQueryDsl<C> for CountPacks {}

/// Reads a pack of results; `None` if it is not in the table of its segment.
pub(in crate::store) fn read_pack(conn: &mut PgConn, table: &str, start: i64) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(ReadPack { table, start }.get_result(conn).optional()?)
}

#[derive(Debug)]
struct ReadPack<'a> {
    table: &'a str,
    start: i64,
}

impl QueryFragment<Pg> for ReadPack<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql("SELECT pack FROM ");
        out.push_identifier(self.table)?;
        statement! { out, " WHERE start = ", BigInt = &self.start; }
    }
}

impl Query for ReadPack<'_> {
    type SqlType = Binary;
}

by_text!(ReadPack<'_>);
