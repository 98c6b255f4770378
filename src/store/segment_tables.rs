//! Result packs in the database, for brokers on several machines: a table `result_<n>` for each segment.
//!
//! The packs of a batch are inserted in its transaction. A table is dropped as a whole when everything in it is acknowledged, as a file
//! is deleted: nothing is left for the database to clean up, which single deleted rows would leave.
//!
//! Several brokers write: the leader, and those that own runs. Each appends to a segment of its own, and any of them may acknowledge what is in it,
//! because runs move. So the table `segment` has a row for each: the number of packs that are not acknowledged, and the writer that appends. Each transaction adds its changes there, with
//! its last statement. A complete segment without packs never gets any, and the first broker that sees it drops it.
//!
//! Rows are locked in one order: that of the owner of runs, that of the leader, `last_segment` in `meta`, then `segment` by its number. The operations
//! by which the leader gives and takes rights lock its own row first; if an owner begins a segment at this moment, the database ends one of the two
//! transactions, which is repeated.
//!
//! A leader of an earlier version counts in memory, from what it finds when it begins. So beside such a leader an owner of runs must neither store nor
//! release packs, nor begin a segment. A leader of this version notes its term in `meta`, and the statement that counts compares it.

use super::candidate::Leadership;
use super::dialect::postgres::PgConn;
use super::dialect::{self, Conn};
use super::error::StoreError;
use super::hot::many;
use super::leader::ROW;
use super::results::{LAST_SEGMENT, needed_segments, note, note_last_segment};
use super::segments::{Place, ROLL_BYTES, Settlement};
use crate::domain::ids::BrokerId;
use bytes::Bytes;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// After a segment could not be dropped.
const PAUSE: Duration = Duration::from_secs(5);
const PREFIX: &str = "result_";
/// The key in `meta` of the last term whose leader counts in the database.
pub(super) const TERM: &str = "segment_term";
/// The leader in `segment.writer`. Not its name: it may have owned runs before it led, and then both write for a while.
const LEADER: &str = "leader";

/// The tables of segments, as one of their writers uses them.
#[derive(Debug)]
pub(super) struct SegmentTables {
    /// Its name in `segment.writer`.
    writer: String,
    current: Option<Current>,
    /// The transaction in progress has begun this segment.
    has_begun: bool,
    /// There may be segments that are not needed any more.
    may_drop: bool,
    /// When one of them was read by others.
    blocked: Option<Instant>,
    roll: u64,
}

#[derive(Debug, Clone, Copy)]
struct Current {
    number: i32,
    length: u64,
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = Integer)]
    number: i32,
}

impl SegmentTables {
    /// Those of the leader, or of this owner of runs.
    pub(super) fn of(owner: Option<BrokerId>) -> Self {
        let writer = owner.map_or_else(|| LEADER.to_owned(), |broker| broker.to_string());
        // A leader may have died before it dropped segments that are not needed.
        Self { writer, current: None, has_begun: false, may_drop: owner.is_none(), blocked: None, roll: ROLL_BYTES }
    }

    /// Inserts packs; returns their locations in the same order.
    pub(super) fn append(&mut self, conn: &mut Conn, packs: &[&Bytes]) -> Result<Vec<Place>, StoreError> {
        let mut current = match self.current.take_if(|current| current.length < self.roll) {
            Some(current) => current,
            None => self.begin(conn)?,
        };
        let mut places = Vec::with_capacity(packs.len());
        for pack in packs {
            let (offset, length) = (current.length as i64, pack.len() as i64);
            let place = Place { segment: current.number, offset, length, check: Some(crc32fast::hash(pack)) };
            places.push(place);
            // Empty packs have a place of their own too.
            current.length += pack.len().max(1) as u64;
        }
        put(conn, current.number, &places, packs)?;
        self.current = Some(current);
        Ok(places)
    }

    fn begin(&mut self, conn: &mut Conn) -> Result<Current, StoreError> {
        // With the row of the leader, so that none of an earlier version takes over before this transaction is over: it would use the same number.
        let next = format!(
            "INSERT INTO meta (key, value) SELECT '{LAST_SEGMENT}', '1' FROM leader WHERE id = {ROW} FOR SHARE \
            ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT) RETURNING CAST(value AS INTEGER) AS number"
        );
        let Number { number } = diesel::sql_query(next).get_result(conn)?;
        create(conn, number)?;
        let row = diesel::sql_query("INSERT INTO segment (number, live, writer) VALUES ($1, 0, $2)");
        row.bind::<Integer, _>(number).bind::<Text, _>(&self.writer).execute(conn)?;
        self.has_begun = true;
        Ok(Current { number, length: 0 })
    }

    /// Adds the changes of this transaction to the counts. [`StoreError::NotLeading`] if the leader does not count there.
    pub(super) fn count(&mut self, conn: &mut Conn, settlement: &Settlement) -> Result<(), StoreError> {
        let mut changes: BTreeMap<i32, (i64, bool)> =
            settlement.changes().into_iter().map(|(number, packs)| (number, (packs, false))).collect();
        for number in self.left(conn, settlement)? {
            changes.entry(number).or_default().1 = true;
        }
        if changes.is_empty() {
            return Ok(());
        }
        let (leader_counts, is_unneeded) = many::count_packs(server(conn)?, &changes)?;
        if !leader_counts {
            log::warn!("a broker of an earlier version leads, beside which only the leader may write results");
            return Err(StoreError::NotLeading);
        }
        self.may_drop |= is_unneeded;
        Ok(())
    }

    /// The segments to which their writer does not append any more.
    fn left(&mut self, conn: &mut Conn, settlement: &Settlement) -> Result<Vec<i32>, StoreError> {
        let mut writers: Vec<String> = settlement.ended().iter().map(ToString::to_string).collect();
        if std::mem::take(&mut self.has_begun) {
            writers.push(self.writer.clone());
        }
        if writers.is_empty() {
            return Ok(Vec::new());
        }
        let current = self.current.map_or(0, |current| current.number);
        let theirs = diesel::sql_query("SELECT number FROM segment WHERE writer = ANY($1) AND number <> $2");
        let theirs = theirs.bind::<Array<Text>, _>(writers).bind::<Integer, _>(current);
        Ok(theirs.load::<Number>(server(conn)?)?.into_iter().map(|Number { number }| number).collect())
    }

    /// Drops the tables that are not needed any more, unless another connection reads them: a dump of the database reads every table, for minutes. Then it tries again later.
    pub(super) fn drop_unneeded(&mut self, conn: &mut Conn) {
        if !self.may_drop || self.blocked.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.blocked = None;
        loop {
            match drop_one(conn) {
                Ok(true) => {}
                Ok(false) => break self.may_drop = false,
                Err(e) => {
                    log::debug!("could not drop a segment without results error={e}");
                    self.blocked = Some(Instant::now());
                    break;
                }
            }
        }
    }

    /// The transaction in which the current table may have been made was rolled back.
    pub(super) fn rolled_back(&mut self) {
        (self.current, self.has_begun) = (None, false);
    }

    #[cfg(test)]
    pub(super) fn roll_at(&mut self, bytes: u64) {
        self.roll = bytes;
    }
}

/// Drops one segment that is not needed any more, in a transaction of its own. Returns whether there was one. The transaction locks the row of the segment, so no
/// other writer drops it too.
fn drop_one(conn: &mut Conn) -> Result<bool, StoreError> {
    let unneeded = "DELETE FROM segment WHERE number = (\
            SELECT number FROM segment WHERE live <= 0 AND writer IS NULL ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED\
        ) RETURNING number";
    conn.batch_execute("BEGIN; SET LOCAL lock_timeout = '50ms'")?;
    let dropped = diesel::sql_query(unneeded).get_result::<Number>(conn).optional().and_then(|found| {
        let table = found.as_ref().map_or_else(String::new, |Number { number }| format!("DROP TABLE IF EXISTS {PREFIX}{number};"));
        conn.batch_execute(&format!("{table} COMMIT")).map(|()| found.is_some())
    });
    if dropped.is_err() {
        let _ = conn.batch_execute("ROLLBACK");
    }
    Ok(dropped?)
}

/// The leader of this term counts in the database.
pub(super) fn note_term(conn: &mut Conn, term: i64) -> Result<(), StoreError> {
    note(conn, TERM, term)
}

/// A new leader counts the packs of all segments again: a broker of an earlier version, which does not count them here, may have led in between.
/// Segments of an earlier leader, and of brokers without a right, are complete.
pub(super) fn recount(conn: &mut Conn, leadership: &mut Leadership) -> Result<(), StoreError> {
    dialect::begin(conn)?;
    let counted = match dialect::turn(conn, None) {
        Ok(Some(turn)) if turn.follows(&leadership.turn).is_ok() => recount_all(conn).map(|()| turn),
        Ok(_) => Err(StoreError::NotLeading),
        Err(error) => Err(error),
    };
    match counted {
        Ok(turn) => {
            dialect::commit(conn)?;
            leadership.turn = turn;
            Ok(())
        }
        Err(error) => {
            // The error matters more than the result of the rollback of a broken connection.
            let _ = dialect::rollback(conn);
            Err(error)
        }
    }
}

fn recount_all(conn: &mut Conn) -> Result<(), StoreError> {
    // A transaction that begins a segment holds this row too, and then waits for the lock of the table.
    let last = format!(
        "INSERT INTO meta (key, value) VALUES ('{LAST_SEGMENT}', '0') \
        ON CONFLICT (key) DO UPDATE SET value = meta.value RETURNING CAST(value AS INTEGER) AS number"
    );
    let Number { number: last } = diesel::sql_query(last).get_result(conn)?;
    // A transaction of an owner of runs that has counted its changes ends before. One that has not will add them to the new counts, because what follows
    // does not see it: each statement sees what was committed before it.
    conn.batch_execute("LOCK TABLE segment IN EXCLUSIVE MODE")?;
    let needed: BTreeMap<i32, i64> = needed_segments(conn)?.into_iter().map(|(number, packs, _)| (number, packs as i64)).collect();
    let all: BTreeSet<i32> = numbers(conn)?.into_iter().chain(needed.keys().copied()).collect();
    let live: Vec<i64> = all.iter().map(|number| needed.get(number).copied().unwrap_or(0)).collect();
    let newest = all.last().copied().unwrap_or(0);
    let all: Vec<i32> = all.into_iter().collect();
    let gone = diesel::sql_query("DELETE FROM segment WHERE number <> ALL($1)");
    gone.bind::<Array<Integer>, _>(&all).execute(server(conn)?)?;
    let counted = diesel::sql_query(
        "INSERT INTO segment (number, live) SELECT * FROM unnest($1, $2) ON CONFLICT (number) DO UPDATE SET live = excluded.live, \
            writer = (SELECT broker FROM run_owner WHERE broker = segment.writer)",
    );
    counted.bind::<Array<Integer>, _>(&all).bind::<Array<BigInt>, _>(live).execute(server(conn)?)?;
    if newest > last { note_last_segment(conn, newest) } else { Ok(()) }
}

/// Makes the table of a segment.
pub(super) fn create(conn: &mut Conn, number: i32) -> Result<(), StoreError> {
    // The packs are compressed already.
    Ok(conn.batch_execute(&format!(
        "CREATE TABLE {PREFIX}{number} (start BIGINT NOT NULL PRIMARY KEY, pack BYTEA NOT NULL); \
         ALTER TABLE {PREFIX}{number} ALTER COLUMN pack SET STORAGE EXTERNAL;"
    ))?)
}

/// Drops the table of a segment, if it is there.
pub(super) fn delete(conn: &mut Conn, number: i32) -> Result<(), StoreError> {
    Ok(conn.batch_execute(&format!("DROP TABLE IF EXISTS {PREFIX}{number}"))?)
}

/// Puts packs at their places in a segment.
pub(super) fn put(conn: &mut Conn, segment: i32, places: &[Place], packs: &[&Bytes]) -> Result<(), StoreError> {
    let starts = places.iter().map(|place| place.offset).collect();
    many::insert_packs(server(conn)?, format!("{PREFIX}{segment}"), starts, packs)
}

/// The connection to the server that has the tables of segments: with a file, they are files.
fn server(conn: &mut Conn) -> Result<&mut PgConn, StoreError> {
    match conn {
        Conn::Postgres(conn) => Ok(conn),
        Conn::Sqlite(_) => Err(StoreError::Failed("a file has no tables of segments".into())),
    }
}

/// The segments that exist.
pub(super) fn numbers(conn: &mut Conn) -> Result<Vec<i32>, StoreError> {
    let names = "SELECT table_name::text AS name FROM information_schema.tables \
        WHERE table_schema = current_schema() AND table_name ~ '^result_[0-9]+$'";
    let names: Vec<Name> = diesel::sql_query(names).load(conn)?;
    Ok(names.iter().filter_map(|Name { name }| name.strip_prefix(PREFIX)?.parse().ok()).collect())
}

/// Reads a pack; `None` if it is not there.
pub(super) fn read(conn: &mut Conn, place: Place) -> Result<Option<Vec<u8>>, StoreError> {
    let table = format!("{PREFIX}{}", place.segment);
    match many::read_pack(server(conn)?, &table, place.offset) {
        // The text of the error is in the language of the server.
        Err(e) => {
            if super::dialect::has_table(conn, &table)? {
                Err(e)
            } else {
                Ok(None)
            }
        }
        found => found,
    }
}
