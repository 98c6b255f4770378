//! Lists of runs, with filters.

use super::dialect::{self, Conn};
use super::error::StoreError;
use super::op::{ReadOp, Source};
use super::schema::{job, run};
use crate::domain::ids::{IdPart, Identity, JobId, TraceId};
use crate::domain::job::JobKind;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;

/// Runs, the newest first.
#[derive(Debug, Clone, Default)]
pub struct ListRuns {
    /// Only those whose id begins or ends with this.
    pub id: Option<IdPart>,
    /// Only those in this state.
    pub state: Option<RunState>,
    /// Only those of this job.
    pub job_id: Option<JobId>,
    /// Only those of this kind.
    pub kind: Option<JobKind>,
    /// Only those of jobs that are in this group now.
    pub group: Option<String>,
    /// Only those of jobs that are in one of these groups now.
    pub among: Option<Vec<String>>,
    /// Only those with this trace id.
    pub trace: Option<TraceId>,
    /// Only those created at this time or later.
    pub from: Option<Timestamp>,
    /// Only those created at this time or earlier.
    pub to: Option<Timestamp>,
    /// Oldest first instead of newest first.
    pub ascending: bool,
    /// Only those that follow the run with this number in that order.
    pub after_no: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListRuns {
    type Output = Vec<Run>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Run>, StoreError> {
        let mut query = run::table.select(Run::as_select()).into_boxed();
        if let Some(part) = &self.id {
            // Uses only the index of ids, because the rows are wide. A part of an id contains only digits, so it is safe in the text.
            let digits = part.digits();
            let ids = format!("run.identity IN (SELECT identity FROM run WHERE identity LIKE '{digits}%' OR identity LIKE '%{digits}')");
            query = query.filter(sql::<Bool>(&ids));
        }
        if let Some(state) = self.state {
            query = query.filter(sql::<Bool>(&in_state(from.conn, state)));
        }
        if let Some(job) = self.job_id {
            query = query.filter(run::job_id.eq(job));
        }
        if let Some(kind) = self.kind {
            query = query.filter(run::kind.eq(kind));
        }
        if let Some(group) = &self.group {
            query = query.filter(run::job_id.eq_any(job::table.filter(job::group_name.eq(group)).select(job::id)));
        }
        if let Some(groups) = &self.among {
            query = query.filter(run::job_id.eq_any(job::table.filter(job::group_name.eq_any(groups)).select(job::id)));
        }
        if let Some(trace) = &self.trace {
            // A run with its own trace has its identity as trace id; the index of traces contains only the others.
            let digits = trace.to_string();
            let ids = format!(
                "run.no IN (SELECT no FROM run WHERE identity = '{digits}' AND trace_id = identity \
                 UNION ALL SELECT no FROM run WHERE trace_id = '{digits}' AND trace_id <> identity)"
            );
            query = query.filter(sql::<Bool>(&ids));
        }
        if let Some(from) = self.from {
            query = query.filter(run::creation_time.ge(from));
        }
        if let Some(to) = self.to {
            query = query.filter(run::creation_time.le(to));
        }
        if let Some(no) = self.after_no {
            query = if self.ascending { query.filter(run::no.gt(no)) } else { query.filter(run::no.lt(no)) };
        }
        query = if self.ascending { query.order(run::no.asc()) } else { query.order(run::no.desc()) };
        Ok(query.limit(self.limit as i64).load(from.conn)?)
    }
}

/// Open runs of the leader that are not queued, the oldest first: those that have an actor there. Those of other brokers are left out.
#[derive(Debug, Clone, Copy)]
pub struct OpenRuns;

impl ReadOp for OpenRuns {
    type Output = Vec<Identity>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<Identity>, StoreError> {
        let rows: Vec<(i64, Identity)> = run::table
            .filter(sql::<Bool>(among_open(from.conn)))
            .filter(diesel::dsl::not(run::queued))
            .filter(run::owner.is_null())
            .order(run::no)
            .select((run::no, run::identity))
            .load(from.conn)?;
        Ok(rows.into_iter().map(|(_, identity)| identity).collect())
    }
}

/// The states of open runs, exactly as in their index: with parameters the planner could not use it.
pub(super) const IS_OPEN: &str = "state IN ('pending', 'scheduled', 'running')";

/// The same for a query ordered by number, for which the planner would otherwise read all runs.
pub(super) fn among_open(conn: &Conn) -> &'static str {
    dialect::by_database(
        conn,
        "no IN (SELECT no FROM run INDEXED BY run_open WHERE state IN ('pending', 'scheduled', 'running'))",
        "no IN (SELECT no FROM run WHERE state IN ('pending', 'scheduled', 'running'))",
    )
}

/// Runs in this state, written so that an index is used for open and failed runs. Most of the other runs are successful.
pub(super) fn in_state(conn: &Conn, state: RunState) -> String {
    match state {
        RunState::Pending | RunState::Scheduled | RunState::Running => format!("{} AND state = '{}'", among_open(conn), state.name()),
        RunState::Failed | RunState::Stopped => format!("state IN ('failed', 'stopped') AND state = '{}'", state.name()),
        RunState::Success => format!("state = '{}'", state.name()),
    }
}

/// The numbers of the open runs.
pub(super) fn open_run_numbers(conn: &mut Conn) -> Result<Vec<i64>, StoreError> {
    Ok(run::table.filter(sql::<Bool>(among_open(conn))).select(run::no).load(conn)?)
}
