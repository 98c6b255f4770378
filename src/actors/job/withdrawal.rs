//! Withdraws a decision made ahead of its scheduled time when something unforeseen arrives: a change of the job, a trigger, or a
//! run that requests the next time. So each of these applies at once, right up to the scheduled time.

use super::loaded::LoadedJob;
use crate::actors::context::BrokerContext;
use crate::actors::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::schedule::{Ahead, Kind, withdrawn};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{ListFires, StoredPlan, WithdrawFire};

/// Stops the actor of a run so that the run can be withdrawn. When this value is dropped, the registry starts a new actor from
/// the stored state, or none if the run is gone.
struct Held<'a> {
    context: &'a BrokerContext,
    identity: Identity,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.context.registry().run_begins_anew(self.identity);
    }
}

impl LoadedJob {
    /// Withdraws the fire that was decided ahead of its time and has not begun.
    pub(super) async fn withdraw(&mut self) -> Result<(), Problem> {
        let now = Timestamp::now();
        let known = self.known().await?;
        let (decided, changed) = (known.stored.state.decided_until, known.job.update_time);
        // A fire that an earlier change of the job has kept stays: the plan continues from there.
        let Some((identity, at)) = known.open.ahead_at(now).filter(|(_, at)| *at <= decided && *at > changed) else { return Ok(()) };
        let context = self.context.clone();
        // Its actor may still be starting. If there is no actor, the decision stays.
        match context.registry().start_run(identity).wait().await {
            Ok(at_work) if at_work.withdraw().wait().await.unwrap_or(false) => {}
            _ => return Ok(()),
        }
        let _held = Held { context: &context, identity };
        let job_id = self.id;
        let rows = |verdict| ListFires { job_id, from: None, to: Some(at), verdict, ascending: false, limit: 2 };
        let mut fired = context.store.read(rows(Some("fired".to_owned()))).await.map_err(|e| problem_of(&e))?.into_iter();
        let Some(row) = fired.next().filter(|row| row.planned_at == at && row.run == Some(identity)) else { return Ok(()) };
        let before = context.store.read(rows(None)).await.map_err(|e| problem_of(&e))?.into_iter().nth(1).map(|row| row.planned_until);
        let known = self.known().await?;
        let ahead = Ahead {
            at,
            was_asked: row.kind == Kind::Asked,
            previous: fired.next().map(|row| row.planned_at),
            decided_until: before.map_or(known.job.update_time, |until| until.max(known.job.update_time)),
        };
        let was = known.stored.state;
        let state = withdrawn(&was, &ahead, now);
        let next_at = known.next_at(&state, known.open.len() > 1);
        let write = WithdrawFire { job_id, identity, planned_at: at, was, state, next_at };
        if let Err(error) = context.store.write_unbounded(write).await {
            // The result is unknown; an extra `Due` does no harm.
            known.stored.next_at = Some(at);
            self.announce_next(true);
            return Err(self.forget(&error));
        }
        let known = self.known().await?;
        known.stored = StoredPlan { state, next_at };
        known.open.remove(identity);
        context.followers.ring(identity);
        // Not at once again: the unforeseen event goes first.
        self.announce_next(true);
        Ok(())
    }
}
