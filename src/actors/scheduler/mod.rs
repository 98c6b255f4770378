//! The scheduler: one agenda, which job is to be told when, and nothing else. A little before a job's time it is told that it
//! is due, and again when the time has come if there is something left to do then; what becomes of it is the job's to decide
//! and the ledger's to say.
//!
//! It holds nothing that is not stored. Told twice, a job decides once, so whatever may have been lost is told again.

mod message;

pub use message::{Planned, SchedulerHandle};

use super::house::House;
use super::job::Loaded;
use super::supervision::Notice;
use crate::domain::ids::JobId;
use crate::domain::job::JobKind;
use crate::domain::schedule::Agenda;
use crate::domain::time::Timestamp;
use crate::store::{DataOf, LoadAgenda, LoadJobs, OpenRunsOf, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, fut::wrap_future};
use std::collections::HashMap;
use std::time::Duration;

/// The longest sleep: a clock that was set, or a machine that slept, is noticed after so long at most.
const LONGEST_SLEEP_MS: i64 = 250;
/// A job that was told and has not answered is told again after so long.
const ASK_AGAIN_MS: i64 = 10_000;
/// Jobs are read so long before their time, so that nothing need be read when it has come.
const AHEAD_MS: i64 = 3_000;
/// Jobs that are read at once, and at most in one go.
const READ_AT_ONCE: usize = 200;
const MOST_AHEAD: usize = 20_000;
/// Jobs that are told in one go.
const TOLD_AT_ONCE: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub struct Scheduler {
    notice: Notice,
    house: House,
    agenda: Agenda,
    /// Jobs that were told, and when; they stand in the agenda again when they have answered.
    told: HashMap<JobId, Timestamp>,
    /// The agenda has been read.
    is_loaded: bool,
    /// Jobs that come until then are read already.
    read_until: Timestamp,
    is_reading: bool,
    alarm: Option<(Timestamp, SpawnHandle)>,
}

impl Scheduler {
    /// A scheduler that has read nothing yet.
    #[must_use]
    pub fn new(notice: Notice, house: House) -> Self {
        Self {
            notice,
            house,
            agenda: Agenda::default(),
            told: HashMap::new(),
            is_loaded: false,
            read_until: Timestamp::default(),
            is_reading: false,
            alarm: None,
        }
    }

    fn load(&mut self, ctx: &mut Context<Self>) {
        self.notice.stats().set_state("reading");
        let read = self.house.store.read(LoadAgenda);
        ctx.wait(wrap_future(read).map(|rows: Result<_, StoreError>, this: &mut Self, ctx: &mut Context<Self>| match rows {
            Ok(rows) => {
                for (job, at) in rows {
                    this.agenda.set(job, Some(message::ahead_of(at)));
                }
                this.is_loaded = true;
                this.notice.stats().set_state("running");
                this.house.counts.planned_jobs(this.agenda.len());
                log::info!("the agenda is read jobs={}", this.agenda.len());
                this.turn(ctx);
            }
            Err(error) => {
                log::error!("the agenda could not be read: {error}");
                this.notice.stats().set_error(error.to_string());
                ctx.stop(); // and the next one tries again, after a pause
            }
        }));
    }

    /// Tells the jobs whose time has come, reads those whose time comes, and sleeps until there is more to do.
    fn turn(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        for _ in 0..TOLD_AT_ONCE {
            let Some((_, job)) = self.agenda.pop_due(now) else {
                self.read_ahead(now, ctx);
                return self.sleep(now, ctx);
            };
            self.told.insert(job, now);
            self.house.registry().job_due(job);
        }
        self.go_on_later(ctx);
    }

    /// Lets those who were told have their turn: what the first decided is being written while the next decide.
    fn go_on_later(&mut self, ctx: &mut Context<Self>) {
        if let Some((_, handle)) = self.alarm.take() {
            ctx.cancel_future(handle);
        }
        let handle = ctx.spawn(wrap_future(tokio::task::yield_now()).map(|(), this: &mut Self, ctx: &mut Context<Self>| {
            this.alarm = None;
            this.turn(ctx);
        }));
        // Nobody need wake it sooner.
        self.alarm = Some((Timestamp::default(), handle));
    }

    fn sleep(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let latest = now.plus_ms(LONGEST_SLEEP_MS);
        let until = self.agenda.first().map_or(latest, |first| first.min(latest));
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

    /// Reads the jobs whose time is near, and hands them to their actors.
    fn read_ahead(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        if self.is_reading {
            return;
        }
        let until = now.plus_ms(AHEAD_MS);
        // After a step of the clock what was read is not what comes.
        let from = if self.read_until > until { now } else { self.read_until.max(now) };
        let near: Vec<(Timestamp, JobId)> = self.agenda.between(from, until).take(MOST_AHEAD).collect();
        self.read_until = if near.len() == MOST_AHEAD { near.last().map_or(until, |(at, _)| *at) } else { until };
        let directory = &self.house.directory;
        let jobs: Vec<JobId> = near.into_iter().map(|(_, job)| job).filter(|job| directory.jobs.get(*job).is_none()).collect();
        if jobs.is_empty() {
            return;
        }
        self.is_reading = true;
        let house = self.house.clone();
        let read = async move {
            for jobs in jobs.chunks(READ_AT_ONCE) {
                let read = house.store.read(LoadJobs(jobs.to_vec())).await?;
                let mut open = house.store.read(OpenRunsOf(jobs.to_vec())).await?;
                let tasks: Vec<JobId> = read.iter().filter(|(job, _)| job.job_type == JobKind::Task).map(|(job, _)| job.id).collect();
                let mut left = if tasks.is_empty() { HashMap::new() } else { house.store.read(DataOf(tasks)).await? };
                let loaded = read.into_iter().map(|(job, plan)| {
                    let own = open.extract_if(.., |(id, _)| *id == job.id).map(|(_, run)| run).collect();
                    let data = left.remove(&job.id);
                    Loaded { job, plan, open: own, data }
                });
                house.registry().prepare_jobs(loaded.collect());
            }
            Ok::<(), StoreError>(())
        };
        ctx.spawn(wrap_future(read).map(|result, this: &mut Self, _: &mut Context<Self>| {
            this.is_reading = false;
            if let Err(error) = result {
                // They are read when their time has come.
                log::warn!("jobs could not be read ahead of time: {error}");
            }
        }));
    }

    /// The net below the messages: a job's actor may have died over the news.
    fn ask_again(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        for (job, since) in &mut self.told {
            if now.since_ms(*since) >= ASK_AGAIN_MS || *since > now {
                *since = now;
                self.house.registry().job_due(*job);
            }
        }
        self.house.counts.planned_jobs(self.agenda.len() + self.told.len());
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
    fn handle(&mut self, Planned { job_id, at }: Planned, ctx: &mut Self::Context) {
        self.notice.message("scheduler.planned");
        self.told.remove(&job_id);
        self.agenda.set(job_id, at);
        if let Some(at) = at
            && self.is_loaded
            && self.alarm.as_ref().is_none_or(|(alarm, _)| at < *alarm)
        {
            self.sleep(Timestamp::now(), ctx);
        }
    }
}
