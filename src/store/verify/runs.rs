//! Whether ledger and runs fit together.

use super::Found;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::store::dialect::Conn;
use crate::store::error::StoreError;
use crate::store::schema::{fire, run};
use diesel::prelude::*;
use std::collections::{HashMap, HashSet};

/// A run, as far as the proof needs it.
#[derive(Debug, Queryable)]
struct Row {
    identity: String,
    state: String,
    planned_at: Option<i64>,
    finish: Option<i64>,
    follow: bool,
}

/// Every fire has its run, every planned run its fire, and whatever has an end is over.
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
    // Old runs are cleaned away from the front: one that is gone while an older one, over before it began, is still
    // there, was not cleaned away.
    let first_end = runs.values().filter(|run| !run.follow).filter_map(|run| run.finish).min().unwrap_or(i64::MAX);
    let mut with_row = HashSet::new();
    for (at, identity, made) in &fires {
        let at = Timestamp(*at);
        match identity {
            None => found.push("run", format!("{at} is fired and names no run")),
            Some(identity) if !with_row.insert((identity.as_str(), at.0)) => {}
            Some(identity) => match runs.get(identity) {
                Some(run) if run.planned_at.is_some_and(|planned| planned != at.0) => {
                    found.push("run", format!("{at} is fired by run {identity}, which was planned for another instant"));
                }
                // It may have been made a little ahead of its time.
                None if first_end < at.0.max(*made) => found.push("run", format!("{at} is fired, and its run {identity} is not there")),
                Some(_) | None => {}
            },
        }
    }
    for run in runs.values() {
        if let Some(at) = run.planned_at.filter(|at| *at > since.0 && !with_row.contains(&(run.identity.as_str(), *at))) {
            found.push("run", format!("run {} was planned for {}, and the ledger has no fire of it", run.identity, Timestamp(at)));
        }
        let is_final = RunState::named(&run.state).is_some_and(RunState::is_final);
        match (is_final, run.finish) {
            (true, None) => found.push("state", format!("run {} is {} and has no end", run.identity, run.state)),
            (false, Some(end)) => found.push("state", format!("run {} ended at {} and is {}", run.identity, Timestamp(end), run.state)),
            _ => {}
        }
    }
    Ok(())
}

/// Of a job whose fires are skipped while a run is not over, two runs are not at work at once. Runs from before the last
/// change of the job were made under other rules.
pub(super) fn verify_overlap(conn: &mut Conn, found: &mut Found<'_>, changed: Timestamp) -> Result<(), StoreError> {
    let open: Vec<(String, Option<i64>)> = run::table
        .filter(run::job_id.eq(found.id))
        .filter(run::finish_time.is_null())
        .filter(run::creation_time.ge(changed.0))
        .order(run::no)
        .select((run::identity, run::not_before))
        .load(conn)?;
    let at_work: Vec<String> = open.into_iter().filter(|(_, after)| *after != Some(Run::QUEUED.0)).map(|(run, _)| run).collect();
    if at_work.len() > 1 {
        found.push("overlap", format!("overlap is skip, and {} runs are at work at once: {}", at_work.len(), at_work.join(", ")));
    }
    Ok(())
}
