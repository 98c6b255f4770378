//! The front of the store: an actor that collects writes and keeps the single writer busy.
//!
//! While a batch is being written the next one is collected; so one commit serves all writes that came meanwhile, and a single write
//! does not wait for others. Operations that can wait (the loads of nodes) start no transaction: they join the next one. The actor also
//! sends the results, so that a batch crosses threads twice and not once for each write.

use super::error::StoreError;
use super::gauge::Gauge;
use super::op::Queued;
use super::segments::Place;
use super::writer::{Close, Writer};
use actix::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Interval of the checks whether the server of the database can be reached.
const CHECK: Duration = Duration::from_millis(500);
/// A batch that takes longer waits for a server that does not answer: then new calls are refused, so that they do not wait as well.
const STALLED: Duration = Duration::from_secs(15);
/// An operation that can wait is written after this time at the latest.
const LATER: Duration = Duration::from_secs(1);
/// Maximum operations per transaction.
const BATCH_OPS: usize = 256;
/// Bytes after which a transaction accepts no further operation.
const BATCH_BYTES: usize = 16 << 20;

/// From the handle: an operation to write.
pub(super) struct Enqueue(pub(super) Box<dyn Queued>);

impl Message for Enqueue {
    type Result = ();
}

/// From the handle: write everything, close the database and confirm.
pub(super) struct Finish(pub(super) oneshot::Sender<()>);

impl Message for Finish {
    type Result = ();
}

/// To itself: the mailbox is empty, so send the collected batch.
struct Flush;

impl Message for Flush {
    type Result = ();
}

/// To the writer and back: operations to write in one transaction, in this order.
pub(super) struct Batch(pub(super) Vec<Slot>);

impl Message for Batch {
    type Result = Batch;
}

/// An operation in a batch.
pub(super) struct Slot {
    pub(super) queued: Box<dyn Queued>,
    /// The location of its pack, once stored.
    pub(super) place: Option<Place>,
    /// Its result is known without a transaction.
    pub(super) settled: bool,
}

pub(super) struct Persistence {
    writer: Addr<Writer>,
    waiting: VecDeque<Box<dyn Queued>>,
    /// Operations that can wait. They join a transaction of others.
    later: VecDeque<Box<dyn Queued>>,
    is_later_planned: bool,
    is_writing: bool,
    /// When the current batch was sent to the writer.
    began: Instant,
    /// The database is at a server.
    is_remote: bool,
    flush_planned: bool,
    closing: Option<oneshot::Sender<()>>,
    closed: bool,
    gauge: Arc<Gauge>,
}

impl Persistence {
    pub(super) fn new(writer: Addr<Writer>, gauge: Arc<Gauge>, is_remote: bool) -> Self {
        Self {
            writer,
            waiting: VecDeque::new(),
            later: VecDeque::new(),
            is_later_planned: false,
            is_writing: false,
            began: Instant::now(),
            is_remote,
            flush_planned: false,
            closing: None,
            closed: false,
            gauge,
        }
    }

    /// Finds out that the server of the database is silent.
    fn mind_the_server(&self) {
        let waited = self.began.elapsed();
        if self.is_remote && self.is_writing && waited > STALLED && !self.gauge.is_away() && self.gauge.set_stalled(true) {
            log::error!("database does not answer, refusing new writes waited_ms={}", waited.as_millis());
        }
    }

    /// While the server of the database cannot be reached, only what follows from accepted work waits.
    fn refuse_impatient(&mut self) {
        if !self.gauge.is_away() {
            return;
        }
        let (patient, impatient) = std::mem::take(&mut self.waiting).into_iter().partition(|queued| queued.is_patient());
        self.waiting = patient;
        let impatient: VecDeque<Box<dyn Queued>> = impatient;
        for mut queued in impatient {
            queued.fail(StoreError::Unreachable("waiting for it".into()));
            queued.answer();
        }
    }

    fn next_batch(&mut self) -> Option<Batch> {
        if self.waiting.is_empty() {
            return None;
        }
        let (mut slots, mut bytes) = (Vec::with_capacity((self.waiting.len() + self.later.len()).min(BATCH_OPS)), 0);
        while slots.len() < BATCH_OPS && bytes < BATCH_BYTES {
            let Some(queued) = self.waiting.pop_front().or_else(|| self.later.pop_front()) else { break };
            bytes += queued.weight();
            slots.push(Slot { queued, place: None, settled: false });
        }
        Some(Batch(slots))
    }

    /// Keeps an operation that can wait.
    fn write_later(&mut self, queued: Box<dyn Queued>, ctx: &mut Context<Self>) {
        self.later.push_back(queued);
        if self.later.len() >= BATCH_OPS {
            self.write_kept(ctx);
        } else if !self.is_later_planned {
            self.is_later_planned = true;
            ctx.run_later(LATER, |this, ctx| {
                this.is_later_planned = false;
                this.write_kept(ctx);
            });
        }
    }

    /// The operations that can wait have waited long enough, or are enough for a transaction of their own.
    fn write_kept(&mut self, ctx: &mut Context<Self>) {
        self.waiting.append(&mut self.later);
        if !self.is_writing {
            self.plan_flush(ctx);
        }
    }

    /// Processes the rest of the mailbox first, so that it joins the batch.
    fn plan_flush(&mut self, ctx: &mut Context<Self>) {
        if !self.flush_planned {
            self.flush_planned = true;
            ctx.notify(Flush);
        }
    }

    fn go_on(&mut self, ctx: &mut Context<Self>) {
        if self.is_writing {
            return;
        }
        if let Some(batch) = self.next_batch() {
            (self.is_writing, self.began) = (true, Instant::now());
            let written = self.writer.send(batch).into_actor(self).map(|outcome, this, ctx| {
                this.is_writing = false;
                if this.gauge.set_stalled(false) {
                    log::info!("database answers again waited_ms={}", this.began.elapsed().as_millis());
                }
                match outcome {
                    Ok(Batch(slots)) => slots.into_iter().for_each(|slot| slot.queued.answer()),
                    // The operations are dropped with the message; for their callers that means: outcome unknown.
                    Err(e) => log::error!("the writer is gone error={e}"),
                }
                // Callers that just got results, and others on this thread, may have more to write: let them add it before the next
                // commit, which costs the same for one as for many.
                this.plan_flush(ctx);
            });
            ctx.spawn(written);
        } else if let Some(done) = self.closing.take() {
            self.closed = true;
            let closed = self.writer.send(Close).into_actor(self).map(|_, _, ctx: &mut Context<Self>| {
                let _ = done.send(());
                ctx.stop();
            });
            ctx.spawn(closed);
        }
    }
}

impl Actor for Persistence {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(CHECK, |this, _| {
            this.mind_the_server();
            this.refuse_impatient();
        });
    }
}

impl Handler<Enqueue> for Persistence {
    type Result = ();
    fn handle(&mut self, Enqueue(mut queued): Enqueue, ctx: &mut Context<Self>) {
        if self.closing.is_some() || self.closed {
            queued.fail(StoreError::Closed);
            return queued.answer();
        }
        if queued.can_wait() {
            return self.write_later(queued, ctx);
        }
        self.waiting.push_back(queued);
        if !self.is_writing {
            self.plan_flush(ctx);
        }
    }
}

impl Handler<Flush> for Persistence {
    type Result = ();
    fn handle(&mut self, _: Flush, ctx: &mut Context<Self>) {
        self.flush_planned = false;
        self.go_on(ctx);
    }
}

impl Handler<Finish> for Persistence {
    type Result = ();
    fn handle(&mut self, Finish(done): Finish, ctx: &mut Context<Self>) {
        self.closing = Some(done);
        self.waiting.append(&mut self.later);
        self.go_on(ctx);
    }
}
