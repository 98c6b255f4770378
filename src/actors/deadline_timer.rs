//! One timer of an actor for several deadlines. An actor's context checks all its timers whenever it wakes, so many of them are costly.

use crate::domain::time::Timestamp;
use actix::{Actor, AsyncContext, Context, SpawnHandle};
use std::time::Duration;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct DeadlineTimer(Option<(Timestamp, SpawnHandle)>);

impl DeadlineTimer {
    /// Calls `over` just after this deadline, unless it is called for an earlier one. `over` calls [`Self::fired`], and sets the next deadline.
    pub fn set<A: Actor<Context = Context<A>>>(&mut self, deadline: Timestamp, ctx: &mut Context<A>, over: fn(&mut A, &mut Context<A>)) {
        if let Some((earlier, timer)) = self.0 {
            if earlier <= deadline {
                return;
            }
            ctx.cancel_future(timer);
        }
        let wait = u64::try_from(deadline.since_ms(Timestamp::steady())).unwrap_or(0);
        self.0 = Some((deadline, ctx.run_later(Duration::from_millis(wait + 1), over)));
    }

    /// The timer has fired: it is not set any more.
    pub fn fired(&mut self) {
        self.0 = None;
    }
}
