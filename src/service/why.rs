//! Explains why a scheduled time has a run or none, and why a run is in its state, from the ledger, the changes and the plan.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::run_shell::AtWork;
use crate::actors::task::TaskDescription;
use crate::domain::explain::{Instance, InstanceState, RunView, explain_run};
use crate::domain::ids::{Identity, JobId, NodeId};
use crate::domain::job::{Job, JobKind};
use crate::domain::run::{Run, RunState};
use crate::domain::schedule::{Answer, Plan, Recorded, Schedule, Sight, explain, explain_unrecorded};
use crate::domain::time::Timestamp;
use crate::domain::worker_pool::WorkerRequest;
use crate::protocol::api::RunOutput;
use crate::protocol::management::WhyOutput;
use crate::protocol::problem::Problem;
use crate::store::{
    GetRun, InstanceRow, ListChanges, ListFires, ListInstances, OpenRunsOf, StoredChange, StoredFire, StoredPlan, WatchedClasses,
};
use std::sync::Arc;

/// Maximum number of changes of a job that are searched for the definition at a past time.
const MOST_CHANGES: usize = 1_000;

/// Maximum number of instances of a run that are examined.
const MOST_INSTANCES: usize = 10_000;

/// The definition of a job at some time.
struct Definition {
    version: i64,
    at: Timestamp,
    by: Option<String>,
    is_enabled: bool,
    is_deleted: bool,
    disabled_reason: Option<String>,
    schedule: Schedule,
}

impl Definition {
    fn of_change(change: &StoredChange) -> Option<Self> {
        let job: serde_json::Value = serde_json::from_str(&change.job).ok()?;
        let schedule = job.get("schedule").filter(|schedule| !schedule.is_null());
        Some(Self {
            version: change.version,
            at: change.at,
            by: change.by.clone(),
            is_enabled: job["isEnabled"].as_bool()?,
            is_deleted: job["isDeleted"].as_bool()?,
            disabled_reason: job["disabledReason"].as_str().map(str::to_owned),
            schedule: schedule.map_or(Some(Schedule::default()), |schedule| serde_json::from_value(schedule.clone()).ok())?,
        })
    }

    fn off(&self) -> Option<Sight> {
        let how = match (self.is_deleted, self.is_enabled) {
            (true, _) => "deleted",
            (false, false) => "disabled",
            (false, true) => return None,
        };
        Some(Sight::Off { how, since: self.at, by: self.by.clone(), reason: self.disabled_reason.clone() })
    }
}

fn output(subject: String, answer: Answer, identity: Option<Identity>) -> WhyOutput {
    WhyOutput { subject, verdict: answer.verdict, rule: answer.rule, because: answer.because, identity }
}

/// The explanation for a time that no trigger contains.
fn not_named(plan: &Plan, at: Timestamp, version: i64) -> Sight {
    let (start, end) = plan.bounds();
    if start.is_some_and(|start| at < start) || end.is_some_and(|end| at > end) {
        return Sight::OutOfBounds { start, end };
    }
    Sight::NotNamed { before: plan.named_before(at), after: plan.named_after(at).map(|next| next.at), version }
}

/// The explanation for a time that the plan has not decided yet.
fn ahead(plan: &Plan, stored: &StoredPlan, version: i64, at: Timestamp, is_open: bool, now: Timestamp) -> Sight {
    let state = &stored.state;
    let blackout = plan.blackout(at).map(str::to_owned);
    let is_due = at <= now;
    if let Some(next) = plan.next(state, is_open).filter(|next| next.at == at) {
        return Sight::Coming { is_due, kind: next.kind, note: next.note, blackout };
    }
    match plan.named_after(at.plus_ms(-1)).filter(|next| next.at == at) {
        None => not_named(plan, at, version),
        Some(next) => match (state.asked_at.filter(|asked| *asked > at), plan.max_fires().filter(|most| state.fires >= *most)) {
            (_, Some(most)) => Sight::Exhausted { most },
            (Some(asked), _) => Sight::Overruled { asked },
            (None, None) => Sight::Coming { is_due, kind: next.kind, note: next.note, blackout },
        },
    }
}

impl Service {
    /// Explains why a scheduled time of a job has a run or none.
    ///
    /// # Errors
    /// The job does not exist.
    pub async fn why(&self, id: JobId, at: Timestamp) -> Result<WhyOutput, Problem> {
        let (job, stored) = self.stored_job(id, true).await?;
        let around = ListFires { job_id: id, from: Some(at), to: Some(at), verdict: None, ascending: false, limit: 1 };
        let row = self.context.store.read(around).await.map_err(|e| problem_of(&e))?.pop();
        match row {
            Some(row) => self.why_recorded(&job, row, at).await,
            None => {
                let sight = self.sight(&job, &stored, at).await?;
                Ok(output(at.to_string(), explain_unrecorded(at, &sight), None))
            }
        }
    }

    async fn why_recorded(&self, job: &Job, row: StoredFire, at: Timestamp) -> Result<WhyOutput, Problem> {
        let recorded = Recorded {
            planned_at: row.planned_at,
            planned_until: row.planned_until,
            instants: row.instants,
            kind: row.kind,
            verdict: &row.verdict,
            rule: row.rule.as_deref(),
            reason: row.reason.as_deref(),
            decided_at: row.creation_time,
            version: row.version,
        };
        // The rules of a later version may differ from those of the decision.
        let rules = job.rules().ok().filter(|_| row.version == job.version);
        let mut answer = explain(&recorded, rules.as_ref());
        if row.instants > 1
            && row.version == job.version
            && self.plan_of(job.schedule.as_ref())?.named_after(at.plus_ms(-1)).is_none_or(|next| next.at != at)
        {
            answer.because.push(format!("{at} itself is none of them."));
        }
        if let Some(identity) = row.run {
            let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
            answer.because.push(match run {
                None => format!("Its run {identity} is cleaned away."),
                Some(run) => of_run(&run, row.planned_at),
            });
        }
        Ok(output(at.to_string(), answer, row.run))
    }

    /// The explanation for a time that is not in the ledger.
    async fn sight(&self, job: &Job, stored: &StoredPlan, at: Timestamp) -> Result<Sight, Problem> {
        let now = Timestamp::now();
        if at <= job.creation_time {
            return Ok(Sight::BeforeJob { created: job.creation_time, by: job.create_by.clone() });
        }
        let changes = ListChanges { job_id: Some(job.id), before: None, limit: MOST_CHANGES };
        let changes = self.context.store.read(changes).await.map_err(|e| problem_of(&e))?;
        // Newest first; a change applies to the times after it.
        let Some(definition) = changes.iter().find(|change| change.at < at).and_then(Definition::of_change) else {
            return Ok(Sight::Unknown);
        };
        // The first of the consecutive changes that disabled the job contains the time since when it is disabled.
        if let Some(sight) = definition.off() {
            let earlier = changes.iter().skip_while(|change| change.version != definition.version).map_while(Definition::of_change);
            return Ok(earlier.map_while(|definition| definition.off()).last().unwrap_or(sight));
        }
        let plan = self.plan_of(Some(&definition.schedule))?;
        if at > stored.state.decided_until {
            let open = self.context.store.read(OpenRunsOf(vec![job.id])).await.map_err(|e| problem_of(&e))?;
            return Ok(ahead(&plan, stored, definition.version, at, !open.is_empty(), now));
        }
        if plan.named_after(at.plus_ms(-1)).is_none_or(|next| next.at != at) {
            return Ok(not_named(&plan, at, definition.version));
        }
        let oldest = ListFires { job_id: job.id, from: None, to: None, verdict: None, ascending: true, limit: 1 };
        let oldest = self.context.store.read(oldest).await.map_err(|e| problem_of(&e))?.pop().map(|row| row.planned_at);
        Ok(match plan.max_fires().filter(|most| stored.state.fires >= *most && oldest.is_some_and(|oldest| oldest < at)) {
            Some(most) => Sight::Exhausted { most },
            None => Sight::CleanedAway { oldest, version: definition.version },
        })
    }

    /// Explains why a run is in its state.
    ///
    /// # Errors
    /// The run does not exist.
    pub async fn why_run(&self, identity: Identity) -> Result<WhyOutput, Problem> {
        let stored = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        let mut run = stored.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))?;
        let (mut worker, mut is_silent) = (None, false);
        let (mut instances, mut obstacles) = (Vec::new(), Vec::new());
        if !run.state.is_final() {
            let (now, request);
            (now, instances, request) = self.state_of(&run).await;
            is_silent = now.is_none() && self.context.elsewhere(&run).is_some();
            if let Some(now) = now {
                // The state of its actor is newer than its row.
                (run.state, run.reason, run.attempt, run.counters) = (now.state, now.reason, now.attempt, now.counters);
                (run.start_time, worker) = (now.start_time, now.worker_id);
            }
            if let Some(request) = request {
                obstacles = self.context.allocator.explain(request).wait().await.unwrap_or_default();
            }
        }
        let open = self.context.store.read(OpenRunsOf(vec![run.job_id])).await.map_err(|e| problem_of(&e))?;
        let ahead: Vec<Identity> = open.into_iter().map(|(_, run)| run.identity).take_while(|other| *other != identity).collect();
        let watched = self.context.store.read(WatchedClasses).await.map_err(|e| problem_of(&e))?;
        let mut answer = explain_run(&RunView {
            run: &run,
            ahead: &ahead,
            worker,
            watched: &watched,
            instances: &instances,
            obstacles: &obstacles,
            now: Timestamp::now(),
        });
        if is_silent {
            // Its row has no counts of requests.
            let because = "The broker that executes it does not answer. If it does not within its lease, another one takes the run over.";
            answer.because = vec![because.to_owned()];
        }
        Ok(output(identity.to_string(), answer, Some(identity)))
    }
}

impl Service {
    /// The state from the actor of a run: the run, its instances, and the request of the first instance that has no worker.
    async fn state_of(&self, run: &Run) -> (Option<RunOutput>, Vec<Instance>, Option<Box<WorkerRequest>>) {
        match self.context.addresses.others.get(run.identity) {
            Some(AtWork::Task(task)) => match task.explain().wait().await {
                Ok(TaskDescription { output, instances, request }) => (Some(output), instances, request),
                Err(_) => (None, Vec::new(), None),
            },
            Some(AtWork::Application(_)) => {
                let rows = self.context.store.read(ListInstances { no: run.no, from: 0, limit: MOST_INSTANCES }).await;
                let instances = rows.unwrap_or_default().into_iter().filter(|row| row.attempt == run.attempt).map(of_node).collect();
                (self.described(run.identity, false).await, instances, None)
            }
            _ => {
                let now = self.active(run).await;
                let needs_worker = run.kind == JobKind::Block && now.as_ref().is_none_or(|now| now.worker_id.is_none());
                let request = || Box::new(WorkerRequest::of_run(run, run.class_name.as_str().into(), Arc::clone(&run.queue.workers)));
                (now, Vec::new(), needs_worker.then(request))
            }
        }
    }
}

/// The state of an instance of an application.
fn of_node(row: InstanceRow) -> Instance {
    let node = row.peer.map_or_else(String::new, |peer| format!("node {}", NodeId(peer)));
    let state = match row.state {
        over if over.is_final() => InstanceState::Over(over),
        _ if row.exit_reason.is_some() => InstanceState::Ending(node),
        RunState::Running => InstanceState::At(node, row.start_time),
        _ => InstanceState::Dispatched(node),
    };
    Instance { attempt: row.attempt, state, progress: None, text: None, reason: row.reason }
}

/// A sentence about the run of a scheduled time.
fn of_run(run: &Run, planned: Timestamp) -> String {
    let began = match run.start_time {
        Some(start) => format!("it began {} ms after the instant", start.since_ms(planned)),
        None if run.state.is_final() => "it never began".to_owned(),
        None => "it has not begun".to_owned(),
    };
    let why = run.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("Run {} is {}{why}; {began}.", run.identity, run.state.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::{Kind, PlanState, Rule, Trigger};

    /// The actor has its own rules for the rejection of external triggers.
    #[test]
    fn every_word_that_the_actor_records_is_known() {
        let source = include_str!("../actors/job/fires.rs");
        let words: Vec<&str> = source.split("Admission::No(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(words.len() >= 3, "{words:?}");
        for word in words.into_iter().chain(["told", "backfill"]) {
            assert!(Rule::named(word).is_some(), "{word}");
        }
    }

    #[test]
    fn what_comes_is_told_from_what_does_not() {
        let every = Trigger { every: Some(1_000), anchor: Some(Timestamp(0)), ..Trigger::default() };
        let schedule = Schedule { triggers: vec![every], max_fires: Some(3), end_at: Some(Timestamp(60_000)), ..Schedule::default() };
        let plan = schedule.compile().expect("a schedule");
        let stored = |fires, asked_at| StoredPlan {
            state: PlanState { decided_until: Timestamp(10_000), fires, asked_at, ..PlanState::default() },
            next_at: None,
        };
        let see = |stored: &StoredPlan, at| {
            let answer = explain_unrecorded(Timestamp(at), &ahead(&plan, stored, 1, Timestamp(at), false, Timestamp(10_500)));
            (answer.verdict, answer.rule)
        };
        let word = |verdict: &str, rule: &str| (verdict.to_owned(), rule.to_owned());
        assert_eq!(see(&stored(0, None), 11_000), word("planned", "plan"));
        assert_eq!(see(&stored(0, None), 15_000), word("planned", "plan"));
        assert_eq!(see(&stored(0, None), 15_001), word("notPlanned", "plan"));
        assert_eq!(see(&stored(0, None), 61_000), word("notPlanned", "bounds"));
        assert_eq!(see(&stored(3, None), 15_000), word("notPlanned", "maxFires"));
        let asked = stored(0, Some(Timestamp(20_500)));
        assert_eq!(see(&asked, 15_000), word("planned", "asked"));
        assert_eq!(see(&asked, 20_500), word("planned", Kind::Asked.name()));
    }
}
