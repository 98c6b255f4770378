//! A job with work to do: a due time of its plan, a trigger, the end of a run, a change. The work is sequential: nothing else
//! runs between reading the state and the write that follows.
//!
//! The actor starts on demand and stops when idle. Its cached state is a `LoadedJob`; `domain::schedule` makes the decisions; the
//! store holds the truth and rejects a write that was based on an outdated state.

mod backfill;
mod changes;
mod fires;
mod first_requests;
mod input;
mod loaded;
mod message;
mod open;
mod ports;
mod settling;
mod successors;

pub use changes::conflict;
pub use input::{apply, check_trigger, job_from};
pub use loaded::Loaded;
pub use message::{
    AskNext, Backfill, Change, Due, FirstRequests, Invalidate, JobChange, JobHandle, Passivate, Prepare, RunLeft, RunOver, Trigger,
    TriggerBatch, TriggerOrder,
};
pub use successors::flow_problem;

use super::context::BrokerContext;
use super::reply::Reply;
use super::supervision::ExitGuard;
use crate::domain::ids::{Identity, JobId};
use crate::domain::schedule::job_core;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{InsertRuns, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use loaded::LoadedJob;
use std::collections::BTreeSet;
use std::time::Duration;
use successors::{Succession, SuccessorsBegun};

/// An actor without messages for this long stops.
const IDLE: Duration = Duration::from_secs(10);
/// How long the actor still accepts messages after that.
const LAST_WORDS: Duration = Duration::from_millis(100);

type LateWork = Box<dyn FnOnce(&mut LoadedJob)>;

/// See the module documentation.
pub struct JobActor {
    guard: ExitGuard,
    context: BrokerContext,
    id: JobId,
    /// `None` while some work uses it.
    room: Option<LoadedJob>,
    /// Results of triggers that arrived while `room` was `None`, to apply when it is back: in the poll in which `wait` is called,
    /// actix still polls the futures spawned before.
    late: Vec<LateWork>,
    /// Number of trigger writes in progress.
    writing: usize,
    /// Runs that ended and whose successors have not all answered.
    succeeded: BTreeSet<Identity>,
    /// The actor is no longer in the address book and stops after its current work.
    resting: bool,
    last_used: Timestamp,
}

impl JobActor {
    /// The actor of a job; the job need not be stored.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, id: JobId) -> Self {
        let room = Some(LoadedJob::new(context.clone(), id));
        Self {
            guard,
            context,
            id,
            room,
            late: Vec::new(),
            writing: 0,
            succeeded: BTreeSet::new(),
            resting: false,
            last_used: Timestamp::steady(),
        }
    }

    fn rest_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.resting && self.room.is_some() && self.writing == 0 && self.succeeded.is_empty() {
            self.guard.finish();
            ctx.stop();
        }
    }

    /// Writes one or more triggers while others arrive; applies the result as soon as `room` is available.
    fn write<O: crate::store::WriteOp>(
        &mut self,
        op: O,
        ctx: &mut Context<Self>,
        done: impl FnOnce(&mut LoadedJob, Result<O::Output, StoreError>) + 'static,
    ) {
        let written = self.context.store.write(op);
        self.writing += 1;
        ctx.spawn(wrap_future(written).map(move |result, this: &mut Self, ctx: &mut Context<Self>| {
            this.writing -= 1;
            match &mut this.room {
                Some(room) => done(room, result),
                None => this.late.push(Box::new(move |room| done(room, result))),
            }
            this.rest_if_idle(ctx);
        }));
    }

    /// Runs work that uses `room`; no other message is handled until it is done.
    fn with_room<T: 'static>(
        &mut self,
        place: &'static str,
        ctx: &mut Context<Self>,
        work: impl AsyncFnOnce(&mut LoadedJob) -> T + 'static,
        done: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        // No other message is handled until the room is back, so this one takes until then.
        let timed = self.guard.timed(place);
        self.last_used = Timestamp::steady();
        let mut room = self.room.take().expect("`wait` blocks other messages until the room is back");
        let work = async move {
            let result = work(&mut room).await;
            drop(timed);
            (room, result)
        };
        ctx.wait(wrap_future(work).map(move |(mut room, result), this: &mut Self, ctx: &mut Context<Self>| {
            this.late.drain(..).for_each(|work| work(&mut room));
            this.room = Some(room);
            this.last_used = Timestamp::steady();
            done(this, result, ctx);
            this.rest_if_idle(ctx);
        }));
    }
}

/// The last step of some work: send the answer.
fn answer<T: 'static>(reply: Reply<T>) -> impl FnOnce(&mut JobActor, Result<T, Problem>, &mut Context<JobActor>) + 'static {
    move |_, result, _| reply.send(result)
}

/// The last step of work without an answer.
fn nothing<T>(_: &mut JobActor, _: T, _: &mut Context<JobActor>) {}

impl Actor for JobActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(IDLE / 2, |this, _| {
            let idle = Timestamp::steady().since_ms(this.last_used) > IDLE.as_millis() as i64;
            if idle && this.room.is_some() && !this.resting {
                this.context.registry().job_idle(this.id);
            }
        });
    }
}

impl Handler<Trigger> for JobActor {
    type Result = ();
    fn handle(&mut self, Trigger { order, reply }: Trigger, ctx: &mut Self::Context) {
        let now = Timestamp::now();
        if let Some(quick) = self.room.as_ref().and_then(|room| room.quick(&order, now)) {
            let _timed = self.guard.timed("job.trigger");
            self.last_used = Timestamp::steady();
            match quick {
                Ok((insert, properties)) => {
                    self.write(insert, ctx, move |room, done| reply.send(room.made(done, &properties, now)));
                }
                Err(problem) => reply.send(Err(problem)),
            }
            return;
        }
        self.with_room("job.trigger", ctx, async move |room| room.trigger(order).await, answer(reply));
    }
}

impl Handler<TriggerBatch> for JobActor {
    type Result = ();
    fn handle(&mut self, TriggerBatch { orders, reply }: TriggerBatch, ctx: &mut Self::Context) {
        let now = Timestamp::now();
        let quick = self.room.as_ref().and_then(|room| orders.iter().map(|order| room.quick(order, now)).collect::<Option<Vec<_>>>());
        let Some(quick) = quick else {
            // Sequential, because each trigger may depend on the one before.
            let work = async move |room: &mut LoadedJob| {
                let mut done = Vec::with_capacity(orders.len());
                for order in orders {
                    done.push(room.trigger(order).await.map(|triggered| triggered.identity));
                }
                Ok(done)
            };
            return self.with_room("job.trigger_batch", ctx, work, answer(reply));
        };
        let _timed = self.guard.timed("job.trigger_batch");
        self.last_used = Timestamp::steady();
        let mut refused = Vec::new();
        let taken = quick.into_iter().enumerate().filter_map(|(i, order)| order.map_err(|problem| refused.push((i, problem))).ok());
        let (inserts, properties): (Vec<_>, Vec<_>) = taken.unzip();
        self.write(InsertRuns(inserts), ctx, move |room, made| {
            let made = match made {
                Ok(made) => made.into_iter().zip(&properties),
                Err(error) => return reply.send(Err(room.forget(&error))),
            };
            let mut done: Vec<_> = made.map(|(run, properties)| room.made(run, properties, now).map(|made| made.identity)).collect();
            for (i, problem) in refused {
                done.insert(i, Err(problem));
            }
            reply.send(Ok(done));
        });
    }
}

impl Handler<RunLeft> for JobActor {
    type Result = ();
    fn handle(&mut self, RunLeft(identity): RunLeft, ctx: &mut Self::Context) {
        let waits = self.room.as_ref().and_then(|room| room.known.as_ref()).is_some_and(|known| known.open_counts().queued > 0);
        if waits {
            // A queued run may begin now.
            return self.with_room("job.run_left", ctx, async move |room| room.run_over(Some(identity), false).await, nothing);
        }
        let _timed = self.guard.timed("job.run_left");
        if let Some(known) = self.room.as_mut().and_then(|room| room.known.as_mut()) {
            known.open.remove(identity);
        }
    }
}

impl Handler<Due> for JobActor {
    type Result = ();
    fn handle(&mut self, _: Due, ctx: &mut Self::Context) {
        self.with_room("job.due", ctx, async move |room| room.due().await, nothing);
    }
}

impl Handler<RunOver> for JobActor {
    type Result = ();
    fn handle(&mut self, RunOver { identity, follow }: RunOver, ctx: &mut Self::Context) {
        let work = async move |room: &mut LoadedJob| {
            if identity.is_none() {
                // The run is unknown: any cached run may have ended.
                room.known = None;
            }
            room.run_over(identity, follow).await
        };
        if identity.is_some_and(|identity| self.succeeded.contains(&identity)) {
            // A repeated message: the successors are already triggered.
            let _timed = self.guard.timed("job.run_over");
            return;
        }
        self.with_room("job.run_over", ctx, work, |this: &mut Self, succession: Option<Succession>, ctx| {
            if let Some(succession) = succession {
                this.succeeded.insert(succession.run());
                succession.begin(&this.context, this.id, ctx.address().recipient());
            }
        });
    }
}

impl Handler<SuccessorsBegun> for JobActor {
    type Result = ();
    fn handle(&mut self, begun: SuccessorsBegun, ctx: &mut Self::Context) {
        self.succeeded.remove(&begun.run);
        self.with_room("job.successors_begun", ctx, async move |room| room.successors_begun(begun).await, nothing);
    }
}

impl Handler<Change> for JobActor {
    type Result = ();
    fn handle(&mut self, Change { change, by, reply }: Change, ctx: &mut Self::Context) {
        self.with_room("job.change", ctx, async move |room| room.change(change, by).await, answer(reply));
    }
}

impl Handler<AskNext> for JobActor {
    type Result = ();
    fn handle(&mut self, AskNext { identity, next, reply }: AskNext, ctx: &mut Self::Context) {
        self.with_room("job.ask_next", ctx, async move |room| room.ask_next(identity, next).await, answer(reply));
    }
}

impl Handler<Backfill> for JobActor {
    type Result = ();
    fn handle(&mut self, Backfill { input, by, reply }: Backfill, ctx: &mut Self::Context) {
        self.with_room("job.backfill", ctx, async move |room| room.backfill(input, by).await, answer(reply));
    }
}

impl Handler<Prepare> for JobActor {
    type Result = ();
    fn handle(&mut self, Prepare(loaded): Prepare, _: &mut Self::Context) {
        let _timed = self.guard.timed("job.prepare");
        self.last_used = Timestamp::steady();
        if let Some(room) = &mut self.room {
            room.prepare(*loaded);
        }
    }
}

impl Handler<Invalidate> for JobActor {
    type Result = ();
    fn handle(&mut self, _: Invalidate, ctx: &mut Self::Context) {
        let work = async move |room: &mut LoadedJob| {
            // Withdraw the run created ahead of its time, because it was based on the old state.
            if room.known.is_some()
                && let Err(problem) = job_core::withdraw(room).await
            {
                log::warn!("failed to withdraw a fire job_id={}: {problem}", room.id);
            }
            room.known = None;
        };
        self.with_room("job.forget", ctx, work, nothing);
    }
}

impl Handler<Passivate> for JobActor {
    type Result = ();
    fn handle(&mut self, _: Passivate, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("job.rest");
        self.resting = true;
        // A sender may have found the actor in the address book just before it was removed.
        ctx.run_later(LAST_WORDS, |this, ctx| this.rest_if_idle(ctx));
    }
}
