//! Packages, and the instances of runs.

use super::Service;
use crate::actors::packages::Incoming;
use crate::actors::reply::problem_of;
use crate::domain::ids::{Identity, NodeId};
use crate::domain::job::JobKind;
use crate::domain::node::shown_name;
use crate::domain::run::{Run, RunState};
use crate::protocol::api::{Page, RunOutput};
use crate::protocol::packages::{InstanceOutput, PackageOutput};
use crate::protocol::problem::Problem;
use crate::store::{InstanceRow, ListInstances, ListRuns};
use std::collections::HashMap;
use std::fs::File;
use uuid::Uuid;

fn output(row: InstanceRow, names: &HashMap<Uuid, String>) -> InstanceOutput {
    InstanceOutput {
        instance: row.instance,
        peer: row.peer.map(NodeId),
        peer_name: row.peer.map(|peer| shown_name(NodeId(peer), names.get(&peer).map(String::as_str))),
        attempt: row.attempt,
        state: row.state,
        reason: row.reason,
        result: row.result.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        lines: row.lines,
        exit_reason: row.exit_reason,
        start_time: row.start_time,
        finish_time: row.finish_time,
    }
}

/// A task at one worker has one instance and no stored row for it.
fn only_instance(run: RunOutput) -> Option<InstanceRow> {
    let worker = run.worker_id.filter(|_| run.kind == JobKind::Task.name())?;
    Some(InstanceRow {
        instance: 0,
        peer: Some(worker.0),
        attempt: run.attempt,
        state: run.state,
        reason: run.reason,
        result: run.result.map(|result| result.to_string()),
        start_time: run.start_time,
        finish_time: run.finish_time,
        lines: 0,
        exit_reason: None,
    })
}

impl Service {
    /// The instances of a run, in order; for a task with one worker, that instance.
    ///
    /// # Errors
    /// The run does not exist, or the cursor is invalid.
    pub async fn instances(&self, identity: Identity, cursor: Option<&str>, limit: usize) -> Result<Page<InstanceOutput>, Problem> {
        let from = cursor.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()?;
        let run = self.stored_run(identity).await?;
        let list = ListInstances { no: run.no, from: from.unwrap_or(0), limit: limit + 1 };
        let mut rows = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
        let next_cursor = (rows.len() > limit).then(|| rows.pop().map(|row| row.instance.to_string())).flatten();
        if rows.is_empty() && from.is_none() && run.kind == JobKind::Task {
            rows.extend(only_instance(self.run(identity).await?));
        }
        let names = self.peer_names(rows.iter().filter_map(|row| row.peer).collect()).await?;
        Ok(Page { items: rows.into_iter().map(|row| output(row, &names)).collect(), next_cursor })
    }

    /// Runs of application jobs of this group in this state, newest first, with their arguments and their current state.
    ///
    /// # Errors
    /// The store fails.
    pub async fn program_runs(&self, group: &str, state: RunState, limit: usize) -> Result<Vec<(Run, RunState)>, Problem> {
        let list =
            ListRuns { group: Some(group.to_owned()), kind: Some(JobKind::Application), state: Some(state), limit, ..ListRuns::default() };
        let runs = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
        let mut found = Vec::with_capacity(runs.len());
        for run in runs {
            let now = if state.is_final() { None } else { self.described(run.identity, false).await };
            let state = now.map_or(run.state, |now| now.state);
            found.push((run, state));
        }
        Ok(found)
    }

    /// Begins the upload of a package.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn begin_package(&self) -> Result<Incoming, Problem> {
        self.context.packages.begin().await
    }

    /// Stores an uploaded package.
    ///
    /// # Errors
    /// The disk or the store fails.
    pub async fn keep_package(
        &self,
        incoming: Incoming,
        name: Option<String>,
        media_type: String,
        by: Option<String>,
    ) -> Result<PackageOutput, Problem> {
        self.context.packages.finish(&self.context, incoming, name, media_type, by).await
    }

    /// All packages.
    ///
    /// # Errors
    /// The store fails.
    pub async fn packages(&self) -> Result<Vec<PackageOutput>, Problem> {
        self.context.packages.list(&self.context).await
    }

    /// A package and its file.
    ///
    /// # Errors
    /// The package does not exist.
    pub async fn open_package(&self, sha256: &str) -> Result<(PackageOutput, File), Problem> {
        self.context.packages.open(&self.context, sha256).await
    }

    /// Deletes a package.
    ///
    /// # Errors
    /// The package does not exist, or is in use.
    pub async fn remove_package(&self, sha256: &str) -> Result<(), Problem> {
        self.context.packages.remove(&self.context, sha256).await
    }
}
