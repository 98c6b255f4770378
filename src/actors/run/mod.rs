//! A run: the shell around its [`Frontier`].
//!
//! The actor makes every write of the run, so that a disconnected caller interrupts nothing, and it answers only after the
//! commit. If a write failed, or its outcome is unknown, the actor ends, and the registry rebuilds it from the store.

mod again;
mod blocks;
mod by_address;
mod cache;
mod damage;
mod delivery;
mod discard;
mod elsewhere;
mod end;
mod first_requests;
mod held;
mod hosts;
mod learned;
mod lost;
mod message;
mod opened;
mod outcomes;
mod pace;
mod parts;
mod pause;
mod queue;
mod redirects;
mod requests;
mod requeue;
mod robots;
mod site_list;
mod turns;
mod worker_job;
mod workers;

pub use message::{
    AnswerPull, BlockPlace, BlocksEvent, Delivered, DeliveredBlock, Discard, EndPolls, Grant, ListLeases, NodeEvent, NodeHolds, NodeLost,
    Poll, PollOptions, Push, ReannounceRun, Report, Requeue, SetPaused, SitePlace, StartReturned, Undelivered, WorkerEvent,
};

pub use opened::opened;
pub use requests::text_of;
pub use requeue::MOST_REQUEUED;

use super::context::BrokerContext;
use super::deadline_timer::DeadlineTimer;
use super::involved::Involved;
use super::placement::dispatcher::RunReady;
use super::reply::Reply;
use super::run_shell::{AtWork, Ctx, Kind, RunLink, RunShell, Totals};
use crate::domain::frontier::Frontier;
use crate::domain::ids::{BlockId, Identity, Seq, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::redirect::Redirects;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::domain::trace::Peer;
use crate::domain::worker::NotEligible;
use crate::protocol::api::{BlockCounts, RunOutput};
use crate::protocol::crawling::CrawlingOutput;
use crate::store::{LoadFrontier, SetRunState, StoreError};
use actix::{AsyncContext, Context, Handler};
use cache::Cache;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Delay before the begin of a run is stored: most runs without blocks have ended by then, so that one write is enough.
const BEGINNING_STORED_AFTER: Duration = Duration::from_millis(200);

/// See the module documentation.
#[derive(Debug)]
pub struct Blocks {
    properties: Arc<BTreeMap<String, String>>,
    frontier: Frontier,
    /// The answer to the search for a worker that was made before the run began.
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
    start_sent: Timestamp,
    /// A search for a worker is in progress.
    searching: bool,
    /// The allocator has, or may have, this run among those without a worker.
    is_unplaced: bool,
    /// When to search a worker again. `None`: the allocator notifies the run when one is eligible.
    search_at: Option<Timestamp>,
    /// The request to a job to start a worker.
    start_request: Option<worker_job::StartRequest>,
    pollers: VecDeque<Waiting>,
    /// The time at which the first poll expires, and its timer.
    poll_timer: DeadlineTimer,
    announced: usize,
    /// The number of the permit of the last grant.
    last_permit: u64,
    /// When its attempt began; after a restart of the actor, when the actor started.
    attempt_began: Timestamp,
    /// The run is queued, waits for its next attempt, or reads its first requests.
    waits: bool,
    /// Begin time of the attempt, not stored yet.
    begun: Option<Timestamp>,
    /// Nodes are about to list what they have from an earlier actor of the run.
    awaits_lists: bool,
}

/// The actor of a run of a block job.
pub type RunActor = RunShell<Blocks>;
/// Handle to a run of a block job for other modules.
pub type RunHandle = RunLink<Blocks>;

/// A poll that waits for finished blocks.
#[derive(Debug)]
struct Waiting {
    worker: Option<WorkerId>,
    max: usize,
    until: Timestamp,
    auto_ack: bool,
    reply: Reply<Delivered>,
}

/// What a new actor needs besides the row of the run.
#[derive(Debug)]
pub struct StoredBlocks {
    properties: Arc<BTreeMap<String, String>>,
    frontier: Frontier,
}

impl StoredBlocks {
    /// Of a run that was created just now: only its row exists.
    #[must_use]
    pub fn new(run: &Run, properties: Arc<BTreeMap<String, String>>) -> Self {
        Self { properties, frontier: Frontier::restore(run.queue.clone(), false, &[], crate::domain::seen::SeenSet::new()) }
    }
}

/// The result of the allocator's search for a worker.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Valid as long as the address book's count of changes of workers has this value.
    pub watches: u64,
    /// The worker, or why there is none.
    pub worker: Result<WorkerId, NotEligible>,
}

impl RunActor {
    fn identity(&self) -> Identity {
        self.run.identity
    }

    fn block_id(&self, seq: Seq) -> BlockId {
        BlockId::new(self.identity(), seq)
    }

    /// Sends the dispatcher the number of ready blocks, if it has changed.
    fn announce(&mut self, ctx: &mut Context<Self>) {
        let (ready, sites) = self.offered(ctx);
        if (ready, sites) == (self.kind.announced, self.kind.turns.announced) {
            return;
        }
        self.announce_anyway(ready, sites, ctx);
    }

    fn announce_anyway(&mut self, ready: usize, sites: usize, ctx: &Context<Self>) {
        (self.kind.announced, self.kind.turns.announced) = (ready, sites);
        self.context.dispatcher.run_ready(RunReady {
            identity: self.identity(),
            run: self.link(ctx),
            priority: self.run.priority,
            ready,
            sites,
            last_permit: self.kind.last_permit,
            node_group: self.run.queue.node_group.clone(),
            os: self.run.queue.os.clone(),
        });
    }

    /// The order to the worker is sent: the attempt begins.
    fn set_scheduled(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        self.run.state = RunState::Scheduled;
        self.run.reason = None;
        self.note_start(now);
        // The write checks whether the begin was late, so it must not wait then.
        let pause = if self.run.rules.late_after.is_some() { Duration::ZERO } else { BEGINNING_STORED_AFTER };
        self.kind.begun = Some(now);
        ctx.run_later(pause, Self::store_beginning);
    }

    /// Stores the begin of the attempt, unless it has ended; then the write of the end contains it. If the broker crashes before,
    /// the worker receives the order again, as after every restart.
    fn store_beginning(&mut self, ctx: &mut Context<Self>) {
        if let Some(now) = self.kind.begun.take().filter(|_| !self.lifecycle.is_ending()) {
            let write = self.store_begin(self.kind.worker, now);
            Self::then(ctx, write, |_, (), _| {});
        }
    }

    /// Records the first sign of work from the worker.
    fn note_started(&self) {
        if let Some(start) = self.run.start_time.filter(|_| self.run.state == RunState::Scheduled) {
            self.context.counters.lateness.started(Timestamp::now().since_ms(start));
        }
    }

    fn set_state(&mut self, state: RunState, ctx: &mut Context<Self>) {
        // A run that waits may get requests already: its attempt begins when a worker gets the order to start.
        if self.run.state == state || self.lifecycle.is_ending() || self.kind.waits {
            return;
        }
        if state == RunState::Running {
            self.note_started();
        }
        self.run.state = state;
        if self.kind.begun.is_some() {
            return self.store_beginning(ctx);
        }
        let write = SetRunState { no: self.run.no, epoch: self.epoch, state, reason: self.run.reason.clone(), worker: self.kind.worker };
        Self::then(ctx, self.context.store.write_unbounded(write), |_, _, _| {});
    }

    /// Detects lost peers without a message: a peer may have been lost before this actor or the registry started.
    fn check_peers(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let times = self.context.times;
        let addresses = Arc::clone(&self.context.addresses);
        let since = now.plus_ms(-(times.worker_offline as i64));
        if self.kind.frontier.forget_strangers(since, |worker| addresses.workers.get(worker).is_some()) {
            log::warn!("requeued blocks of a disconnected worker run_id={}", self.identity());
        }
        let silent = times.node_offline as i64;
        let missed = self.kind.frontier.leases().filter(|(_, l)| now.since_ms(l.since) > silent && addresses.nodes.get(l.node).is_none());
        for (seq, lease) in missed.map(|(seq, lease)| (seq, *lease)).collect::<Vec<_>>() {
            self.block_lost(seq, lease.node, lease.attempt, "its node is not connected", ctx);
        }
    }

    /// Checks timeouts and leases, once a second.
    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        self.kind.involved.send_no_longer_at();
        if self.kind.waits {
            return;
        }
        if let Some(timeout) = self.run.rules.timeout.filter(|ms| now.since_ms(self.kind.attempt_began) > *ms as i64) {
            return self.end(RunState::Failed, Some(format!("it took longer than {timeout} ms")), ctx);
        }
        for (seq, lease) in self.kind.frontier.expired_leases(now) {
            let (block_id, node_id, attempt) = (self.block_id(seq), lease.node, lease.attempt);
            let name = self.context.addresses.node_name(node_id);
            log::warn!("lease of a block expired block_id={block_id} node_id={node_id} node={name} attempt={attempt}");
            if let Some(node) = self.context.addresses.nodes.get(node_id) {
                node.block_done(block_id, attempt, true);
            }
            self.block_lost(seq, lease.node, lease.attempt, "its lease expired", ctx);
        }
        self.kind.frontier.expire_deliveries(now);
        self.expire_probes(now, ctx);
        self.check_peers(now, ctx);
        self.guard.stats().set_waiting(self.kind.frontier.counters().left);
        self.request_elsewhere();
        self.announce(ctx);
        self.discard_over_bytes(ctx);
        self.serve_pollers(ctx);
        if self.kind.worker.is_none() && self.kind.search_at.is_some_and(|at| now >= at) {
            self.find_worker(ctx);
        }
        self.repeat_start(now);
    }
}

/// How a block run treats sites.
#[must_use]
pub fn crawling(run: &Run) -> CrawlingOutput {
    let (queue, download) = (&run.queue, &run.download);
    let robots = match queue.sites.robots {
        Some(true) => "obey",
        Some(false) => "ignore",
        None => "public",
    };
    let redirects = if queue.redirects == Redirects::Request { "request" } else { "follow" };
    CrawlingOutput {
        robots: robots.to_owned(),
        delay: queue.sites.limits.delay_ms,
        per_site: queue.sites.limits.connections,
        site_by: queue.sites.by.name().to_owned(),
        redirects: redirects.to_owned(),
        max_redirects: download.max_redirects,
        user_agent: download.site.user_agent.clone(),
        hosts: download.site.hosts.clone(),
        depth_limit: queue.depth_limit,
        max_requests: queue.max_requests,
        max_per_site: queue.max_per_site,
        max_bytes: queue.max_bytes,
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
        sites: None,
        seen: 0,
        bytes: 0,
        seen_bytes: Some(0),
        broker_id: run.owner,
        arguments: None,
        create_by: run.create_by().map(str::to_owned),
        update_by: run.update_by.clone(),
        update_time: run.last_change(),
        crawling: None,
        paused_at: run.paused_at(),
        creation_time: run.creation_time,
        finish_time: run.finish_time,
    }
}

impl Kind for Blocks {
    const KIND: JobKind = JobKind::Block;
    const CONTINUES: bool = true;
    type Stored = StoredBlocks;
    type Event = BlocksEvent;

    async fn load(context: &BrokerContext, run: &mut Run) -> Result<StoredBlocks, StoreError> {
        let (blocks, seen) = context.store.read(LoadFrontier { no: run.no }).await?;
        // The row contains them only after the end of the run.
        run.block_times = run.block_times.max(blocks.iter().map(|block| i64::from(block.attempts)).sum());
        let job = context.store.read(crate::store::GetJob(run.job_id)).await?;
        let frontier = Frontier::restore(run.queue.clone(), run.start_returned, &blocks, seen);
        let properties = Arc::new(job.map(|job| job.properties.0).unwrap_or_default());
        Ok(StoredBlocks { properties, frontier })
    }

    fn new(context: &BrokerContext, run: &Run, _: i64, StoredBlocks { properties, frontier }: StoredBlocks) -> Self {
        Self {
            involved: Involved::new(&context.addresses, context.leader.clone(), run.identity),
            properties,
            frontier,
            chosen: None,
            cache: Cache::default(),
            turns: turns::Turns::default(),
            requeues: false,
            discards: false,
            worker: None,
            start_sent: Timestamp::default(),
            searching: false,
            is_unplaced: false,
            search_at: None,
            start_request: None,
            pollers: VecDeque::new(),
            poll_timer: DeadlineTimer::default(),
            announced: 0,
            last_permit: 0,
            attempt_began: Timestamp::steady(),
            waits: true,
            begun: None,
            awaits_lists: false,
        }
    }

    fn peer(run: &RunShell<Self>) -> Option<Peer> {
        run.kind.worker.map(Peer::Worker)
    }

    fn at_work(link: RunLink<Self>) -> AtWork {
        AtWork::Run(link)
    }

    fn place(event: &BlocksEvent) -> &'static str {
        match event {
            BlocksEvent::WorkerStartAnswered { .. } => "run.worker_called",
        }
    }

    fn handle(run: &mut RunShell<Self>, event: BlocksEvent, ctx: &mut Ctx<Self>) {
        match event {
            BlocksEvent::WorkerStartAnswered { job, reason, answer } => run.worker_start_answered(&job, &reason, answer, ctx),
        }
    }

    fn started(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        ctx.set_mailbox_capacity(1 << 16);
        ctx.run_interval(Duration::from_secs(1), RunShell::<Self>::tick);
        run.wait_or_begin(ctx);
        // It finds its worker before its time, so that it begins without delay.
        if run.kind.waits && run.run.is_ahead() {
            run.search(ctx);
        }
    }

    fn begin(run: &mut RunShell<Self>, ctx: &mut Ctx<Self>) {
        (run.run.queued, run.run.not_before) = (false, None);
        if run.wants_first_requests() {
            return run.fetch_first_requests(ctx);
        }
        run.kind.waits = false;
        run.kind.attempt_began = Timestamp::steady();
        run.await_lists(ctx);
        run.announce(ctx);
        match run.kind.chosen.take().filter(|chosen| chosen.watches == run.context.addresses.watches()) {
            Some(chosen) => run.found(chosen, ctx),
            None => run.find_worker(ctx),
        }
        // The run may already have all it needs to end.
        run.end_if_drained(ctx);
    }

    fn withdrawn(run: &mut RunShell<Self>) {
        run.stop_searching();
    }

    fn is_untouched(run: &RunShell<Self>) -> bool {
        run.kind.waits && run.kind.frontier.block_counts().3 == 0 && !run.kind.frontier.is_storing()
    }

    fn output(run: &RunShell<Self>) -> RunOutput {
        let (ready, using, answered, total) = run.kind.frontier.block_counts();
        let (seen, seen_bytes) = run.kind.frontier.seen_size();
        RunOutput {
            worker_id: run.kind.worker,
            start_returned: run.kind.frontier.start_returned(),
            counters: run.kind.frontier.counters(),
            consuming: Some(using as u64),
            blocks: BlockCounts {
                ready: (ready + run.kind.frontier.queued()) as u64,
                using: Some(using as u64),
                answered: answered as u64,
                total: total as u64,
            },
            sites: run.site_counts(),
            seen: seen as u64,
            bytes: run.kind.frontier.bytes(),
            seen_bytes: Some(seen_bytes as u64),
            crawling: Some(crawling(&run.run)),
            ..stored_output(&run.run)
        }
    }

    fn totals(run: &mut RunShell<Self>, _: RunState) -> Totals {
        let (counters, start_returned) = (run.kind.frontier.counters(), run.kind.frontier.start_returned());
        Totals { counters, start_returned, ..Totals::default() }
    }

    fn summary(run: &RunShell<Self>) -> (String, bool) {
        (format!("total={}", run.run.counters.total), run.run.counters.total == 0)
    }

    fn leave(run: &mut RunShell<Self>, _: &mut Ctx<Self>) {
        run.notify_peers();
    }
}

impl Handler<ReannounceRun> for RunActor {
    type Result = ();
    fn handle(&mut self, _: ReannounceRun, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.reannounce");
        self.kind.involved.announce();
        let (ready, sites) = self.offered(ctx);
        self.announce_anyway(ready, sites, ctx);
    }
}

impl Handler<ListLeases> for RunActor {
    type Result = ();
    fn handle(&mut self, ListLeases(reply): ListLeases, _: &mut Self::Context) {
        let _timed = self.guard.timed("run.list_leases");
        let leases = self.kind.frontier.leases().map(|(seq, lease)| (seq, lease.node, lease.attempt, lease.until.on_the_wall()));
        reply.send(Ok(leases.collect()));
    }
}
