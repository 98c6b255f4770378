//! Runs.

use super::columns::{Hex, block_keys, damaged, from_json, id, json};
use super::dialect::Conn;
use super::error::StoreError;
use super::fires::{self, Verdict};
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::results;
use super::schema::run;
use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::run::{Counters, Run, RunState};
use crate::domain::settings::{DownloadSettings, QueueSettings};
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A run that is to be made.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub identity: Identity,
    /// Its job.
    pub job_id: JobId,
    /// The job's name.
    pub job_name: String,
    /// The class whose worker carries it out.
    pub class_name: String,
    /// For the worker.
    pub arguments: Option<String>,
    /// Where it begins; `failed` if it cannot.
    pub state: RunState,
    /// Why.
    pub reason: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// For the nodes.
    pub download: DownloadSettings,
    /// For its queue.
    pub queue: QueueSettings,
    /// When it is made.
    pub creation_time: Timestamp,
    /// When it ended, if it cannot begin.
    pub finish_time: Option<Timestamp>,
}

/// Stores a new run under epoch 0, and in the ledger the planned instant that it is for. If the instant has made a run
/// already, nothing is written and that run is the answer; if it was skipped, [`StoreError::Conflict`] says `fire`.
#[derive(Debug, Clone)]
pub struct InsertRun {
    /// The run.
    pub run: NewRun,
    /// The planned instant, if it was planned.
    pub fire_time: Option<Timestamp>,
}

/// The answer to [`InsertRun`].
#[derive(Debug, Clone, PartialEq)]
pub struct Inserted {
    /// The run of the instant.
    pub run: Run,
    /// It was made before.
    pub already: bool,
}

impl WriteOp for InsertRun {
    type Output = Inserted;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Inserted, StoreError> {
        let new = &self.run;
        if let Some(planned_at) = self.fire_time {
            if let Some(recorded) = fires::find(tx.conn, new.job_id, planned_at)? {
                let identity = recorded.ok_or_else(|| StoreError::Conflict("fire".into()))?;
                let run = by_identity(tx.conn, &identity)?.ok_or_else(|| damaged("run of this fire", &identity))?.try_into()?;
                return Ok(Inserted { run, already: true });
            }
            let verdict = if new.state == RunState::Failed { Verdict::Failed } else { Verdict::Fired };
            let identity = Hex::of(new.identity.0);
            let (reason, now) = (new.reason.as_deref(), new.creation_time);
            fires::insert(tx.conn, new.job_id, planned_at, verdict, reason, Some(identity.text()), now)?;
        }
        let run = insert_run(tx.conn, new, self.fire_time)?.try_into()?;
        Ok(Inserted { run, already: false })
    }
}

/// Takes a run over: its epoch is counted up, and whoever wrote under the old one is refused from now on.
#[derive(Debug, Clone, Copy)]
pub struct AdoptRun {
    /// The run.
    pub identity: Identity,
}

impl WriteOp for AdoptRun {
    type Output = (Run, i64);

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(Run, i64), StoreError> {
        let row = diesel::update(run::table.filter(run::identity.eq(Hex::of(self.identity.0).text())))
            .set(run::epoch.eq(run::epoch + 1))
            .returning(RunRow::as_returning())
            .get_result(tx.conn)
            .optional()?
            .ok_or(StoreError::NotFound)?;
        tx.epochs.insert(row.no, row.epoch);
        let epoch = row.epoch;
        Ok((row.try_into()?, epoch))
    }
}

/// Moves a run on.
#[derive(Debug, Clone)]
pub struct SetRunState {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// Where it is now.
    pub state: RunState,
    /// Why; what was there before is gone.
    pub reason: Option<String>,
    /// Its worker; `None` if it has none now.
    pub worker: Option<WorkerId>,
}

impl WriteOp for SetRunState {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        diesel::update(run::table.find(self.no))
            .set((
                run::state.eq(self.state.name()),
                run::reason.eq(self.reason.as_deref()),
                run::worker_id.eq(self.worker.map(|worker| worker.to_string())),
            ))
            .execute(tx.conn)?;
        Ok(())
    }
}

/// The worker has pushed its first requests.
#[derive(Debug, Clone, Copy)]
pub struct SetStartReturned {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
}

impl WriteOp for SetStartReturned {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        diesel::update(run::table.find(self.no)).set(run::start_returned.eq(true)).execute(tx.conn)?;
        Ok(())
    }
}

/// Ends a run. Results of it that nobody acknowledged are given up.
#[derive(Debug, Clone)]
pub struct FinishRun {
    /// The run.
    pub no: i64,
    /// The epoch under which it is owned.
    pub epoch: i64,
    /// How it ended.
    pub state: RunState,
    /// Why.
    pub reason: Option<String>,
    /// What came of its requests.
    pub counters: Counters,
    /// Blocks handed out.
    pub block_times: i64,
    /// Now.
    pub now: Timestamp,
}

impl WriteOp for FinishRun {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.check_epoch(self.no, self.epoch)?;
        diesel::update(run::table.find(self.no))
            .set((
                run::state.eq(self.state.name()),
                run::reason.eq(self.reason.as_deref()),
                run::success.eq(self.counters.success as i64),
                run::error.eq(self.counters.error as i64),
                run::total.eq(self.counters.total as i64),
                run::block_times.eq(self.block_times),
                run::finish_time.eq(self.now.0),
            ))
            .execute(tx.conn)?;
        // A run that succeeded has had everything acknowledged; the others are worth a look at their blocks.
        if self.state != RunState::Success {
            for (segment, packs) in results::unacknowledged(tx.conn, block_keys(self.no))? {
                tx.settlement.release(segment, packs);
            }
        }
        Ok(())
    }
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct GetRun(pub Identity);

impl ReadOp for GetRun {
    type Output = Option<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<Run>, StoreError> {
        by_identity(from.conn, Hex::of(self.0.0).text())?.map(TryInto::try_into).transpose()
    }
}

/// Runs, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct ListRuns {
    /// Only those in this state.
    pub state: Option<RunState>,
    /// Only those of this job.
    pub job_id: Option<JobId>,
    /// Only those older than the run of this number.
    pub before_no: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListRuns {
    type Output = Vec<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Run>, StoreError> {
        let mut query = run::table.select(RunRow::as_select()).into_boxed();
        if let Some(state) = self.state {
            query = query.filter(run::state.eq(state.name()));
        }
        if let Some(job) = self.job_id {
            query = query.filter(run::job_id.eq(job.to_string()));
        }
        if let Some(no) = self.before_no {
            query = query.filter(run::no.lt(no));
        }
        let rows = query.order(run::no.desc()).limit(self.limit as i64).load(from.conn)?;
        rows.into_iter().map(TryInto::try_into).collect()
    }
}

/// The runs that are not over, the oldest first.
#[derive(Debug, Clone, Copy)]
pub struct OpenRuns;

impl ReadOp for OpenRuns {
    type Output = Vec<Identity>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Identity>, StoreError> {
        let rows: Vec<(i64, String)> =
            run::table.filter(run::state.eq_any(OPEN_STATES)).order(run::no).select((run::no, run::identity)).load(from.conn)?;
        rows.iter().map(|(_, identity)| id(identity)).collect()
    }
}

const OPEN_STATES: [&str; 3] = ["pending", "scheduled", "running"];

/// The numbers of the runs that are not over.
pub(super) fn open_run_numbers(conn: &mut Conn) -> Result<Vec<i64>, StoreError> {
    Ok(run::table.filter(run::state.eq_any(OPEN_STATES)).select(run::no).load(conn)?)
}

fn by_identity(conn: &mut Conn, identity: &str) -> Result<Option<RunRow>, StoreError> {
    Ok(run::table.filter(run::identity.eq(identity)).select(RunRow::as_select()).get_result(conn).optional()?)
}

fn insert_run(conn: &mut Conn, new: &NewRun, planned_at: Option<Timestamp>) -> Result<RunRow, StoreError> {
    let row = diesel::insert_into(run::table).values((
        run::identity.eq(new.identity.to_string()),
        run::job_id.eq(new.job_id.to_string()),
        run::job_name.eq(&new.job_name),
        run::class_name.eq(&new.class_name),
        run::arguments.eq(new.arguments.as_deref()),
        run::state.eq(new.state.name()),
        run::reason.eq(new.reason.as_deref()),
        run::priority.eq(new.priority),
        run::download.eq(json(&new.download)?),
        run::queue.eq(json(&new.queue)?),
        run::start_returned.eq(false),
        (run::epoch.eq(0), run::block_times.eq(0)),
        (run::success.eq(0), run::error.eq(0), run::total.eq(0)),
        run::planned_at.eq(planned_at.map(|time| time.0)),
        run::creation_time.eq(new.creation_time.0),
        run::finish_time.eq(new.finish_time.map(|time| time.0)),
    ));
    Ok(row.returning(RunRow::as_returning()).get_result(conn)?)
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = run)]
struct RunRow {
    no: i64,
    identity: String,
    job_id: String,
    job_name: String,
    class_name: String,
    arguments: Option<String>,
    state: String,
    reason: Option<String>,
    priority: i32,
    download: String,
    queue: String,
    start_returned: bool,
    epoch: i64,
    block_times: i64,
    success: i64,
    error: i64,
    total: i64,
    creation_time: i64,
    finish_time: Option<i64>,
}

impl TryFrom<RunRow> for Run {
    type Error = StoreError;

    fn try_from(row: RunRow) -> Result<Self, StoreError> {
        let (success, error, total) = (row.success as u64, row.error as u64, row.total as u64);
        Ok(Self {
            identity: id(&row.identity)?,
            no: row.no,
            job_id: id(&row.job_id)?,
            job_name: row.job_name,
            class_name: row.class_name,
            arguments: row.arguments,
            state: RunState::named(&row.state).ok_or_else(|| damaged("state of a run", &row.state))?,
            reason: row.reason,
            priority: row.priority,
            download: from_json(&row.download)?,
            queue: from_json(&row.queue)?,
            start_returned: row.start_returned,
            block_times: row.block_times,
            counters: Counters { left: total.saturating_sub(success + error), success, error, total },
            creation_time: Timestamp(row.creation_time),
            finish_time: row.finish_time.map(Timestamp),
        })
    }
}
