//! What the procedures of a job read, write and notify, by the store and the other actors. `domain/schedule/job_core.rs` decides.

use super::fires::stop_all;
use super::loaded::LoadedJob;
use super::settling::Ending;
use crate::actors::context::BrokerContext;
use crate::actors::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::run::BROKER;
use crate::domain::schedule::{Ahead, JobCore, JobPorts, Kind, Move, Open, RunEndEffects, Step};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{ListFires, MovePlan, OpenRunsOf, Outcome, SettleRun, WithdrawFire, WriteFires};

/// The stop reason of a run that another run replaces.
pub(super) const REPLACED: &str = "another run of the job replaces it";

/// Stops the actor of a run so that the run can be withdrawn. When this value is dropped, the registry starts a new actor from
/// the stored state, or none if the run is gone.
pub(super) struct Held {
    context: BrokerContext,
    identity: Identity,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.context.registry().run_begins_anew(self.identity);
    }
}

impl LoadedJob {
    fn fires_until(&self, to: Timestamp, verdict: Option<&str>, limit: usize) -> ListFires {
        ListFires { job_id: self.id, from: None, to: Some(to), verdict: verdict.map(str::to_owned), ascending: false, limit }
    }

    /// The run that was created ahead of its time, while the job is known.
    fn ahead_at(&self, now: Timestamp) -> Option<(Identity, Timestamp)> {
        self.known.as_ref()?.open.ahead_at(now)
    }
}

impl JobPorts for LoadedJob {
    type Error = Problem;
    type Held = Held;
    type Ending = Ending;

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn core(&mut self) -> Result<&mut JobCore, Problem> {
        self.known().await.map(|known| &mut known.core)
    }

    fn forget_core(&mut self) {
        self.known = None;
    }

    fn open(&self) -> Open {
        self.known.as_ref().map(|known| known.open.counts()).unwrap_or_default()
    }

    async fn look_again(&mut self) -> Result<(), Problem> {
        let open = self.context.store.read(OpenRunsOf(vec![self.id])).await.map_err(|e| problem_of(&e))?;
        if let Some(known) = &mut self.known {
            known.open = open.into_iter().map(|(_, run)| run).collect();
        }
        Ok(())
    }

    async fn fired_after(&self, after: Timestamp) -> Result<Vec<Timestamp>, Problem> {
        let (from, verdict) = (Some(after.plus_ms(1)), Some("fired".to_owned()));
        let fired = ListFires { job_id: self.id, from, to: None, verdict, ascending: true, limit: 100_000 };
        let rows = self.context.store.read(fired).await.map_err(|e| problem_of(&e))?;
        Ok(rows.into_iter().map(|row| row.planned_at).collect())
    }

    async fn rewinds(&self, from: Timestamp, to: Timestamp) -> Result<Option<(Timestamp, Timestamp)>, Problem> {
        log::info!("plan is decided again because the clock went back job_id={} from={from} to={to}", self.id);
        let row = self.context.store.read(self.fires_until(to, None, 1)).await.map_err(|e| problem_of(&e))?.pop();
        Ok(row.map(|row| (row.planned_at, row.planned_until)))
    }

    async fn stop_open(&mut self) -> Result<(), Problem> {
        let Self { context, known: Some(known), .. } = self else { return Ok(()) };
        let (ended, failure) = stop_all(context, &known.open.all(), REPLACED, Some(BROKER)).await;
        ended.into_iter().for_each(|run| known.open.remove(run));
        failure.map_or(Ok(()), Err)
    }

    async fn write_step(&mut self, step: Step, to: &Move) -> Result<(), Problem> {
        let now = to.now;
        let known = self.known().await?;
        let rows = known.new_fires(&step.rows, now)?;
        let missed: u64 = rows.iter().filter(|row| matches!(row.outcome, Outcome::Missed)).map(|row| row.instants).sum();
        let verdicts: Vec<_> = rows.iter().map(|row| (row.outcome.verdict(), row.instants)).collect();
        let mut events = Vec::new();
        if missed > 0 {
            events.push(known.event("missed", None, now, &format!("{missed} planned runs were missed")));
        }
        let (was, state, next_at, rewind) = (to.was, to.state, to.next_at, step.rewind);
        let (job_id, version) = (known.job.id, known.job.version);
        let write = WriteFires { job_id, version, rows, was, state, next_at, rewind, events, now };
        let properties = known.properties();
        let runs = self.context.store.write_unbounded(write).await.map_err(|error| self.forget(&error))?;
        for (verdict, instants) in verdicts {
            self.context.counters.counts.fired(verdict, instants);
        }
        for run in runs {
            self.begin(run, &properties, now);
        }
        if missed > 0 {
            self.context.alarm();
        }
        Ok(())
    }

    fn ahead(&self, now: Timestamp) -> Option<Timestamp> {
        self.ahead_at(now).map(|(_, at)| at)
    }

    async fn hold_ahead(&mut self, at: Timestamp) -> Option<Held> {
        let (identity, _) = self.ahead_at(at.plus_ms(-1))?;
        let context = self.context.clone();
        // Its actor may still be starting.
        let at_work = context.registry().start_run(identity).wait().await.ok()?;
        let is_withdrawn = at_work.withdraw().wait().await.unwrap_or(false);
        is_withdrawn.then_some(Held { context, identity })
    }

    async fn read_ahead(&self, at: Timestamp) -> Result<Option<Ahead>, Problem> {
        let run = self.ahead_at(at.plus_ms(-1)).map(|(identity, _)| identity);
        let read = |rows| self.context.store.read(rows);
        let mut fired = read(self.fires_until(at, Some("fired"), 2)).await.map_err(|e| problem_of(&e))?.into_iter();
        let Some(row) = fired.next().filter(|row| row.planned_at == at && row.run == run) else { return Ok(None) };
        let before = read(self.fires_until(at, None, 2)).await.map_err(|e| problem_of(&e))?.into_iter().nth(1);
        Ok(Some(Ahead {
            at,
            was_asked: row.kind == Kind::Asked,
            previous: fired.next().map(|row| row.planned_at),
            decided_until: before.map(|row| row.planned_until).unwrap_or_default(),
        }))
    }

    async fn write_withdrawal(&mut self, at: Timestamp, to: &Move) -> Result<(), Problem> {
        let Some((identity, _)) = self.ahead_at(at.plus_ms(-1)) else { return Ok(()) };
        let write = WithdrawFire { job_id: self.id, identity, planned_at: at, was: to.was, state: to.state, next_at: to.next_at };
        let written = self.context.store.write_unbounded(write).await;
        let known = self.known().await?;
        if let Err(error) = written {
            // The result is unknown; an extra `Due` does no harm.
            known.core.next_at = Some(at);
            self.announce(true);
            return Err(self.forget(&error));
        }
        known.open.remove(identity);
        self.context.followers.ring(identity);
        Ok(())
    }

    async fn write_end(&mut self, Ending { ended, lines }: Ending, effects: &RunEndEffects, to: &Move) -> Result<(), Problem> {
        let known = self.known().await?;
        let release = known.open.first_queued().filter(|_| effects.releases);
        let mut events = Vec::new();
        if let Some(run) = &ended {
            let finish = run.finish_time.unwrap_or(run.creation_time);
            let event = |name, reason: &str| known.event(name, Some(run.identity), finish, reason);
            if effects.failed {
                events.push(event("failed", run.reason.as_deref().unwrap_or_default()));
            }
            if let Some(failures) = effects.recovered_after {
                events.push(event("recovered", &format!("after {failures} failure{}", if failures == 1 { "" } else { "s" })));
            }
        }
        let (alarm, has_lines, ended) = (!events.is_empty(), !lines.is_empty(), ended.map(|run| run.identity));
        let (was, state, next_at, now) = (to.was, to.state, to.next_at, to.now);
        let write = SettleRun { ended, job_id: known.job.id, was, state, next_at, release, events, lines, now };
        self.context.store.write_unbounded(write).await.map_err(|error| self.forget(&error))?;
        if let Some(identity) = release {
            self.known().await?.open.release(identity);
            drop(self.context.registry().start_run(identity));
        }
        if alarm {
            self.context.alarm();
        }
        if let Some(identity) = ended.filter(|_| has_lines) {
            self.context.followers.ring(identity);
        }
        Ok(())
    }

    async fn write_move(&mut self, to: &Move) -> Result<(), Problem> {
        let write = MovePlan { job_id: self.id, was: to.was, state: to.state, next_at: to.next_at };
        self.context.store.write_unbounded(write).await.map_err(|error| self.forget(&error))
    }

    fn announce(&mut self, at_its_time: bool) {
        if let Some(known) = &self.known {
            let (scheduler, at) = (&self.context.scheduler, known.core.notify_at(Timestamp::now()));
            if at_its_time || !known.core.may_be_ahead { scheduler.planned_not_before(self.id, at) } else { scheduler.planned(self.id, at) }
        }
    }
}
