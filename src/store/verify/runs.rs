//! Verifies that ledger and runs agree.

use super::Found;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::store::dialect::Conn;
use crate::store::error::StoreError;
use crate::store::schema::{fire, run};
use diesel::prelude::*;
use std::collections::{HashMap, HashSet};

/// A run, with the columns that the verification needs.
#[derive(Debug, Queryable)]
struct Row {
    identity: String,
    state: String,
    planned_at: Option<i64>,
    finish: Option<i64>,
    follow: bool,
}

/// Every fire must have its run, every scheduled run its fire, and every run with an end must be over.
pub(super) fn verify(conn: &mut Conn, found: &mut Found<'_>, since: Timestamp) -> Result<(), StoreError> {
    let rows: Vec<Row> = run::table
        .filter(run::job_id.eq(found.id))
        .select((run::identity, run::state, run::planned_at, run::finish_time, run::follow))
        .load(conn)?;
    let runs: HashMap<String, Row> = rows.into_iter().map(|row| (row.identity.clone(), row)).collect();
    let fires: Vec<(i64, Option<String>, i64)> = fire::table
        .filter(fire::job_id.eq(found.id))
        .filter(fire::verdict.eq("fired"))
        .order(fire::planned_at)
        .select((fire::planned_at, fire::run_identity, fire::creation_time))
        .load(conn)?;
    // Retention deletes the oldest runs first: if a run is missing while an older one, which ended before it began, still exists,
    // retention did not delete it.
    let first_end = runs.values().filter(|run| !run.follow).filter_map(|run| run.finish).min().unwrap_or(i64::MAX);
    let mut with_row = HashSet::new();
    for (at, identity, made) in &fires {
        let at = Timestamp(*at);
        match identity {
            None => found.push("run", format!("row {at} is fired but has no run")),
            Some(identity) if !with_row.insert((identity.as_str(), at.0)) => {}
            Some(identity) => match runs.get(identity) {
                Some(run) if run.planned_at.is_some_and(|planned| planned != at.0) => {
                    found.push("run", format!("row {at} has run {identity}, which was scheduled for another time"));
                }
                // It may have been created a little ahead of its time.
                None if first_end < at.0.max(*made) => found.push("run", format!("row {at} has run {identity}, which does not exist")),
                Some(_) | None => {}
            },
        }
    }
    for run in runs.values() {
        if let Some(at) = run.planned_at.filter(|at| *at > since.0 && !with_row.contains(&(run.identity.as_str(), *at))) {
            found.push("run", format!("run {} was scheduled for {}, but the ledger has no fire for it", run.identity, Timestamp(at)));
        }
        let is_final = RunState::named(&run.state).is_some_and(RunState::is_final);
        match (is_final, run.finish) {
            (true, None) => found.push("state", format!("run {} is {} but has no end", run.identity, run.state)),
            (false, Some(end)) => found.push("state", format!("run {} ended at {} but is {}", run.identity, Timestamp(end), run.state)),
            _ => {}
        }
    }
    Ok(())
}

/// A job that skips fires while a run is open never has two runs in progress at once. Runs from before its last change had other rules.
pub(super) fn verify_overlap(conn: &mut Conn, found: &mut Found<'_>, changed: Timestamp) -> Result<(), StoreError> {
    let at_work: Vec<String> = run::table
        .filter(run::job_id.eq(found.id))
        .filter(run::finish_time.is_null())
        .filter(diesel::dsl::not(run::queued))
        .filter(run::creation_time.ge(changed.0))
        .order(run::no)
        .select(run::identity)
        .load(conn)?;
    if at_work.len() > 1 {
        found.push("overlap", format!("overlap is skip, but {} runs are in progress at once: {}", at_work.len(), at_work.join(", ")));
    }
    Ok(())
}
