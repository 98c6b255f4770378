//! The scheduler sends each job `Due` a little before its scheduled time, and again at that time if the job still has something
//! to do then. The job decides what happens, and the ledger records it.
//!
//! [`Ticker`] decides which job receives `Due` at which time; this is the shell around it, which reads, sends and sleeps.

mod message;

pub use message::{Planned, SchedulerHandle};

use super::context::BrokerContext;
use super::job::Loaded;
use super::supervision::ExitGuard;
use crate::domain::ids::JobId;
use crate::domain::job::JobKind;
use crate::domain::schedule::{SMALL_STEP_MS, Ticker};
use crate::domain::time::Timestamp;
use crate::store::{DataOf, JobsFromLater, LoadAgenda, LoadJobs, OpenRunsOf, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, fut::wrap_future};
use std::collections::HashMap;
use std::time::Duration;

/// Maximum number of jobs per read.
const READ_AT_ONCE: usize = 200;
/// Delay before the search for plans with a future time is retried after a store error.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// See the module documentation.
#[derive(Debug)]
pub struct Scheduler {
    guard: ExitGuard,
    context: BrokerContext,
    ticker: Ticker,
    /// The agenda has been loaded.
    is_loaded: bool,
    is_reading: bool,
    alarm: Option<(Timestamp, SpawnHandle)>,
}

impl Scheduler {
    /// A scheduler that has not loaded the agenda yet.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext) -> Self {
        Self { guard, context, ticker: Ticker::default(), is_loaded: false, is_reading: false, alarm: None }
    }

    fn load(&mut self, ctx: &mut Context<Self>) {
        self.guard.stats().set_state("reading");
        self.ticker = Ticker::starting(Timestamp::now());
        let store = self.context.store.clone();
        let read = async move {
            let later = store.read(JobsFromLater(Timestamp::now().plus_ms(SMALL_STEP_MS))).await?;
            Ok((store.read(LoadAgenda).await?, later))
        };
        ctx.wait(wrap_future(read).map(|rows: Result<_, StoreError>, this: &mut Self, ctx: &mut Context<Self>| match rows {
            Ok((rows, later)) => {
                for (job, at) in rows {
                    this.ticker.planned(job, Some(at), false);
                }
                this.is_loaded = true;
                this.guard.stats().set_state("running");
                if !later.is_empty() {
                    log::warn!("the clock went back while no broker was leader, plans are decided again jobs={}", later.len());
                }
                this.ticker.revise(later);
                this.context.counters.counts.planned_jobs(this.ticker.len());
                log::info!("agenda loaded jobs={}", this.ticker.len());
                this.turn(ctx);
            }
            Err(error) => {
                log::error!("failed to load the agenda: {error}");
                this.guard.stats().set_error(error.to_string());
                if error.is_outage() {
                    this.guard.set_outage();
                }
                ctx.stop(); // and the next one tries again, after a pause
            }
        }));
    }

    /// After the clock went back, jobs whose plans contain a future time decide it again. If a write is in progress, the job that
    /// writes detects the step itself (`JobPorts::announce`).
    fn revise(&mut self, ctx: &mut Context<Self>) {
        let read = self.context.store.read(JobsFromLater(Timestamp::now().plus_ms(SMALL_STEP_MS)));
        ctx.spawn(wrap_future(read).map(|jobs: Result<Vec<JobId>, StoreError>, this: &mut Self, ctx: &mut Context<Self>| match jobs {
            Ok(jobs) if jobs.is_empty() => {}
            Ok(jobs) => {
                log::warn!("plans are decided again because the clock went back jobs={}", jobs.len());
                this.ticker.revise(jobs);
                this.turn(ctx);
            }
            Err(error) => {
                log::error!("failed to read the plans after the clock went back, retrying soon error={error}");
                ctx.run_later(LOOK_AGAIN, Self::revise);
            }
        }));
    }

    /// Sends `Due` to the jobs whose time has come, reads the jobs whose time is near, and sleeps until the next event.
    fn turn(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        let turn = self.ticker.turn(now);
        if let Some(ms) = turn.went_back_ms {
            if ms > SMALL_STEP_MS {
                log::warn!("the clock went back from={} to={now} by_ms={ms}", now.plus_ms(ms));
            }
            self.revise(ctx);
        }
        for job in turn.tell {
            self.context.registry().job_due(job);
        }
        if turn.more {
            return self.go_on_later(ctx);
        }
        self.read_ahead(now, ctx);
        self.sleep(now, ctx);
    }

    /// Yields to the jobs that received `Due`, so that the first writes overlap with the next decisions.
    fn go_on_later(&mut self, ctx: &mut Context<Self>) {
        if let Some((_, handle)) = self.alarm.take() {
            ctx.cancel_future(handle);
        }
        let handle = ctx.spawn(wrap_future(tokio::task::yield_now()).map(|(), this: &mut Self, ctx: &mut Context<Self>| {
            this.alarm = None;
            this.turn(ctx);
        }));
        // No earlier wake-up is needed.
        self.alarm = Some((Timestamp::default(), handle));
    }

    fn sleep(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let until = self.ticker.wake(now);
        if let Some((at, handle)) = self.alarm {
            if at <= until && at > now {
                return;
            }
            ctx.cancel_future(handle);
        }
        let pause = Duration::from_millis(until.since_ms(now).max(0) as u64);
        let handle = ctx.run_later(pause, |this, ctx| {
            this.alarm = None;
            this.turn(ctx);
        });
        self.alarm = Some((until, handle));
    }

    /// Reads the jobs whose time is near and passes the result to their actors.
    fn read_ahead(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        if self.is_reading {
            return;
        }
        let mut jobs = self.ticker.read_ahead(now);
        jobs.retain(|job| self.context.addresses.jobs.get(*job).is_none());
        if jobs.is_empty() {
            return;
        }
        self.is_reading = true;
        let context = self.context.clone();
        let read = async move {
            for jobs in jobs.chunks(READ_AT_ONCE) {
                let read = context.store.read(LoadJobs(jobs.to_vec())).await?;
                let mut open = context.store.read(OpenRunsOf(jobs.to_vec())).await?;
                let tasks: Vec<JobId> = read.iter().filter(|(job, _)| job.job_type == JobKind::Task).map(|(job, _)| job.id).collect();
                let mut left = if tasks.is_empty() { HashMap::new() } else { context.store.read(DataOf(tasks)).await? };
                let loaded = read.into_iter().map(|(job, plan)| {
                    let own = open.extract_if(.., |(id, _)| *id == job.id).map(|(_, run)| run).collect();
                    let data = left.remove(&job.id);
                    Loaded { job, plan, open: own, data }
                });
                context.registry().prepare_jobs(loaded.collect());
            }
            Ok::<(), StoreError>(())
        };
        ctx.spawn(wrap_future(read).map(|result, this: &mut Self, _: &mut Context<Self>| {
            this.is_reading = false;
            if let Err(error) = result {
                // Their actors read them at the scheduled time.
                log::warn!("failed to read jobs ahead of time: {error}");
            }
        }));
    }

    /// Repeats `Due` for jobs that have not answered, because a job's actor may have crashed before it handled the message.
    fn ask_again(&mut self, ctx: &mut Context<Self>) {
        for job in self.ticker.unanswered(Timestamp::now()) {
            self.context.registry().job_due(job);
        }
        self.context.counters.counts.planned_jobs(self.ticker.len());
        self.turn(ctx);
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 16);
        self.load(ctx);
        ctx.run_interval(Duration::from_secs(1), Self::ask_again);
    }
}

impl Handler<Planned> for Scheduler {
    type Result = ();
    fn handle(&mut self, Planned { job_id, at, at_its_time }: Planned, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("scheduler.planned");
        self.ticker.planned(job_id, at, at_its_time);
        let now = Timestamp::now();
        self.ticker.see(now);
        let wake = self.ticker.wake(now);
        if self.is_loaded && self.alarm.as_ref().is_none_or(|(alarm, _)| wake < *alarm) {
            self.sleep(now, ctx);
        }
    }
}
