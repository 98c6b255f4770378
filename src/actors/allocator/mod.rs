//! Gives tasks places at workers: the shell around a [`Roster`].
//!
//! Owns nothing that is stored: if it dies, a new one is told everything again by the workers and the tasks.

mod message;

pub use message::{
    AllocatorHandle, AskPlace, BarHand, ExplainAsk, HandGone, HandHere, ListHands, OccupyPlace, OpenHand, Place, ReleasePlace, WithdrawAsk,
};

use super::supervision::{Link, Notice};
use super::task::TaskHandle;
use crate::domain::task::roster::{Asked, Asker, Grant, Roster};
use actix::{Actor, AsyncContext, Context, Handler};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug)]
pub struct Allocator {
    notice: Notice,
    roster: Roster,
    /// Where grants go, for those who wait.
    askers: HashMap<Asker, TaskHandle>,
}

impl Allocator {
    /// One that knows nobody yet.
    #[must_use]
    pub fn new(notice: Notice) -> Self {
        Self { notice, roster: Roster::default(), askers: HashMap::new() }
    }

    fn place(&self, grant: Grant, ctx: &Context<Self>) -> Place {
        let this = AllocatorHandle(Link::new(ctx.address(), Arc::clone(self.notice.stats())));
        Place::new(grant.worker, grant.life, this)
    }

    fn tell(&mut self, grants: Vec<Grant>, ctx: &Context<Self>) {
        for grant in grants {
            let place = self.place(grant, ctx);
            // Without an asker the place goes back as it is dropped.
            if let Some(task) = self.askers.remove(&grant.asker) {
                task.granted(grant.asker.1, place);
            }
        }
    }
}

impl Actor for Allocator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 16);
    }
}

impl Handler<AskPlace> for Allocator {
    type Result = ();
    fn handle(&mut self, AskPlace { ask, task }: AskPlace, ctx: &mut Self::Context) {
        self.notice.message("allocator.ask");
        let (asker, handler) = (ask.asker, Arc::clone(&ask.handler));
        match self.roster.ask(*ask) {
            Asked::Granted(grant) => task.granted(asker.1, self.place(grant, ctx)),
            Asked::Waits => drop(self.askers.insert(asker, task)),
            Asked::Nobody => {
                let is_watched = self.roster.watches(&handler);
                task.nobody(asker.1, is_watched);
                self.askers.insert(asker, task);
            }
        }
    }
}

impl Handler<WithdrawAsk> for Allocator {
    type Result = ();
    fn handle(&mut self, WithdrawAsk(asker): WithdrawAsk, _: &mut Self::Context) {
        self.notice.message("allocator.withdraw");
        self.roster.withdraw(asker);
        self.askers.remove(&asker);
    }
}

impl Handler<OccupyPlace> for Allocator {
    type Result = ();
    fn handle(&mut self, OccupyPlace { worker, instance, task }: OccupyPlace, ctx: &mut Self::Context) {
        self.notice.message("allocator.occupy");
        if let Some(life) = self.roster.occupy(worker) {
            let this = AllocatorHandle(Link::new(ctx.address(), Arc::clone(self.notice.stats())));
            task.occupied(instance, Place::new(worker, life, this));
        }
    }
}

impl Handler<ReleasePlace> for Allocator {
    type Result = ();
    fn handle(&mut self, ReleasePlace { worker, life }: ReleasePlace, ctx: &mut Self::Context) {
        self.notice.message("allocator.release");
        let grants = self.roster.release(worker, life);
        self.tell(grants, ctx);
    }
}

impl Handler<HandHere> for Allocator {
    type Result = ();
    fn handle(&mut self, HandHere { worker, hand, open, barred }: HandHere, ctx: &mut Self::Context) {
        self.notice.message("allocator.hand_here");
        let grants = self.roster.join(worker, *hand, open, barred);
        self.tell(grants, ctx);
    }
}

impl Handler<OpenHand> for Allocator {
    type Result = ();
    fn handle(&mut self, OpenHand { worker, open }: OpenHand, ctx: &mut Self::Context) {
        self.notice.message("allocator.open_hand");
        let grants = self.roster.set_open(worker, open);
        self.tell(grants, ctx);
    }
}

impl Handler<BarHand> for Allocator {
    type Result = ();
    fn handle(&mut self, BarHand { worker, barred }: BarHand, ctx: &mut Self::Context) {
        self.notice.message("allocator.bar_hand");
        let grants = self.roster.bar(worker, barred);
        self.tell(grants, ctx);
    }
}

impl Handler<HandGone> for Allocator {
    type Result = ();
    fn handle(&mut self, HandGone(worker): HandGone, ctx: &mut Self::Context) {
        self.notice.message("allocator.hand_gone");
        let (grants, orphans) = self.roster.leave(worker);
        self.tell(grants, ctx);
        for asker in orphans {
            if let Some(task) = self.askers.get(&asker) {
                task.nobody(asker.1, true);
            }
        }
    }
}

impl Handler<ListHands> for Allocator {
    type Result = ();
    fn handle(&mut self, ListHands { handler, settings, reply }: ListHands, _: &mut Self::Context) {
        self.notice.message("allocator.list");
        reply.send(Ok(self.roster.all(&handler, &settings)));
    }
}

impl Handler<ExplainAsk> for Allocator {
    type Result = ();
    fn handle(&mut self, ExplainAsk { ask, reply }: ExplainAsk, _: &mut Self::Context) {
        self.notice.message("allocator.explain");
        reply.send(Ok(self.roster.explain(&ask)));
    }
}
