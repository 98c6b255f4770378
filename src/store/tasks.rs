//! Between the attempts of a task, and at its end.

use super::attempts::{self, AttemptRow};
use super::error::StoreError;
use super::hot::FinishTaskRow;
use super::logs::{self, NewLine};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{job_data, run, run_instance};
use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// An attempt of a task is over, and another one follows.
#[derive(Debug, Clone)]
pub struct RetryTask {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The instance, if there are several; `None` if the run has only one.
    pub instance: Option<u32>,
    /// The next attempt.
    pub attempt: u32,
    /// Number of earlier attempts that failed; the others were lost with their worker.
    pub failures: u32,
    /// Its earliest start.
    pub not_before: Timestamp,
    /// Why the last attempt is over.
    pub reason: String,
    /// The worker of the last attempt, for the log.
    pub worker: Option<WorkerId>,
    /// When the last attempt began, if known.
    pub began: Option<Timestamp>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for RetryTask {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        let ended = AttemptRow {
            instance: self.instance.unwrap_or(0),
            attempt: self.attempt - 1,
            peer: self.worker.map(|worker| worker.0),
            state: RunState::Failed,
            reason: Some(self.reason.clone()),
            start_time: self.began,
            finish_time: Some(self.now),
        };
        attempts::record(tx.conn, self.no, &ended)?;
        match self.instance {
            Some(instance) => diesel::update(run_instance::table.find((self.no, instance as i32)))
                .set((
                    run_instance::state.eq(RunState::Pending),
                    run_instance::attempt.eq(self.attempt as i32),
                    run_instance::reason.eq(&self.reason),
                ))
                .execute(tx.conn)?,
            None => diesel::update(run::table.find(self.no))
                .set((
                    run::state.eq(RunState::Pending),
                    run::attempt.eq(self.attempt as i32),
                    run::error.eq(i64::from(self.failures)),
                    run::not_before.eq(self.not_before),
                    run::reason.eq(&self.reason),
                    run::worker_id.eq(None::<String>),
                ))
                .execute(tx.conn)?,
        };
        // The next attempt clears it in the row.
        let text = self.worker.map_or_else(|| self.reason.clone(), |worker| format!("{} (worker {worker})", self.reason));
        let line = NewLine { at: self.now, level: 3, source: "broker".to_owned(), text };
        logs::insert_line(tx.conn, self.no, &line)
    }
}

/// A task is over, and may store data for the next run of its job.
#[derive(Debug, Clone)]
pub struct FinishTask {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// How it ended.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// Its result as JSON.
    pub result: Option<String>,
    /// Attempts that failed.
    pub failures: u32,
    /// When its first attempt began: for a short task it is stored with its end.
    pub start_time: Option<Timestamp>,
    /// The worker that ran it.
    pub worker: Option<WorkerId>,
    /// Its job must be notified: the end is stored as *not yet applied*.
    pub follow: bool,
    /// Who ended it, if it was stopped.
    pub by: Option<String>,
    /// Its job, its identity, and the data for the next run, as JSON.
    pub data: Option<(JobId, Identity, String)>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for FinishTask {
    /// Whether its job must be notified: requested here, when the run was created, or later by a run that waits for its end.
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let row = FinishTaskRow { end: self, failures: i64::from(self.failures) };
        let Some(follows) = row.apply(tx.conn)? else { return tx.refuse_epoch(self.no) };
        if let Some((job, identity, data)) = &self.data {
            super::job_data::put(tx.conn, *job, data, super::job_data::Left::Run(*identity), self.now)?;
        }
        Ok(follows)
    }
}

/// The data that the last runs of jobs stored for the next ones, as JSON.
#[derive(Debug, Clone)]
pub struct DataOf(pub Vec<JobId>);

impl ReadOp for DataOf {
    type Output = HashMap<JobId, Arc<str>>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows = job_data::table.filter(job_data::job_id.eq_any(&self.0)).select((job_data::job_id, job_data::data));
        Ok(rows.load::<(JobId, String)>(from.conn)?.into_iter().map(|(job, data)| (job, data.into())).collect())
    }
}

/// Stores the instances of a run, each for a given worker, or for any.
#[derive(Debug, Clone)]
pub struct PlaceTasks {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// One entry for each instance.
    pub peers: Vec<Option<WorkerId>>,
}

impl WriteOp for PlaceTasks {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        for (i, peer) in self.peers.iter().enumerate() {
            diesel::insert_into(run_instance::table)
                .values((
                    run_instance::run_no.eq(self.no),
                    run_instance::instance.eq(i as i32),
                    run_instance::peer.eq(*peer),
                    run_instance::attempt.eq(1),
                    run_instance::state.eq(RunState::Pending),
                ))
                .execute(tx.conn)?;
        }
        Ok(())
    }
}

/// One of several instances is over.
#[derive(Debug, Clone)]
pub struct EndInstance {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// The number of the instance.
    pub instance: u32,
    /// The worker that had it.
    pub peer: Option<WorkerId>,
    /// How it ended.
    pub state: RunState,
    /// The reason.
    pub reason: Option<String>,
    /// Its result as JSON.
    pub result: Option<String>,
    /// When its last attempt began.
    pub start_time: Option<Timestamp>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for EndInstance {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        diesel::update(run_instance::table.find((self.no, self.instance as i32)))
            .set((
                run_instance::state.eq(self.state),
                self.peer.map(|peer| run_instance::peer.eq(peer)),
                run_instance::reason.eq(self.reason.as_deref()),
                run_instance::result.eq(self.result.as_deref()),
                run_instance::start_time.eq(self.start_time),
                run_instance::finish_time.eq(self.now),
            ))
            .execute(tx.conn)?;
        Ok(())
    }
}

/// Average duration of the last successful runs of a job in milliseconds; `None` without such runs.
#[derive(Debug, Clone, Copy)]
pub struct AverageTime {
    /// The job.
    pub job_id: JobId,
    /// Maximum number of runs.
    pub runs: i64,
}

impl ReadOp for AverageTime {
    type Output = Option<u64>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows: Vec<(Option<i64>, Option<i64>)> = run::table
            .filter(run::job_id.eq(self.job_id))
            .filter(run::state.eq(RunState::Success))
            .order(run::no.desc())
            .limit(self.runs)
            .select((run::start_time, run::finish_time))
            .load(from.conn)?;
        let times: Vec<i64> = rows.into_iter().filter_map(|(start, finish)| Some((finish? - start?).max(0))).collect();
        Ok((!times.is_empty()).then(|| (times.iter().sum::<i64>() / times.len() as i64) as u64))
    }
}
