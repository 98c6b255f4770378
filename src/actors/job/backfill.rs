//! Backfills of past scheduled times.

use super::loaded::LoadedJob;
use crate::actors::reply::problem_of;
use crate::domain::schedule::{Kind, Overlap, job_core};
use crate::domain::time::Timestamp;
use crate::protocol::management::{BackfillFire, BackfillInput, BackfillOutput};
use crate::protocol::problem::Problem;
use crate::store::{FireOf, InsertRun};

/// Maximum number of runs of one backfill: the default and the upper limit.
const USUAL_BACKFILL: usize = 100;
const MOST_BACKFILL: usize = 1_000;
/// Maximum number of scheduled times that one backfill examines.
const MOST_INSTANTS: usize = 100_000;

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
}
