//! Backfills of past scheduled times, and new runs for dead runs.

use super::loaded::LoadedJob;
use super::message::TriggerOrder;
use crate::actors::reply::problem_of;
use crate::domain::run::Run;
use crate::domain::schedule::{Kind, Overlap, job_core};
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::protocol::api::TriggerInput;
use crate::protocol::management::{BackfillFire, BackfillInput, BackfillOutput, RedriveJobInput, RedriveOutput};
use crate::protocol::problem::Problem;
use crate::store::{FindDead, FireOf, InsertRun};

/// Maximum number of runs of one backfill: the default and the upper limit.
const USUAL_BACKFILL: usize = 100;
const MOST_BACKFILL: usize = 1_000;
/// Maximum number of scheduled times that one backfill examines.
const MOST_INSTANTS: usize = 100_000;
/// Maximum number of dead runs that one call redrives.
const MOST_REDRIVEN: usize = 100;

/// The trigger that redrives a dead run. The idempotency key ensures that this happens once.
#[must_use]
pub fn redriven(run: &Run) -> TriggerInput {
    let idempotency_key = Some(format!("redrive:{}", run.identity));
    TriggerInput { arguments: run.arguments_value(), priority: Some(run.priority), idempotency_key, ..TriggerInput::default() }
}

impl LoadedJob {
    /// Creates runs for the scheduled times of a past range that have no run. It uses the current plan.
    pub(super) async fn backfill(&mut self, input: BackfillInput, by: Option<String>) -> Result<BackfillOutput, Problem> {
        let now = Timestamp::now();
        let limit = input.limit.unwrap_or(USUAL_BACKFILL);
        if !(1..=MOST_BACKFILL).contains(&limit) {
            return Err(Problem::invalid("limit", format!("must be 1 to {MOST_BACKFILL}, not {limit}")));
        }
        if input.to < input.from {
            return Err(Problem::invalid("to", format!("must not be before `from`: {} is earlier than {}", input.to, input.from)));
        }
        job_core::settle_due(self, now).await?;
        let id = self.id;
        let known = self.living().await?;
        // The plan itself fires the times that are not decided yet.
        let to = input.to.min(known.core.state.decided_until).min(now);
        let allows = known.overlap() == Overlap::Allow;
        let mut instants = Vec::new();
        let mut cursor = input.from.plus_ms(-1);
        while let Some(next) = known.core.plan.named_after(cursor).filter(|next| next.at <= to && instants.len() < MOST_INSTANTS) {
            cursor = next.at;
            instants.push(next.at);
        }
        let mut out = BackfillOutput { fires: Vec::new(), already: 0, more: instants.len() == MOST_INSTANTS };
        for planned_at in instants {
            let recorded = self.context.store.read(FireOf { job_id: id, planned_at }).await.map_err(|e| problem_of(&e))?;
            if matches!(recorded, Some(Some(_))) {
                out.already += 1;
                continue;
            }
            if out.fires.len() == limit {
                out.more = true;
                break;
            }
            if input.dry_run {
                out.fires.push(BackfillFire { planned_at, identity: None });
                continue;
            }
            let known = self.living().await?;
            let mut run = known.new_run(now, !allows && known.open_counts().any())?;
            run.rules.by = by.clone();
            run.follow |= !allows;
            let (version, properties) = (known.job.version, known.properties());
            let insert = InsertRun { run, marks: None, version, fire: Some((planned_at, Kind::Backfill)), key: None };
            let written = self.context.store.write(insert).await;
            let made = self.made(written, &properties, now)?;
            out.fires.push(BackfillFire { planned_at, identity: Some(made.identity) });
        }
        Ok(out)
    }

    /// Redrives the dead runs of the job: runs that failed for good and were not redriven before.
    pub(super) async fn redrive(&mut self, input: RedriveJobInput, by: Option<String>) -> Result<RedriveOutput, Problem> {
        let job_id = self.living().await?.job.id;
        let find = FindDead { job_id: Some(job_id), limit: MOST_REDRIVEN + 1, ..FindDead::default() };
        let mut dead = self.context.store.read(find).await.map_err(|e| problem_of(&e))?;
        let more = dead.len() > MOST_REDRIVEN;
        dead.truncate(MOST_REDRIVEN);
        let found = dead.iter().map(|run| run.identity).collect();
        let mut runs = Vec::new();
        if input.dry_run {
            return Ok(RedriveOutput { dead: found, runs, more });
        }
        for run in dead {
            let input = redriven(&run);
            let order = TriggerOrder {
                input,
                retry_of: Some(run.identity),
                trace: TraceContext::of_run(&run),
                by: by.clone(),
                waits: true,
                after: None,
                first: None,
                alone: false,
            };
            runs.push(self.trigger(order).await?.identity);
        }
        Ok(RedriveOutput { dead: found, runs, more })
    }
}
