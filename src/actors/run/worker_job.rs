//! A run without a worker requests one: its job may reference another job that starts a program with a worker.

use super::{BlocksEvent, RunActor};
use crate::actors::context::BrokerContext;
use crate::actors::job::{JobHandle, TriggerOrder};
use crate::actors::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::job::Properties;
use crate::domain::run::{BROKER, RunState};
use crate::domain::task::NoWorker;
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::domain::worker::NotEligible;
use crate::protocol::problem::Problem;
use crate::store::{FindJobs, GetRun};
use actix::{AsyncContext, Context, fut::wrap_future};

/// Interval between two checks of a request, in milliseconds.
const CHECK_MS: i64 = 5_000;

/// A request to a job to start a worker.
#[derive(Debug)]
pub(super) struct StartRequest {
    /// Deadline for the worker to connect.
    until: Timestamp,
    /// Time of the next check whether another request is needed.
    check_at: Timestamp,
    /// The run that was created for it.
    made: Option<Identity>,
}

/// The answer to a request.
#[derive(Debug)]
pub enum StartOutcome {
    /// This run starts a worker, or has started one.
    Made(Identity),
    /// A run from another request is active.
    Underway,
}

/// Where a request goes.
enum Found {
    /// Nowhere: the run that was created for it starts a worker, or has started one.
    Made(Identity),
    /// To this job.
    Job(JobHandle),
}

impl RunActor {
    /// No connected worker is eligible for the run.
    pub(super) fn no_worker(&mut self, why: &NotEligible, ctx: &mut Context<Self>) {
        let reason = why.reason(&format!("the class {}", self.run.class_name));
        if self.workers_may_come_back() {
            self.run.reason = Some(format!("{reason}: the broker has just started, and workers may still reconnect"));
            self.kind.search_at = Some(self.context.workers_return_until());
            return;
        }
        let properties = Properties(self.kind.properties.as_ref().clone());
        let waits = properties.no_worker().unwrap_or_default() == NoWorker::Wait;
        let may_fail = self.run.state == RunState::Pending && !waits;
        // Errors in these properties were reported when the job was created.
        let Some((job, wait)) = properties.worker_job().ok().flatten() else {
            if may_fail {
                // Fail visibly instead of waiting silently.
                self.end(RunState::Failed, Some(reason), ctx);
            } else if waits {
                self.run.reason = Some(format!("waits for a worker: {reason}"));
            }
            return;
        };
        let now = Timestamp::steady();
        let made = match &mut self.kind.start_request {
            Some(request) if now >= request.until && may_fail => {
                let reason = format!("{reason}, {wait} ms after the job `{job}` was requested to start one");
                return self.end(RunState::Failed, Some(reason), ctx);
            }
            Some(request) if now < request.check_at => {
                self.kind.search_at = Some(request.check_at.min(request.until));
                return;
            }
            // A run that had a worker before must not lose its work: it requests another worker and waits.
            Some(request) if now >= request.until => {
                *request = StartRequest { until: now.plus_ms(wait), check_at: now.plus_ms(CHECK_MS), made: None };
                None
            }
            Some(request) => {
                request.check_at = now.plus_ms(CHECK_MS);
                request.made
            }
            none => none.insert(StartRequest { until: now.plus_ms(wait), check_at: now.plus_ms(CHECK_MS), made: None }).made,
        };
        self.kind.search_at = self.kind.start_request.as_ref().map(|request| request.check_at.min(request.until));
        self.request_start(job.to_owned(), made, reason, ctx);
    }

    /// Requests a worker from the job. The run goes on meanwhile: the answer is a message, because a run waits for no job.
    fn request_start(&mut self, job: String, made: Option<Identity>, reason: String, ctx: &mut Context<Self>) {
        let (context, link, trace) = (self.context.clone(), self.link(ctx), TraceContext::of_run(&self.run));
        ctx.spawn(wrap_future(async move {
            let found = find(context, &job, made).await;
            let tell = move |answer| link.tell(BlocksEvent::WorkerStartAnswered { job, reason, answer });
            match found {
                Ok(Found::Made(identity)) => tell(Ok(StartOutcome::Made(identity))),
                Ok(Found::Job(job)) => {
                    let order = TriggerOrder { trace, by: Some(BROKER.to_owned()), alone: true, ..TriggerOrder::default() };
                    job.trigger(order).then(move |made| match made {
                        Ok(made) => tell(Ok(StartOutcome::Made(made.identity))),
                        Err(problem) if problem.kind == "/problems/still-running" => tell(Ok(StartOutcome::Underway)),
                        Err(problem) => tell(Err(problem)),
                    });
                }
                Err(problem) => tell(Err(problem)),
            }
        }));
    }

    pub(super) fn worker_start_answered(
        &mut self,
        job: &str,
        reason: &str,
        answer: Result<StartOutcome, Problem>,
        ctx: &mut Context<Self>,
    ) {
        let Some(request) = self.kind.start_request.as_mut().filter(|_| self.kind.worker.is_none() && !self.lifecycle.is_ending()) else {
            return;
        };
        match answer {
            Ok(StartOutcome::Made(identity)) => {
                request.made = Some(identity);
                self.run.reason = Some(format!("{reason}: run {identity} of the job `{job}` is to start one"));
            }
            Ok(StartOutcome::Underway) => {
                self.run.reason = Some(format!("{reason}: a run of the job `{job}` is starting one"));
            }
            // The next check retries. The same applies if the job may be enabled again and the run had a worker before.
            Err(problem) if problem.status < 500 && self.run.state == RunState::Pending => {
                let reason = format!("{reason}, and the job `{job}` cannot start one: {}", problem.detail);
                self.end(RunState::Failed, Some(reason), ctx);
            }
            Err(problem) => {
                self.run.reason = Some(format!("{reason}, and the job `{job}` does not start one now: {}", problem.detail));
            }
        }
    }
}

/// The job that starts a worker, unless one is being started. Repeated calls, also after a crash in between, create one run.
async fn find(context: BrokerContext, job: &str, made: Option<Identity>) -> Result<Found, Problem> {
    if let Some(identity) = made {
        let run = context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        // A program that moves to the background succeeds before its worker connects.
        if run.is_some_and(|run| !run.state.is_final() || run.state == RunState::Success) {
            return Ok(Found::Made(identity));
        }
    }
    let found = context.store.read(FindJobs(vec![job.to_owned()])).await.map_err(|e| problem_of(&e))?.pop().flatten();
    let id = found.ok_or_else(|| Problem::not_found("there is no such job"))?;
    context.registry().open_job(id).wait().await.map(Found::Job)
}
