//! The instances of runs with several instances.

use super::columns::Hex;
use super::error::StoreError;
use super::logs::{self, NewLine};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::run_settling::BeginRun;
use super::schema::{run, run_instance};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use uuid::Uuid;

/// An instance as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = run_instance)]
pub struct InstanceRow {
    /// The number of the instance, from 0.
    pub instance: u32,
    /// The worker or node that has it, or had it last.
    pub peer: Option<Uuid>,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// Its state.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// Its result as JSON.
    pub result: Option<String>,
    /// When it began.
    pub start_time: Option<Timestamp>,
    /// When it ended.
    pub finish_time: Option<Timestamp>,
    /// Accepted lines of its output.
    pub lines: u64,
    /// Why it was ordered to end, if it was.
    pub exit_reason: Option<String>,
}

/// The peers of an attempt of a run: one instance on each of them. Replaces the instances of an earlier attempt. Must be committed
/// before any peer receives an order.
#[derive(Debug, Clone)]
pub struct PlaceRun {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The attempt.
    pub attempt: u32,
    /// The peers, in the order of the instances.
    pub peers: Vec<Uuid>,
    /// A remark about the selection.
    pub reason: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for PlaceRun {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let (no, epoch, now) = (self.no, self.epoch, self.now);
        BeginRun { no, epoch, state: RunState::Scheduled, worker: None, again: None, may_be_late: true, now }.apply(tx)?;
        diesel::update(run::table.find(self.no)).set(run::reason.eq(self.reason.as_deref())).execute(tx.conn)?;
        super::attempts::keep_instances(tx.conn, self.no)?;
        diesel::delete(run_instance::table.filter(run_instance::run_no.eq(self.no))).execute(tx.conn)?;
        for (nth, peer) in self.peers.iter().enumerate() {
            diesel::insert_into(run_instance::table)
                .values((
                    run_instance::run_no.eq(self.no),
                    run_instance::instance.eq(nth as i32),
                    run_instance::peer.eq(Hex::of(*peer)),
                    run_instance::attempt.eq(self.attempt as i32),
                    run_instance::state.eq(RunState::Scheduled),
                ))
                .execute(tx.conn)?;
        }
        Ok(())
    }
}

/// Updates the state of an instance.
#[derive(Debug, Clone)]
pub struct MoveInstance {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The number of the instance.
    pub instance: u32,
    /// Its state.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// Its result as JSON; `None` keeps the stored value.
    pub result: Option<String>,
    /// When it began; `None` keeps the stored value.
    pub start_time: Option<Timestamp>,
    /// When it ended.
    pub finish_time: Option<Timestamp>,
}

impl WriteOp for MoveInstance {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let row = run_instance::table.find((self.no, self.instance as i32));
        diesel::update(row)
            .set((
                run_instance::state.eq(self.state),
                run_instance::reason.eq(self.reason.as_deref()),
                self.result.as_ref().map(|result| run_instance::result.eq(result)),
                self.start_time.map(|at| run_instance::start_time.eq(at)),
                run_instance::finish_time.eq(self.finish_time),
            ))
            .execute(tx.conn)?;
        if self.state == RunState::Running {
            // The first running instance sets the run to running.
            let waiting = run::table.find(self.no).filter(run::state.eq(RunState::Scheduled));
            diesel::update(waiting).set(run::state.eq(RunState::Running)).execute(tx.conn)?;
        }
        Ok(())
    }
}

/// Records that the unfinished instances of a run must end.
#[derive(Debug, Clone)]
pub struct AskExit {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The reason.
    pub reason: String,
    /// Who ordered it, if known. If the run ends in another way, its end clears it.
    pub by: Option<String>,
}

impl WriteOp for AskExit {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let open = run_instance::table.filter(run_instance::run_no.eq(self.no)).filter(run_instance::finish_time.is_null());
        diesel::update(open).set(run_instance::exit_reason.eq(&self.reason)).execute(tx.conn)?;
        diesel::update(run::table.find(self.no)).set(run::update_by.eq(self.by.as_deref())).execute(tx.conn)?;
        Ok(())
    }
}

/// Accepts output lines of an instance: stores the lines to keep, and the next line number.
#[derive(Debug, Clone)]
pub struct TakeOutput {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The number of the instance.
    pub instance: u32,
    /// The number of the next line.
    pub next: u64,
    /// The lines to store.
    pub lines: Vec<NewLine>,
}

impl WriteOp for TakeOutput {
    type Output = ();

    fn weight(&self) -> usize {
        self.lines.iter().map(|line| line.text.len()).sum()
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let row = run_instance::table.find((self.no, self.instance as i32));
        diesel::update(row).set(run_instance::lines.eq(self.next as i64)).execute(tx.conn)?;
        logs::insert_lines(tx.conn, self.no, &self.lines)
    }
}

/// The instances of a run, in their order.
#[derive(Debug, Clone, Copy)]
pub struct ListInstances {
    /// The run.
    pub no: i64,
    /// Only this instance and later ones.
    pub from: u32,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListInstances {
    type Output = Vec<InstanceRow>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(run_instance::table
            .filter(run_instance::run_no.eq(self.no))
            .filter(run_instance::instance.ge(self.from as i32))
            .order(run_instance::instance)
            .limit(i64::try_from(self.limit).unwrap_or(i64::MAX))
            .select(InstanceRow::as_select())
            .load(from.conn)?)
    }
}
