//! The attempts of runs that had more than one. A run that succeeds at once has no row here: its own row has the same facts.

use super::columns::Hex;
use super::dialect::{Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{run, run_attempt, run_instance};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use uuid::Uuid;

/// Attempts of an instance that are kept: a task may be lost with its worker any number of times.
const KEPT: u32 = 100;

/// An attempt as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = run_attempt)]
pub struct AttemptRow {
    /// The number of the instance, from 0.
    pub instance: u32,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The worker or node that had it.
    pub peer: Option<Uuid>,
    /// How it ended, or its state when it began.
    pub state: RunState,
    /// Why it ended.
    pub reason: Option<String>,
    /// When it began; `None`: not known.
    pub start_time: Option<Timestamp>,
    /// When it ended.
    pub finish_time: Option<Timestamp>,
}

/// Stores an attempt, or what is new about it.
pub(super) fn record(conn: &mut Conn, no: i64, row: &AttemptRow) -> Result<(), StoreError> {
    let rule = "(run_no, instance, attempt) DO UPDATE SET state = excluded.state, reason = excluded.reason, \
        peer = COALESCE(excluded.peer, run_attempt.peer), start_time = COALESCE(run_attempt.start_time, excluded.start_time), \
        finish_time = excluded.finish_time";
    diesel::insert_into(run_attempt::table)
        .values((
            run_attempt::run_no.eq(no),
            run_attempt::instance.eq(row.instance as i32),
            run_attempt::attempt.eq(row.attempt as i32),
            run_attempt::peer.eq(row.peer.map(Hex::of)),
            run_attempt::state.eq(row.state),
            run_attempt::reason.eq(row.reason.as_deref()),
            run_attempt::start_time.eq(row.start_time),
            run_attempt::finish_time.eq(row.finish_time),
        ))
        .with_conflict_rule(rule)
        .execute(conn)?;
    if row.attempt > KEPT {
        let of_instance = run_attempt::table.filter(run_attempt::run_no.eq(no)).filter(run_attempt::instance.eq(row.instance as i32));
        diesel::delete(of_instance.filter(run_attempt::attempt.le((row.attempt - KEPT) as i32))).execute(conn)?;
    }
    Ok(())
}

/// The attempt of a run is over, and another one follows: stores it, unless the run has rows of its instances, which
/// [`keep_instances`] stores.
pub(super) fn record_end(conn: &mut Conn, no: i64, row: AttemptRow) -> Result<(), StoreError> {
    let instances: i64 = run_instance::table.filter(run_instance::run_no.eq(no)).count().get_result(conn)?;
    if instances > 0 {
        return Ok(());
    }
    let (peer, begun): (Option<Uuid>, Option<Timestamp>) =
        run::table.find(no).select((run::worker_id, run::start_time)).get_result(conn)?;
    let begun = begun.filter(|_| row.attempt == 1);
    record(conn, no, &AttemptRow { peer: row.peer.or(peer), start_time: row.start_time.or(begun), ..row })
}

/// The instances of a run are about to be replaced by those of the next attempt.
pub(super) fn keep_instances(conn: &mut Conn, no: i64) -> Result<(), StoreError> {
    let of_run = run_instance::table.filter(run_instance::run_no.eq(no)).order(run_instance::instance);
    // In the order of the members.
    let rows: Vec<AttemptRow> = of_run
        .select((
            run_instance::instance,
            run_instance::attempt,
            run_instance::peer,
            run_instance::state,
            run_instance::reason,
            run_instance::start_time,
            run_instance::finish_time,
        ))
        .load(conn)?;
    rows.iter().try_for_each(|row| record(conn, no, row))
}

pub(super) fn forget(conn: &mut Conn, no: i64) -> Result<usize, StoreError> {
    Ok(diesel::delete(run_attempt::table.filter(run_attempt::run_no.eq(no))).execute(conn)?)
}

/// The stored attempts of a run, by instance and attempt.
#[derive(Debug, Clone, Copy)]
pub struct ListAttempts {
    /// The run.
    pub no: i64,
    /// Only this instance and later ones, and of it only this attempt and later ones.
    pub from: (u32, u32),
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListAttempts {
    type Output = Vec<AttemptRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let (instance, attempt) = (self.from.0 as i32, self.from.1 as i32);
        let is_later = run_attempt::instance.gt(instance).or(run_attempt::instance.eq(instance).and(run_attempt::attempt.ge(attempt)));
        Ok(run_attempt::table
            .filter(run_attempt::run_no.eq(self.no))
            .filter(is_later)
            .order((run_attempt::instance, run_attempt::attempt))
            .limit(self.limit as i64)
            .select(AttemptRow::as_select())
            .load(from.conn)?)
    }
}
