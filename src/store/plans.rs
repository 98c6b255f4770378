//! Plan states of jobs.

use super::columns::stored;
use super::dialect::Conn;
use super::error::StoreError;
use super::hot::MovePlanRow;
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
        let rows = plan::table.filter(plan::next_at.is_not_null());
        Ok(rows.select((plan::job_id, plan::next_at.assume_not_null())).load(from.conn)?)
    }
}

/// Enabled jobs whose plans contain a past time after this one: the clock went back. See [`PlanState::latest`].
#[derive(Debug, Clone, Copy)]
pub struct JobsFromLater(pub Timestamp);

impl ReadOp for JobsFromLater {
    type Output = Vec<JobId>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let after = self.0;
        let others = plan::asked_from.gt(after).or(plan::last_fire.gt(after)).assume_not_null();
        let is_later = plan::decided_until.gt(after).or(plan::rest_from.gt(after)).or(others);
        let on = job::table.filter(job::is_enabled.eq(true)).filter(job::is_deleted.eq(false)).select(job::id);
        Ok(plan::table.filter(is_later).filter(plan::job_id.eq_any(on)).select(plan::job_id).load(from.conn)?)
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

stored! {
    StoredPlan from plan {
        next_at: Option<Timestamp>,
    } {
        decided_until: Timestamp,
        asked_at: Option<Timestamp>,
        asked_from: Option<Timestamp>,
        rest_from: Timestamp,
        last_fire: Option<Timestamp>,
        fired_until: Option<Timestamp>,
        fires: u64,
        failures: u32,
    }
    state: PlanState { decided_until, asked_at, asked_from, rest_from, last_fire, fired_until, fires, failures },
}

pub(super) fn load_plans(conn: &mut Conn, jobs: &[JobId]) -> Result<HashMap<JobId, StoredPlan>, StoreError> {
    let rows = plan::table.filter(plan::job_id.eq_any(jobs)).select((plan::job_id, StoredPlan::as_select()));
    Ok(rows.load(conn)?.into_iter().collect())
}

/// Advances the plan. Fails if it is not in the expected state.
pub(super) fn move_plan(
    conn: &mut Conn,
    job: JobId,
    was: &PlanState,
    state: &PlanState,
    next_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    if MovePlanRow::new(job, was, state, next_at).execute(conn)? == 1 { Ok(()) } else { Err(refusal(conn, job)?) }
}

/// Why the plan of a job was not advanced.
pub(super) fn refusal(conn: &mut Conn, job: JobId) -> Result<StoreError, StoreError> {
    let found = plan::table.find(job).select(plan::fires).get_result::<i64>(conn).optional()?;
    Ok(found.map_or(StoreError::NotFound, |_| StoreError::Conflict("plan".into())))
}

pub(super) fn insert_plan(conn: &mut Conn, job: JobId, state: &PlanState, next_at: Option<Timestamp>) -> Result<(), StoreError> {
    diesel::insert_into(plan::table)
        .values((
            plan::job_id.eq(job),
            plan::decided_until.eq(state.decided_until),
            plan::next_at.eq(next_at),
            plan::asked_at.eq(state.asked_at),
            plan::rest_from.eq(state.rest_from),
            plan::last_fire.eq(state.last_fire),
            plan::fires.eq(state.fires as i64),
            plan::failures.eq(i64::from(state.failures)),
            plan::asked_from.eq(state.asked_from),
            plan::fired_until.eq(state.fired_until),
        ))
        .execute(conn)?;
    Ok(())
}

/// Records when a run of the job succeeded.
pub(super) fn note_good_end(conn: &mut Conn, job: JobId, finish: Timestamp) -> Result<(), StoreError> {
    diesel::update(plan::table.find(job)).set(plan::ended_well.eq(finish)).execute(conn)?;
    Ok(())
}
