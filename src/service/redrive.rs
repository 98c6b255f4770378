//! Redrives dead runs: of one job, or of many.

use super::{Service, TriggerOrder};
use crate::actors::reply::problem_of;
use crate::domain::ids::{Identity, JobId};
use crate::domain::run::Run;
use crate::domain::trace::TraceContext;
use crate::protocol::api::TriggerInput;
use crate::protocol::management::RedriveOutput;
use crate::protocol::problem::Problem;
use crate::protocol::redrive::{RedriveInput, RedrivenRun, RedrivenRuns};
use crate::store::FindDead;
use futures_util::{StreamExt as _, stream};

/// Number of runs of one call: the default and the upper limit.
const USUAL: usize = 100;
const MOST: usize = 1_000;
/// Number of jobs that are handled concurrently.
const AT_ONCE: usize = 32;

/// The trigger that redrives a dead run. The idempotency key ensures that this happens once.
fn redriven(run: &Run) -> TriggerInput {
    let idempotency_key = Some(format!("redrive:{}", run.identity));
    TriggerInput { arguments: run.arguments_value(), priority: Some(run.priority), idempotency_key, ..TriggerInput::default() }
}

impl Service {
    /// Redrives dead runs. A refused run, for example because its job is disabled, does not affect the others.
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
        let (done, more) = self.redrive_found(find, dry_run, by).await?;
        let runs: Vec<RedrivenRun> = done.into_iter().map(Attempted::output).collect();
        let redriven = runs.iter().filter(|run| run.identity.is_some()).count();
        Ok(RedrivenRuns { found: runs.len(), redriven, runs, more })
    }

    /// Redrives the dead runs of a job. A refused run does not affect the others.
    ///
    /// # Errors
    /// The job does not exist, the broker is too busy, or every run was refused: the first problem.
    pub async fn redrive_job(&self, id: JobId, dry_run: bool, by: Option<String>) -> Result<RedriveOutput, Problem> {
        self.stored_job(id, false).await?;
        let find = FindDead { job_id: Some(id), limit: USUAL + 1, ..FindDead::default() };
        let (done, more) = self.redrive_found(find, dry_run, by).await?;
        of_one_job(done, more)
    }

    /// Redrives these runs, or only lists them; and whether there are more. `find.limit` is one more than may be redriven.
    async fn redrive_found(&self, find: FindDead, dry_run: bool, by: Option<String>) -> Result<(Vec<Attempted>, bool), Problem> {
        let limit = find.limit - 1;
        let mut dead = self.context.store.read(find).await.map_err(|e| problem_of(&e))?;
        let more = dead.len() > limit;
        dead.truncate(limit);
        let runs = if dry_run {
            dead.iter().map(|run| Attempted { retry_of: run.identity, job_id: run.job_id, made: None }).collect()
        } else {
            let all = stream::iter(dead.into_iter().map(|run| self.redrive_run(run, by.clone())));
            all.buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect::<Result<_, _>>()?
        };
        Ok((runs, more))
    }

    async fn redrive_run(&self, run: Run, by: Option<String>) -> Result<Attempted, Problem> {
        let input = redriven(&run);
        let (retry_of, job_id) = (run.identity, run.job_id);
        let order =
            TriggerOrder { input, retry_of: Some(retry_of), trace: TraceContext::of_run(&run), by, waits: true, ..TriggerOrder::default() };
        let asked = match self.context.registry().open_job(job_id).wait().await {
            Ok(job) => job.trigger(order).wait().await,
            Err(problem) => Err(problem),
        };
        match asked {
            Err(problem) if problem.status >= 500 => Err(problem),
            made => Ok(Attempted { retry_of, job_id, made: Some(made.map(|made| made.identity)) }),
        }
    }
}

/// The answer for one job. If every run was refused, the first problem.
fn of_one_job(done: Vec<Attempted>, more: bool) -> Result<RedriveOutput, Problem> {
    let mut out = RedriveOutput { dead: Vec::new(), runs: Vec::new(), refused: Vec::new(), more };
    let mut first = None;
    for run in done {
        out.dead.push(run.retry_of);
        match &run.made {
            Some(Ok(identity)) => out.runs.push(*identity),
            Some(Err(problem)) => {
                first.get_or_insert_with(|| problem.clone());
                out.refused.push(run.output());
            }
            None => {}
        }
    }
    match first {
        Some(problem) if out.runs.is_empty() => Err(problem),
        _ => Ok(out),
    }
}

/// A dead run, and the run that repeats it or why there is none; `None` in a dry run.
struct Attempted {
    retry_of: Identity,
    job_id: JobId,
    made: Option<Result<Identity, Problem>>,
}

impl Attempted {
    fn output(self) -> RedrivenRun {
        let Self { retry_of, job_id, made } = self;
        let (identity, refused) = match made {
            Some(Ok(identity)) => (Some(identity), None),
            Some(Err(problem)) => (None, Some(problem.detail)),
            None => (None, None),
        };
        RedrivenRun { retry_of, job_id, identity, refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_run_does_not_affect_the_others() {
        let job_id = JobId::random();
        let run = |made| Attempted { retry_of: Identity::random(), job_id, made };
        let refused = |why: &str| run(Some(Err(Problem::conflict("still-running", why))));
        let made = Identity::random();
        let done = vec![refused("first"), run(Some(Ok(made))), refused("second")];
        let dead: Vec<Identity> = done.iter().map(|run| run.retry_of).collect();
        let out = of_one_job(done, true).expect("one was made");
        assert_eq!((&out.dead, &out.runs, out.more), (&dead, &vec![made], true));
        let shown: Vec<_> = out.refused.iter().map(|run| (run.retry_of, run.refused.as_deref())).collect();
        assert_eq!(shown, [(dead[0], Some("first")), (dead[2], Some("second"))]);

        let all = of_one_job(vec![refused("first"), refused("second")], false).expect_err("none was made");
        assert_eq!(all.detail, "first");
        let dry = of_one_job(vec![run(None)], false).expect("a list");
        assert_eq!((dry.dead.len(), dry.runs.len(), dry.refused.len()), (1, 0, 0));
        assert!(of_one_job(Vec::new(), false).is_ok());
    }
}
