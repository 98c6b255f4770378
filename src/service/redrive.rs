//! Redrives dead runs of many jobs.

use super::{Service, TriggerOrder};
use crate::actors::job::redriven;
use crate::actors::reply::problem_of;
use crate::domain::run::Run;
use crate::domain::trace::TraceContext;
use crate::protocol::problem::Problem;
use crate::protocol::redrive::{RedriveInput, RedrivenRun, RedrivenRuns};
use crate::store::FindDead;
use futures_util::{StreamExt as _, stream};

/// Number of runs of one call: the default and the upper limit.
const USUAL: usize = 100;
const MOST: usize = 1_000;
/// Number of jobs that are handled concurrently.
const AT_ONCE: usize = 32;

impl Service {
    /// Redrives dead runs. A rejected run, for example because its job is disabled, does not affect the others.
    ///
    /// # Errors
    /// The limit or the range is invalid, or the broker is too busy. The runs that were redriven until then stay so, and are not
    /// selected again.
    pub async fn redrive_runs(&self, input: RedriveInput, by: Option<String>) -> Result<RedrivenRuns, Problem> {
        let RedriveInput { job_id, group, from, to, limit, dry_run } = input;
        let limit = limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::invalid("limit", format!("must be 1 to {MOST}, not {limit}")));
        }
        if let (Some(from), Some(to)) = (from, to)
            && to < from
        {
            return Err(Problem::invalid("to", format!("must not be before `from`: {to} is earlier than {from}")));
        }
        if let Some(id) = job_id {
            self.stored_job(id, false).await?;
        }
        let find = FindDead { job_id, group, from, to, limit: limit + 1 };
        let mut dead = self.context.store.read(find).await.map_err(|e| problem_of(&e))?;
        let more = dead.len() > limit;
        dead.truncate(limit);
        let found = dead.len();
        let runs: Vec<RedrivenRun> = if dry_run {
            dead.iter().map(|run| RedrivenRun { retry_of: run.identity, job_id: run.job_id, identity: None, refused: None }).collect()
        } else {
            let all = stream::iter(dead.into_iter().map(|run| self.redrive_run(run, by.clone())));
            all.buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect::<Result<_, _>>()?
        };
        let redriven = runs.iter().filter(|run| run.identity.is_some()).count();
        Ok(RedrivenRuns { found, redriven, runs, more })
    }

    async fn redrive_run(&self, run: Run, by: Option<String>) -> Result<RedrivenRun, Problem> {
        let input = redriven(&run);
        let (retry_of, job_id) = (run.identity, run.job_id);
        let order =
            TriggerOrder { input, retry_of: Some(retry_of), trace: TraceContext::of_run(&run), by, waits: true, ..TriggerOrder::default() };
        let asked = match self.context.registry().open_job(job_id).wait().await {
            Ok(job) => job.trigger(order).wait().await,
            Err(problem) => Err(problem),
        };
        match asked {
            Ok(made) => Ok(RedrivenRun { retry_of, job_id, identity: Some(made.identity), refused: None }),
            Err(problem) if problem.status < 500 => Ok(RedrivenRun { retry_of, job_id, identity: None, refused: Some(problem.detail) }),
            Err(problem) => Err(problem),
        }
    }
}
