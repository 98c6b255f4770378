//! Shared state of all actors of one broker: the store, the settings, and the addresses of the live actors.

use super::address_map::AddressMap;
use super::alerts::AlertsHandle;
use super::at_leader;
use super::brokers::Brokers;
use super::callback::Outbound;
use super::counters::Counters;
use super::counts::CountsElsewhere;
use super::followers::Followers;
use super::involved::RunsByPeer;
use super::job::JobHandle;
use super::leader_link::LeaderLink;
use super::node::NodeHandle;
use super::packages::Packages;
use super::placement::allocator::AllocatorHandle;
use super::placement::dispatcher::DispatcherHandle;
use super::placement::fleet::Fleet;
use super::registry::RegistryHandle;
use super::reply::{Answer, problem_of};
use super::run::RunHandle;
use super::run_owners::RunOwnersHandle;
use super::run_shell::{AtWork, Elsewhere};
use super::scheduler::SchedulerHandle;
use super::sites::Sites;
use super::supervision::ActorStats;
use super::worker::WorkerHandle;
use crate::config::alerts::AlertConfig;
use crate::config::keep::KeepConfig;
use crate::config::lease::LeaseConfig;
use crate::domain::ids::{BrokerId, Identity, JobId, NodeId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::node::shown_name;
use crate::domain::run::Run;
use crate::domain::sites::SiteRule;
use crate::domain::time::Timestamp;
use crate::names::Names;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::store::{GetRun, Store};
use crate::telemetry::Telemetry;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a stop waits for the actor of its run, and the pause between two attempts.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// Intervals and timeouts of the actors, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Interval between two heartbeats of a node.
    pub node_heartbeat: u64,
    /// A node that is silent for this long is lost.
    pub node_offline: u64,
    /// Interval between two heartbeats of a worker.
    pub worker_heartbeat: u64,
    /// A worker that is silent for this long is lost.
    pub worker_offline: u64,
    /// A peer whose socket closed keeps its state if it reconnects within this time.
    pub grace: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { node_heartbeat: 5_000, node_offline: 30_000, worker_heartbeat: 3_000, worker_offline: 10_000, grace: 3_000 }
    }
}

/// The address book of live actors. The registry writes it (runs keep their peer lists); a message can still come too late.
#[derive(Debug, Default)]
pub struct AddressBook {
    /// Active runs of block jobs.
    pub runs: AddressMap<Identity, RunHandle>,
    /// Active runs of block jobs that other brokers execute.
    pub elsewhere: AddressMap<Identity, (BrokerId, RunHandle)>,
    /// Active runs of other job types.
    pub others: AddressMap<Identity, AtWork>,
    /// Active runs whose actor is being built or rebuilt.
    pub building: AddressMap<Identity, ()>,
    /// Nodes that are connected or disconnected a moment ago.
    pub nodes: AddressMap<NodeId, NodeHandle>,
    /// Names of the nodes that have connected since the broker started, for logs.
    pub node_names: AddressMap<NodeId, Arc<str>>,
    /// Which agent owns which node id.
    pub node_owners: crate::actors::node::NodeOwners,
    /// Workers that are connected or disconnected a moment ago.
    pub workers: AddressMap<WorkerId, WorkerHandle>,
    /// Jobs whose actor is loaded.
    pub jobs: AddressMap<JobId, JobHandle>,
    /// Runs that have blocks at a node.
    pub runs_by_node: RunsByPeer<NodeId>,
    /// Runs that have work or results at a worker.
    pub runs_by_worker: RunsByPeer<WorkerId>,
    /// Statistics of all actors, for monitoring.
    pub actor_stats: ActorStats,
    watches: AtomicU64,
}

impl AddressBook {
    /// The name of a node in log lines.
    #[must_use]
    pub fn node_name(&self, id: NodeId) -> Arc<str> {
        self.node_names.get(id).unwrap_or_else(|| shown_name(id, None).into())
    }

    /// Counter of changes of workers that concern a choice among them. A choice stays valid until the counter changes.
    #[must_use]
    pub fn watches(&self) -> u64 {
        self.watches.load(Relaxed)
    }

    /// Records that a worker came, left or changed.
    pub fn watches_changed(&self) {
        self.watches.fetch_add(1, Relaxed);
    }

    /// The actor of an active run of a block job, here or at another broker.
    #[must_use]
    pub fn block_run(&self, identity: Identity) -> Option<RunHandle> {
        self.runs.get(identity).or_else(|| self.elsewhere.get(identity).map(|(_, run)| run))
    }

    /// The actors of all active runs of block jobs, here and at other brokers.
    #[must_use]
    pub fn block_runs(&self) -> Vec<RunHandle> {
        let here = self.runs.all().into_iter().map(|(_, run)| run);
        here.chain(self.elsewhere.all().into_iter().map(|(_, (_, run))| run)).collect()
    }

    /// The actor of an active run.
    #[must_use]
    pub fn run(&self, identity: Identity) -> Option<AtWork> {
        self.runs.get(identity).map(AtWork::Run).or_else(|| self.others.get(identity))
    }

    /// Adds the actor of an active run.
    pub fn put_run(&self, identity: Identity, at_work: AtWork) {
        match at_work {
            AtWork::Run(run) => self.runs.put(identity, run),
            other => self.others.put(identity, other),
        }
    }

    /// Removes the actor of a run, and returns it.
    pub fn take_run(&self, identity: Identity) -> Option<AtWork> {
        self.runs.take(identity).map(AtWork::Run).or_else(|| self.others.take(identity))
    }
}

/// Shared state of all actors of one broker.
#[derive(Clone)]
pub struct BrokerContext {
    /// The store.
    pub store: Store,
    /// Addresses of the live actors.
    pub addresses: Arc<AddressBook>,
    /// Reserves slots at nodes for blocks.
    pub dispatcher: DispatcherHandle,
    /// No block is dispatched while it is not known whether this broker still leads.
    pub dispatch_is_paused: Arc<AtomicBool>,
    /// Reserves slots at workers for tasks, and finds workers for runs of block jobs.
    pub allocator: AllocatorHandle,
    /// Notifies jobs at their scheduled times.
    pub scheduler: SchedulerHandle,
    /// The brokers that own runs, at the leader.
    pub run_owners: RunOwnersHandle,
    /// The link to the leader, at a broker that owns runs.
    pub leader: Option<LeaderLink>,
    /// By which the leader and the owners of runs recognize each other.
    pub link_secret: Option<Arc<str>>,
    /// Sends alerts.
    pub alert_sender: AlertsHandle,
    /// Intervals and timeouts of the actors.
    pub times: Times,
    /// When the broker started.
    pub since: Timestamp,
    /// Until when the previous leader may still answer its agents and workers, on the monotonic clock; the start of this one, if it is gone. From
    /// then on they may come to this broker.
    pub predecessor_until: Timestamp,
    /// At a broker that owns runs: when it connected to the leader, on the monotonic clock. Workers may not have come to this leader yet.
    pub connected_at: Arc<AtomicI64>,
    /// What was connected to the previous broker.
    pub before: Arc<super::before::Before>,
    /// What this process counts.
    pub counters: Counters,
    /// At the leader: what the brokers that execute runs for it have counted.
    pub counts_elsewhere: Arc<CountsElsewhere>,
    /// Notified when there is an event that may cause an alert.
    pub alarms: Arc<Notify>,
    /// How alerts leave the broker.
    pub alerts: Arc<AlertConfig>,
    /// How much history the broker keeps.
    pub keep: KeepConfig,
    /// State that the HTTP requests of callbacks share.
    pub outbound: Arc<Outbound>,
    /// Clients that wait for more log lines of runs, and the size of each log.
    pub followers: Arc<Followers>,
    /// Capacity of the nodes.
    pub fleet: Arc<Fleet>,
    /// Turns at the sites.
    pub sites: Arc<Sites>,
    /// The packages that the broker stores.
    pub packages: Arc<Packages>,
    /// The role of this broker and the current leader.
    pub brokers: Arc<Brokers>,
    /// If the leader does not renew its lease for this many milliseconds, another broker takes over.
    pub lease_ms: u64,
    /// Takes the spans of runs.
    pub telemetry: Telemetry,
    registry: Arc<OnceLock<RegistryHandle>>,
}

impl std::fmt::Debug for BrokerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("context")
    }
}

impl BrokerContext {
    /// A context without actors, for this broker.
    #[must_use]
    pub fn new(store: Store, times: Times, brokers: Arc<Brokers>) -> Self {
        Self {
            store,
            addresses: Arc::default(),
            dispatcher: DispatcherHandle::default(),
            dispatch_is_paused: Arc::default(),
            allocator: AllocatorHandle::default(),
            scheduler: SchedulerHandle::default(),
            run_owners: RunOwnersHandle::default(),
            leader: None,
            link_secret: None,
            alert_sender: AlertsHandle::default(),
            times,
            since: Timestamp::now(),
            predecessor_until: Timestamp::steady(),
            connected_at: Arc::new(AtomicI64::new(i64::MIN)),
            before: Arc::default(),
            counters: Counters::default(),
            counts_elsewhere: Arc::default(),
            alarms: Arc::default(),
            alerts: Arc::default(),
            keep: KeepConfig::default(),
            outbound: Arc::default(),
            followers: Arc::default(),
            fleet: Arc::default(),
            sites: Arc::new(Sites::new(Vec::new(), Names::default(), &times)),
            packages: Arc::default(),
            brokers,
            lease_ms: LeaseConfig::default().ttl_ms,
            telemetry: Telemetry::default(),
            registry: Arc::default(),
        }
    }

    /// Sets the counters of the process, which outlive this context.
    #[must_use]
    pub fn with_counters(self, counters: Counters) -> Self {
        Self { counters, ..self }
    }

    /// Replaces the default settings for alerts and retention.
    #[must_use]
    pub fn with_settings(self, alerts: AlertConfig, keep: KeepConfig) -> Self {
        Self { alerts: Arc::new(alerts), keep, ..self }
    }

    /// Sets the lease duration in milliseconds.
    #[must_use]
    pub fn with_lease(self, lease_ms: u64) -> Self {
        Self { lease_ms, ..self }
    }

    /// Sets until when the previous leader may still answer its agents and workers.
    #[must_use]
    pub fn with_predecessor(self, predecessor_until: Timestamp) -> Self {
        Self { predecessor_until, ..self }
    }

    /// For a broker that owns runs: sets the link to the leader.
    #[must_use]
    pub fn with_leader(self, leader: LeaderLink) -> Self {
        self.sites.borrow_from_leader();
        let this = Self { leader: Some(leader), ..self };
        at_leader::set_up(&this);
        this
    }

    /// For a leader, and a broker that owns runs: sets the secret of its database.
    #[must_use]
    pub fn with_link_secret(self, secret: String) -> Self {
        Self { link_secret: Some(secret.into()), ..self }
    }

    /// Sets where spans go.
    #[must_use]
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        Self { telemetry, ..self }
    }

    /// Sets the package storage.
    #[must_use]
    pub fn with_packages(mut self, packages: Packages) -> Self {
        self.packages = Arc::new(packages);
        self
    }

    /// Sets the operator's limits for sites, and who resolves their names.
    #[must_use]
    pub fn with_sites(mut self, rules: Vec<SiteRule>, names: Names) -> Self {
        self.sites = Arc::new(Sites::new(rules, names, &self.times));
        self
    }

    /// Sets the limits for the requests of callbacks.
    #[must_use]
    pub fn with_outbound(mut self, outbound: Outbound) -> Self {
        self.outbound = Arc::new(outbound);
        self
    }

    /// Sets the registry. Call it once, before anything uses the registry.
    pub fn set_registry(&self, handle: RegistryHandle) {
        // A second registry in one context would be a bug in the startup code; the first one stays.
        let _ = self.registry.set(handle);
    }

    /// The registry.
    #[must_use]
    pub fn registry(&self) -> &RegistryHandle {
        self.registry.get().expect("the registry is set before anything uses it")
    }

    /// Signals an event that may cause an alert.
    pub fn alarm(&self) {
        self.alarms.notify_one();
    }

    /// The actor of an active run.
    ///
    /// # Errors
    /// The run does not exist, has ended, or its actor is being built.
    pub async fn at_work(&self, identity: Identity) -> Result<AtWork, Problem> {
        if let Some(at_work) = self.addresses.run(identity) {
            return Ok(at_work);
        }
        if self.addresses.building.get(identity).is_some() {
            // A run that another broker has just stored for this one may have been announced to clients already.
            return match self.leader {
                Some(_) => self.registry().start_run(identity).wait().await,
                None => Err(Problem::busy("the run's actor is starting; retry later")),
            };
        }
        let run = self.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        match run {
            None => Err(Problem::not_found(format!("there is no run {identity}"))),
            Some(run) if run.state.is_final() => Err(run_over(&run)),
            Some(run) => match self.elsewhere(&run) {
                Some(elsewhere) => Ok(AtWork::Elsewhere(elsewhere)),
                // The leader has taken it from this broker.
                None if run.owner.is_none() && self.leader.is_some() => Err(Problem::moving()),
                // Its actor has not been started yet: the run is queued, or the actor of its job crashed after it had stored the run.
                None => self.registry().start_run(identity).wait().await,
            },
        }
    }

    /// The handle of an active run that another broker executes; `None`: it belongs to this broker.
    #[must_use]
    pub fn elsewhere(&self, run: &Run) -> Option<Elsewhere> {
        let owner = run.owner.filter(|owner| *owner != self.brokers.me.id)?;
        Some(Elsewhere { identity: run.identity, kind: run.kind, owner, owners: self.run_owners.clone() })
    }

    /// The handle of an active run of a block job that another broker executes.
    #[must_use]
    pub fn block_run_elsewhere(&self, owner: BrokerId, identity: Identity) -> Elsewhere {
        Elsewhere { identity, kind: JobKind::Block, owner, owners: self.run_owners.clone() }
    }

    /// A run of a block job belongs to another broker.
    pub fn enter_elsewhere(&self, owner: BrokerId, identity: Identity) {
        self.addresses.elsewhere.put(identity, (owner, self.run_owners.block_run(owner, identity)));
    }

    /// The actor of an active run of a block job.
    ///
    /// # Errors
    /// As [`BrokerContext::at_work`], or the run has no queue.
    pub async fn run_at_work(&self, identity: Identity) -> Result<RunHandle, Problem> {
        match self.at_work(identity).await? {
            AtWork::Run(run) => Ok(run),
            // The run was given to another broker after the edge had read its owner.
            AtWork::Elsewhere(run) if run.kind == JobKind::Block => Err(Problem::moving()),
            _ => Err(Problem::conflict("no-queue", format!("run {identity} does not belong to a block job and has no queue"))),
        }
    }

    /// Waits for the answer of a run's actor. An actor that ends drops the messages that it has not read; if the reason is the end of
    /// the run, the problem says so.
    ///
    /// # Errors
    /// The answer is a problem, or it is lost: the run has ended, or its actor is being rebuilt.
    pub async fn answer_of<T>(&self, identity: Identity, answer: Answer<T>) -> Result<T, Problem> {
        if let Some(answer) = answer.arrives().await {
            return answer;
        }
        match self.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))? {
            Some(run) if run.state.is_final() => Err(run_over(&run)),
            _ => Err(Problem::busy("the run's actor is restarting; retry later")),
        }
    }

    /// Stops a run and stores the caller. It waits if the actor is being built or the run is about to be retried.
    ///
    /// # Errors
    /// The run does not exist or has ended.
    pub async fn stop_run(&self, identity: Identity, reason: String, by: Option<String>) -> Result<RunOutput, Problem> {
        let since = Instant::now();
        loop {
            let stopped = match self.at_work(identity).await {
                Ok(at_work) => at_work.stop(reason.clone(), by.clone()).wait().await,
                Err(problem) => Err(problem),
            };
            match stopped {
                Err(problem) if problem.status == 503 && since.elapsed() < STOP_PATIENCE => tokio::time::sleep(STOP_PAUSE).await,
                other => return other,
            }
        }
    }
}

fn run_over(run: &Run) -> Problem {
    Problem::conflict("run-over", format!("run {} is over: {}", run.identity, run.state.name()))
}
