//! Plan states of jobs.

use super::columns::id;
use super::dialect::Conn;
use super::error::StoreError;
use super::hot::MovePlanRow;
use super::jobs::job_key;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{job, plan};
use crate::domain::ids::JobId;
use crate::domain::schedule::PlanState;
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use std::collections::HashMap;

/// The state of a plan, and the next scheduled time of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPlan {
    /// The state.
    pub state: PlanState,
    /// The next scheduled time; `None`: never, or not before a run has ended.
    pub next_at: Option<Timestamp>,
}

/// The agenda: each job with a next scheduled time. Disabled and deleted jobs have none.
#[derive(Debug, Clone, Copy)]
pub struct LoadAgenda;

impl ReadOp for LoadAgenda {
    type Output = Vec<(JobId, Timestamp)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows = plan::table.filter(plan::next_at.is_not_null()).select((plan::job_id, plan::next_at));
        let mut out = Vec::new();
        // Row by row: a million of them as texts would take more memory than the agenda itself.
        for row in rows.load_iter::<(String, Option<i64>), diesel::connection::DefaultLoadingMode>(from.conn)? {
            let (job, at) = row?;
            out.extend(at.map(|at| id(&job).map(|job| (job, Timestamp(at)))).transpose()?);
        }
        Ok(out)
    }
}

/// Enabled jobs whose plans contain a past time after this one: the clock went back. See [`PlanState::latest`].
#[derive(Debug, Clone, Copy)]
pub struct JobsFromLater(pub Timestamp);

impl ReadOp for JobsFromLater {
    type Output = Vec<JobId>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let after = self.0.0;
        let others = plan::asked_from.gt(after).or(plan::last_fire.gt(after)).assume_not_null();
        let is_later = plan::decided_until.gt(after).or(plan::rest_from.gt(after)).or(others);
        let on = job::table.filter(job::is_enabled.eq(true)).filter(job::is_deleted.eq(false)).select(job::id);
        let rows = plan::table.filter(is_later).filter(plan::job_id.eq_any(on)).select(plan::job_id);
        rows.load::<String>(from.conn)?.iter().map(|job| id(job)).collect()
    }
}

/// Advances the plan of a job without a fire: a run requested a time, or ended. [`StoreError::Conflict`] contains `plan` if the
/// plan changed meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct MovePlan {
    /// The job.
    pub job_id: JobId,
    /// The plan state before.
    pub was: PlanState,
    /// The plan state after.
    pub state: PlanState,
    /// The next scheduled time of the job.
    pub next_at: Option<Timestamp>,
}

impl WriteOp for MovePlan {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        move_plan(tx.conn, self.job_id, &self.was, &self.state, self.next_at)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = plan)]
struct PlanRow {
    job_id: String,
    decided_until: i64,
    next_at: Option<i64>,
    asked_at: Option<i64>,
    rest_from: i64,
    last_fire: Option<i64>,
    fires: i64,
    failures: i64,
    asked_from: Option<i64>,
    fired_until: Option<i64>,
}

impl From<PlanRow> for StoredPlan {
    fn from(row: PlanRow) -> Self {
        Self {
            state: PlanState {
                decided_until: Timestamp(row.decided_until),
                asked_at: row.asked_at.map(Timestamp),
                asked_from: row.asked_from.map(Timestamp),
                rest_from: Timestamp(row.rest_from),
                last_fire: row.last_fire.map(Timestamp),
                fired_until: row.fired_until.map(Timestamp),
                fires: row.fires as u64,
                failures: row.failures as u32,
            },
            next_at: row.next_at.map(Timestamp),
        }
    }
}

pub(super) fn load_plans(conn: &mut Conn, keys: &[String]) -> Result<HashMap<String, StoredPlan>, StoreError> {
    let rows: Vec<PlanRow> = plan::table.filter(plan::job_id.eq_any(keys)).select(PlanRow::as_select()).load(conn)?;
    Ok(rows.into_iter().map(|row| (row.job_id.clone(), row.into())).collect())
}

/// Advances the plan. Fails if it is not in the expected state.
pub(super) fn move_plan(
    conn: &mut Conn,
    job: JobId,
    was: &PlanState,
    state: &PlanState,
    next_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    if MovePlanRow::new(job_key(job), was, state, next_at.map(|at| at.0)).execute(conn)? == 1 {
        return Ok(());
    }
    let found = plan::table.find(job_key(job).text()).select(plan::fires).get_result::<i64>(conn).optional()?;
    Err(found.map_or(StoreError::NotFound, |_| StoreError::Conflict("plan".into())))
}

pub(super) fn insert_plan(conn: &mut Conn, key: &str, state: &PlanState, next_at: Option<Timestamp>) -> Result<(), StoreError> {
    diesel::insert_into(plan::table)
        .values((
            plan::job_id.eq(key),
            plan::decided_until.eq(state.decided_until.0),
            plan::next_at.eq(next_at.map(|at| at.0)),
            plan::asked_at.eq(state.asked_at.map(|at| at.0)),
            plan::rest_from.eq(state.rest_from.0),
            plan::last_fire.eq(state.last_fire.map(|at| at.0)),
            plan::fires.eq(state.fires as i64),
            plan::failures.eq(i64::from(state.failures)),
            plan::asked_from.eq(state.asked_from.map(|at| at.0)),
            plan::fired_until.eq(state.fired_until.map(|at| at.0)),
        ))
        .execute(conn)?;
    Ok(())
}

/// Records when a run of the job succeeded.
pub(super) fn note_good_end(conn: &mut Conn, job: JobId, finish: i64) -> Result<(), StoreError> {
    diesel::update(plan::table.find(job_key(job).text())).set(plan::ended_well.eq(finish)).execute(conn)?;
    Ok(())
}
