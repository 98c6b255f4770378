//! A run that nobody watches for calls for a worker: its job names another one that starts a program which is one.

use super::RunActor;
use crate::actors::house::House;
use crate::actors::job::{TriggerOrder, Triggered};
use crate::actors::reply::problem_of;
use crate::domain::job::Properties;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::api::TriggerInput;
use crate::protocol::problem::Problem;
use crate::store::FindJobs;
use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};

impl RunActor {
    /// Nobody ever had it, and nobody watches its class.
    pub(super) fn nobody(&mut self, ctx: &mut Context<Self>) {
        let reason = format!("no worker watches the class {}", self.run.class_name);
        let properties = Properties(self.properties.as_ref().clone());
        // What was wrong with it was said when the job was made.
        let Some((job, wait)) = properties.worker_job().ok().flatten() else {
            // A visible failure, not a silent wait.
            return self.end(RunState::Failed, Some(reason), ctx, drop);
        };
        match self.worker_comes_until {
            Some(until) if Timestamp::now() < until => {}
            Some(_) => {
                let reason = format!("{reason}, {wait} ms after the job `{job}` was told to start one");
                self.end(RunState::Failed, Some(reason), ctx, drop);
            }
            None => {
                self.call_worker(job.to_owned(), wait, reason, ctx);
            }
        }
    }

    fn call_worker(&mut self, job: String, wait: i64, reason: String, ctx: &mut Context<Self>) {
        self.worker_comes_until = Some(Timestamp::now().plus_ms(wait));
        // An attempt calls once, however often its actor is built anew.
        let key = format!("worker-for:{}:{}", self.identity(), self.run.attempt);
        let order = TriggerOrder {
            input: TriggerInput { idempotency_key: Some(key), ..TriggerInput::default() },
            trace_id: self.run.trace_id.clone(),
            alone: true,
            ..TriggerOrder::default()
        };
        let called = wrap_future(start(self.house.clone(), job.clone(), order));
        ctx.spawn(called.map(move |called, this: &mut Self, ctx: &mut Context<Self>| match called {
            _ if this.worker.is_some() || this.ending => {}
            Ok(made) => this.run.reason = Some(format!("{reason}: run {} of the job `{job}` is to start one", made.identity)),
            // Another run called before.
            Err(problem) if problem.kind == "/problems/still-running" => {
                this.run.reason = Some(format!("{reason}: a run of the job `{job}` is under way to start one"));
            }
            // The next look calls again.
            Err(problem) if problem.status >= 500 => this.worker_comes_until = None,
            Err(problem) => {
                let reason = format!("{reason}, and the job `{job}` cannot start one: {}", problem.detail);
                this.end(RunState::Failed, Some(reason), ctx, drop);
            }
        }));
    }
}

async fn start(house: House, job: String, order: TriggerOrder) -> Result<Triggered, Problem> {
    let found = house.store.read(FindJobs(vec![job])).await.map_err(|e| problem_of(&e))?.pop().flatten();
    let id = found.ok_or_else(|| Problem::not_found("there is no such job"))?;
    house.registry().open_job(id).wait().await?.trigger(order).wait().await
}
