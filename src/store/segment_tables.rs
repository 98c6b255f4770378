//! Result packs in the database, for brokers on several machines: a table `result_<n>` for each segment.
//!
//! The packs of a batch are inserted in its transaction. A table is dropped as a whole when everything in it is acknowledged, as a file
//! is deleted: nothing is left for the database to clean up, which single deleted rows would leave.

use super::dialect::Conn;
use super::dialect::postgres::PgConn;
use super::error::StoreError;
use super::hot::many;
use super::segments::{Place, ROLL_BYTES, Settlement};
use bytes::Bytes;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// After a segment could not be dropped.
const PAUSE: Duration = Duration::from_secs(5);
const PREFIX: &str = "result_";

/// The tables of segments, used by the single writer.
#[derive(Debug)]
pub(super) struct SegmentTables {
    current: Option<Current>,
    last: i32,
    /// Number of packs that wait for a worker, by segment.
    live: HashMap<i32, i64>,
    /// Segments without results that could not be dropped yet.
    to_drop: VecDeque<i32>,
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

impl SegmentTables {
    /// `live` contains the needed segments, and was read after `there`, the tables that exist. The others are dropped after the first transaction
    /// of this broker: if another leads by then, there is none. `last` is the highest number in the database.
    pub(super) fn open(there: Vec<i32>, live: HashMap<i32, i64>, last: i32) -> Self {
        let mut this = Self { current: None, last, live, to_drop: VecDeque::new(), blocked: None, roll: ROLL_BYTES };
        this.last = this.live.keys().copied().fold(this.last, i32::max);
        for number in there {
            this.last = this.last.max(number);
            if !this.live.contains_key(&number) {
                this.to_drop.push_back(number);
            }
        }
        this
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
        let number = self.last + 1;
        create(conn, number)?;
        self.last = number;
        self.live.entry(number).or_insert(0);
        Ok(Current { number, length: 0 })
    }

    /// The highest number in use.
    pub(super) fn last(&self) -> i32 {
        self.last
    }

    /// Applies the changes of a committed transaction.
    pub(super) fn settle(&mut self, conn: Option<&mut Conn>, settlement: &mut Settlement) {
        for (segment, change) in settlement.take() {
            *self.live.entry(segment).or_insert(0) += change;
        }
        let current = self.current.map(|current| current.number);
        self.to_drop.extend(self.live.extract_if(|segment, live| *live <= 0 && Some(*segment) != current).map(|(segment, _)| segment));
        if let Some(conn) = conn {
            self.drop_tables(conn);
        }
    }

    /// Drops the tables that are not needed, unless somebody reads them: a dump of the database reads every table, for minutes. Then it tries again later.
    fn drop_tables(&mut self, conn: &mut Conn) {
        if self.blocked.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.blocked = None;
        while let Some(segment) = self.to_drop.front() {
            let statements = format!("BEGIN; SET LOCAL lock_timeout = '50ms'; DROP TABLE IF EXISTS {PREFIX}{segment}; COMMIT");
            if let Err(e) = conn.batch_execute(&statements) {
                log::debug!("could not drop a segment without results segment={segment} error={e}");
                let _ = conn.batch_execute("ROLLBACK");
                self.blocked = Some(Instant::now());
                return;
            }
            self.to_drop.pop_front();
        }
    }

    /// The transaction in which the current table may have been made was rolled back.
    pub(super) fn rolled_back(&mut self) {
        self.current = None;
    }

    #[cfg(test)]
    pub(super) fn roll_at(&mut self, bytes: u64) {
        self.roll = bytes;
    }
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
