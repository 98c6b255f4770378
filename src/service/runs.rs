//! Runs: described by their actors while they are active, and read from the store afterwards.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::run::{crawling, stored_output};
use crate::actors::run_shell::AtWork;
use crate::domain::ids::{BlockId, IdPart, Identity, JobId, NodeId, Seq, TraceId};
use crate::domain::job::JobKind;
use crate::domain::node::shown_name;
use crate::domain::run::{Counters, Run, RunState};
use crate::domain::time::Timestamp;
use crate::protocol::api::{BlockCounts, BlockOutput, JobStatusOutput, Page, RunOutput};
use crate::protocol::problem::Problem;
use crate::store::{CountBlocks, GetRun, LastBlock, ListBlocks, ListRuns, NodeCounts, StoredCounts};
use futures_util::future::join_all;
use std::collections::HashMap;
use std::time::Duration;

/// How long a stop request waits for the end of the run.
const STOP: Duration = Duration::from_secs(3);
/// How long the description of a run that another broker executes may take.
const DESCRIBED_WITHIN: Duration = Duration::from_millis(500);

/// Selects the runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only runs whose id begins or ends with this.
    pub id: Option<IdPart>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs of this job.
    pub job_id: Option<JobId>,
    /// Only runs of this kind.
    pub kind: Option<JobKind>,
    /// Only runs of jobs that are in this group now.
    pub group: Option<String>,
    /// Only runs of jobs that are in one of these groups now.
    pub among: Option<Vec<String>>,
    /// Only runs of this trace.
    pub trace: Option<TraceId>,
    /// Only runs created from this time on.
    pub from: Option<Timestamp>,
    /// Only runs created up to this time.
    pub to: Option<Timestamp>,
    /// `-creationTime` (the default) or `creationTime`.
    pub sort: Option<String>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
}

/// A run as stored in its row.
fn shown(run: &Run) -> RunOutput {
    RunOutput { worker_id: run.worker_id, ..stored_output(run) }
}

impl Service {
    pub(super) async fn stored_run(&self, identity: Identity) -> Result<Run, Problem> {
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))
    }

    /// A run.
    ///
    /// # Errors
    /// The run does not exist.
    pub async fn run(&self, identity: Identity) -> Result<RunOutput, Problem> {
        if let Some(output) = self.described(identity, true).await {
            return Ok(output);
        }
        let run = self.stored_run(identity).await?;
        let arguments = run.arguments_value();
        if let Some(output) = self.described_elsewhere(&run).await {
            return Ok(RunOutput { arguments, ..output });
        }
        let mut output = RunOutput { arguments, ..shown(&run) };
        if run.kind == JobKind::Block {
            self.count_blocks(&run, &mut output).await?;
            output.crawling = Some(crawling(&run));
        }
        Ok(output)
    }

    /// Adds the counts of the blocks of a run, because the row has some of them only after the end. Values that only the actor
    /// knows are left out.
    async fn count_blocks(&self, run: &Run, output: &mut RunOutput) -> Result<(), Problem> {
        let counts = self.context.store.read(CountBlocks { no: run.no }).await.map_err(|e| problem_of(&e))?;
        let is_over = run.state.is_final();
        let StoredCounts { requests: total, success, error, .. } = counts;
        if !is_over {
            output.counters = Counters { left: total - success - error, success, error, total };
        }
        output.consuming = is_over.then_some(0);
        output.blocks = BlockCounts { ready: counts.ready, using: output.consuming, answered: counts.answered, total: counts.blocks };
        (output.seen, output.seen_bytes, output.bytes) = (total, output.consuming, counts.bytes);
        output.block_times = output.block_times.max(counts.attempts as i64);
        Ok(())
    }

    /// A stored run in a list: like [`Service::run`], but a long successful run costs one read and not one for each block.
    async fn listed(&self, run: &Run) -> Result<RunOutput, Problem> {
        let mut output = shown(run);
        if run.kind == JobKind::Block && run.state == RunState::Success {
            let last = self.context.store.read(LastBlock { no: run.no }).await.map_err(|e| problem_of(&e))?;
            (output.blocks.total, output.seen) = (last.map_or(0, |seq| u64::from(seq) + 1), run.counters.total);
        } else if run.kind == JobKind::Block {
            self.count_blocks(run, &mut output).await?;
        }
        Ok(output)
    }

    /// The description from the actor of an active run.
    pub(super) async fn described(&self, identity: Identity, with_arguments: bool) -> Option<RunOutput> {
        self.context.addresses.run(identity)?.describe(with_arguments).wait().await.ok()
    }

    /// The description of a run, if it is active, whichever broker executes it.
    pub(super) async fn active(&self, run: &Run) -> Option<RunOutput> {
        match self.described(run.identity, false).await {
            None => self.described_elsewhere(run).await,
            described => described,
        }
    }

    /// The description of an active run that another broker executes.
    async fn described_elsewhere(&self, run: &Run) -> Option<RunOutput> {
        // If its broker hangs, the row is a good answer, too.
        let described = AtWork::Elsewhere(self.context.elsewhere(run).filter(|_| !run.state.is_final())?).describe(false);
        tokio::time::timeout(DESCRIBED_WITHIN, described.wait()).await.ok()?.ok()
    }

    /// Lists runs, newest first unless the filter has another order.
    ///
    /// # Errors
    /// The cursor or the sort key is invalid, or the end is before the beginning.
    pub async fn runs(&self, filter: RunFilter) -> Result<Page<RunOutput>, Problem> {
        let cursor = filter.cursor.as_deref().map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list")));
        let ascending = match filter.sort.as_deref() {
            None | Some("-creationTime") => false,
            Some("creationTime") => true,
            Some(other) => return Err(Problem::invalid("sort", format!("must be creationTime or -creationTime, not `{other}`"))),
        };
        if let (Some(from), Some(to)) = (filter.from, filter.to)
            && to < from
        {
            return Err(Problem::invalid("to", format!("must not be before `from`: {to} is earlier than {from}")));
        }
        let limit = filter.limit;
        let query = ListRuns {
            id: filter.id,
            state: filter.state,
            job_id: filter.job_id,
            kind: filter.kind,
            group: filter.group,
            among: filter.among,
            trace: filter.trace,
            from: filter.from,
            to: filter.to,
            ascending,
            after_no: cursor.transpose()?,
            limit: limit + 1,
        };
        let mut runs = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = runs.len() > limit;
        runs.truncate(limit);
        let next_cursor = runs.last().filter(|_| more).map(|run| run.no.to_string());
        // All at once, so that a broker that does not answer holds the list up once.
        let active = join_all(runs.iter().map(|run| self.active(run))).await;
        let mut items = Vec::with_capacity(runs.len());
        for (run, active) in runs.iter().zip(active) {
            items.push(match active {
                Some(output) => output,
                None => self.listed(run).await?,
            });
        }
        Ok(Page { items, next_cursor })
    }

    /// Stops a run. If its programs need more time, the answer is its current state.
    ///
    /// # Errors
    /// The run does not exist, or has ended.
    pub async fn stop_run(&self, identity: Identity, by: Option<&str>) -> Result<RunOutput, Problem> {
        let reason = by.map_or_else(|| "stopped by hand".to_owned(), |by| format!("stopped by {by}"));
        let stop = self.context.stop_run(identity, reason, by.map(str::to_owned));
        match tokio::time::timeout(STOP, stop).await {
            Ok(stopped) => stopped,
            Err(_) => {
                let run = self.stored_run(identity).await?;
                if !run.state.is_final() && self.context.elsewhere(&run).is_some() {
                    return Err(Problem::busy("the broker that executes the run has not confirmed the stop: send it again"));
                }
                // Its programs, or the function of its worker, have a grace period. The stop is already stored.
                self.run(identity).await
            }
        }
    }

    /// The blocks of a run, ordered by number.
    ///
    /// # Errors
    /// The run does not exist, or the cursor is invalid.
    pub async fn blocks(&self, identity: Identity, cursor: Option<&str>, limit: usize) -> Result<Page<BlockOutput>, Problem> {
        let from: Option<Seq> =
            cursor.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()?;
        let run = self.stored_run(identity).await?;
        let leases: HashMap<Seq, _> = match self.context.addresses.runs.get(identity) {
            Some(handle) => handle.leases().wait().await.unwrap_or_default(),
            None => Vec::new(),
        }
        .into_iter()
        .map(|(seq, node, attempt, until)| (seq, (node, attempt, until)))
        .collect();
        let query = ListBlocks { no: run.no, from, limit: limit + 1, state: None };
        let mut rows = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let next_cursor = (rows.len() > limit).then(|| rows.pop().map(|row| row.seq.to_string())).flatten();
        let peers = rows.iter().filter_map(|row| row.node).chain(leases.values().map(|lease| lease.0));
        let names = self.peer_names(peers.map(|node| node.0).collect()).await?;
        let items = rows.into_iter().map(|row| {
            // Leases are not stored; only the run's actor knows them.
            let lease = leases.get(&row.seq).filter(|_| row.finish_time.is_none());
            // The broker itself answers requests that robots.txt forbids.
            let node_id = lease.map(|l| l.0).or(row.node).filter(|node| !node.0.is_nil());
            BlockOutput {
                block_id: BlockId::new(identity, row.seq),
                identity,
                state: if lease.is_some() { "using".to_owned() } else { row.state.name().to_owned() },
                requests: row.requests,
                success: row.success,
                error: row.error,
                attempt: lease.map_or(row.attempt, |l| l.1),
                node_id,
                node_name: node_id.map(|node| shown_name(node, names.get(&node.0).map(String::as_str))),
                lease_until: lease.map(|l| l.2),
                acknowledged: row.acked,
                exception: row.exception,
                creation_time: row.creation_time,
                finish_time: row.finish_time,
            }
        });
        Ok(Page { items: items.collect(), next_cursor })
    }

    /// The work of each node for a run, and the sum: *JobStatus* of the seeds.
    ///
    /// # Errors
    /// The run does not exist.
    pub async fn run_status(&self, identity: Identity) -> Result<Vec<JobStatusOutput>, Problem> {
        let run = self.stored_run(identity).await?;
        let now = self.run(identity).await?;
        let nodes = self.context.store.read(NodeCounts { no: run.no }).await.map_err(|e| problem_of(&e))?;
        let names = self.peer_names(nodes.iter().filter_map(|row| row.0).map(|node| node.0).collect()).await?;
        let status = |node_id: Option<NodeId>, counters, update_time| JobStatusOutput {
            job_id: run.job_id,
            identity,
            node_id,
            node_name: node_id.map(|node| shown_name(node, names.get(&node.0).map(String::as_str))),
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
