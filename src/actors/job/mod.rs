//! A job with something to do: a trigger becomes a run, or a recorded reason why it became none.
//!
//! Started on demand, gone when idle. The room of schedules, overlap and retry is here and in the scheduler's actor,
//! which comes with them.

mod message;

pub use message::{JobHandle, Rest, Trigger};

use super::house::House;
use super::reply::{Reply, problem_of};
use super::supervision::Notice;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::{Job, JobKind};
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::protocol::api::TriggerInput;
use crate::protocol::problem::Problem;
use crate::store::{FireOf, GetJob, InsertRun, ListRuns, NewRun, RecordSkip};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use std::time::Duration;

/// A job's actor that nobody has asked anything for so long goes.
const IDLE: Duration = Duration::from_secs(30);

/// See the module's text.
#[derive(Debug)]
pub struct JobActor {
    notice: Notice,
    house: House,
    id: JobId,
    at_work: usize,
    /// It is in no directory any more, and goes when what it is at is done.
    resting: bool,
    last_used: Timestamp,
}

impl JobActor {
    /// The actor of a job; it need not be stored.
    #[must_use]
    pub fn new(notice: Notice, house: House, id: JobId) -> Self {
        Self { notice, house, id, at_work: 0, resting: false, last_used: Timestamp::now() }
    }

    fn rest_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.resting && self.at_work == 0 {
            self.notice.finish();
            ctx.stop();
        }
    }
}

/// Why a trigger makes no run now, if so: a word for programs and one for people.
async fn why_not(house: &House, job: &Job, input: &TriggerInput, now: Timestamp) -> Result<Option<(&'static str, String)>, Problem> {
    if !job.is_enabled {
        return Ok(Some(("job-disabled", format!("the job `{}` is disabled", job.name))));
    }
    let late = input.fire_time.map_or(0, |planned| now.since_ms(planned));
    if let Some(limit) = job.properties.stale_after().map_err(of_property)?.filter(|limit| late > *limit) {
        return Ok(Some(("stale", format!("the fire is {late} ms late, and stale after {limit} ms"))));
    }
    if job.properties.allows_overlap().map_err(of_property)? {
        return Ok(None);
    }
    for state in [RunState::Pending, RunState::Scheduled, RunState::Running] {
        let query = ListRuns { state: Some(state), job_id: Some(job.id), before_no: None, limit: 1 };
        if let Some(run) = house.store.read(query).await.map_err(|e| problem_of(&e))?.first() {
            return Ok(Some(("still-running", format!("run {} of the job is not over", run.identity))));
        }
    }
    Ok(None)
}

fn of_property(e: crate::domain::job::InvalidProperty) -> Problem {
    Problem::invalid(format!("properties.{}", e.key), e.detail)
}

/// Makes a run of a job, and has its actor started.
async fn fire(house: House, id: JobId, input: TriggerInput) -> Result<Identity, Problem> {
    let job = house.store.read(GetJob(id)).await.map_err(|e| problem_of(&e))?;
    let job = job.filter(|job| !job.is_deleted).ok_or_else(|| Problem::not_found(format!("there is no job {id}")))?;
    let now = Timestamp::now();
    if let Some(planned_at) = input.fire_time {
        // Told twice, an instant gets the same answer twice, whatever has become of the job meanwhile.
        match house.store.read(FireOf { job_id: id, planned_at }).await.map_err(|e| problem_of(&e))? {
            Some(Some(identity)) => return Ok(identity),
            Some(None) => return Err(Problem::conflict("fire-skipped", format!("the fire of {planned_at} was skipped before"))),
            None => {}
        }
    }
    if let Some((word, reason)) = why_not(&house, &job, &input, now).await? {
        let skip = RecordSkip { job_id: id, planned_at: input.fire_time.unwrap_or(now), reason: reason.clone(), now };
        house.store.write(skip).await.map_err(|e| problem_of(&e))?;
        return Err(Problem::conflict(word, reason));
    }
    let run = new_run(&job, &input, now)?;
    let inserted = house.store.write(InsertRun { run, fire_time: input.fire_time }).await.map_err(|e| problem_of(&e))?;
    let run: Run = inserted.run;
    if !run.state.is_final() {
        match house.registry().start_run(run.identity).wait().await {
            // The run of an instant that was told twice may end meanwhile.
            Err(problem) if problem.kind == "/problems/run-over" => {}
            other => drop(other?),
        }
    }
    Ok(run.identity)
}

fn new_run(job: &Job, input: &TriggerInput, now: Timestamp) -> Result<NewRun, Problem> {
    let failure = match job.job_type {
        JobKind::Block => None,
        JobKind::Application => Some("this version carries out block jobs only".to_owned()),
    };
    let class_name = match (job.job_type, job.properties.class_name()) {
        (_, Some(name)) => name.to_owned(),
        (JobKind::Application, None) => String::new(),
        (JobKind::Block, None) => return Err(Problem::invalid("properties.FullClassName", "the job names no class")),
    };
    Ok(NewRun {
        identity: Identity::random(),
        job_id: job.id,
        job_name: job.name.clone(),
        class_name,
        arguments: input.arguments.clone().or_else(|| job.properties.get("Arguments").map(str::to_owned)),
        state: if failure.is_some() { RunState::Failed } else { RunState::Pending },
        finish_time: failure.is_some().then_some(now),
        reason: failure,
        priority: input.priority.unwrap_or(job.priority),
        download: job.properties.download().map_err(of_property)?,
        queue: job.properties.queue().map_err(of_property)?,
        creation_time: now,
    })
}

impl Actor for JobActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(IDLE / 2, |this, _| {
            let idle = Timestamp::now().since_ms(this.last_used) > IDLE.as_millis() as i64;
            if this.at_work == 0 && idle {
                this.house.registry().job_idle(this.id);
            }
        });
    }
}

impl Handler<Trigger> for JobActor {
    type Result = ();
    fn handle(&mut self, Trigger { input, reply }: Trigger, ctx: &mut Self::Context) {
        self.notice.message("job.trigger");
        self.last_used = Timestamp::now();
        self.at_work += 1;
        let run = fire(self.house.clone(), self.id, input);
        // One trigger after the other: between the look at other runs and the new one nobody else comes.
        ctx.wait(wrap_future(run).map(move |result, this: &mut Self, ctx: &mut Context<Self>| {
            this.at_work -= 1;
            Reply::send(reply, result);
            this.rest_if_idle(ctx);
        }));
    }
}

impl Handler<Rest> for JobActor {
    type Result = ();
    fn handle(&mut self, _: Rest, ctx: &mut Self::Context) {
        self.notice.message("job.rest");
        self.resting = true;
        self.rest_if_idle(ctx);
    }
}
