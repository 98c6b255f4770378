//! Starts children: when a peer connects, a job is triggered, or a run is stored.

use super::{
    ChildKey, JobDue, JobIdle, NodeConnected, OpenJob, PrepareJobs, Registry, RunBeginsAnew, RunEnded, StartNewRun, StartRunActor,
    WorkerConnected, WorkerWatches,
};
use crate::actors::alerts::AlertActor;
use crate::actors::application::Application;
use crate::actors::callback::Callback;
use crate::actors::context::BrokerContext;
use crate::actors::janitor::Janitor;
use crate::actors::job::{JobActor, JobHandle};
use crate::actors::node::{NodeActor, NodeHandle, SessionOpened};
use crate::actors::placement::allocator::Allocator;
use crate::actors::placement::dispatcher::Dispatcher;
use crate::actors::recorder::Recorder;
use crate::actors::reply::{Reply, problem_of};
use crate::actors::run::{Blocks, StoredBlocks};
use crate::actors::run_owners::RunOwners;
use crate::actors::run_shell::{AtWork, Elsewhere, Kind, RunLink, RunShell};
use crate::actors::scheduler::Scheduler;
use crate::actors::supervision::Link;
use crate::actors::task::Task;
use crate::actors::worker::{WorkerActor, WorkerHandle};
use crate::domain::ids::{Identity, JobId, NodeId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::node::NodeRecord;
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::protocol::ownership::ToLeader;
use crate::protocol::problem::Problem;
use crate::store::{AdoptRun, AdoptRuns, GetRun, StoreError, UpsertNode};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use std::collections::HashMap;
use std::sync::Arc;

/// Number of runs that one write takes over.
const ADOPTED_AT_ONCE: usize = 256;

/// Starts the actor of a run that was loaded from the store, or gives the handle of a run that another broker executes.
type StartActor = Box<dyn FnOnce(&mut Registry) -> AtWork>;

/// Takes over a run: increases the epoch and loads the stored state. `None`: the run has ended and needs no actor.
async fn adopt(context: BrokerContext, identity: Identity) -> Result<Option<StartActor>, StoreError> {
    loop {
        match context.store.write_unbounded(AdoptRun { identity }).await {
            Ok((run, epoch)) => return load_adopted(context, run, epoch).await,
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let Some(run) = context.store.read(GetRun(identity)).await? else { return Err(StoreError::NotFound) };
        if let Some(elsewhere) = context.elsewhere(&run) {
            let start: StartActor = Box::new(move |registry| registry.start_elsewhere(elsewhere));
            return Ok(if run.state.is_final() { None } else { Some(start) });
        }
        // It has come back to this broker meanwhile, or has been taken from it.
        if run.owner.is_none() && context.leader.is_some() {
            return Err(StoreError::NotFound);
        }
    }
}

async fn load_adopted(context: BrokerContext, run: Run, epoch: i64) -> Result<Option<StartActor>, StoreError> {
    Ok(match run.kind {
        _ if run.state.is_final() => None,
        JobKind::Callback => Some(load::<Callback>(context, run, epoch).await?),
        JobKind::Application => Some(load::<Application>(context, run, epoch).await?),
        JobKind::Task => Some(load::<Task>(context, run, epoch).await?),
        JobKind::Block => Some(load::<Blocks>(context, run, epoch).await?),
    })
}

async fn load<K: Kind>(context: BrokerContext, mut run: Run, epoch: i64) -> Result<StartActor, StoreError> {
    let stored = K::load(&context, &mut run).await?;
    Ok(Box::new(move |registry| registry.enter_run::<K>(Box::new(run), epoch, stored)))
}

impl Registry {
    pub(super) fn start_dispatcher(&mut self) {
        let guard = self.enter(ChildKey::Dispatcher);
        let stats = Arc::clone(guard.stats());
        self.context.dispatcher.0.set(Link::new(Dispatcher::new(guard, Arc::clone(&self.context.dispatch_is_paused)).start(), stats));
    }

    pub(super) fn start_allocator(&mut self, is_rebuilding: bool) {
        let guard = self.enter(ChildKey::Allocator);
        let stats = Arc::clone(guard.stats());
        let allocator = Allocator::new(guard, Arc::clone(&self.context.addresses), is_rebuilding);
        self.context.allocator.0.set(Link::new(allocator.start(), stats));
    }

    pub(super) fn start_scheduler(&mut self) {
        let guard = self.enter(ChildKey::Scheduler);
        let stats = Arc::clone(guard.stats());
        self.context.scheduler.0.set(Link::new(Scheduler::new(guard, self.context.clone()).start(), stats));
    }

    pub(super) fn start_run_owners(&mut self) {
        let guard = self.enter(ChildKey::RunOwners);
        let stats = Arc::clone(guard.stats());
        self.context.run_owners.link.set(Link::new(RunOwners::new(guard, self.context.clone()).start(), stats));
    }

    pub(super) fn start_alerts(&mut self) {
        let guard = self.enter(ChildKey::Alerts);
        let stats = Arc::clone(guard.stats());
        self.context.alert_sender.0.set(Link::new(AlertActor::new(guard, self.context.clone()).start(), stats));
    }

    pub(super) fn start_janitor(&mut self) {
        let guard = self.enter(ChildKey::Janitor);
        Janitor::new(guard, self.context.clone()).start();
    }

    pub(super) fn start_recorder(&mut self) {
        let guard = self.enter(ChildKey::Recorder);
        Recorder::new(guard, self.context.clone()).start();
    }

    /// The actor of a job; it is started if necessary.
    fn job(&mut self, id: JobId) -> JobHandle {
        self.context.addresses.jobs.get(id).unwrap_or_else(|| {
            let guard = self.enter(ChildKey::Job(id));
            let stats = Arc::clone(guard.stats());
            let handle = JobHandle(Link::new(JobActor::new(guard, self.context.clone(), id).start(), stats));
            self.context.addresses.jobs.put(id, handle.clone());
            handle
        })
    }

    /// Starts the actor of a run that is owned under this epoch.
    fn enter_run<K: Kind>(&mut self, run: Box<Run>, epoch: i64, stored: K::Stored) -> AtWork {
        let identity = run.identity;
        let guard = self.enter(ChildKey::Run(K::KIND, identity));
        let stats = Arc::clone(guard.stats());
        stats.set_label(&run.job_name);
        let actor = RunShell::<K>::new(guard, self.context.clone(), run, epoch, stored);
        let at_work = K::at_work(RunLink(Link::new(actor.start(), stats)));
        self.context.addresses.put_run(identity, at_work.clone());
        at_work
    }

    /// Its owner has an actor for the run, or starts one.
    fn start_elsewhere(&mut self, elsewhere: Elsewhere) -> AtWork {
        let Elsewhere { identity, kind, owner, .. } = elsewhere;
        if kind == JobKind::Block {
            self.context.enter_elsewhere(owner, identity);
        }
        self.context.run_owners.start_elsewhere(owner, identity);
        AtWork::Elsewhere(elsewhere)
    }

    /// Removes the actor of a run that has ended or restarts from the address book.
    pub(super) fn leave_run(&mut self, identity: Identity) {
        match self.context.addresses.take_run(identity) {
            Some(at_work) => {
                if matches!(at_work, AtWork::Application(_)) {
                    self.context.fleet.release_all(identity);
                }
                self.leave(at_work.key(identity));
            }
            // The actor crashed after the end of the run, and is not in the address book.
            None => {
                self.context.fleet.release_all(identity);
                for kind in JobKind::ALL {
                    self.leave(ChildKey::Run(kind, identity));
                }
            }
        }
    }

    /// Takes over the runs that a previous leader has left, many at once.
    pub(super) fn take_over(&mut self, open_runs: &[Identity], ctx: &mut Context<Self>) {
        for identities in open_runs.chunks(ADOPTED_AT_ONCE).map(<[Identity]>::to_vec) {
            for identity in &identities {
                self.context.addresses.building.put(*identity, ());
            }
            let adopted = self.context.store.write_unbounded(AdoptRuns(identities.clone()));
            ctx.spawn(wrap_future(adopted).map(move |adopted, this: &mut Self, ctx: &mut Context<Self>| {
                let adopted = adopted.unwrap_or_else(|error| {
                    log::error!("failed to take over runs, trying them one by one runs={}: {error}", identities.len());
                    Vec::new()
                });
                let mut adopted: HashMap<_, _> = adopted.into_iter().map(|run| (run.0.identity, run)).collect();
                for identity in identities {
                    match adopted.remove(&identity) {
                        Some((run, epoch)) => this.enter_adopted(identity, load_adopted(this.context.clone(), run, epoch), ctx),
                        None => this.start_run(identity, ctx),
                    }
                }
            }));
        }
    }

    /// Takes over a run from the store and starts its actor. Until then the run is not in the address book.
    pub(super) fn start_run(&mut self, identity: Identity, ctx: &mut Context<Self>) {
        self.context.addresses.building.put(identity, ());
        self.enter_adopted(identity, adopt(self.context.clone(), identity), ctx);
    }

    fn enter_adopted(
        &mut self,
        identity: Identity,
        adopted: impl Future<Output = Result<Option<StartActor>, StoreError>> + 'static,
        ctx: &mut Context<Self>,
    ) {
        ctx.spawn(wrap_future(adopted).map(move |adopted, this: &mut Self, ctx: &mut Context<Self>| {
            let waiting = this.awaited_runs.remove(&identity).unwrap_or_default();
            let at_work = match adopted {
                Ok(None) => {
                    // Its last actor crashed after the end was on disk.
                    this.context.addresses.building.remove(identity);
                    this.context.addresses.elsewhere.remove(identity);
                    this.context.sites.run_gone(identity);
                    this.leave_run(identity);
                    this.tell_leader(ToLeader::GivenUp { run_id: identity });
                    for reply in waiting {
                        reply.send(Err(Problem::conflict("run-over", format!("run {identity} is over"))));
                    }
                    return;
                }
                Ok(Some(start)) => start(this),
                Err(StoreError::NotFound) => {
                    this.context.addresses.building.remove(identity);
                    this.context.addresses.elsewhere.remove(identity);
                    for reply in waiting {
                        reply.send(Err(Problem::not_found(format!("run {identity} is not in the store"))));
                    }
                    return;
                }
                Err(error) => {
                    log::error!("failed to load a run, trying again run_id={identity}: {error}");
                    for reply in waiting {
                        reply.send(Err(problem_of(&error)));
                    }
                    ctx.run_later(std::time::Duration::from_secs(1), move |this, ctx| this.start_run(identity, ctx));
                    return;
                }
            };
            this.context.addresses.building.remove(identity);
            if matches!(at_work, AtWork::Run(_)) && this.context.leader.is_none() {
                this.context.addresses.nodes.all().iter().for_each(|(_, node)| node.list_blocks(identity));
            }
            for reply in waiting {
                reply.send(Ok(at_work.clone()));
            }
            if this.gives_up {
                at_work.give_up(false);
            }
        }));
    }

    pub(super) fn start_node(&mut self, record: NodeRecord) -> NodeHandle {
        let id = record.facts.node_id;
        let guard = self.enter(ChildKey::Node(id));
        let stats = Arc::clone(guard.stats());
        stats.set_label(&record.facts.shown_name());
        // The session of a crashed actor may have ended since.
        let session = self.node_sessions.get(&id).filter(|(sender, _)| sender.is_open()).cloned();
        let actor = NodeActor::new(guard, self.context.clone(), record, session);
        let handle = NodeHandle(Link::new(actor.start(), stats));
        self.context.addresses.nodes.put(id, handle.clone());
        handle
    }

    pub(super) fn start_worker(&mut self, id: WorkerId, by: Option<String>) -> WorkerHandle {
        let guard = self.enter(ChildKey::Worker(id));
        let stats = Arc::clone(guard.stats());
        let sender = self.worker_sessions.get(&id).filter(|sender| sender.is_open()).cloned();
        let actor = WorkerActor::new(guard, self.context.clone(), id, sender, by);
        let handle = WorkerHandle(Link::new(actor.start(), stats));
        self.context.addresses.workers.put(id, handle.clone());
        handle
    }

    fn node_is_there(
        &mut self,
        record: NodeRecord,
        session: Option<(crate::actors::session_sender::SessionSender, bool)>,
        reply: Reply<NodeHandle>,
    ) {
        let id: NodeId = record.facts.node_id;
        let living = self.context.addresses.nodes.get(id);
        let handle = match (living, session) {
            (Some(handle), Some((sender, binary))) => {
                self.node_sessions.insert(id, (sender.clone(), binary));
                handle.session_opened(SessionOpened { facts: record.facts, sender, binary });
                handle
            }
            (Some(handle), None) => handle,
            (None, session) => {
                if let Some(session) = session {
                    self.node_sessions.insert(id, session);
                }
                self.start_node(record)
            }
        };
        reply.send(Ok(handle));
    }
}

impl Handler<NodeConnected> for Registry {
    type Result = ();
    fn handle(&mut self, m: NodeConnected, ctx: &mut Self::Context) {
        let _timed = self.timed("registry.node_connected");
        let limits = (m.facts.max_sites, m.facts.max_programs);
        let stored = self.context.store.write(UpsertNode { facts: m.facts, by: m.by, now: Timestamp::now() });
        ctx.spawn(wrap_future(stored).map(move |stored, this: &mut Self, _| match stored {
            Ok(mut record) => {
                (record.facts.max_sites, record.facts.max_programs) = limits;
                this.node_limits.insert(record.facts.node_id, limits);
                this.context.addresses.node_names.put(record.facts.node_id, record.facts.shown_name().into());
                this.node_is_there(record, m.session, m.reply);
            }
            Err(error) => {
                log::error!("failed to store a node's record: {error}");
                m.reply.send(Err(problem_of(&error)));
            }
        }));
    }
}

impl Handler<WorkerConnected> for Registry {
    type Result = ();
    fn handle(&mut self, m: WorkerConnected, _: &mut Self::Context) {
        let _timed = self.timed("registry.worker_connected");
        if let Some(sender) = &m.sender {
            self.worker_sessions.insert(m.id, sender.clone());
        }
        let handle = match (self.context.addresses.workers.get(m.id), m.sender) {
            (Some(handle), Some(sender)) => {
                handle.session_opened(sender);
                handle
            }
            (Some(handle), None) => handle,
            (None, _) => self.start_worker(m.id, m.by),
        };
        m.reply.send(Ok(handle));
    }
}

impl Handler<WorkerWatches> for Registry {
    type Result = ();
    fn handle(&mut self, WorkerWatches(id): WorkerWatches, _: &mut Self::Context) {
        let _timed = self.timed("registry.worker_watches");
        self.watching.insert(id);
    }
}

impl Handler<OpenJob> for Registry {
    type Result = ();
    fn handle(&mut self, OpenJob { id, reply }: OpenJob, _: &mut Self::Context) {
        let _timed = self.timed("registry.open_job");
        reply.send(Ok(self.job(id)));
    }
}

impl Handler<JobIdle> for Registry {
    type Result = ();
    fn handle(&mut self, JobIdle(id): JobIdle, _: &mut Self::Context) {
        let _timed = self.timed("registry.job_idle");
        // Messages already sent to the actor are answered, because it empties its mailbox before it stops.
        if let Some(handle) = self.context.addresses.jobs.get(id) {
            self.context.addresses.jobs.remove(id);
            self.leave(ChildKey::Job(id));
            handle.rest();
        }
    }
}

impl Handler<StartRunActor> for Registry {
    type Result = ();
    fn handle(&mut self, StartRunActor { identity, reply }: StartRunActor, ctx: &mut Self::Context) {
        let _timed = self.timed("registry.start_run");
        if let Some(at_work) = self.context.addresses.run(identity) {
            // The requested run may be queued, and may begin now.
            at_work.check_queue();
            return reply.send(Ok(at_work));
        }
        if let Some((owner, _)) = self.context.addresses.elsewhere.get(identity) {
            return reply.send(Ok(AtWork::Elsewhere(self.context.block_run_elsewhere(owner, identity))));
        }
        if self.gives_up {
            self.tell_leader(ToLeader::GivenUp { run_id: identity });
            return reply.send(Err(Problem::busy("the run is about to move to another broker; retry later")));
        }
        self.awaited_runs.entry(identity).or_default().push(reply);
        // Its actor may be on its way: two actors of one run must not be started.
        if self.context.addresses.building.get(identity).is_none() {
            self.start_run(identity, ctx);
        }
    }
}

impl Handler<JobDue> for Registry {
    type Result = ();
    fn handle(&mut self, JobDue(id): JobDue, _: &mut Self::Context) {
        let _timed = self.timed("registry.job_due");
        self.job(id).due();
    }
}

impl Handler<PrepareJobs> for Registry {
    type Result = ();
    fn handle(&mut self, PrepareJobs(jobs): PrepareJobs, _: &mut Self::Context) {
        let _timed = self.timed("registry.prepare_jobs");
        for loaded in jobs {
            // The state of a live actor is newer than what was read in advance.
            if self.context.addresses.jobs.get(loaded.job.id).is_none() {
                let (key, name) = (ChildKey::Job(loaded.job.id), loaded.job.name.clone());
                self.job(loaded.job.id).prepare(Box::new(loaded));
                self.label(key, &name);
            }
        }
    }
}

impl Handler<StartNewRun> for Registry {
    type Result = ();
    fn handle(&mut self, StartNewRun { run, properties }: StartNewRun, _: &mut Self::Context) {
        let _timed = self.timed("registry.start_new_run");
        let addresses = &self.context.addresses;
        self.label(ChildKey::Job(run.job_id), &run.job_name);
        // Another caller may have found the run in the store and requested its actor already.
        if addresses.run(run.identity).is_some() || addresses.building.get(run.identity).is_some() {
            return;
        }
        if run.owner.is_some() {
            let elsewhere = self.context.elsewhere(&run);
            return drop(elsewhere.map(|elsewhere| self.start_elsewhere(elsewhere)));
        }
        let epoch = Run::FIRST_EPOCH;
        match run.kind {
            JobKind::Application => drop(self.enter_run::<Application>(run, epoch, Vec::new())),
            JobKind::Task => drop(self.enter_run::<Task>(run, epoch, Vec::new())),
            JobKind::Callback => drop(self.enter_run::<Callback>(run, epoch, ())),
            JobKind::Block => {
                let stored = StoredBlocks::new(&run, properties);
                drop(self.enter_run::<Blocks>(run, epoch, stored));
            }
        }
    }
}

impl Handler<RunBeginsAnew> for Registry {
    type Result = ();
    fn handle(&mut self, RunBeginsAnew(identity): RunBeginsAnew, ctx: &mut Self::Context) {
        let _timed = self.timed("registry.run_begins_anew");
        self.leave_run(identity);
        self.context.followers.ring(identity);
        self.tell_leader(ToLeader::Retries { run_id: identity });
        if self.gives_up {
            self.tell_leader(ToLeader::GivenUp { run_id: identity });
            return self.leave_if_done();
        }
        self.start_run(identity, ctx);
    }
}

impl Handler<RunEnded> for Registry {
    type Result = ();
    fn handle(&mut self, RunEnded { identity, job_id, follow, state }: RunEnded, _: &mut Self::Context) {
        let _timed = self.timed("registry.run_ended");
        if let Some(identity) = identity {
            self.leave_run(identity);
            self.context.followers.ring(identity);
        }
        if self.context.leader.is_some() {
            if let (Some(run_id), Some(state)) = (identity, state) {
                self.tell_leader(ToLeader::Ended { run_id, job_id, state, follow });
            }
            return self.leave_if_done();
        }
        if follow {
            self.job(job_id).run_over(identity, true);
        } else if let Some(job) = self.context.addresses.jobs.get(job_id) {
            match identity {
                Some(identity) => job.run_left(identity),
                None => job.run_over(None, false),
            }
        }
    }
}
