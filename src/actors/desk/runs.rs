//! Runs: asked of their actors while they work, read from the store after.

use super::Desk;
use crate::actors::house::AtWork;
use crate::actors::reply::problem_of;
use crate::actors::run::stored_output;
use crate::domain::ids::{BlockId, Identity, JobId, Seq};
use crate::domain::job::JobKind;
use crate::domain::run::{Counters, Run, RunState};
use crate::domain::time::Timestamp;
use crate::protocol::api::{BlockOutput, JobStatusOutput, Page, RunOutput};
use crate::protocol::problem::Problem;
use crate::store::{GetRun, ListBlocks, ListRuns, NodeCounts};
use std::collections::HashMap;
use std::time::Duration;

/// How long whoever ends a run waits for that.
const STOP: Duration = Duration::from_secs(3);

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only of this state.
    pub state: Option<RunState>,
    /// Only of this job.
    pub job_id: Option<JobId>,
    /// Only of this kind.
    pub kind: Option<JobKind>,
    /// Only of jobs that are in this group now.
    pub group: Option<String>,
    /// Only those made at this instant and later.
    pub from: Option<Timestamp>,
    /// Only those made at this instant and earlier.
    pub to: Option<Timestamp>,
    /// `-creationTime`, the usual, or `creationTime`.
    pub sort: Option<String>,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Desk {
    pub(super) async fn stored_run(&self, identity: Identity) -> Result<Run, Problem> {
        let run = self.house.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))
    }

    /// A run.
    ///
    /// # Errors
    /// There is none.
    pub async fn run(&self, identity: Identity) -> Result<RunOutput, Problem> {
        if let Some(output) = self.described(identity).await {
            return Ok(output);
        }
        Ok(stored_output(&self.stored_run(identity).await?))
    }

    /// What the actor of a run that is at work says of it.
    async fn described(&self, identity: Identity) -> Option<RunOutput> {
        if let Some(run) = self.house.directory.runs.get(identity) {
            return run.describe().wait().await.ok().map(|description| description.output);
        }
        match self.house.directory.others.get(identity)? {
            AtWork::Task(task) => task.describe().wait().await.ok(),
            _ => None,
        }
    }

    /// Lists runs, newest first unless the filter says otherwise.
    ///
    /// # Errors
    /// The cursor is none of ours, nothing can be sorted by that, or the end is before the beginning.
    pub async fn runs(&self, filter: RunFilter) -> Result<Page<RunOutput>, Problem> {
        let cursor = filter.cursor.as_deref().map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list")));
        let ascending = match filter.sort.as_deref() {
            None | Some("-creationTime") => false,
            Some("creationTime") => true,
            Some(other) => return Err(Problem::invalid("sort", format!("`{other}` is neither creationTime nor -creationTime"))),
        };
        if let (Some(from), Some(to)) = (filter.from, filter.to)
            && to < from
        {
            return Err(Problem::invalid("to", format!("the end {to} is before the beginning {from}")));
        }
        let limit = filter.limit;
        let query = ListRuns {
            state: filter.state,
            job_id: filter.job_id,
            kind: filter.kind,
            group: filter.group,
            from: filter.from,
            to: filter.to,
            ascending,
            after_no: cursor.transpose()?,
            limit: limit + 1,
        };
        let mut runs = self.house.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = runs.len() > limit;
        runs.truncate(limit);
        let next_cursor = runs.last().filter(|_| more).map(|run| run.no.to_string());
        let mut items = Vec::with_capacity(runs.len());
        for run in &runs {
            let asked = if run.state.is_final() { None } else { self.described(run.identity).await };
            items.push(asked.unwrap_or_else(|| stored_output(run)));
        }
        Ok(Page { items, next_cursor })
    }

    /// Ends a run. One whose programs take their time is answered as it stands.
    ///
    /// # Errors
    /// There is none, or it is over.
    pub async fn stop_run(&self, identity: Identity, by: Option<&str>) -> Result<RunOutput, Problem> {
        let reason = by.map_or_else(|| "stopped by hand".to_owned(), |by| format!("stopped by {by}"));
        let stop = self.house.stop_run(identity, reason, by.map(str::to_owned));
        match tokio::time::timeout(STOP, stop).await {
            Ok(stopped) => stopped,
            // Its programs have their time of grace: that they are to end is stored.
            Err(_) => self.run(identity).await,
        }
    }

    /// The blocks of a run, in the order of their numbers.
    ///
    /// # Errors
    /// There is no such run, or the cursor is none of ours.
    pub async fn blocks(&self, identity: Identity, cursor: Option<&str>, limit: usize) -> Result<Page<BlockOutput>, Problem> {
        let from: Option<Seq> =
            cursor.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()?;
        let run = self.stored_run(identity).await?;
        let leases: HashMap<Seq, _> = match self.house.directory.runs.get(identity) {
            Some(handle) => handle.describe().wait().await.map(|d| d.leases).unwrap_or_default(),
            None => Vec::new(),
        }
        .into_iter()
        .map(|(seq, node, attempt, until)| (seq, (node, attempt, until)))
        .collect();
        let query = ListBlocks { no: run.no, from, limit: limit + 1, state: None };
        let mut rows = self.house.store.read(query).await.map_err(|e| problem_of(&e))?;
        let next_cursor = (rows.len() > limit).then(|| rows.pop().map(|row| row.seq.to_string())).flatten();
        let items = rows.into_iter().map(|row| {
            // That a block is out is written nowhere: its run's actor knows.
            let lease = leases.get(&row.seq).filter(|_| row.finish_time.is_none());
            BlockOutput {
                block_id: BlockId::new(identity, row.seq),
                identity,
                state: if lease.is_some() { "using".to_owned() } else { row.state.name().to_owned() },
                requests: row.requests,
                success: row.success,
                error: row.error,
                attempt: lease.map_or(row.attempt, |l| l.1),
                node_id: lease.map(|l| l.0).or(row.node),
                lease_until: lease.map(|l| l.2),
                acknowledged: row.acked,
                exception: row.exception,
                creation_time: row.creation_time,
                finish_time: row.finish_time,
            }
        });
        Ok(Page { items: items.collect(), next_cursor })
    }

    /// What each node did for a run, and the sum: the seeds' *JobStatus*.
    ///
    /// # Errors
    /// There is no such run.
    pub async fn run_status(&self, identity: Identity) -> Result<Vec<JobStatusOutput>, Problem> {
        let run = self.stored_run(identity).await?;
        let now = self.run(identity).await?;
        let nodes = self.house.store.read(NodeCounts { no: run.no }).await.map_err(|e| problem_of(&e))?;
        let status = |node_id, counters, update_time| JobStatusOutput {
            job_id: run.job_id,
            identity,
            node_id,
            status: now.state,
            counters,
            update_time,
        };
        let last = nodes.iter().map(|n| n.3).max();
        let mut out = vec![status(None, now.counters, last)];
        out.extend(nodes.into_iter().filter_map(|(node, success, error, update)| {
            let counters = Counters { left: 0, success, error, total: success + error };
            node.map(|node| status(Some(node), counters, Some(update)))
        }));
        Ok(out)
    }
}
