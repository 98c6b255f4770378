//! The root of the actors: starts them, keeps their handles in the address book, and rebuilds crashed actors from the store.
//!
//! Only the registry starts children and writes the address book. If it panics, the broker process ends: no other actor
//! supervises it, and a restarted process loses nothing.

mod message;
mod ownership;
mod reconcile;
mod restart;
mod spawn;

pub use message::{
    AbandonRuns, ChildDied, GiveRunsUp, JobDue, JobIdle, NodeConnected, NodeLeft, OpenJob, PrepareJobs, RegistryHandle, RunBeginsAnew,
    RunEnded, RunGivenUp, RunWithdrawn, Shutdown, StartNewRun, StartRunActor, TakeRunsBack, WorkerConnected, WorkerLeft, WorkerWatches,
};

use super::context::BrokerContext;
use super::reply::Reply;
use super::run_shell::AtWork;
use super::session_sender::SessionSender;
use super::supervision::{Budget, ChildKey, ExitGuard, Link, Stats, Timed};
use crate::domain::ids::{Identity, NodeId, WorkerId};
use actix::{Actor, AsyncContext, Context};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// See the module documentation.
#[derive(Debug)]
pub struct Registry {
    context: BrokerContext,
    stats: Arc<Stats>,
    children: HashMap<ChildKey, Child>,
    generation: u64,
    /// Sessions outlive their actors; a rebuilt actor needs its session.
    node_sessions: HashMap<NodeId, (SessionSender, bool)>,
    worker_sessions: HashMap<WorkerId, SessionSender>,
    /// The limits for sites and programs that nodes sent when they connected. They are not stored.
    node_limits: HashMap<NodeId, (Option<u32>, Option<u32>)>,
    /// Workers that the allocator has.
    watching: HashSet<WorkerId>,
    /// Callers that wait for an actor that is being started.
    awaited_runs: HashMap<Identity, Vec<Reply<AtWork>>>,
    /// Its runs move to other brokers: none is started any more.
    gives_up: bool,
}

#[derive(Debug)]
struct Child {
    stats: Arc<Stats>,
    generation: u64,
    budget: Budget,
}

impl Registry {
    /// Starts the registry of a leader: it starts the dispatcher, scheduler, alert sender, janitor, recorder, and all active runs.
    #[must_use]
    pub fn start(context: &BrokerContext, open_runs: Vec<Identity>) -> RegistryHandle {
        Self::start_with(context, move |this, ctx| {
            this.start_dispatcher();
            this.start_allocator(false);
            this.start_scheduler();
            this.start_run_owners();
            this.start_alerts();
            this.start_janitor();
            this.start_recorder();
            this.look_for_overdue(ctx);
            this.take_over(&open_runs, ctx);
        })
    }

    fn start_with(context: &BrokerContext, begin: impl FnOnce(&mut Self, &mut Context<Self>) + 'static) -> RegistryHandle {
        let stats = Stats::new("registry", "registry".to_owned(), None);
        context.addresses.actor_stats.enter(&stats);
        let inner = context.clone();
        let actor_stats = Arc::clone(&stats);
        let addr = Self::create(move |ctx| {
            let handle = RegistryHandle(Link::new(ctx.address(), Arc::clone(&actor_stats)));
            inner.set_registry(handle);
            let mut this = Self {
                context: inner,
                stats: actor_stats,
                children: HashMap::new(),
                generation: 0,
                node_sessions: HashMap::new(),
                worker_sessions: HashMap::new(),
                node_limits: HashMap::new(),
                watching: HashSet::new(),
                awaited_runs: HashMap::new(),
                gives_up: false,
            };
            begin(&mut this, ctx);
            this
        });
        RegistryHandle(Link::new(addr, stats))
    }

    fn timed(&self, place: &'static str) -> Timed {
        self.stats.handled(place);
        crate::fault::point(place);
        Timed::new(&self.stats, place)
    }

    /// Sets the name of a child for people.
    fn label(&self, key: ChildKey, name: &str) {
        if let Some(child) = self.children.get(&key) {
            child.stats.set_label(name);
        }
    }

    /// Registers a child, or its next incarnation.
    fn enter(&mut self, key: ChildKey) -> ExitGuard {
        self.generation += 1;
        let generation = self.generation;
        let (kind, name) = key.names();
        let child = self.children.entry(key).or_insert_with(|| Child {
            stats: Stats::new(kind, name, Some("registry")),
            generation,
            budget: Budget::default(),
        });
        child.generation = generation;
        child.stats.set_state("running");
        self.context.addresses.actor_stats.enter(&child.stats);
        let registry = self.context.registry().clone();
        ExitGuard::new(Arc::clone(&child.stats), key, generation, move |death| registry.child_died(death))
    }

    fn leave(&mut self, key: ChildKey) {
        if let Some(child) = self.children.remove(&key) {
            self.context.addresses.actor_stats.leave(&child.stats);
        }
    }
}

impl Actor for Registry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1 << 14);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // No other actor supervises the registry: end the process, so that it is restarted.
            log::error!("the registry crashed, the broker process ends");
            std::process::abort();
        }
    }
}
