//! A job with something to do: an instant of its plan, a trigger, the end of a run, a change. One after the other: between
//! the look at how things are and the write that follows nobody else comes.
//!
//! Started on demand, gone when idle. What it knows of the job stands in a `Room`; what it decides is decided by
//! `domain::schedule`; what is true stands in the store, which refuses a write that was decided on something else.

mod changes;
mod fires;
mod input;
mod message;
mod past;
mod room;
mod settling;

pub use changes::conflict;
pub use input::{apply, check_trigger, job_from};
pub use message::{AskNext, Backfill, Change, Due, Forget, JobChange, JobHandle, Prepare, Redrive, Rest, RunOver, Trigger, TriggerOrder};
pub use room::Loaded;

use super::house::House;
use super::reply::Reply;
use super::supervision::Notice;
use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use room::Room;
use std::time::Duration;

/// A job's actor that nobody has asked anything for so long goes.
const IDLE: Duration = Duration::from_secs(10);

/// See the module's text.
#[derive(Debug)]
pub struct JobActor {
    notice: Notice,
    house: House,
    id: JobId,
    /// Away while something is being done with it.
    room: Option<Room>,
    /// It is in no directory any more, and goes when what it is at is done.
    resting: bool,
    last_used: Timestamp,
}

impl JobActor {
    /// The actor of a job; it need not be stored.
    #[must_use]
    pub fn new(notice: Notice, house: House, id: JobId) -> Self {
        let room = Some(Room::new(house.clone(), id));
        Self { notice, house, id, room, resting: false, last_used: Timestamp::now() }
    }

    fn rest_if_idle(&mut self, ctx: &mut Context<Self>) {
        if self.resting && self.room.is_some() {
            self.notice.finish();
            ctx.stop();
        }
    }

    /// Does something with the room, and nothing else until it is done.
    fn with_room<T: 'static>(
        &mut self,
        place: &'static str,
        ctx: &mut Context<Self>,
        work: impl AsyncFnOnce(&mut Room) -> T + 'static,
        done: impl FnOnce(T) + 'static,
    ) {
        self.notice.message(place);
        self.last_used = Timestamp::now();
        let mut room = self.room.take().expect("`wait` lets nothing in before the room is back");
        let work = async move {
            let result = work(&mut room).await;
            (room, result)
        };
        ctx.wait(wrap_future(work).map(move |(room, result), this: &mut Self, ctx: &mut Context<Self>| {
            this.room = Some(room);
            this.last_used = Timestamp::now();
            done(result);
            this.rest_if_idle(ctx);
        }));
    }
}

/// Where an answer goes, as the last step of some work.
fn answer<T: 'static>(reply: Reply<T>) -> impl FnOnce(Result<T, Problem>) + 'static {
    move |result| reply.send(result)
}

impl Actor for JobActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(IDLE / 2, |this, _| {
            let idle = Timestamp::now().since_ms(this.last_used) > IDLE.as_millis() as i64;
            if idle && this.room.is_some() && !this.resting {
                this.house.registry().job_idle(this.id);
            }
        });
    }
}

impl Handler<Trigger> for JobActor {
    type Result = ();
    fn handle(&mut self, Trigger { order, reply }: Trigger, ctx: &mut Self::Context) {
        self.with_room("job.trigger", ctx, async move |room| room.trigger(order).await, answer(reply));
    }
}

impl Handler<Due> for JobActor {
    type Result = ();
    fn handle(&mut self, _: Due, ctx: &mut Self::Context) {
        self.with_room("job.due", ctx, async move |room| room.due().await, drop);
    }
}

impl Handler<RunOver> for JobActor {
    type Result = ();
    fn handle(&mut self, RunOver { identity, follow }: RunOver, ctx: &mut Self::Context) {
        self.with_room("job.run_over", ctx, async move |room| room.run_over(identity, follow).await, drop);
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
    fn handle(&mut self, AskNext { identity, at, reply }: AskNext, ctx: &mut Self::Context) {
        self.with_room("job.ask_next", ctx, async move |room| room.ask_next(identity, at).await, answer(reply));
    }
}

impl Handler<Backfill> for JobActor {
    type Result = ();
    fn handle(&mut self, Backfill { input, by, reply }: Backfill, ctx: &mut Self::Context) {
        self.with_room("job.backfill", ctx, async move |room| room.backfill(input, by).await, answer(reply));
    }
}

impl Handler<Redrive> for JobActor {
    type Result = ();
    fn handle(&mut self, Redrive { by, reply }: Redrive, ctx: &mut Self::Context) {
        self.with_room("job.redrive", ctx, async move |room| room.redrive(by).await, answer(reply));
    }
}

impl Handler<Prepare> for JobActor {
    type Result = ();
    fn handle(&mut self, Prepare(loaded): Prepare, _: &mut Self::Context) {
        self.notice.message("job.prepare");
        self.last_used = Timestamp::now();
        if let Some(room) = &mut self.room {
            room.prepare(*loaded);
        }
    }
}

impl Handler<Forget> for JobActor {
    type Result = ();
    fn handle(&mut self, _: Forget, ctx: &mut Self::Context) {
        self.with_room("job.forget", ctx, async move |room| room.known = None, drop);
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
