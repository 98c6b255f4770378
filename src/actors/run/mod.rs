//! A run: the shell around its [`Frontier`].
//!
//! The actor makes every write of the run, so that a disconnected caller interrupts nothing, and it answers only after the
//! commit. If a write failed, or its outcome is unknown, the actor ends, and the registry rebuilds it from the store.

mod blocks;
mod cache;
mod damage;
mod delivery;
mod discard;
mod elsewhere;
mod end;
mod first_requests;
mod held;
mod helper;
mod message;
mod outcomes;
mod parts;
mod pause;
mod queue;
mod redirects;
mod requests;
mod requeue;
mod robots;
mod turns;
mod workers;

pub use message::{
    BlockPlace, CheckQueue, Delivered, DeliveredBlock, DescribeRun, Discard, EndPolls, Grant, HandOver, NodeHolds, NodeLost, NodeNews,
    Poll, Push, ReannounceRun, Report, Requeue, RunDescription, RunHandle, SetPaused, StartReturned, Stop, Undelivered, Withdraw,
    WorkerNews,
};

pub use requests::text_of;

use super::context::BrokerContext;
use super::dispatcher::RunReady;
use super::involved::Involved;
use super::reply::Reply;
use super::supervision::{ExitGuard, Link};
use crate::domain::frontier::Frontier;
use crate::domain::ids::{BlockId, Identity, Seq, WorkerId};
use crate::domain::run::{Pause, Run, RunState};
use crate::domain::time::Timestamp;
use crate::domain::worker::NotEligible;
use crate::protocol::api::{BlockCounts, RunOutput};
use crate::store::{BeginRun, GetRun, LoadFrontier, SetRunState, StoreError};
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, fut::wrap_future};
use cache::Cache;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Delay before the begin of a run is stored: most runs without blocks have ended by then, so that one write is enough.
const BEGINNING_STORED_AFTER: Duration = Duration::from_millis(200);

/// See the module documentation.
#[derive(Debug)]
pub struct RunActor {
    guard: ExitGuard,
    context: BrokerContext,
    run: Box<Run>,
    epoch: i64,
    properties: Arc<BTreeMap<String, String>>,
    frontier: Frontier,
    /// See [`LoadedRun`].
    chosen: Option<Choice>,
    cache: Cache,
    turns: turns::Turns,
    involved: Involved,
    /// Failed requests are being read for a requeue.
    requeues: bool,
    /// Blocks that wait are being discarded, because the run has downloaded as many bytes as it may.
    discards: bool,
    worker: Option<WorkerId>,
    /// When its worker last received the order to start it.
    start_told: Timestamp,
    /// A search for a worker is in progress.
    searching: bool,
    /// The request to a job to start a worker.
    called: Option<helper::Call>,
    pollers: VecDeque<Waiting>,
    /// The time at which the first poll expires, and its timer.
    poll_timer: Option<(Timestamp, SpawnHandle)>,
    /// The end is decided and is being written.
    ending: bool,
    /// Only the attempt ends; another one follows.
    again: bool,
    announced: usize,
    /// When its attempt began, as far as this actor knows.
    attempt_began: Timestamp,
    /// The run is queued, or waits for its next attempt.
    waits: bool,
    /// Begin time of the attempt, not stored yet.
    begun: Option<Timestamp>,
}

/// A poll that waits for finished blocks.
#[derive(Debug)]
struct Waiting {
    worker: Option<WorkerId>,
    max: usize,
    until: Timestamp,
    auto_ack: bool,
    reply: Reply<Delivered>,
}

/// The initial state of a run's actor.
#[derive(Debug)]
pub struct LoadedRun {
    run: Box<Run>,
    epoch: i64,
    properties: Arc<BTreeMap<String, String>>,
    frontier: Frontier,
    /// The registry has already searched a worker.
    pub chosen: Option<Choice>,
}

/// The result of the registry's search for a worker.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Valid as long as the address book's count of watches has this value.
    pub watches: u64,
    /// The worker, or why there is none.
    pub worker: Result<WorkerId, NotEligible>,
}

impl LoadedRun {
    /// A run that was created just now: only its row exists.
    #[must_use]
    pub fn new(run: Box<Run>, properties: Arc<BTreeMap<String, String>>) -> Self {
        let frontier = Frontier::restore(run.queue.clone(), false, &[], crate::domain::seen::SeenSet::new());
        Self { run, epoch: Run::FIRST_EPOCH, properties, frontier, chosen: None }
    }

    /// The id of the run.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.run.identity
    }

    /// The name of its job.
    #[must_use]
    pub fn job_name(&self) -> &str {
        &self.run.job_name
    }

    /// The class that its worker must watch.
    #[must_use]
    pub fn class_name(&self) -> &str {
        &self.run.class_name
    }
}

impl RunActor {
    /// Loads a run that was taken over under a new epoch, with its stored frontier.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load(context: BrokerContext, mut run: Run, epoch: i64) -> Result<LoadedRun, StoreError> {
        let (blocks, seen) = context.store.read(LoadFrontier { no: run.no }).await?;
        // The row contains them only after the end of the run.
        run.block_times = run.block_times.max(blocks.iter().map(|block| i64::from(block.attempts)).sum());
        let job = context.store.read(crate::store::GetJob(run.job_id)).await?;
        let frontier = Frontier::restore(run.queue.clone(), run.start_returned, &blocks, seen);
        let properties = Arc::new(job.map(|job| job.properties.0).unwrap_or_default());
        Ok(LoadedRun { run: Box::new(run), epoch, properties, frontier, chosen: None })
    }

    /// The actor of a loaded run.
    #[must_use]
    pub fn new(guard: ExitGuard, context: BrokerContext, loaded: LoadedRun) -> Self {
        let LoadedRun { run, epoch, properties, frontier, chosen } = loaded;
        Self {
            guard,
            involved: Involved::new(&context.addresses, run.identity),
            context,
            run,
            epoch,
            properties,
            frontier,
            chosen,
            cache: Cache::default(),
            turns: turns::Turns::default(),
            requeues: false,
            discards: false,
            worker: None,
            start_told: Timestamp::default(),
            searching: false,
            called: None,
            pollers: VecDeque::new(),
            poll_timer: None,
            ending: false,
            again: false,
            announced: 0,
            attempt_began: Timestamp::steady(),
            waits: true,
            begun: None,
        }
    }

    fn identity(&self) -> Identity {
        self.run.identity
    }

    fn block_id(&self, seq: Seq) -> BlockId {
        BlockId::new(self.identity(), seq)
    }

    /// Sends a write and continues when it is committed. If it fails, this actor ends, and waiting callers get the error to retry
    /// when the next actor is ready.
    fn then<T: 'static>(
        ctx: &mut Context<Self>,
        write: impl Future<Output = Result<T, StoreError>> + 'static,
        done: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        ctx.spawn(wrap_future(write).map(move |result, this: &mut Self, ctx: &mut Context<Self>| match result {
            Ok(value) => done(this, value, ctx),
            Err(error) => this.die(&format!("store error: {error}"), ctx),
        }));
    }

    fn die(&mut self, why: &str, ctx: &mut Context<Self>) {
        if !self.context.followers.is_closed() {
            log::error!("run actor failed and is rebuilt run_id={}: {why}", self.identity());
        }
        self.guard.stats().set_error(why);
        ctx.stop();
    }

    /// Sends the dispatcher the number of ready blocks, if it has changed.
    fn announce(&mut self, ctx: &mut Context<Self>) {
        let (ready, sites) = self.offered(ctx);
        if (ready, sites) == (self.announced, self.turns.announced) {
            return;
        }
        self.announce_anyway(ready, sites, ctx);
    }

    fn announce_anyway(&mut self, ready: usize, sites: usize, ctx: &Context<Self>) {
        let Some(dispatcher) = self.context.dispatcher() else { return };
        (self.announced, self.turns.announced) = (ready, sites);
        dispatcher.run_ready(RunReady {
            identity: self.identity(),
            run: RunHandle(Link::new(ctx.address(), Arc::clone(self.guard.stats()))),
            priority: self.run.priority,
            ready,
            sites,
            node_group: self.run.queue.node_group.clone(),
            os: self.run.queue.os.clone(),
        });
    }

    /// Begins an attempt: the run left the queue, or the time of its next attempt has come.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.ending {
            return;
        }
        (self.run.queued, self.run.not_before) = (false, None);
        if self.wants_first_requests() {
            return self.fetch_first_requests(ctx);
        }
        self.waits = false;
        self.attempt_began = Timestamp::steady();
        self.announce(ctx);
        match self.chosen.take().filter(|chosen| chosen.watches == self.context.addresses.watches()) {
            Some(chosen) => self.found(chosen.worker, ctx),
            None => self.find_worker(),
        }
        // The run may already have all it needs to end.
        self.end_if_drained(ctx);
    }

    /// The order to the worker is sent: the attempt begins.
    fn set_scheduled(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        self.run.state = RunState::Scheduled;
        self.run.reason = None;
        if self.run.start_time.is_none() {
            self.run.start_time = Some(now);
            self.context.lateness.sent(now.since_ms(self.run.wanted_at()));
        }
        // The write checks whether the begin was late, so it must not wait then.
        let pause = if self.run.rules.late_after.is_some() { Duration::ZERO } else { BEGINNING_STORED_AFTER };
        self.begun = Some(now);
        ctx.run_later(pause, Self::store_beginning);
    }

    /// Stores the begin of the attempt, unless it has ended; then the write of the end contains it. If the broker crashes before,
    /// the worker receives the order again, as after every restart.
    fn store_beginning(&mut self, ctx: &mut Context<Self>) {
        if let Some(now) = self.begun.take().filter(|_| !self.ending) {
            let (no, may_be_late) = (self.run.no, self.run.may_be_late());
            let write = BeginRun { no, epoch: self.epoch, state: self.run.state, worker: self.worker, may_be_late, now };
            Self::then(ctx, self.context.store.write_unbounded(write), |_, (), _| {});
        }
    }

    /// Records the first sign of work from the worker.
    fn note_started(&self) {
        if let Some(start) = self.run.start_time.filter(|_| self.run.state == RunState::Scheduled) {
            self.context.lateness.started(Timestamp::now().since_ms(start));
        }
    }

    fn set_state(&mut self, state: RunState, ctx: &mut Context<Self>) {
        if self.run.state == state || self.ending {
            return;
        }
        if state == RunState::Running {
            self.note_started();
        }
        self.run.state = state;
        if self.begun.is_some() {
            return self.store_beginning(ctx);
        }
        let write = SetRunState { no: self.run.no, epoch: self.epoch, state, reason: self.run.reason.clone(), worker: self.worker };
        Self::then(ctx, self.context.store.write_unbounded(write), |_, _, _| {});
    }

    fn output(&self) -> RunOutput {
        let (ready, using, answered, total) = self.frontier.block_counts();
        let (seen, seen_bytes) = self.frontier.seen_size();
        RunOutput {
            worker_id: self.worker,
            start_returned: self.frontier.start_returned(),
            counters: self.frontier.counters(),
            consuming: Some(using as u64),
            blocks: BlockCounts {
                ready: (ready + self.frontier.queued()) as u64,
                using: Some(using as u64),
                answered: answered as u64,
                total: total as u64,
            },
            seen: seen as u64,
            bytes: self.frontier.bytes(),
            seen_bytes: Some(seen_bytes as u64),
            ..stored_output(&self.run)
        }
    }

    /// Detects lost peers without a message, because a peer may have been lost before this actor or the registry could know it.
    fn miss_peers(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let times = self.context.times;
        let addresses = Arc::clone(&self.context.addresses);
        let strange = now.plus_ms(-(times.worker_offline as i64));
        if self.frontier.forget_strangers(strange, |worker| addresses.workers.get(worker).is_some()) {
            log::warn!("requeued blocks of a disconnected worker run_id={}", self.identity());
        }
        let silent = times.node_offline as i64;
        let missed = self.frontier.leases().filter(|(_, l)| now.since_ms(l.since) > silent && addresses.nodes.get(l.node).is_none());
        for (seq, lease) in missed.map(|(seq, lease)| (seq, *lease)).collect::<Vec<_>>() {
            self.block_lost(seq, lease.node, lease.attempt, "its node is not connected", ctx);
        }
    }

    /// Checks timeouts and leases, once a second.
    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        if self.waits {
            return;
        }
        if let Some(timeout) = self.run.rules.timeout.filter(|ms| now.since_ms(self.attempt_began) > *ms as i64) {
            return self.end(RunState::Failed, Some(format!("it took longer than {timeout} ms")), ctx, drop);
        }
        for (seq, lease) in self.frontier.expired_leases(now) {
            let name = self.context.addresses.node_name(lease.node);
            log::warn!(
                "lease of a block expired block_id={} node_id={} node={name} attempt={}",
                self.block_id(seq),
                lease.node,
                lease.attempt
            );
            if let Some(node) = self.context.addresses.nodes.get(lease.node) {
                node.block_done(self.block_id(seq), lease.attempt, true);
            }
            self.block_lost(seq, lease.node, lease.attempt, "its lease expired", ctx);
        }
        self.frontier.expire_deliveries(now);
        self.expire_probes(now, ctx);
        self.miss_peers(now, ctx);
        self.guard.stats().set_waiting(self.frontier.counters().left);
        self.ask_elsewhere();
        self.announce(ctx);
        self.discard_over_bytes(ctx);
        self.serve_pollers(ctx);
        if self.worker.is_none() {
            self.find_worker();
        }
        self.repeat_start(now);
    }
}

/// A run in the format of the API, as far as its row contains it.
#[must_use]
pub fn stored_output(run: &Run) -> RunOutput {
    RunOutput {
        identity: run.identity,
        number: run.identity.number(),
        job_id: run.job_id,
        job_name: run.job_name.clone(),
        kind: run.kind.name().to_owned(),
        class_name: run.class_name.clone(),
        state: run.state,
        reason: run.reason.clone(),
        attempt: run.attempt,
        not_before: run.not_before,
        waits_for: run.waits_for(Timestamp::now()),
        planned_at: run.planned_at,
        retry_of: run.retry_of,
        after: run.rules.after,
        trace_id: run.trace_id.clone(),
        result: run.result.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        progress: None,
        progress_text: None,
        start_time: run.start_time,
        priority: run.priority,
        consuming: Some(0),
        block_times: run.block_times,
        start_returned: run.start_returned,
        worker_id: None,
        counters: run.counters,
        blocks: BlockCounts { using: Some(0), ..BlockCounts::default() },
        seen: 0,
        bytes: 0,
        seen_bytes: Some(0),
        create_by: run.create_by().map(str::to_owned),
        update_by: run.update_by.clone(),
        update_time: run.last_change(),
        paused_at: run.paused_at(),
        creation_time: run.creation_time,
        finish_time: run.finish_time,
    }
}

impl Actor for RunActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 16);
        ctx.run_interval(Duration::from_secs(1), Self::tick);
        match self.run.pause(Timestamp::now()) {
            // Its job starts another actor when the run leaves the queue.
            _ if self.run.queued => {}
            Pause::For(ms) => drop(ctx.run_later(Duration::from_millis(ms), |this, ctx| this.begin(ctx))),
            Pause::None | Pause::FromLater => self.begin(ctx),
        }
    }
}

impl Handler<CheckQueue> for RunActor {
    type Result = ();
    fn handle(&mut self, _: CheckQueue, ctx: &mut Self::Context) {
        self.guard.message("run.check_queue");
        if self.run.queued {
            Self::then(ctx, self.context.store.read(GetRun(self.identity())), |this, stored, ctx| {
                if this.run.queued && stored.is_some_and(|run| !run.queued) {
                    this.begin(ctx);
                }
            });
        }
    }
}

impl Handler<Withdraw> for RunActor {
    type Result = ();
    fn handle(&mut self, Withdraw(reply): Withdraw, ctx: &mut Self::Context) {
        self.guard.message("run.withdraw");
        let is_untouched =
            self.waits && !self.ending && self.run.is_ahead() && self.frontier.block_counts().3 == 0 && !self.frontier.is_storing();
        if is_untouched {
            self.ending = true;
            self.guard.finish();
            ctx.stop();
        }
        reply.send(Ok(is_untouched));
    }
}

impl Handler<ReannounceRun> for RunActor {
    type Result = ();
    fn handle(&mut self, _: ReannounceRun, ctx: &mut Self::Context) {
        self.guard.message("run.reannounce");
        let (ready, sites) = self.offered(ctx);
        self.announce_anyway(ready, sites, ctx);
    }
}

impl Handler<DescribeRun> for RunActor {
    type Result = ();
    fn handle(&mut self, DescribeRun(reply): DescribeRun, _: &mut Self::Context) {
        self.guard.message("run.describe");
        let leases = self.frontier.leases().map(|(seq, lease)| (seq, lease.node, lease.attempt, lease.until.on_the_wall())).collect();
        reply.send(Ok(RunDescription { output: self.output(), leases }));
    }
}
