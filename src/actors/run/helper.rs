//! A run that nobody watches for calls for a worker: its job names another one that starts a program which is one.

use super::RunActor;
use crate::actors::context::BrokerContext;
use crate::actors::job::TriggerOrder;
use crate::actors::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::job::Properties;
use crate::domain::run::{BROKER, RunState};
use crate::domain::task::NoWorker;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{FindJobs, GetRun};
use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};

/// Between two looks at what has become of a call.
const LOOK_MS: i64 = 5_000;

/// A job was asked to start a worker.
#[derive(Debug)]
pub(super) struct Call {
    /// The worker may take until then to come.
    until: Timestamp,
    /// When to look next whether one is to be called again.
    look_at: Timestamp,
    /// The run that was made for it.
    made: Option<Identity>,
}

/// What came of a call.
enum Answer {
    /// This run is to start a worker, or has.
    Made(Identity),
    /// A run that somebody else made is under way.
    Underway,
}

impl RunActor {
    /// Nobody watches its class.
    pub(super) fn nobody(&mut self, ctx: &mut Context<Self>) {
        let reason = format!("no worker watches the class {}", self.run.class_name);
        if self.workers_may_come_back() {
            self.run.reason = Some(format!("{reason}: the broker has just started, and workers may be on their way back"));
            return;
        }
        let properties = Properties(self.properties.as_ref().clone());
        let waits = properties.no_worker().unwrap_or_default() == NoWorker::Wait;
        let may_fail = self.run.state == RunState::Pending && !waits;
        // What was wrong with it was said when the job was made.
        let Some((job, wait)) = properties.worker_job().ok().flatten() else {
            if may_fail {
                // A visible failure, not a silent wait.
                self.end(RunState::Failed, Some(reason), ctx, drop);
            } else if waits {
                self.run.reason = Some(format!("waits for a worker: {reason}"));
            }
            return;
        };
        let now = Timestamp::steady();
        let made = match &mut self.called {
            Some(call) if now >= call.until && may_fail => {
                let reason = format!("{reason}, {wait} ms after the job `{job}` was called for one");
                return self.end(RunState::Failed, Some(reason), ctx, drop);
            }
            Some(call) if now < call.look_at => return,
            // What was done of a run that had a worker is not thrown away: it calls again, and waits.
            Some(call) if now >= call.until => {
                *call = Call { until: now.plus_ms(wait), look_at: now.plus_ms(LOOK_MS), made: None };
                None
            }
            Some(call) => {
                call.look_at = now.plus_ms(LOOK_MS);
                call.made
            }
            none => none.insert(Call { until: now.plus_ms(wait), look_at: now.plus_ms(LOOK_MS), made: None }).made,
        };
        self.call_worker(job.to_owned(), made, reason, ctx);
    }

    fn call_worker(&mut self, job: String, made: Option<Identity>, reason: String, ctx: &mut Context<Self>) {
        let called = wrap_future(call(self.context.clone(), job.clone(), made, self.run.trace_id.clone()));
        ctx.spawn(called.map(move |called, this: &mut Self, ctx: &mut Context<Self>| {
            let Some(call) = this.called.as_mut().filter(|_| this.worker.is_none() && !this.ending) else { return };
            match called {
                Ok(Answer::Made(identity)) => {
                    call.made = Some(identity);
                    this.run.reason = Some(format!("{reason}: run {identity} of the job `{job}` is to start one"));
                }
                Ok(Answer::Underway) => {
                    this.run.reason = Some(format!("{reason}: a run of the job `{job}` is under way to start one"));
                }
                // The next look calls again; so it does where the job may be enabled again, and a run had a worker once.
                Err(problem) if problem.status < 500 && this.run.state == RunState::Pending => {
                    let reason = format!("{reason}, and the job `{job}` cannot start one: {}", problem.detail);
                    this.end(RunState::Failed, Some(reason), ctx, drop);
                }
                Err(problem) => {
                    this.run.reason = Some(format!("{reason}, and the job `{job}` does not start one now: {}", problem.detail));
                }
            }
        }));
    }
}

/// Has a worker started, unless one is being started: told twice, also by a broker that died in between, it makes one run.
async fn call(context: BrokerContext, job: String, made: Option<Identity>, trace_id: Option<String>) -> Result<Answer, Problem> {
    if let Some(identity) = made {
        let run = context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        // A program that went to the background ends well before its worker comes.
        if run.is_some_and(|run| !run.state.is_final() || run.state == RunState::Success) {
            return Ok(Answer::Made(identity));
        }
    }
    let found = context.store.read(FindJobs(vec![job])).await.map_err(|e| problem_of(&e))?.pop().flatten();
    let id = found.ok_or_else(|| Problem::not_found("there is no such job"))?;
    let order = TriggerOrder { trace_id, by: Some(BROKER.to_owned()), alone: true, ..TriggerOrder::default() };
    match context.registry().open_job(id).wait().await?.trigger(order).wait().await {
        Ok(made) => Ok(Answer::Made(made.identity)),
        Err(problem) if problem.kind == "/problems/still-running" => Ok(Answer::Underway),
        Err(problem) => Err(problem),
    }
}
