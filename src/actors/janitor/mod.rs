//! Deletes old data: runs, ledger, changes, logs, statuses of nodes, alerts. It works in small steps with pauses between them,
//! and waits while the write queue is long.
//!
//! It never deletes a run that is active or whose end its job has not processed yet.

mod rounds;

use super::context::BrokerContext;
use super::supervision::ExitGuard;
use actix::{Actor, ActorFutureExt, AsyncContext, Context, fut::wrap_future};
use rounds::Broom;
use std::sync::Arc;
use std::time::Duration;

/// See the module documentation.
#[derive(Debug)]
pub struct Janitor {
    guard: ExitGuard,
    context: BrokerContext,
    /// `None` during a sweep.
    broom: Option<Broom>,
}

impl Janitor {
    /// A new janitor.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext) -> Self {
        let broom = Some(Broom::new(context.store.clone(), context.keep, Arc::clone(&context.packages)));
        Self { guard, context, broom }
    }

    fn clean(&mut self, ctx: &mut Context<Self>) {
        self.guard.stats().told();
        let _timed = self.guard.timed("janitor.clean");
        let Some(mut broom) = self.broom.take() else { return };
        let round = async move {
            let result = broom.sweep().await;
            (broom, result)
        };
        ctx.spawn(wrap_future(round).map(|(broom, result), this: &mut Self, ctx: &mut Context<Self>| {
            this.broom = Some(broom);
            match result {
                Ok(gone) if gone.is_empty() => {}
                Ok(gone) => log::info!("cleaned {gone}"),
                // The next round retries it.
                Err(error) => {
                    log::warn!("cleanup stopped early: {error}");
                    this.guard.stats().set_error(error.to_string());
                }
            }
            this.clean_later(ctx);
        }));
    }

    /// The pause begins at the end of a round, so that rounds never overlap.
    fn clean_later(&self, ctx: &mut Context<Self>) {
        ctx.run_later(Duration::from_millis(self.context.keep.every_ms), Self::clean);
    }
}

impl Actor for Janitor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.clean_later(ctx);
    }
}
