//! The net below the news that a run is over: a job's actor may have died over it, or the store have failed it.

use super::Registry;
use crate::domain::time::Timestamp;
use crate::store::OverdueJobs;
use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// Milliseconds in which a job has dealt with the end of its run, if all is well.
const PATIENCE_MS: i64 = 2_000;
/// Jobs that are told at once.
const MOST: usize = 200;

impl Registry {
    /// Tells jobs again what they have not dealt with, now and then.
    pub(super) fn look_for_overdue(&self, ctx: &mut Context<Self>) {
        ctx.run_later(LOOK, |this, ctx| {
            let overdue = this.context.store.read(OverdueJobs { before: Timestamp::now().plus_ms(-PATIENCE_MS), limit: MOST });
            ctx.spawn(wrap_future(overdue).map(|overdue, this: &mut Self, ctx: &mut Context<Self>| {
                match overdue {
                    Ok(jobs) => {
                        for (job, run) in jobs {
                            log::warn!("a job is told again what it has not dealt with job_id={job} run_id={run:?}");
                            this.context.registry().job_unsettled(job, run);
                        }
                    }
                    // The next look finds it.
                    Err(error) => log::warn!("runs whose end was not dealt with could not be looked for: {error}"),
                }
                this.look_for_overdue(ctx);
            }));
        });
    }
}
