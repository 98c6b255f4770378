//! What the actors of one broker share: the store, the settings, and the addresses of who lives where.

use super::address_map::AddressMap;
use super::alerts::AlertsHandle;
use super::allocator::AllocatorHandle;
use super::application::ApplicationHandle;
use super::brokers::Brokers;
use super::callback::{CallbackHandle, Outbound};
use super::dispatcher::DispatcherHandle;
use super::fleet::Fleet;
use super::followers::Followers;
use super::involved::RunsByPeer;
use super::job::JobHandle;
use super::lateness::Lateness;
use super::node::NodeHandle;
use super::packages::Packages;
use super::registry::RegistryHandle;
use super::reply::{Answer, problem_of};
use super::run::RunHandle;
use super::scheduler::SchedulerHandle;
use super::sites::Sites;
use super::supervision::{ActorStats, ChildKey};
use super::task::TaskHandle;
use super::worker::WorkerHandle;
use crate::config::alerts::AlertConfig;
use crate::config::keep::KeepConfig;
use crate::config::lease::LeaseConfig;
use crate::domain::ids::{Identity, JobId, NodeId, WorkerId};
use crate::domain::node::shown_name;
use crate::domain::run::RunState;
use crate::domain::sites::SiteRule;
use crate::domain::time::Timestamp;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;
use crate::store::{GetRun, Store};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a stop waits for the actor of its run, and how long between two looks.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// Times that the actors go by, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Between two heartbeats of a node.
    pub node_heartbeat: u64,
    /// Silence after which a node is lost.
    pub node_offline: u64,
    /// Between two heartbeats of a worker.
    pub worker_heartbeat: u64,
    /// Silence after which a worker is lost.
    pub worker_offline: u64,
    /// A peer whose socket closed may come back within this time and finds everything as it was.
    pub grace: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { node_heartbeat: 5_000, node_offline: 30_000, worker_heartbeat: 3_000, worker_offline: 10_000, grace: 3_000 }
    }
}

/// Who lives where. The registry writes it (runs keep the lists of their peers); a message may still come too late.
#[derive(Debug, Default)]
pub struct AddressBook {
    /// Runs of block jobs that are not over.
    pub runs: AddressMap<Identity, RunHandle>,
    /// Runs of other kinds that are not over.
    pub others: AddressMap<Identity, AtWork>,
    /// Runs that are not over and whose actor is being built, for the first time or anew.
    pub building: AddressMap<Identity, ()>,
    /// Nodes that are there, or were a moment ago.
    pub nodes: AddressMap<NodeId, NodeHandle>,
    /// The names of nodes that have connected since the broker began, for logs.
    pub node_names: AddressMap<NodeId, Arc<str>>,
    /// Which agents have the ids of nodes.
    pub node_owners: crate::actors::node::NodeOwners,
    /// Workers that are there, or were a moment ago.
    pub workers: AddressMap<WorkerId, WorkerHandle>,
    /// Jobs that have something to do.
    pub jobs: AddressMap<JobId, JobHandle>,
    /// Runs that have blocks at a node.
    pub runs_by_node: RunsByPeer<NodeId>,
    /// Runs that have work or results at a worker.
    pub runs_by_worker: RunsByPeer<WorkerId>,
    dispatcher: RwLock<Option<DispatcherHandle>>,
    allocator: RwLock<Option<AllocatorHandle>>,
    scheduler: RwLock<Option<SchedulerHandle>>,
    alerts: RwLock<Option<AlertsHandle>>,
    /// Everybody, for those who look on.
    pub actor_stats: ActorStats,
    watches: AtomicU64,
}

impl AddressBook {
    /// What a log line calls a node.
    #[must_use]
    pub fn node_name(&self, id: NodeId) -> Arc<str> {
        self.node_names.get(id).unwrap_or_else(|| shown_name(id, None).into())
    }

    /// Counts how often it changed who watches what: a choice among the workers holds as long as it has not.
    #[must_use]
    pub fn watches(&self) -> u64 {
        self.watches.load(Relaxed)
    }

    /// It changed who watches what.
    pub fn watches_changed(&self) {
        self.watches.fetch_add(1, Relaxed);
    }

    /// Says who the dispatcher is.
    pub fn set_dispatcher(&self, handle: DispatcherHandle) {
        *self.dispatcher.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// The dispatcher, if it lives.
    #[must_use]
    pub fn dispatcher(&self) -> Option<DispatcherHandle> {
        self.dispatcher.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says who gives tasks to workers.
    pub fn set_allocator(&self, handle: AllocatorHandle) {
        *self.allocator.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// Who gives tasks to workers, if it lives.
    #[must_use]
    pub fn allocator(&self) -> Option<AllocatorHandle> {
        self.allocator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says who the scheduler is.
    pub fn set_scheduler(&self, handle: SchedulerHandle) {
        *self.scheduler.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// The scheduler, if it lives.
    #[must_use]
    pub fn scheduler(&self) -> Option<SchedulerHandle> {
        self.scheduler.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says who sends alerts.
    pub fn set_alerts(&self, handle: AlertsHandle) {
        *self.alerts.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    }

    /// Who sends alerts, if it lives.
    #[must_use]
    pub fn alerts(&self) -> Option<AlertsHandle> {
        self.alerts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The actor of a run that is not over, by the kind of its work.
#[derive(Debug, Clone)]
pub enum AtWork {
    /// Blocks.
    Run(RunHandle),
    /// A request.
    Callback(CallbackHandle),
    /// Programs.
    Application(ApplicationHandle),
    /// A task on a worker.
    Task(TaskHandle),
}

impl AtWork {
    /// Under which key the registry knows it.
    #[must_use]
    pub fn key(&self, identity: Identity) -> ChildKey {
        match self {
            Self::Run(_) => ChildKey::Run(identity),
            Self::Callback(_) => ChildKey::Callback(identity),
            Self::Application(_) => ChildKey::Application(identity),
            Self::Task(_) => ChildKey::Task(identity),
        }
    }

    /// Ends it, and keeps who wanted it.
    #[must_use]
    pub fn stop(&self, reason: String, by: Option<String>) -> Answer<RunOutput> {
        match self {
            Self::Run(run) => run.stop(reason, by),
            Self::Callback(callback) => callback.stop(reason, by),
            Self::Application(application) => application.stop(reason, by),
            Self::Task(task) => task.stop(reason, by),
        }
    }

    /// It is not to begin, if it was made ahead of its time and has not begun; whether that is so.
    pub async fn withdraw(&self) -> bool {
        let answer = match self {
            Self::Run(run) => run.withdraw(),
            Self::Task(task) => task.withdraw(),
            // None is made ahead of its time.
            Self::Callback(_) | Self::Application(_) => return false,
        };
        answer.wait().await.unwrap_or(false)
    }

    /// If it waits for its turn, it is to look whether that has come.
    pub fn check_queue(&self) {
        match self {
            Self::Run(run) => run.check_queue(),
            Self::Callback(callback) => callback.check_queue(),
            Self::Application(application) => application.check_queue(),
            Self::Task(task) => task.check_queue(),
        }
    }
}

/// Numbers that somebody may want to see.
#[derive(Debug, Default)]
pub struct Counts {
    planned_jobs: AtomicU64,
    fires: [AtomicU64; VERDICTS.len()],
    ended: [AtomicU64; ENDS.len()],
    results_lost: AtomicU64,
}

/// What may become of a planned instant.
pub const VERDICTS: [&str; 4] = ["fired", "skipped", "missed", "merged"];
/// How a run may end.
pub const ENDS: [RunState; 3] = [RunState::Success, RunState::Failed, RunState::Stopped];

impl Counts {
    /// So many jobs stand in the agenda.
    pub fn planned_jobs(&self, count: usize) {
        self.planned_jobs.store(count as u64, Relaxed);
    }

    /// So many planned instants got this verdict.
    pub fn fired(&self, verdict: &str, instants: u64) {
        if let Some(i) = VERDICTS.iter().position(|name| *name == verdict) {
            self.fires[i].fetch_add(instants, Relaxed);
        }
    }

    /// Planned instants by verdict, since the start.
    #[must_use]
    pub fn fires(&self) -> [(&'static str, u64); VERDICTS.len()] {
        std::array::from_fn(|i| (VERDICTS[i], self.fires[i].load(Relaxed)))
    }

    /// A run ended so.
    pub fn ended(&self, state: RunState) {
        if let Some(i) = ENDS.iter().position(|end| *end == state) {
            self.ended[i].fetch_add(1, Relaxed);
        }
    }

    /// Runs that ended, by how, since the start.
    #[must_use]
    pub fn ends(&self) -> [(RunState, u64); ENDS.len()] {
        std::array::from_fn(|i| (ENDS[i], self.ended[i].load(Relaxed)))
    }

    /// The results of a block were lost.
    pub fn results_lost(&self) {
        self.results_lost.fetch_add(1, Relaxed);
    }

    /// Blocks whose results were lost, since the start.
    #[must_use]
    pub fn lost_results(&self) -> u64 {
        self.results_lost.load(Relaxed)
    }

    /// Jobs in the agenda.
    #[must_use]
    pub fn agenda(&self) -> u64 {
        self.planned_jobs.load(Relaxed)
    }
}

/// What the actors of one broker share.
#[derive(Clone)]
pub struct BrokerContext {
    /// The store.
    pub store: Store,
    /// Who lives where.
    pub addresses: Arc<AddressBook>,
    /// Times that the actors go by.
    pub times: Times,
    /// When the broker started.
    pub since: Timestamp,
    /// The same, as its steady clock has it.
    pub began: Timestamp,
    /// What was there before this broker.
    pub before: Arc<super::before::Before>,
    /// How late fires are.
    pub lateness: Arc<Lateness>,
    /// Numbers that somebody may want to see.
    pub counts: Arc<Counts>,
    /// Rings when there is an event that somebody may want to hear of.
    pub alarms: Arc<Notify>,
    /// How word of events leaves the broker.
    pub alerts: Arc<AlertConfig>,
    /// How much of the past is kept.
    pub keep: KeepConfig,
    /// What the requests of callbacks share.
    pub outbound: Arc<Outbound>,
    /// Who waits for more of the logs of runs, and how much these hold.
    pub followers: Arc<Followers>,
    /// What each node has room for.
    pub fleet: Arc<Fleet>,
    /// Whose turn it is at which site.
    pub sites: Arc<Sites>,
    /// The packages that the broker keeps.
    pub packages: Arc<Packages>,
    /// What the broker knows of who leads.
    pub brokers: Arc<Brokers>,
    /// Milliseconds without a sign of the leader after which others take over.
    pub lease_ms: u64,
    registry: Arc<OnceLock<RegistryHandle>>,
}

impl std::fmt::Debug for BrokerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("context")
    }
}

impl BrokerContext {
    /// A context in which nobody lives yet, of this broker.
    #[must_use]
    pub fn new(store: Store, times: Times, brokers: Arc<Brokers>) -> Self {
        Self {
            store,
            addresses: Arc::default(),
            times,
            since: Timestamp::now(),
            began: Timestamp::steady(),
            before: Arc::default(),
            lateness: Arc::default(),
            counts: Arc::default(),
            alarms: Arc::default(),
            alerts: Arc::default(),
            keep: KeepConfig::default(),
            outbound: Arc::default(),
            followers: Arc::default(),
            fleet: Arc::default(),
            sites: Arc::new(Sites::new(Vec::new(), &times)),
            packages: Arc::default(),
            brokers,
            lease_ms: LeaseConfig::default().ttl_ms,
            registry: Arc::default(),
        }
    }

    /// The same with other settings than the usual.
    #[must_use]
    pub fn with_settings(self, alerts: AlertConfig, keep: KeepConfig) -> Self {
        Self { alerts: Arc::new(alerts), keep, ..self }
    }

    /// With a lease of so many milliseconds.
    #[must_use]
    pub fn with_lease(self, lease_ms: u64) -> Self {
        Self { lease_ms, ..self }
    }

    /// With packages.
    #[must_use]
    pub fn with_packages(mut self, packages: Packages) -> Self {
        self.packages = Arc::new(packages);
        self
    }

    /// With the operator's limits for sites.
    #[must_use]
    pub fn with_site_rules(mut self, rules: Vec<SiteRule>) -> Self {
        self.sites = Arc::new(Sites::new(rules, &self.times));
        self
    }

    /// With these bounds for the requests of callbacks.
    #[must_use]
    pub fn with_outbound(mut self, outbound: Outbound) -> Self {
        self.outbound = Arc::new(outbound);
        self
    }

    /// The registry moves in, first and once.
    pub fn set_registry(&self, handle: RegistryHandle) {
        // A second registry in one context would be a bug at the boot; the first one stays.
        let _ = self.registry.set(handle);
    }

    /// The registry.
    #[must_use]
    pub fn registry(&self) -> &RegistryHandle {
        self.registry.get().expect("the registry moves in before anybody asks for it")
    }

    /// The dispatcher, if it lives.
    #[must_use]
    pub fn dispatcher(&self) -> Option<DispatcherHandle> {
        self.addresses.dispatcher()
    }

    /// Who gives tasks to workers, if it lives.
    #[must_use]
    pub fn allocator(&self) -> Option<AllocatorHandle> {
        self.addresses.allocator()
    }

    /// The scheduler, if it lives.
    #[must_use]
    pub fn scheduler(&self) -> Option<SchedulerHandle> {
        self.addresses.scheduler()
    }

    /// There is an event that somebody may want to hear of.
    pub fn alarm(&self) {
        self.alarms.notify_one();
    }

    /// The actor of a run that is not over.
    ///
    /// # Errors
    /// There is none, it is over, or its actor is being built.
    pub async fn at_work(&self, identity: Identity) -> Result<AtWork, Problem> {
        if let Some(handle) = self.addresses.runs.get(identity) {
            return Ok(AtWork::Run(handle));
        }
        if let Some(at_work) = self.addresses.others.get(identity) {
            return Ok(at_work);
        }
        if self.addresses.building.get(identity).is_some() {
            return Err(Problem::busy("the run's actor is being built"));
        }
        let run = self.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        match run {
            None => Err(Problem::not_found(format!("there is no run {identity}"))),
            Some(run) if run.state.is_final() => {
                Err(Problem::conflict("run-over", format!("run {identity} is over: {}", run.state.name())))
            }
            // It waits for its turn, and nobody has needed its actor.
            Some(run) if run.is_queued() => self.registry().start_run(identity).wait().await,
            Some(_) => Err(Problem::busy("the run's actor is being built")),
        }
    }

    /// The actor of a run of a block job that is not over.
    ///
    /// # Errors
    /// As [`BrokerContext::at_work`], or the run has no queue.
    pub async fn run_at_work(&self, identity: Identity) -> Result<RunHandle, Problem> {
        match self.at_work(identity).await? {
            AtWork::Run(run) => Ok(run),
            _ => Err(Problem::conflict("no-queue", format!("run {identity} is of no block job: it has no queue"))),
        }
    }

    /// Ends a run, and keeps who wanted it. One whose actor is being built, or is about to be tried again, is waited for: it would go on.
    ///
    /// # Errors
    /// There is none, or it is over.
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
