//! Repeats the message that a run has ended, because the job's actor may have crashed during it, or the store may have failed.

use super::Registry;
use crate::domain::time::Timestamp;
use crate::store::OverdueJobs;
use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};
use std::time::Duration;

/// Interval between two checks.
const LOOK: Duration = Duration::from_secs(5);
/// Milliseconds within which a job normally processes the end of its run.
const PATIENCE_MS: i64 = 2_000;
/// Maximum number of jobs that are notified at once.
const MOST: usize = 200;

impl Registry {
    /// Periodically notifies jobs of the run ends that they have not processed.
    pub(super) fn look_for_overdue(&self, ctx: &mut Context<Self>) {
        ctx.run_later(LOOK, |this, ctx| {
            let overdue = this.context.store.read(OverdueJobs { before: Timestamp::now().plus_ms(-PATIENCE_MS), limit: MOST });
            ctx.spawn(wrap_future(overdue).map(|overdue, this: &mut Self, ctx: &mut Context<Self>| {
                match overdue {
                    Ok(jobs) => {
                        for (job, run) in jobs {
                            log::warn!("notifying job again of an unprocessed run end job_id={job} run_id={run:?}");
                            this.context.registry().job_unsettled(job, run);
                        }
                    }
                    // The next check retries.
                    Err(error) => log::warn!("failed to read unprocessed run ends: {error}"),
                }
                this.look_for_overdue(ctx);
            }));
        });
    }
}
